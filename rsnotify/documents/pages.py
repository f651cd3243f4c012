"""Pages of Change Lists: some changes after a position, or up to one.

How far a page reaches is read before its answer begins, because the head of the list says it. A
page ends where its entries take too many bytes, and the next page goes on there. It never changes
unless it reaches the newest change. Its entries are read again as they are sent: for a peer that
reads slowly, or not at all, one piece of them is in memory and not the page.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import time
from typing import NamedTuple
from urllib.parse import urlencode
from zlib import crc32

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from rsnotify.access.query import (
    Query,
    check_not_future,
    parse_moment,
    parse_start,
    single,
    whole_number,
)
from rsnotify.documents.documents import ListHead, Neighbours, change_list_head, open_list
from rsnotify.documents.responses import ByteStream, RequestedSet
from rsnotify.documents.stretches import NOBODY, READ_CHANGES, ReadTurns, chosen
from rsnotify.errors import Rejected, Trimmed, TryAgain
from rsnotify.journal.window import (
    STRETCH_CHANGES,
    JournalRecord,
    Span,
    Stretch,
    Window,
    whole_from,
)
from rsnotify.live.reading import History
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.change_filter import FILTER, Filter
from rsnotify.resourcesync.notification import ChannelName, Row, change_list_index, render_rows
from rsnotify.single_flight import WAIT_SECONDS, AtOnce

FULL = "too many others ask for pages; try again later"
LOST = "changes that followed this position are lost; what is kept begins at {}"
PAGE_BYTES = 8 * 1024 * 1024
PIECE_BYTES = 64 * 1024
PAGES_AT_ONCE = 4  # whose ends are looked for: that reads up to 8 MiB without a pause

ReadOn = Callable[[Position | None, int], Awaitable[Sequence[Row]]]
"""Reads so many rows after the one at this position, or the first ones."""


class PageBounds(NamedTuple):
    """The part of a journal that is read in pages."""

    from_: Position
    end: Position  # of a closed list, or the newest change
    begin: Position  # of a page that names no position
    last: Position  # whatever comes later is after it
    changed: Position  # when, by the clock of Redis
    is_open: bool = True
    is_cut: bool = False  # older changes are no longer kept


def bounds_of(span: Span) -> PageBounds:
    """The bounds of everything that is kept; pages begin with the open list."""
    record, from_ = span.record, whole_from(span)
    return PageBounds(
        from_,
        end=record.head,
        begin=record.window_from,
        last=record.last,
        changed=record.changed,
        is_cut=from_ > record.created,
    )


def bounds_within(found: JournalRecord | Window) -> PageBounds:
    """The bounds of one list, open or closed."""
    if isinstance(found, Window):
        from_, end = found.from_, found.until
        return PageBounds(from_, end, begin=from_, last=end, changed=found.closed, is_open=False)
    from_, end = found.window_from, max(found.head, found.window_from)
    return PageBounds(from_, end, begin=from_, last=found.last, changed=found.changed)


class Extent(NamedTuple):
    """Which rows a page has, in the order in which they are read, and what is beyond them."""

    first: Position | None  # None if there are no rows
    last: Position | None
    beyond: Position | None  # the next row, if there is one
    rows: int  # how many, the next one included
    size: int  # bytes of their fragments


class ListPage(NamedTuple):
    """What one page covers; without `until` it reaches the newest change."""

    from_: Position
    until: Position | None
    newest: Position  # its last entry
    size: int  # bytes of what was read
    piece_changes: int  # that are read and sent at once
    has_before: bool
    has_after: bool


class Pages:
    """Reads pages of any set, and answers with them."""

    def __init__(
        self,
        history: History,
        most: int,
        *,
        page_bytes: int = PAGE_BYTES,
        read_changes: int = READ_CHANGES,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._history = history
        self._most = most
        self._page_bytes, self._read_changes = page_bytes, read_changes
        self.are_short = most < STRETCH_CHANGES
        """Whether the operator wants shorter answers to `?from=` than a stretch may be."""
        self._made = AtOnce(PAGES_AT_ONCE, FULL, wait_seconds)
        self._reads = ReadTurns()

    async def respond(
        self,
        requested: RequestedSet,
        bounds: PageBounds,
        path: str,
        asked: Query,
        filter_: Filter | None,
    ) -> Response:
        async with self._made.turn():
            page = await self._page(requested, bounds, asked)
        pages = neighbours(path, page, kept_query(requested.request))
        end = bounds.end if page.until is None else page.until
        head = list_head(requested, Stretch(page.from_, page.until), end, pages, filter_)
        tag = f"{int(page.from_):x}-{int(end):x}-{page.size:x}"
        tag += f"-{page.until is None:d}{page.has_before:d}{page.has_after:d}"
        tag += "" if bounds.is_open else f"-{int(bounds.changed):x}"  # when the list was closed
        entries = partial(self._entries, requested.name, page, requested.request.scope)
        if filter_ is not None:
            tag, entries = tag + tag_of(filter_), partial(chosen, entries, filter_)
        return await requested.list(head, tag, bounds.changed, entries)

    async def _page(self, requested: RequestedSet, bounds: PageBounds, asked: Query) -> ListPage:
        after, until = parse_start(asked), single(asked, "until")
        if after is not None and until is not None:
            raise Rejected("a page has `from` or `until`: leave one of them out")
        count = whole_number(asked, "limit", 1, self._most, self._most)
        place = _place(after, until, bounds)
        if place < bounds.from_ and bounds.is_cut:
            raise gone(requested)
        turn = self.after if until is None else self.before
        return await turn(requested.name, max(place, bounds.from_), bounds, count)

    async def after(self, set_name: str, at: Position, bounds: PageBounds, limit: int) -> ListPage:
        """The changes after a position."""
        channel, cursor = ChannelName(set_name, "change"), min(at, bounds.last)

        async def read(reached: Position | None, wanted: int) -> Sequence[Row]:
            return await self._read(channel, reached or cursor, bounds.end, wanted)

        found = await self._extent(read, limit)
        newest = found.last or cursor
        before = await self._back(channel, cursor, bounds, 1)
        end = None if bounds.is_open else bounds.end
        until = end if found.beyond is None else newest
        has_after = found.beyond is not None
        piece = _piece_changes(found)
        return ListPage(cursor, until, newest, found.size, piece, bool(before), has_after)

    async def before(self, set_name: str, at: Position, bounds: PageBounds, limit: int) -> ListPage:
        """The last changes up to a position."""
        channel, until = ChannelName(set_name, "change"), min(at, bounds.last)

        async def read(reached: Position | None, wanted: int) -> Sequence[Row]:
            """Newest first, as the pages are turned."""
            before = until if reached is None else Position(reached - 1)
            return (await self._back(channel, before, bounds, wanted))[::-1]

        found = await self._extent(read, limit)
        from_ = bounds.from_ if found.beyond is None else found.beyond
        newest = found.first or from_
        has_after = until < bounds.end
        end = until if has_after or not bounds.is_open else None
        piece, has_before = _piece_changes(found), found.beyond is not None
        return ListPage(from_, end, newest, found.size, piece, has_before, has_after)

    async def _extent(self, read: ReadOn, limit: int) -> Extent:
        """The extent of a page with so many rows at most."""
        count = size = 0
        first: Position | None = None
        ends: deque[Position] = deque(maxlen=2)
        while count <= limit and size < self._page_bytes:
            wanted = min(limit + 1 - count, self._read_changes)
            found = await read(ends[-1] if ends else None, wanted)
            if first is None and found:
                first = found[0][0]
            ends.extend(at for at, _ in found)
            count += len(found)
            size += sum(len(fragment) for _, fragment in found)
            if len(found) < wanted:
                return Extent(first, ends[-1] if ends else None, None, count, size)
        return Extent(first, ends[0], ends[1], count, size)

    async def _entries(self, set_name: str, page: ListPage, scope: Scope) -> ByteStream:
        cursor = page.from_
        while cursor < page.newest:
            piece, cursor = await self._piece(set_name, cursor, page, scope)
            yield piece
            scope = NOBODY

    async def _piece(
        self, set_name: str, cursor: Position, page: ListPage, scope: Scope
    ) -> tuple[bytes, Position]:
        channel = ChannelName(set_name, "change")
        async with self._reads.turn(scope):
            rows = await self._read(channel, cursor, page.newest, page.piece_changes)
            if not rows:
                raise TryAgain("the journal has changed meanwhile; repeat the request")
            return render_rows(rows), rows[-1][0]

    async def _read(
        self, channel: ChannelName, after: Position, until: Position, count: int
    ) -> Sequence[Row]:
        try:
            return await self._history.read(channel, after, until=until, count=count)
        except Trimmed as trimmed:
            raise Rejected(LOST.format(Position(trimmed.first)), status=410) from None

    async def _back(
        self, channel: ChannelName, until: Position, bounds: PageBounds, count: int
    ) -> list[Row]:
        rows = await self._history.read_back(channel, until, count)
        return [row for row in rows if row[0] > bounds.from_]


def _place(after: Position | None, until: str | None, bounds: PageBounds) -> Position:
    """Where the page begins or, if `until` is given, ends."""
    if until is not None:
        return parse_moment(until, "until")
    if after is not None:
        check_not_future(after, bounds.last, int(time() * MICROSECONDS))
    return bounds.begin if after is None else after


def _piece_changes(found: Extent) -> int:
    """How many changes take some 64 KiB."""
    return max(1, min(READ_CHANGES, PIECE_BYTES * found.rows // max(1, found.size)))


def neighbours(path: str, page: ListPage, asked: Mapping[str, Sequence[str]]) -> Neighbours:
    """The addresses of the pages before and after, asked for in the same way."""
    before = with_query(path, {"until": page.from_, **asked}) if page.has_before else None
    after = with_query(path, {"from": page.until, **asked}) if page.has_after else None
    return Neighbours(before, after)


def list_head(
    requested: RequestedSet,
    stretch: Stretch,
    end: Position,
    pages: Neighbours,
    filter_: Filter | None,
) -> ListHead:
    """The head of a list of a stretch. Of a part of it, which may be empty, nobody could see where
    it ends: so that says so, and which list it is a part of."""
    from_, until = stretch
    if filter_ is None:
        return change_list_head(requested.base, requested.name, from_, until, pages)
    until = max(from_, end if until is None else until)
    whole = with_query(open_list(requested.name), {"from": from_})
    return change_list_head(requested.base, requested.name, from_, until, pages, whole)


def tag_of(filter_: Filter) -> str:
    return f"-{crc32(filter_.key.encode()):x}"


def kept_query(request: Request) -> Mapping[str, Sequence[str]]:
    """The parameters that links to other pages repeat: never a token."""
    asked = request.query_params
    return {name: asked.getlist(name) for name in ("limit", "format", *FILTER) if name in asked}


def with_query(path: str, asked: Mapping[str, object]) -> str:
    return f"{path}?{urlencode(asked, safe=':/', doseq=True)}"


def gone(requested: RequestedSet) -> Rejected:
    index = requested.base + change_list_index(requested.name)
    return Rejected(
        f"the hub no longer keeps this; see {index} for what it keeps",
        status=410,
        headers={"link": f'<{index}>; rel="index"'},
    )
