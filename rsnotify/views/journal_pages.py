"""The change journal of a set in pages that keep their content, as feeds and collections have them.

A page begins behind a position and has up to `PAGE_CHANGES` changes of one Change List, the closed
or the open one. So its address says what it has, it is read from there on, and it changes no more
once it is full or its list is closed. What leads back from page to page is counted from the
beginning of a list.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rsnotify.documents.pages import gone
from rsnotify.documents.responses import RequestedSet
from rsnotify.errors import Rejected, Trimmed, TryAgain
from rsnotify.journal.window import Span, Window
from rsnotify.journal.windows import Windows
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Row
from rsnotify.single_flight import AtOnce

PAGE_CHANGES = 100
AT_ONCE = 4  # that are read, each perhaps from a Change List that must be unpacked
FULL = "too many others read feeds or activities; try again later"


class JournalPage(NamedTuple):
    """A page; `prev` and `next` are where those beside it begin, None where there is none."""

    from_: Position
    rows: Sequence[Row]  # oldest first
    prev: Position | None
    next: Position | None
    changed: Position  # when it got the newest of them

    @property
    def newest(self) -> Position:
        """Its newest change, or where it begins."""
        return self.rows[-1][0] if self.rows else self.from_

    @property
    def tag(self) -> str:
        """What stands for its content, and for where it leads."""
        places = self.from_, self.newest, self.prev or 0, self.next or 0
        return "-".join(f"{int(each):x}" for each in places)

    @property
    def is_fixed(self) -> bool:
        """Whether it gets no more changes."""
        return self.next is not None


class Newest(NamedTuple):
    """The newest changes, and the pages with which the journal ends."""

    rows: Sequence[Row]  # oldest first
    head: Position
    changed: Position
    full: Position | None  # where the newest page begins that gets no more changes
    last: Position  # where the page begins that has the newest change


class JournalPages:
    """Reads the pages of any set."""

    def __init__(self, journals: Journals, windows: Windows) -> None:
        self._journals = journals
        self._windows = windows
        self._read = AtOnce(AT_ONCE, FULL)

    async def newest(self, set_name: str) -> Newest:
        """The newest changes: all that stand on no page which is full, and some more."""
        async with self._read.turn():
            return await self._newest(set_name)

    async def page(self, requested: RequestedSet, from_: Position) -> JournalPage:
        """The page that begins here; 404 if none can, 410 if it is no longer kept."""
        async with self._read.turn():
            return await self._page(requested, from_)

    async def _newest(self, set_name: str) -> Newest:
        span = await self._span(set_name)
        record, channel = span.record, _changes(set_name)
        rows = await self._journals.history.read_back(channel, record.head, 2 * PAGE_CHANGES)
        before = await self._before(set_name, record.window_from)
        count = record.window_count
        if count == 0:
            return Newest(rows, record.head, record.changed, before, before or record.window_from)
        in_last = (count - 1) % PAGE_CHANGES + 1
        last = await self._back(set_name, record.head, in_last, record.window_from)
        if count > in_last:
            before = await self._back(set_name, last, PAGE_CHANGES, record.window_from)
        return Newest(rows, record.head, record.changed, before, last)

    async def _page(self, requested: RequestedSet, from_: Position) -> JournalPage:
        name = requested.name
        span = await self._span(name, after=from_)
        record = span.record
        if self._journals.known.is_former(name, from_):
            raise gone(requested)
        if not record.created <= from_ <= record.last:
            raise Rejected(f"no page begins at {from_}", status=404)
        window = span.windows[0] if span.windows else None
        end = record.head if window is None else window.until
        try:
            rows = await self._journals.history.read(
                _changes(name), from_, until=end, count=PAGE_CHANGES + 1
            )
        except Trimmed:
            raise gone(requested) from None
        following = window.until if window is not None else None
        if len(rows) > PAGE_CHANGES:
            rows = rows[:PAGE_CHANGES]
            following = rows[-1][0]
        if following is not None and following >= record.head:
            following = None  # nothing stands there yet
        begins = record.window_from if window is None else window.from_
        prev = (
            await self._before(name, begins)
            if from_ <= begins
            else await self._back(name, from_, PAGE_CHANGES, begins)
        )
        changed = window.closed if window is not None else (rows[-1][0] if rows else from_)
        return JournalPage(from_, rows, prev, following, changed)

    async def _span(self, set_name: str, after: Position | None = None) -> Span:
        """Where the Change Lists stand, up to a newest change that may be given to anybody."""
        channel = _changes(set_name)
        before = self._journals.given(channel)
        span = await self._windows.span(set_name, after=after)
        record = span.record
        newest = await self._journals.deliverable(channel, record.newest, record.last, before)
        if newest.position != record.head:
            raise TryAgain("replicas have not confirmed the newest changes yet; ask again")
        return span

    async def _before(self, set_name: str, begin: Position) -> Position | None:
        """Where the last page of the closed list begins that ends here; None if none is kept."""
        window = await self._windows.closed_after(set_name, Position(begin - 1))
        if window is None or window.until != begin:
            return None
        return await self._last_of(set_name, window)

    async def _last_of(self, set_name: str, window: Window) -> Position:
        in_last = (window.changes - 1) % PAGE_CHANGES + 1
        return await self._back(set_name, window.until, in_last, window.from_)

    async def _back(self, set_name: str, until: Position, count: int, begin: Position) -> Position:
        """Where the last `count` changes up to a position begin, of a list that begins here."""
        channel = _changes(set_name)
        rows = await self._journals.history.read_back(channel, until, count + 1)
        if len(rows) <= count:
            return begin
        return max(rows[0][0], begin)


def _changes(set_name: str) -> ChannelName:
    return ChannelName(set_name, "change")
