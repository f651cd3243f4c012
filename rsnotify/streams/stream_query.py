"""What a request asks a stream for: from which offset on, and whether it waits.

An offset is a position, written in one way only. The same question can be written in many ways, and
for a cache each is another one: so two ways count, the one that the protocol wants, and the one of
its released clients.
"""

from enum import Enum
from typing import Literal, NamedTuple

from rsnotify.access.query import STREAM_QUESTION, Query, filter_of, parse_query, single
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import Kind, form_query

Live = Literal["long-poll", "sse"]
LIVE: tuple[Live, ...] = ("long-poll", "sse")
APPENDED = ("offset", "live", "cursor")
"""What clients of TypeScript (0.2.7) and Python (0.1.0) append to an address, in this order."""

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
    """Whether it is written in a way that caches may share."""

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
    return StreamQuestion(found, live, cursor, text in canonical(query), filter_of(query, kind))


def canonical(query: Query) -> tuple[bytes, bytes]:
    """The query with its parameters sorted, and with those at its end that clients append."""
    pairs = sorted((name, each) for name, values in query.items() for each in values)
    given = [pair for pair in pairs if pair[0] not in APPENDED]
    appended = [(name, each) for name in APPENDED for each in query.get(name, ())]
    return form_query(pairs), form_query([*given, *appended])


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
