"""What a request asks a stream for: from which offset on, and whether it waits.

An offset is a position, written in one way only. The same question can be written in many ways, and
for a cache each is another one: so one way is canonical, that of the official clients.
"""

from enum import Enum
from typing import Literal, NamedTuple

from rsnotify.access.query import STREAM_QUESTION, Query, filter_of, parse_query, single
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import Kind, canonical_query

Live = Literal["long-poll", "sse"]
LIVE: tuple[Live, ...] = ("long-poll", "sse")
CURSOR_DIGITS = 18  # of microseconds: those of the next thirty thousand years


class Sentinel(Enum):
    """Offsets that are no positions."""

    BEGINNING = "-1"  # of what is kept
    NOW = "now"


Offset = Position | Sentinel


class StreamQuestion(NamedTuple):
    """What is asked of a stream."""

    offset: Offset
    live: Live | None
    cursor: int | None  # of the answer before
    is_canonical: bool
    """Whether it is written as the official clients write it."""

    filter: Filter | None = None


def parse_stream_question(text: bytes, kind: Kind = "change") -> StreamQuestion:
    """What the query of an address asks for; `Rejected` if it is no question."""
    query = parse_query(text, STREAM_QUESTION)
    offset, live = single(query, "offset"), single(query, "live")
    if live is not None and live not in LIVE:
        raise Rejected(f"live is {live[:80]!r}: it must be long-poll or sse")
    if live is not None and offset is None:
        raise Rejected(
            f"live={live} needs an offset: offset=-1 is the beginning, offset=now the end"
        )
    found = Sentinel.BEGINNING if offset is None else parse_offset(offset)
    cursor = _parse_cursor(single(query, "cursor"))
    return StreamQuestion(found, live, cursor, text == canonical(query), filter_of(query, kind))


def canonical(query: Query) -> bytes:
    """The query in the order and the encoding in which the official clients send it."""
    return canonical_query((name, each) for name, values in query.items() for each in values)


def parse_offset(text: str) -> Offset:
    """A position as a stream has given it, or `-1` or `now`.

    >>> parse_offset("now")
    <Sentinel.NOW: 'now'>
    """
    if text in ("-1", "now"):
        return Sentinel(text)
    try:
        found = Position.parse(text)
    except (ValueError, OverflowError):
        found = None
    if found is None or str(found) != text:
        raise Rejected(
            f"offset is {text[:80]!r}: send one that this stream has given "
            "(Stream-Next-Offset), or -1 for the beginning, or now"
        )
    return found


def _parse_cursor(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= CURSOR_DIGITS):
        raise Rejected(f"cursor is {text[:80]!r}: send back what Stream-Cursor has said")
    return int(text)
