"""A change (`Change`, `Link`) and its place in the journal (`Position`).

A `Change` has exactly the fields of the publish format. A position is a whole number of
microseconds since 1970 UTC; as text it is the `datetime` of the specification.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Self

import msgspec

MICROSECONDS = 1_000_000

# With its zone, a time in the first or last hours of the calendar can lie outside it.
EARLIEST_SECOND = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
LATEST_SECOND = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())

_FULL_DATETIME = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d)(:\d\d)?(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII
)


def render_datetime(microseconds: int) -> str:
    """`2026-11-20T21:34:00.123456Z`: always UTC, always six digits, so texts sort like numbers."""
    return f"{_second(microseconds // MICROSECONDS)}.{microseconds % MICROSECONDS:06d}Z"


def render_datetime_bytes(microseconds: int) -> bytes:
    """The same as bytes, faster than by encoding the text: every change that is sent has one."""
    return b"%b.%06dZ" % (
        _second_bytes(microseconds // MICROSECONDS),
        microseconds % MICROSECONDS,
    )


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]  # strftime has years of 3 digits


@lru_cache(maxsize=4096)
def _second_bytes(seconds: int) -> bytes:
    return _second(seconds).encode()


class Position(int):
    """A place in a journal: the `datetime` of the change that stands there.

    >>> Position.parse("2026-11-20T21:34:00.123456Z").stream_id
    '1795210440123-456'
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a full W3C datetime with its zone; digits finer than a microsecond are cut."""
        found = _FULL_DATETIME.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a full datetime such as 2026-11-20T21:34:00.123456Z")
        minute, second, fraction, zone = found.groups()
        moment = datetime.fromisoformat(minute + (second or ":00") + zone.replace("Z", "+00:00"))
        seconds = int(moment.timestamp())
        if not EARLIEST_SECOND <= seconds <= LATEST_SECOND:
            raise ValueError(f"{text!r} is outside the years 1 to 9999")
        return cls(seconds * MICROSECONDS + int(((fraction or "") + "000000")[:6]))

    @property
    def stream_id(self) -> str:
        at = max(0, self)  # a stream id is never negative
        return f"{at // 1000}-{at % 1000}"

    __str__ = render_datetime

    def __repr__(self) -> str:
        return f"Position({render_datetime(self)})"


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One `rs:ln`: a resource that stands in relation `rel` to the one that changed."""

    rel: str
    href: str
    modified: str | None = None
    hash: str | None = None
    length: int | None = None
    type: str | None = None
    pri: int | None = None
    path: str | None = None
    encoding: str | None = None
    profile: str | None = None


Priority = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One `<url>` entry: the resource at `loc` was created, updated or deleted.

    `capability` and `index` belong to framework changes: what kind of document changed, and the
    index it resides under.

    This is the table of what may be said of a resource: a new attribute is a row here, and its rule
    one in `values`. Readers and writers of every form go by it.
    """

    loc: str
    change: str
    lastmod: str | None = None
    datetime: str | None = None
    hash: str | None = None
    length: int | None = None
    type: str | None = None
    encoding: str | None = None
    changefreq: str | None = None
    priority: Priority | None = None
    links: tuple[Link, ...] = ()
    capability: str | None = None
    index: str | None = None


ELEMENTS = ("loc", "lastmod", "changefreq", "priority")
"""What is an element of its own in an entry, in the order of the schema."""

ATTRIBUTES = tuple(
    name for name in Change.__struct_fields__ if name not in (*ELEMENTS, "links", "index")
)
"""What stands in its `rs:md`."""

OF_A_CHANGE = ("change", "datetime", "capability", "index")
"""What says how and when a resource changed; the others describe the resource."""

USUAL = ("loc", "change", "lastmod", "datetime", "hash", "length", "type")
"""What nearly every change has, and no more: it is judged and written sooner than the others."""

_unusual = attrgetter(*(name for name in Change.__struct_fields__ if name not in USUAL))
_NOTHING_UNUSUAL = _unusual(Change("", ""))


def is_usual(change: Change) -> bool:
    """Whether it has none but the usual fields."""
    found: bool = _unusual(change) == _NOTHING_UNUSUAL
    return found
