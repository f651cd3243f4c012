"""The hub: publishes to the journals, follows them, and keeps the tail of each channel.

Publishing never waits for a reader. One task follows all journals; the bell and the clock wake it,
and without the bell it is only slower. Each notification is rendered once in a process.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from time import monotonic

from rsnotify.cache import Cache
from rsnotify.core.documents import change_list_index
from rsnotify.core.submission import Submission
from rsnotify.core.tail import Tail
from rsnotify.errors import HistoryGone, NoSuchSet, Trimmed, TryAgain
from rsnotify.feed import Feed
from rsnotify.history import History
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import (
    KINDS,
    NOTIFICATION_CHANGES,
    ChannelName,
    Interval,
    Notification,
    Row,
    cut,
    render_notification,
)
from rsnotify.single_flight import SingleFlight
from rsnotify.storage.bell import Bell
from rsnotify.storage.journal import Journal, Standing
from rsnotify.storage.sets import SetOptions, SetRecord, Sets, Version
from rsnotify.storage.windows import Windows

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
CHECK_SHARE = 10  # at most a tenth of the time is spent on checks because the bell rang
UNREAD_EVERY = 10  # a channel without readers is checked every tenth time
CACHE_MIB = 256
STALE_SECONDS = 5.0  # a follow loop this far behind makes the hub unready

DEFAULT_OPTIONS = SetOptions()
CATCHING_UP_AT_ONCE = 8  # many readers must not take Redis from publishers


class Hub:
    """Connects publishing with all deliveries."""

    def __init__(
        self,
        journal: Journal,
        sets: Sets,
        bell: Bell,
        windows: Windows | None = None,
        *,
        base_url: str,
        cache: Cache | None = None,
    ) -> None:
        self.base_url = base_url
        self.cache = Cache(CACHE_MIB) if cache is None else cache
        self.sets: dict[str, SetRecord] = {}
        self.sets_changed = Position(0)
        self.registry_lost = asyncio.Event()  # set when Redis has lost sets that it had
        self._journal = journal
        self._history = History(journal, windows)
        self._registry = sets
        self._registry_version: Version | None = None
        self._bell = bell
        self._feeds: dict[ChannelName, Feed] = {}
        self._rung: dict[ChannelName, Position] = {}
        self._woken = asyncio.Event()
        self._lock = asyncio.Lock()
        self._reading: SingleFlight[tuple[Feed, Tail, Position], Notification]
        self._reading = SingleFlight("reading of the journal")
        self._catching_up = asyncio.Semaphore(CATCHING_UP_AT_ONCE)
        self._next_tick = self._next_registry_check = self._current_at = float("-inf")
        self._registry_rang = False
        self._checks = 0

    # --- publishing and sets ---------------------------------------------------------------------

    async def publish(self, channel: ChannelName, submission: Submission) -> Interval:
        """Store the changes and ring the bell. Readers are not waited for."""
        interval = await self._journal.append(channel, submission)
        self._ring(channel, interval.until)
        return interval

    async def publish_each(
        self, submissions: Mapping[ChannelName, Submission]
    ) -> dict[ChannelName, Interval | BaseException]:
        """Publish to each channel; a key that one of them knows for other changes refuses all."""
        await self._journal.check_key(submissions)
        publishing = (self.publish(*each) for each in submissions.items())
        results = await asyncio.gather(*publishing, return_exceptions=True)
        return dict(zip(submissions, results, strict=True))

    def also_told(self, channel: ChannelName, submission: Submission) -> list[str]:
        """The other sets that a submission concerns: all of them, if it changes the Source
        Description, which belongs to all sets."""
        if channel.kind != "framework" or submission.of_source_description() is None:
            return []
        return [name for name in self.sets if name != channel.set_name]

    async def publish_to_all(
        self, channel: ChannelName, submission: Submission, others: Iterable[str]
    ) -> Interval:
        """Publish to the channel, and before that to the other sets that `also_told` has named: if
        one of them fails, repeating with the same key tells no set twice."""
        shared = submission.of_source_description()
        if shared is not None:
            await asyncio.gather(*(self._publish_shared(name, shared) for name in others))
        return await self.publish(channel, submission)

    async def _publish_shared(self, set_name: str, shared: Submission) -> None:
        with suppress(NoSuchSet):  # the set was removed in the meantime
            await self.publish(ChannelName(set_name, "framework"), shared)

    async def add_set(
        self, name: str, options: SetOptions = DEFAULT_OPTIONS
    ) -> tuple[SetRecord, bool]:
        """The set's record, and whether it was created now."""
        record, made, version = await self._registry.add(name, options)
        if made:
            await self._apply_own_change(name, record, version)
        else:
            await self._check_all()
        return record, made

    async def edit_set(self, name: str, chosen: Mapping[str, object]) -> SetRecord:
        record, version = await self._registry.edit(name, chosen)
        await self._apply_own_change(name, record, version)
        return record

    async def remove_set(self, name: str) -> None:
        await self._apply_own_change(name, None, await self._registry.remove(name))

    # --- reading ---------------------------------------------------------------------------------

    @property
    def sets_version(self) -> int:
        """Rises with every change of a set; -1 before the first read."""
        return -1 if self._registry_version is None else self._registry_version.number

    def record(self, set_name: str) -> SetRecord:
        record = self.sets.get(set_name)
        if record is None:
            raise NoSuchSet(set_name)
        return record

    def feed(self, channel: ChannelName) -> Feed:
        feed = self._feeds.get(channel)
        if feed is None and channel.set_name in self.sets:
            raise TryAgain(
                f"the data of set {channel.set_name!r} in Redis cannot be read; see the hub's log"
            )
        if feed is None:
            raise NoSuchSet(channel.set_name)
        return feed

    def has_changed(self, set_name: str) -> bool:
        """Whether anything was ever published to the set, as far as this process knows."""
        feed = self._feeds.get(ChannelName(set_name, "change"))
        return feed is None or str(feed.newest_known) != feed.created

    async def head(self, channel: ChannelName) -> Position:
        """The position of the newest change in Redis, which this process may not have read yet."""
        return (await self.standing(channel)).head

    async def after(self, feed: Feed, cursor: Position) -> Notification | None:
        """The notification that follows the cursor; None at the head."""
        if cursor >= feed.tail.head:
            return None
        found = feed.tail.next_after(cursor) or feed.past.get(cursor)
        if found is None:  # read and rendered once for all readers at this cursor
            found = await self._reading.result(
                (feed, feed.tail, cursor), lambda: self._from_journal(feed, cursor)
            )
        self.cache.use(feed)
        return found

    async def stretch_after(self, feed: Feed, cursor: Position) -> Notification | None:
        """As many changes after the cursor as fit in one notification; None at the head."""
        found = await self.after(feed, cursor)
        if found is None or found.until >= feed.tail.head or found.from_ < feed.tail.start:
            return found
        joined = feed.join_after(found, self.base_url)
        self.cache.use(feed)
        return joined

    async def latest(self, feed: Feed) -> Notification | None:
        """The newest notification, even from before this process; None if there is none."""
        head = feed.tail.head
        newest = feed.tail.newest
        if newest is not None:
            return newest
        begin = await self._journal.latest(feed.channel)
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

    async def kept_from(self, channel: ChannelName) -> Position:
        """The position where the kept changes of the channel begin; older ones are deleted."""
        return await self._history.kept_from(channel, (await self.standing(channel)).first)

    async def _from_journal(self, feed: Feed, cursor: Position) -> Notification:
        tail = feed.tail
        until = tail.boundary_after(cursor)
        try:
            async with self._catching_up:
                rows = await self._history.read(
                    feed.channel, cursor, until=until, count=NOTIFICATION_CHANGES
                )
        except Trimmed as trimmed:
            raise self._history_gone(feed.channel, trimmed) from None
        if not rows:
            raise TryAgain("the journal has changed meanwhile; connect again")
        found = self._render(feed.channel, cursor, cut(rows))
        if feed.tail is tail:  # otherwise Redis has lost changes meanwhile
            feed.past.keep(found)
        return found

    def _history_gone(self, channel: ChannelName, trimmed: Trimmed) -> HistoryGone:
        index = self.base_url + change_list_index(channel.set_name)
        begins = Position(trimmed.first)
        detail = f"see {index}: what is kept begins at {begins}"  # a close frame may cut its end
        return HistoryGone(detail)

    def _render(self, channel: ChannelName, from_: Position, rows: Sequence[Row]) -> Notification:
        return render_notification(channel, from_, rows, base_url=self.base_url)

    # --- following -------------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether the follow loop has seen the journals within the last seconds."""
        return monotonic() - self._current_at < STALE_SECONDS

    async def start(self) -> None:
        """See where every journal stands, before the first reader comes."""
        await self._check_all()
        await self._advance()

    async def follow(self) -> None:
        """Follow all journals for as long as the hub runs."""
        while True:
            try:
                if monotonic() >= self._next_tick:
                    await self._check_all()
                elif self._registry_rang and monotonic() >= self._next_registry_check:
                    await self._check_registry()
                await self._advance()
            except TryAgain as error:
                log.warning("cannot follow the journals, trying again: %s", error.detail)
                self._retry_at_next_tick()
            except Exception as error:  # a bug, or damaged data: keep the readers
                log.warning("following the journals failed, trying again", exc_info=error)
                self._retry_at_next_tick()
            await self._wait()

    async def listen(self) -> None:
        """Listen to the bell, which other hub processes ring too, for as long as the hub runs."""
        async for stroke in self._bell.strokes():
            name, _, head = stroke.partition(" ")
            set_name, _, kind = name.partition("/")
            if kind in KINDS and head.isdecimal():
                self._ring(ChannelName(set_name, kind), Position(int(head)))
            else:
                self._registry_rang = True
                self._woken.set()

    def _retry_at_next_tick(self) -> None:
        self._next_tick = monotonic() + TICK_SECONDS
        self._rung.clear()  # the next check finds the same changes

    def _ring(self, channel: ChannelName, head: Position) -> None:
        feed = self._feeds.get(channel)
        if feed is not None and head > feed.tail.head:
            feed.newest_known = max(feed.newest_known, head)
            self._rung[channel] = head
            self._woken.set()

    async def _wait(self) -> None:
        if self._rung:
            return
        self._woken.clear()
        wake = (
            min(self._next_tick, self._next_registry_check)
            if self._registry_rang
            else self._next_tick
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wake - monotonic())):
                await self._woken.wait()

    async def _check_all(self) -> None:
        """Check which sets exist and which journals have new changes."""
        async with self._lock:  # nobody may change the sets between reading and comparing
            await self._update_sets()
        self.cache.release_idle()

    async def _check_registry(self) -> None:
        """Check whether another process has created, edited or deleted a set."""
        async with self._lock:
            self._registry_rang = False
            if await self._registry.version() != self._registry_version:
                await self._update_sets()

    async def _update_sets(self) -> None:
        began, self._registry_rang = monotonic(), False
        self._next_tick = monotonic() + TICK_SECONDS
        version = await self._registry.version()
        sets = self.sets
        if version != self._registry_version:
            sets = await self._registry.all()
        channels = self._channels_to_check(sets)
        standings = await self._journal.standings(channels) if channels else []
        # From here on nothing is awaited, so sets and feeds change together.
        before, self.sets = self.sets, sets
        known, self._registry_version = self._registry_version, version
        self.sets_changed = version.changed
        if known is not None and version.is_behind(known):
            self._report_loss(before, sets)
        self._turn_private(before)
        self._compare_feeds(zip(channels, standings, strict=True))
        self._current_at = monotonic()
        self._next_registry_check = self._current_at + (CHECK_SHARE - 1) * (
            self._current_at - began
        )

    def _channels_to_check(self, sets: Mapping[str, SetRecord]) -> list[ChannelName]:
        """All channels with readers, and a tenth of the others. The bell tells of those too, and
        who begins to read one gets from the journal what its tail does not have."""
        self._checks += 1
        return [
            channel
            for number, (name, kind) in enumerate(product(sets, KINDS))
            if (channel := ChannelName(name, kind)) not in self._feeds
            or (number + self._checks) % UNREAD_EVERY == 0
            or self._feeds[channel].created != sets[name].created
            or self._is_read(self._feeds[channel])
        ]

    def _is_read(self, feed: Feed) -> bool:
        return feed.is_watched or feed in self.cache

    async def _apply_own_change(
        self, name: str, record: SetRecord | None, version: Version
    ) -> None:
        """Apply a change of a set by this process, without reading all other sets."""
        async with self._lock:
            before, known = self.sets.get(name), self._registry_version
            is_another = before and record and before.created != record.created
            if is_another or known is None or version.number <= known.number:
                # A check has applied it, and perhaps newer changes too; or Redis went back.
                await self._update_sets()
                return
            if version.follows(known):  # otherwise the next check reads all sets
                self._registry_version, self.sets_changed = version, version.changed
            self._apply(name, before, record)

    def _apply(self, name: str, before: SetRecord | None, record: SetRecord | None) -> None:
        channels = [ChannelName(name, kind) for kind in KINDS]
        if record is None:
            self.sets.pop(name, None)
            self._end(channels)
        elif before is None:
            self.sets[name] = record
            for channel in channels:
                self._feed_of(channel, Position.parse(record.created))
        else:
            self.sets[name] = record
            self._turn_private({name: before})

    def _report_loss(self, before: Mapping[str, SetRecord], sets: Mapping[str, SetRecord]) -> None:
        left = {(record.name, record.created) for record in sets.values()}
        gone = [name for name, record in before.items() if (name, record.created) not in left]
        log.error(
            "Redis has lost data: it was emptied, or started from an older copy; "
            "sets that are lost with their changes: %s",
            ", ".join(gone) or "none",
        )
        self.registry_lost.set()

    def _turn_private(self, before: Mapping[str, SetRecord]) -> None:
        """Tell the feeds of sets that have become private."""
        for channel, feed in self._feeds.items():
            record, old = self.sets.get(channel.set_name), before.get(channel.set_name)
            if record is not None and old is not None and record.private > old.private:
                feed.turn_private()

    def _compare_feeds(
        self, found: Iterable[tuple[ChannelName, Standing | Exception | None]]
    ) -> None:
        """Update the feeds from the journals; a feed whose journal cannot be read stays."""
        self._end([channel for channel in self._feeds if channel.set_name not in self.sets])
        for channel, standing in found:
            if standing is None:
                self._end([channel])
                continue
            if isinstance(standing, Exception):
                _log_unreadable(channel, standing)
                continue
            head = standing.head
            feed = self._feed_of(channel, head)
            self._ring(channel, head)
            if head < feed.tail.head:
                log.error("%r went back to %s: Redis has lost changes", feed, head)
                feed.go_back(head)

    def _feed_of(self, channel: ChannelName, head: Position) -> Feed:
        """The channel's feed; a new one if the set was deleted and created again."""
        created = self.sets[channel.set_name].created
        feed = self._feeds.get(channel)
        if feed is None or feed.created != created:
            self._end([channel])
            feed = self._feeds[channel] = Feed(channel, created, head)
        return feed

    def _end(self, channels: Iterable[ChannelName]) -> None:
        for channel in channels:
            feed = self._feeds.pop(channel, None)
            if feed is not None:
                feed.end()
                self.cache.forget(feed)

    async def _advance(self) -> None:
        """Read new changes of the channels that rang, render them, push them."""
        async with self._lock:
            await self._read_on()

    async def _read_on(self) -> None:
        rung, self._rung = self._rung, {}
        cursors = self._cursors(rung)
        if not cursors:
            return
        feeds = {channel: self._feeds[channel] for channel in cursors}
        read, number = await self._journal.read_on(cursors, count=NOTIFICATION_CHANGES)
        if number != self.sets_version:
            await self._update_sets()  # so that a set that became private is known before
        for channel, rows in read.items():
            feed = self._feeds.get(channel)
            if feed is not feeds[channel] or feed.tail.head != cursors[channel]:
                continue  # the set was created again, or Redis lost changes
            if self._pushed(feed, rows) == NOTIFICATION_CHANGES:
                self._rung.setdefault(channel, rung[channel])
            await asyncio.sleep(0)  # let others run: there may be thousands of readers

    def _pushed(self, feed: Feed, rows: Sequence[Row] | Exception) -> int:
        """Push; return how many changes. An error in one channel does not stop the others."""
        try:
            if isinstance(rows, Exception):
                raise rows
            self._push(feed, rows)
        except Exception as error:
            _log_unreadable(feed.channel, error)
            return 0
        return len(rows)

    def _cursors(self, rung: Mapping[ChannelName, Position]) -> dict[ChannelName, Position]:
        """Where to read on. Channels without readers move on without reading."""
        cursors: dict[ChannelName, Position] = {}
        for channel, head in rung.items():
            feed = self._feeds.get(channel)
            if feed is None or head <= feed.tail.head:
                continue
            if self._is_read(feed):
                cursors[channel] = feed.tail.head
            else:
                feed.skip_to(head)
        return cursors

    def _push(self, feed: Feed, rows: Sequence[Row]) -> None:
        while rows:
            taken = cut(rows)
            feed.push(self._render(feed.channel, feed.tail.head, taken))
            self.cache.use(feed)
            rows = rows[len(taken) :]


def _log_unreadable(channel: ChannelName, error: Exception) -> None:
    log.warning("the data of %s in Redis cannot be read", channel, exc_info=error)
