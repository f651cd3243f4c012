"""Read what followed a position, as notifications: from memory, else from the journal.

Each is rendered once for all readers at its cursor.
"""

import asyncio
from collections.abc import Awaitable, Callable

from rsnotify.errors import HistoryDeleted, NoSuchSet, Trimmed, TryAgain
from rsnotify.journal.gzip_parts import rows_after, rows_until
from rsnotify.journal.journal_store import JournalStore, Standing
from rsnotify.journal.windows import Windows
from rsnotify.live.cache import Cache, Tail
from rsnotify.live.feed import Feed
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import (
    NOTIFICATION_CHANGES,
    ChannelName,
    Notification,
    Row,
    begun_at,
    change_list_index,
    first_batch,
    render_nothing,
    render_notification,
)
from rsnotify.single_flight import SingleFlight

PASSED_CHANGES = 1_000  # that are not for a reader, before it is told where it is…
PASSED_SECONDS = 25.0  # …or so long after the first of them
CATCHING_UP_AT_ONCE = 8  # many readers must not take Redis from publishers


class History:
    """Reads the changes after a position. A framework channel has no windows."""

    def __init__(self, journal: JournalStore, windows: Windows | None) -> None:
        self._journal = journal
        self._windows = windows

    async def read(
        self, channel: ChannelName, after: Position, *, until: Position, count: int
    ) -> list[Row]:
        """Up to `count` changes in `(after, until]`, oldest first. They end before a gap; `Trimmed`
        if there are none before it."""
        rows: list[Row] = []
        while len(rows) < count and after < until:
            wanted = count - len(rows)
            try:
                return rows + await self._journal.read(channel, after, until=until, count=wanted)
            except Trimmed as trimmed:
                try:
                    found, after = await self._read_packed(channel, after, wanted, trimmed)
                except (Trimmed, TryAgain):
                    if rows:
                        break
                    raise
                rows += found
        return [row for row in rows if row[0] <= until]  # a packed window may end behind it

    async def _read_packed(
        self, channel: ChannelName, after: Position, count: int, trimmed: Trimmed
    ) -> tuple[list[Row], Position]:
        """The next changes from the next packed window, and where that window ends."""
        if self._windows is None or channel.kind != "change":
            raise trimmed
        window = await self._windows.closed_after(channel.set_name, after)
        if window is None or window.until > trimmed.first:
            raise trimmed
        if window.from_ > after:
            raise Trimmed(window.from_)
        packed = await self._windows.packed(channel.set_name, window)
        if packed is None:
            raise TryAgain("the journal has changed meanwhile; repeat the request")
        return await asyncio.to_thread(rows_after, packed, after, count), window.until

    async def read_back(self, channel: ChannelName, until: Position, count: int) -> list[Row]:
        """The last `count` changes up to `until` that are kept, oldest first."""
        rows, first = await self._journal.read_back(channel, until, count=count)
        rows.reverse()
        reached = min(until, first, rows[0][0] - 1 if rows else until)
        while self._windows is not None and len(rows) < count:
            window = await self._windows.closed_after(channel.set_name, Position(reached - 1))
            packed = window and await self._windows.packed(channel.set_name, window)
            if window is None or packed is None or window.from_ >= reached:
                break
            wanted = count - len(rows)
            older = await asyncio.to_thread(rows_until, packed, Position(reached), wanted)
            rows, reached = older + rows, window.from_
        return rows


class Reading:
    """Reads channels from any position that is kept."""

    def __init__(
        self,
        journal: JournalStore,
        history: History,
        cache: Cache,
        base_url: str,
        check_sets: Callable[[], Awaitable[None]],
    ) -> None:
        self._journal = journal
        self._history = history
        self._cache = cache
        self._base_url = base_url
        self._check_sets = check_sets
        self._flights: SingleFlight[tuple[Tail, Position], Notification]
        self._flights = SingleFlight("reading of the journal")
        self.catch_ups = {"memory": 0, "redis": 0}  # notifications for those behind, by origin
        self._catching_up = asyncio.Semaphore(CATCHING_UP_AT_ONCE)

    async def after(self, feed: Feed, cursor: Position) -> Notification | None:
        """The notification that follows the cursor; None at the head."""
        if cursor >= feed.tail.head:
            return None
        found = feed.tail.next_after(cursor) or feed.recent.get(cursor)
        self.catch_ups["redis" if found is None else "memory"] += 1
        if found is None:  # read and rendered once for all readers at this cursor
            found = await self._flights.result(
                (feed.tail, cursor), lambda: self._from_journal(feed, cursor)
            )
        self._cache.use(feed)
        return found

    async def batch_after(self, feed: Feed, cursor: Position) -> Notification | None:
        """As many changes after the cursor as fit in one notification; None at the head."""
        found = await self.after(feed, cursor)
        if found is None or not found.holder or not feed.tail.start <= found.until < feed.tail.head:
            return found  # what nobody holds may be from before a loss
        joined = feed.join_after(found, self._base_url)
        self._cache.use(feed)
        return joined

    async def matching_after(
        self, feed: Feed, cursor: Position, filter_: Filter | None
    ) -> Notification | None:
        """Likewise, of what passes the filter: it begins at the cursor, and has no changes if
        PASSED_CHANGES, or all up to the head or to a gap, were not for this reader. So nobody is
        led to the same gap from the same place for ever."""
        found = await self.batch_after(feed, cursor)
        if filter_ is None or found is None:
            return found
        passed, reached = 0, cursor
        while found is not None:
            picked = filter_.pick(found)
            if picked is not None:
                return begun_at(picked, cursor)
            passed, reached = passed + found.count, found.until
            if passed >= PASSED_CHANGES:
                break
            try:
                found = await self.batch_after(feed, reached)
            except (HistoryDeleted, TryAgain):  # the reader learns of it from there
                break
        return render_nothing(feed.channel, cursor, reached, base_url=self._base_url)

    async def newest_notification(self, feed: Feed) -> Notification | None:
        """The newest notification, even from before this process; None if there is none."""
        head = feed.tail.head
        newest = feed.tail.newest
        if newest is not None:
            return newest
        begin = await self._journal.newest_begin(feed.channel)
        if begin is None or begin >= head:
            return None
        cursor = begin
        while (found := await self.after(feed, cursor)) is not None:
            newest, cursor = found, found.until
        return newest

    async def standing(self, channel: ChannelName) -> Standing:
        """Where the journal in Redis begins and ends now."""
        (standing,) = await self._journal.standings([channel])
        if standing is None:
            raise NoSuchSet(channel.set_name)
        if isinstance(standing, Exception):
            raise standing
        return standing

    async def _from_journal(self, feed: Feed, cursor: Position) -> Notification:
        tail = feed.tail  # another one after a loss
        until = tail.boundary_after(cursor)
        try:
            async with self._catching_up:
                rows = await self._read(feed, cursor, until)
        except Trimmed as trimmed:
            raise self._history_deleted(feed.channel, trimmed) from None
        if not rows:
            raise TryAgain("the journal has changed meanwhile; connect again")
        await self._check_sets()  # who may not read any more is closed before it gets them
        found = render_notification(
            feed.channel, cursor, first_batch(rows), base_url=self._base_url
        )
        if feed.tail is tail:
            feed.recent.keep(found)
        return found

    async def _read(self, feed: Feed, cursor: Position, until: Position) -> list[Row]:
        return await self._history.read(
            feed.channel, cursor, until=until, count=NOTIFICATION_CHANGES
        )

    def _history_deleted(self, channel: ChannelName, trimmed: Trimmed) -> HistoryDeleted:
        index = self._base_url + change_list_index(channel.set_name)
        begins = Position(trimmed.first)
        detail = f"see {index}: what is kept begins at {begins}"  # a close frame may cut its end
        return HistoryDeleted(detail, begins)
