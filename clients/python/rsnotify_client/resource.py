"""A resource as a Source describes it, and the digests that what is fetched is checked against."""

import hashlib
from typing import Any

import msgspec

from rsnotify.resourcesync.change import HASH_DIGITS, Link

CONSTRUCTORS = {
    name: getattr(hashlib, name.replace("sha-", "sha")) for name in reversed(HASH_DIGITS)
}
"""The digests by the names of the specification, strongest first."""


class SourceResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resource as the Source has it."""

    loc: str
    change: str = "updated"
    lastmod: str | None = None
    length: int | None = None
    hash: str | None = None
    type: str | None = None
    links: tuple[Link, ...] = ()
    position: int | None = None  # when it changed, if a change said so
    is_live: bool = False  # whether a channel said so, when it happened

    @property
    def is_deleted(self) -> bool:
        return self.change == "deleted"


def digests(text: str | None) -> dict[str, str]:
    """The digests that can be checked, strongest first: by name, in lower-case hexadecimal."""
    if not text:
        return {}
    name, _, value = text.partition(":")
    if HASH_DIGITS.get(name) == len(value) and value.isalnum():  # as most are
        return {name: value.lower()}
    given = dict(token.split(":", 1) for token in text.split() if ":" in token)
    return {
        name: given[name].lower()
        for name in CONSTRUCTORS
        if name in given and len(given[name]) == HASH_DIGITS[name]
    }


def checker(text: str | None) -> tuple[str, Any, str] | None:
    """The strongest digest as name, hash object and what it must be in the end."""
    for name, value in digests(text).items():
        return name, CONSTRUCTORS[name](usedforsecurity=False), value
    return None


class Check:
    """Checks the bytes of a resource, as they come, against its stated length and digest.

    >>> check = Check(3, None)
    >>> check.update(b"ab")
    >>> check.problem()
    'it has 2 bytes, 3 were stated'
    """

    def __init__(self, length: int | None, digest: str | None) -> None:
        self.length = 0
        self._stated = length
        found: tuple[str, Any, str] = checker(digest) or ("", None, "")
        self._name, self._digest, self._expected = found

    @property
    def has_digest(self) -> bool:
        return self._digest is not None

    def update(self, piece: bytes | memoryview) -> None:
        self.length += len(piece)
        if self._digest is not None:
            self._digest.update(piece)

    def problem(self) -> str | None:
        """How it differs from what was stated."""
        if self._stated not in (None, self.length):
            size = f"{self.length} byte{'' if self.length == 1 else 's'}"
            return f"it has {size}, {self._stated} were stated"
        if self._digest is not None and (found := self._digest.hexdigest()) != self._expected:
            return f"its {self._name} is {found}, {self._expected} was stated"
        return None
