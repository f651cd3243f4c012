"""A load: the whole state of a set, as its Source brings it, compared with what the hub knows.

Decides what is the same, what the differences are, and whether so much may be deleted.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from operator import add
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs

import msgspec

from rsnotify.access.query import parse_query, single
from rsnotify.documents.documents import render_resources
from rsnotify.errors import Rejected
from rsnotify.journal.submission import Fragment
from rsnotify.resourcesync.change import Change, ChangeKind, Position
from rsnotify.resourcesync.delete_guard import MAX_DELETE, too_many
from rsnotify.resourcesync.notification import (
    HOLE,
    KIND,
    KIND_AND_CHANGEFREQ,
    KIND_AND_PRIORITY,
    LOC,
    LOC_END,
    render_forms,
    spell_out_each,
)

NAMED = 100  # differences that a comparison names
PUBLISHED_CHANGES = 500  # at once: other Sources wait for no more
PUBLISHED_BYTES = 1024 * 1024

_LASTMOD = re.compile(rb"<lastmod>([^<]*)</lastmod>")
_DELETED = render_forms(Change("", "deleted"))[1][len(LOC) :]


class Difference(NamedTuple):
    """One resource that the load would create, update or delete."""

    change: str
    loc: bytes  # escaped, as in all of the state
    rest: bytes  # of the short form, from `</loc>` on; nothing if it is deleted


class LoadCounts(msgspec.Struct, frozen=True):
    """How much a load creates, updates and deletes."""

    resources: int = 0
    known: int = 0
    created: int = 0
    updated: int = 0
    deleted: int = 0
    newer: int = 0  # differences that stay: they were published after the moment of the load

    def plus(self, other: Self) -> Self:
        return type(self)(*map(add, *map(msgspec.structs.astuple, (self, other))))

    @property
    def differs(self) -> bool:
        """Whether the load would change anything."""
        return self.created + self.updated + self.deleted > 0

    @property
    def unchanged(self) -> int:
        return self.resources - self.created - self.updated

    def as_answered(self) -> dict[str, int]:
        """The counts as a Source gets them."""
        return msgspec.structs.asdict(self) | {"unchanged": self.unchanged}


def too_many_deleted(found: LoadCounts, max_delete: float) -> str | None:
    """Why this load is refused, if it deletes more than its Source has allowed."""
    refusal = too_many(found.deleted, found.known, max_delete)
    return refusal and f"this would delete {refusal}"


def check_deletions(found: LoadCounts, max_delete: float) -> None:
    refusal = too_many_deleted(found, max_delete)
    if refusal is not None:
        raise Rejected(refusal, status=409)


def is_same(loc: bytes, kept: bytes, rest: bytes) -> bool:
    """Whether a brought resource is the same as the known one.

    A lastmod that is not brought is not compared. Where none was published, the position is it.
    """
    known = render_resources([(loc, kept)])
    brought = render_resources([(loc, b"0" + rest)])
    if rest.startswith(LOC_END + HOLE):
        known, brought = _LASTMOD.sub(b"", known, 1), _LASTMOD.sub(b"", brought, 1)
    return known == brought


def fragments_of(
    differences: Iterable[Difference], load: str, most_bytes: int = PUBLISHED_BYTES
) -> list[Fragment]:
    """The changes that are published at once: one at least.

    They yield to whatever was published since the load began.
    """
    chosen, shorts, size = list[Difference](), list[bytes](), 0
    for each in differences:
        chosen.append(each)
        shorts.append(_short(each))
        size += len(shorts[-1])
        if size > most_bytes:  # it is more in XML: what follows is not worth spelling out
            break
    fragments, size = list[Fragment](), 0
    for each, short, xml in zip(chosen, shorts, spell_out_each(shorts), strict=True):
        fragments.append(Fragment(0, each.change == "deleted", short, xml, load))
        size += len(xml)
        if size > most_bytes:
            break
    return fragments


def _short(difference: Difference) -> bytes:
    change, loc, rest = difference
    ending = _DELETED if change == "deleted" else rest.translate(_CHANGED_TO[change])
    return b"".join((LOC, loc, ending))


def _change_to(kind: ChangeKind) -> bytes:
    """A table that turns every kind of change into this one."""
    places = (KIND, KIND_AND_CHANGEFREQ, KIND_AND_PRIORITY)
    before = "".join(short for shorts in places for short in shorts.values())
    after = "".join(shorts[kind] * len(shorts) for shorts in places)
    return bytes.maketrans(before.encode(), after.encode())


_CHANGED_TO = {kind: _change_to(kind) for kind in ("created", "updated")}


class LoadOptions(msgspec.Struct, frozen=True):
    """The options of a load."""

    publish: bool | None = None  # None: unless the set was empty
    dry_run: bool = False
    max_delete: float = MAX_DELETE  # percent
    as_of: Position | None = None  # the moment of the state that is brought
    overwrite: bool = False  # what was published since the load before

    def publishes(self, known: int) -> bool:
        """Whether the differences are published, in a set of which so many resources are known."""
        return known > 0 if self.publish is None else self.publish


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError("yes or no")
    return text == "yes"


def parse_as_of(text: str) -> Position:
    """A position as the hub gave it."""
    try:
        return Position.parse(text)
    except ValueError:
        raise ValueError("a position that the hub gave") from None


_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def _parse_percent(text: str) -> float:
    if _NUMBER.fullmatch(text) is None or float(text) > 100:
        raise ValueError("a number of percent from 0 to 100")
    return float(text)


_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "publish": _yes_or_no,
    "dry_run": _yes_or_no,
    "max_delete": _parse_percent,
    "as_of": parse_as_of,
    "overwrite": _yes_or_no,
}


def read_options(query: bytes) -> LoadOptions:
    """The options; `Rejected` for one that is unknown or cannot be understood."""
    if "tell" in parse_qs(query.decode("latin-1"), keep_blank_values=True):
        raise Rejected("the parameter `tell` is called `publish`: send publish=yes or publish=no")
    asked = parse_query(query, tuple(_OPTIONS))
    return LoadOptions(**{name: _read(name, single(asked, name) or "") for name in asked})


def moment_of(options: LoadOptions, brought: Position | None) -> Position | None:
    """The moment of the state, from the address or from the body; `Rejected` if they contradict."""
    if None not in (options.as_of, brought) and options.as_of != brought:
        raise Rejected(
            f"as_of is {options.as_of} in the address and {brought} in the body: send one of them"
        )
    as_of = brought if options.as_of is None else options.as_of
    if as_of is not None and options.overwrite:
        raise Rejected(
            "as_of leaves what was published after it as it is, and overwrite takes it back: send "
            "one of them"
        )
    return as_of


def _read(name: str, text: str) -> Any:
    try:
        return _OPTIONS[name](text)
    except ValueError as error:
        raise Rejected(f"{name} is {text[:80]!r}: it must be {error}") from None
