"""Change Lists over HTTP: open, closed and from any position; their index and archive.

What a document covers, and its ETag, are decided from one read of the set's record. A poll shows
every change that was acknowledged before the poll came.

The open Change Lists are kept in memory, rendered, while they are polled. A list holds the entries
of one window from its beginning and grows only at its end. It grows from the hub's tail, else from
the journal. When the window closes, a new list begins. When the cache releases a list, the next
poll makes a new one, and answers that are being sent are not disturbed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import time
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access.query import (
    CHANGE_LIST,
    DOCUMENT,
    Query,
    check_not_future,
    filter_of,
    parse_start,
)
from rsnotify.documents.documents import (
    ListHead,
    Neighbours,
    change_list,
    change_list_archive_document,
    change_list_head,
    change_list_index_document,
    open_list,
)
from rsnotify.documents.pages import (
    Pages,
    bounds_of,
    bounds_within,
    gone,
    kept_query,
    list_head,
    tag_of,
    with_query,
)
from rsnotify.documents.responses import (
    ByteStream,
    KeptDocuments,
    Parts,
    RequestedSet,
    SetAdmission,
    document_response,
    query_of,
)
from rsnotify.documents.stretches import Stretches, chosen
from rsnotify.errors import Rejected, TryAgain
from rsnotify.journal.gzip_parts import PackedEntries, Packer
from rsnotify.journal.window import (
    DocumentSchedule,
    JournalRecord,
    Span,
    Stretch,
    Window,
    ended_at,
    following_from,
    kept_from,
    split,
    stretch_after,
)
from rsnotify.journal.windows import Windows
from rsnotify.live.cache import Cache, Tail
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import DAY, MICROSECONDS, Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.forms import LIST_FORMS, XML
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.single_flight import SingleFlight

PIECE_BYTES = 256 * 1024

OnRelease = Callable[["OpenList"], None]
ReadJournal = Callable[[Position, Position], Awaitable[tuple[bytes, Position]]]
"""Reads the journal after a position, up to another position."""


class Key(NamedTuple):
    """The window that a list has, and the data that it was made of."""

    created: Position
    window_from: Position


class OpenList:
    """The entries of one open window, in memory."""

    stays_when_idle = True  # making it costs more than keeping it, and pollers come again

    def __init__(self, key: Key, forget: OnRelease) -> None:
        self.key = key
        self.until = key.window_from
        self.length = 0
        self._forget = forget
        self._pieces: list[bytes] = []
        self._growing = asyncio.Lock()
        self._packer: Packer | None = None  # made at the first request for gzip
        self._packed_bytes = 0

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self.length + (0 if self._packer is None else self._packer.size)

    def release(self) -> None:
        self._forget(self)

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The entries, in pieces that all answers share: a slow peer holds no copy of the list."""
        return tuple(self._pieces)

    @property
    def is_growing(self) -> bool:
        return self._growing.locked()

    def grow_from_tail(self, tail: Tail, until: Position) -> None:
        """Add what the tail has, up to a position."""
        if self.is_growing:
            return
        while self.until < until:
            found = tail.next_after(self.until)
            if found is None or found.until > until:
                return
            self._add(found.payload[found.entries], found.until)

    async def grow_to(self, until: Position, read: ReadJournal) -> None:
        """Add what the journal has, up to a position."""
        async with self._growing:
            while self.until < until:
                self._add(*await read(self.until, until))

    def _add(self, entries: bytes, until: Position) -> None:
        if self._pieces and len(self._pieces[-1]) < PIECE_BYTES:
            self._pieces[-1] += entries
        else:
            self._pieces.append(entries)
        self.length += len(entries)
        self.until = until

    async def packed(self) -> tuple[PackedEntries, Position]:
        """The compressed entries, and their last position; only new entries are compressed."""
        async with self._growing:
            until, more = self.until, self._from(self._packed_bytes)
            self._packed_bytes = self.length
            return await asyncio.to_thread(self._pack, more), until

    def _from(self, begin: int) -> bytes:
        """The entries from this byte on."""
        rest: list[bytes] = []
        at = self.length
        while at > begin:
            piece = self._pieces[-1 - len(rest)]
            at -= len(piece)
            rest.append(piece[max(0, begin - at) :])
        return b"".join(reversed(rest))

    def _pack(self, more: bytes) -> PackedEntries:
        packer = self._packer = self._packer or Packer()
        packer.add(more)
        return packer.packed()


class OpenLists:
    """The open list of every set that is polled."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lists: dict[str, OpenList] = {}

    def of(self, set_name: str, record: JournalRecord) -> OpenList:
        """The list of the set; a new one if the window is another."""
        key = Key(record.created, record.window_from)
        found = self._lists.get(set_name)
        if found is None or found.key != key:
            if found is not None:
                self._cache.forget(found)
            found = self._lists[set_name] = OpenList(key, partial(self._forget, set_name))
        return found

    def used(self, set_name: str, kept: OpenList) -> None:
        """Let the cache know that the list was used and may have grown, unless it was released."""
        if self._lists.get(set_name) is kept:
            self._cache.use(kept)

    def _forget(self, set_name: str, kept: OpenList) -> None:
        if self._lists.get(set_name) is kept:
            del self._lists[set_name]


COLD_CHANGES = 5_000  # with more to read, a list is sent while it is read


class ChangeListEndpoints:
    """The Change Lists of every set."""

    def __init__(
        self,
        journals: Journals,
        admission: SetAdmission,
        windows: Windows,
        stretches: Stretches,
        pages: Pages,
        schedule: DocumentSchedule,
        cold_changes: int = COLD_CHANGES,
    ) -> None:
        self._journals = journals
        self._cold_changes = cold_changes
        self._admission = admission
        self._windows = windows
        self._stretches = stretches
        self._pages = pages
        self._schedule = schedule
        self._lists = OpenLists(journals.cache)
        self._kept = KeptDocuments()
        self._warming: SingleFlight[str, None] = SingleFlight("warming")

    # --- one list ------------------------------------------------------------------------------

    async def current(self, request: Request) -> Response:
        """The open Change List; with `from` or `until`, the changes after or up to a position."""
        asked = query_of(request, CHANGE_LIST)
        after = parse_start(asked)
        requested = await self._admission.admit(request, LIST_FORMS)
        filter_ = await self._filter(requested, asked)
        if after is not None and self._journals.known.is_former(requested.name, after):
            raise gone(requested)
        if _asks_for_page(asked) or (after is not None and self._pages.are_short):
            bounds = bounds_of(await self._span(requested.name))
            path = open_list(requested.name)
            return await self._pages.respond(requested, bounds, path, asked, filter_)
        if after is not None:
            return await self._stretch(requested, after, filter_)
        record = await self._record(requested.name)
        if filter_ is not None:
            return await self._stretch(requested, record.window_from, filter_)
        return await self._open(requested, record)

    async def by_beginning(self, request: Request) -> Response:
        """One Change List.

        The open or closed one of the window that begins at the position in the path.
        """
        asked = query_of(request, CHANGE_LIST)
        requested = await self._admission.admit(request, LIST_FORMS)
        from_ = _beginning(request.path_params["from_"])
        filter_ = await self._filter(requested, asked)
        found = await self._window(requested, from_)
        if _asks_for_page(asked) or parse_start(asked) is not None or filter_ is not None:
            path, bounds = change_list(requested.name, from_), bounds_within(found)
            return await self._pages.respond(requested, bounds, path, asked, filter_)
        if isinstance(found, Window):
            return await self._closed(requested, found)
        return await self._open(requested, found)

    async def _filter(self, requested: RequestedSet, asked: Query) -> Filter | None:
        channel = ChannelName(requested.name, "change")
        return await self._journals.known_filter(filter_of(asked), [channel])

    async def _record(self, set_name: str) -> JournalRecord:
        """The record, up to the newest change that may be given to anybody."""
        before = self._journals.given(ChannelName(set_name, "change"))
        record = await self._windows.record(set_name)
        head = await self._give(set_name, record, before)
        return record if head == record.head else (await self._span(set_name, after=head)).record

    async def _span(self, set_name: str, after: Position | None = None) -> Span:
        """Likewise, with closed windows."""
        before = self._journals.given(ChannelName(set_name, "change"))
        span = await self._windows.span(set_name, after=after)
        head = await self._give(set_name, span.record, before)
        return span if head == span.record.head else ended_at(head, span)

    async def _give(self, set_name: str, record: JournalRecord, before: Position) -> Position:
        channel = ChannelName(set_name, "change")
        newest = await self._journals.deliverable(channel, record.newest, record.last, before)
        return newest.position

    async def _window(self, requested: RequestedSet, from_: Position) -> JournalRecord | Window:
        """The closed window that begins here, or the record if the open one does."""
        record = await self._record(requested.name)
        if from_ == record.window_from:
            return record
        window = await self._windows.closed_after(requested.name, from_)
        if window is None or window.from_ != from_:
            raise await self._missing(requested, from_)
        if from_ > record.window_from:
            raise TryAgain("this list has changes that replicas have not confirmed yet")
        return window

    async def _open(self, requested: RequestedSet, record: JournalRecord) -> Response:
        tag = f"{int(record.window_from):x}-{int(max(record.head, record.window_from)):x}"
        head = change_list_head(requested.base, requested.name, record.window_from, None)

        info = requested.info(tag, record.changed, head=head)
        make = partial(self._opened, requested, record, head)
        return await document_response(requested.request, info, make)

    async def _opened(
        self, requested: RequestedSet, record: JournalRecord, head: ListHead, in_gzip: bool
    ) -> Parts | ByteStream:
        until = max(record.head, record.window_from)
        kept = self._known(requested.name, record, until)
        if self._is_cold(kept, record):
            self._warm(requested.name, kept, until)
        else:
            if kept.until < until:
                await self._grow_to(requested.name, kept, until)
            if requested.form is XML:
                made = await self._from_memory(requested, kept, head, until, in_gzip=in_gzip)
                if made is not None:
                    return made
        entries = self._stretches.entries(requested.name, record.window_from, until)
        return await requested.stream(head, entries, in_gzip=in_gzip)

    def _known(self, set_name: str, record: JournalRecord, until: Position) -> OpenList:
        """The list in memory, grown by all that the tail has."""
        feed = self._journals.feed(ChannelName(set_name, "change"))
        kept = self._lists.of(set_name, record)
        kept.grow_from_tail(feed.tail, until)
        self._journals.cache.use(feed)  # so that the tail is kept for the next poll
        self._lists.used(set_name, kept)
        return kept

    async def _from_memory(
        self,
        requested: RequestedSet,
        kept: OpenList,
        head: ListHead,
        until: Position,
        *,
        in_gzip: bool,
    ) -> Parts | None:
        """The list as it is in memory; None if it has grown beyond `until`."""
        frame = head.frame(XML)
        if in_gzip:
            packed, reached = await kept.packed()
            self._lists.used(requested.name, kept)
            return packed.gzipped(*frame) if reached == until else None
        return (frame.head, *kept.pieces, frame.foot) if kept.until == until else None

    def _warm(self, set_name: str, kept: OpenList, until: Position) -> None:
        """Read the list into memory for the next polls, while this one is answered."""
        self._warming.task(set_name, lambda: self._grow_to(set_name, kept, until))

    async def _grow_to(self, set_name: str, kept: OpenList, until: Position) -> None:
        await kept.grow_to(until, partial(self._stretches.read, set_name))
        self._lists.used(set_name, kept)

    async def _closed(self, requested: RequestedSet, window: Window) -> Response:
        tag = f"{int(window.from_):x}-{int(window.until):x}-{int(window.closed):x}-closed"
        head = change_list_head(requested.base, requested.name, window.from_, window.until)
        entries = self._entries_of(requested, window.from_, window.until)
        packed = partial(self._stretches.packed, requested.name, window)
        return await requested.list(head, tag, window.closed, entries, packed, is_fixed=True)

    def _entries_of(
        self, requested: RequestedSet, from_: Position, until: Position
    ) -> Callable[[], ByteStream]:
        scope = requested.request.scope
        return partial(self._stretches.entries, requested.name, from_, until, scope)

    async def _stretch(
        self, requested: RequestedSet, cursor: Position, filter_: Filter | None
    ) -> Response:
        span = await self._span(requested.name, after=cursor)
        record, now = span.record, int(time() * MICROSECONDS)
        check_not_future(cursor, record.last, now)
        if cursor > record.last:
            await self._windows.raise_last_to_cursor(requested.name, cursor, now)
        if cursor < following_from(span) > record.created:
            raise gone(requested)
        stretch = stretch_after(min(max(cursor, record.created), record.last), span)
        end = record.head if stretch.until is None else stretch.until
        pages = Neighbours(next=_following(requested, stretch.until))
        head = list_head(requested, stretch, end, pages, filter_)
        tag = f"{int(stretch.from_):x}-{int(end):x}-{_closing_of(stretch, span)}"
        entries = self._entries_of(requested, stretch.from_, end)
        if filter_ is not None:
            tag, entries = tag + tag_of(filter_), partial(chosen, entries, filter_)
        return await requested.list(head, tag, record.changed, entries)

    # --- lists of lists ------------------------------------------------------------------------

    async def index(self, request: Request) -> Response:
        """The Change List Index."""
        query_of(request, DOCUMENT)
        requested = await self._admission.admit(request)
        begin, begun = self._index_begin()
        span = await self._span(requested.name, after=begin)
        archived = span.oldest is not None and span.oldest.until <= begin
        _, windows = split(span.windows, begin)
        open_from = span.record.window_from
        tag = f"{int(kept_from(span)):x}-{int(begin):x}-{int(open_from):x}-index"
        describe = partial(
            change_list_index_document,
            requested.base,
            requested.name,
            windows,
            open_from,
            has_archive=archived,
        )
        return await requested.document(self._kept, tag, max(begun, span.record.changed), describe)

    async def archive(self, request: Request) -> Response:
        """The Change List Archive."""
        query_of(request, DOCUMENT)
        requested = await self._admission.admit(request)
        begin, begun = self._index_begin()
        windows, _ = split((await self._windows.span(requested.name)).windows, begin)
        if not windows:
            raise Rejected("there is no archive yet: no Change List has left the index", status=404)
        tag = f"{int(windows[0].from_):x}-{int(windows[-1].until):x}-archive"
        describe = partial(change_list_archive_document, requested.base, requested.name, windows)
        return await requested.document(self._kept, tag, max(begun, windows[-1].closed), describe)

    def _is_cold(self, kept: OpenList, record: JournalRecord) -> bool:
        """Whether so much must be read that the answer begins before all is read."""
        is_long = record.window_count > self._cold_changes
        return kept.length == 0 and is_long and not kept.is_growing

    def _index_begin(self) -> tuple[Position, Position]:
        """The lists that end before this position have left the index; and since when."""
        begin = self._schedule.index_begin(int(time() * MICROSECONDS))
        return begin, Position(begin + self._schedule.index_days * DAY)

    async def _missing(self, requested: RequestedSet, from_: Position) -> Rejected:
        span = await self._windows.span(requested.name)
        if span.record.created <= from_ < kept_from(span):
            return gone(requested)
        return Rejected(f"no Change List begins at {from_}", status=404)


def _asks_for_page(asked: Query) -> bool:
    return "limit" in asked or "until" in asked


def _closing_of(stretch: Stretch, span: Span) -> str:
    """When the last window of the stretch was closed; later, if Redis had lost that window."""
    closed = (each.closed for each in span.windows if each.until == stretch.until)
    return "open" if stretch.until is None else f"{int(next(closed, 0)):x}-part"


def _beginning(text: str) -> Position:
    """The position in the address of a list, which can be written in one way only."""
    try:
        return Position.parse(text)
    except (ValueError, OverflowError) as error:
        raise Rejected(f"no Change List begins at {text!r}: {error}", status=404) from None


def _following(requested: RequestedSet, until: Position | None) -> str | None:
    if until is None:
        return None
    return with_query(open_list(requested.name), {"from": until, **kept_query(requested.request)})
