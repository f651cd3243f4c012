"""A resource as a Source describes it, and the digests that what is fetched is checked against."""

import hashlib
from typing import Any

import msgspec

from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.values import HASH_DIGITS

CONSTRUCTORS = {
    name: getattr(hashlib, name.replace("sha-", "sha")) for name in reversed(HASH_DIGITS)
}
"""By the specification's names, strongest first."""


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
