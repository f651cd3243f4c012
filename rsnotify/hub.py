"""The hub: publish to the journals, follow them, keep each channel's tail.

Rules that hold here: publishing never touches a reader; following is one task, woken by the bell
(a hint) and by the clock (the truth needs no bell); each notification is rendered once a process.
Nothing here knows by which transport a reader came.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from time import monotonic

from rsnotify.cache import Cache
from rsnotify.core.submission import Submission
from rsnotify.core.tail import Tail
from rsnotify.errors import Rejected, Trimmed, TryAgain, no_such_set
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
LOOK_PART = 10  # of the time, at most, goes into looking around because the bell rang
UNREAD_LOOKS = 10  # a channel that nobody reads is looked at so rarely
CACHE_MIB = 256
STALE_SECONDS = 5.0  # a follow loop this far behind makes the hub unready

DEFAULT_OPTIONS = SetOptions()
CATCHING_UP_AT_ONCE = 8  # a herd of readers must not take Redis from the publishers


class Hub:
    """Everything between the way in and the ways out."""

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
        self._turn = asyncio.Lock()
        self._reading: SingleFlight[tuple[Feed, Tail, Position], Notification]
        self._reading = SingleFlight("reading of the journal")
        self._catching_up = asyncio.Semaphore(CATCHING_UP_AT_ONCE)
        self._next_tick = self._next_look = self._current_at = float("-inf")
        self._registry_rang = False
        self._looks = 0

    # --- the way in ----------------------------------------------------------------------------

    async def publish(self, channel: ChannelName, submission: Submission) -> Interval:
        """Make it durable, then ring; whoever reads the channel is not waited for."""
        interval = await self._journal.append(channel, submission)
        self._ring(channel, interval.until)
        return interval

    async def add_set(
        self, name: str, options: SetOptions = DEFAULT_OPTIONS
    ) -> tuple[SetRecord, bool]:
        """The set's record, and whether it was made just now."""
        record, made, version = await self._registry.add(name, options)
        if made:
            await self._see_own(name, record, version)
        else:
            await self._look_around()
        return record, made

    async def edit_set(self, name: str, chosen: Mapping[str, object]) -> SetRecord:
        record, version = await self._registry.edit(name, chosen)
        await self._see_own(name, record, version)
        return record

    async def remove_set(self, name: str) -> None:
        await self._see_own(name, None, await self._registry.remove(name))

    # --- the ways out --------------------------------------------------------------------------

    @property
    def sets_version(self) -> int:
        """Moves with every change of a set; -1 before the first look."""
        return -1 if self._registry_version is None else self._registry_version.number

    def record(self, set_name: str) -> SetRecord:
        record = self.sets.get(set_name)
        if record is None:
            raise no_such_set(set_name)
        return record

    def feed(self, channel: ChannelName) -> Feed:
        feed = self._feeds.get(channel)
        if feed is None and channel.set_name in self.sets:
            raise TryAgain(f"what Redis has of {channel.set_name!r} cannot be read")
        if feed is None:
            raise no_such_set(channel.set_name)
        return feed

    def has_changed(self, set_name: str) -> bool:
        """Whether anything was ever published to the set, as far as this process has heard."""
        feed = self._feeds.get(ChannelName(set_name, "change"))
        return feed is None or str(feed.heard) != feed.created

    async def head(self, channel: ChannelName) -> Position:
        """The newest change of all hub processes, whatever this one has seen of it."""
        return (await self.standing(channel)).head

    async def after(self, feed: Feed, cursor: Position) -> Notification | None:
        """The notification that follows the cursor; None at the head."""
        if cursor >= feed.tail.head:
            return None
        found = feed.tail.next_after(cursor) or feed.past.get(cursor)
        if found is None:  # ten thousand readers at one cursor read and render it once
            found = await self._reading.result(
                (feed, feed.tail, cursor), lambda: self._from_journal(feed, cursor)
            )
        self.cache.use(feed)
        return found

    async def stretch_after(self, feed: Feed, cursor: Position) -> Notification | None:
        """As much of what follows the cursor as one notification may carry; None at the head."""
        found = await self.after(feed, cursor)
        if found is None or found.until >= feed.tail.head or found.from_ < feed.tail.start:
            return found
        joined = feed.join_after(found, self.base_url)
        self.cache.use(feed)
        return joined

    async def latest(self, feed: Feed) -> Notification | None:
        """The newest notification, also of before this process began; None before the first."""
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
        """Where the journal begins and ends at this moment, whatever the tail knows."""
        (standing,) = await self._journal.standings([channel])
        if standing is None:
            raise no_such_set(channel.set_name)
        if isinstance(standing, Exception):
            raise standing
        return standing

    async def kept_from(self, channel: ChannelName) -> Position:
        """Where what the hub keeps of the channel begins; what was before is gone for good."""
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
            raise self._gone(feed.channel, trimmed) from None
        if not rows:
            raise TryAgain("the journal has changed; connect again")
        found = self._render(feed.channel, cursor, cut(rows))
        if feed.tail is tail:  # else the journal has lost changes meanwhile
            feed.past.keep(found)
        return found

    def _gone(self, channel: ChannelName, trimmed: Trimmed) -> Rejected:
        index = f"{self.base_url}/{channel.set_name}/changelist-index.xml"
        begins = Position(trimmed.first)
        detail = f"see {index}: what is kept begins at {begins}"  # a close frame may cut its end
        return Rejected(detail, status=410, close_code=4410)

    def _render(self, channel: ChannelName, from_: Position, rows: Sequence[Row]) -> Notification:
        return render_notification(channel, from_, rows, base_url=self.base_url)

    # --- following -----------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether the follow loop has seen the journals within the last seconds."""
        return monotonic() - self._current_at < STALE_SECONDS

    async def start(self) -> None:
        """See where every journal stands, before the first reader comes."""
        await self._look_around()
        await self._advance()

    async def follow(self) -> None:
        """Follow every journal for as long as the hub lives."""
        while True:
            try:
                if monotonic() >= self._next_tick:
                    await self._look_around()
                elif self._registry_rang and monotonic() >= self._next_look:
                    await self._look_at_registry()
                await self._advance()
            except TryAgain as error:
                log.warning("following waits: %s", error.detail)
                self._wait_a_tick()
            except Exception as error:  # a bug, or a damaged registry: whoever is there stays
                log.warning("following fails", exc_info=error)
                self._wait_a_tick()
            await self._wait()

    async def listen(self) -> None:
        """Hear the bell, also of other hub processes, for as long as the hub lives."""
        async for stroke in self._bell.strokes():
            name, _, head = stroke.partition(" ")
            set_name, _, kind = name.partition("/")
            if kind in KINDS and head.isdecimal():
                self._ring(ChannelName(set_name, kind), Position(int(head)))
            else:
                self._registry_rang = True
                self._woken.set()

    def _wait_a_tick(self) -> None:
        self._next_tick = monotonic() + TICK_SECONDS
        self._rung.clear()  # the next look around finds what they rang for

    def _ring(self, channel: ChannelName, head: Position) -> None:
        feed = self._feeds.get(channel)
        if feed is not None and head > feed.tail.head:
            feed.heard = max(feed.heard, head)
            self._rung[channel] = head
            self._woken.set()

    async def _wait(self) -> None:
        if self._rung:
            return
        self._woken.clear()
        wake = min(self._next_tick, self._next_look) if self._registry_rang else self._next_tick
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wake - monotonic())):
                await self._woken.wait()

    async def _look_around(self) -> None:
        """The clock's round: which sets there are, and which journals have moved unheard."""
        async with self._turn:  # what was seen before somebody's turn must not be judged after it
            await self._look()
        self.cache.let_go_of_idle()

    async def _look_at_registry(self) -> None:
        """Whether others have made, edited or removed a set."""
        async with self._turn:
            self._registry_rang = False
            if await self._registry.version() != self._registry_version:
                await self._look()

    async def _look(self) -> None:
        began, self._registry_rang = monotonic(), False
        self._next_tick = monotonic() + TICK_SECONDS
        version = await self._registry.version()
        sets = self.sets
        if version != self._registry_version:
            sets = await self._registry.all()
        channels = self._channels_to_look_at(sets)
        standings = await self._journal.standings(channels) if channels else []
        # From here on nothing is awaited: the sets and their feeds change together.
        before, self.sets = self.sets, sets
        known, self._registry_version = self._registry_version, version
        self.sets_changed = version.changed
        if known is not None and version.is_behind(known):
            self._say_lost(before, sets)
        self._turn_private(before)
        self._compare(zip(channels, standings, strict=True))
        self._current_at = monotonic()
        self._next_look = self._current_at + (LOOK_PART - 1) * (self._current_at - began)

    def _channels_to_look_at(self, sets: Mapping[str, SetRecord]) -> list[ChannelName]:
        """Every channel that somebody reads, and those whose turn it is: the bell tells of the rest
        too, and whoever begins to read one finds in the journal what it has not told."""
        self._looks += 1
        return [
            channel
            for number, (name, kind) in enumerate(product(sets, KINDS))
            if (channel := ChannelName(name, kind)) not in self._feeds
            or (number + self._looks) % UNREAD_LOOKS == 0
            or self._feeds[channel].created != sets[name].created
            or self._is_read(self._feeds[channel])
        ]

    def _is_read(self, feed: Feed) -> bool:
        return feed.is_watched or feed in self.cache

    async def _see_own(self, name: str, record: SetRecord | None, version: Version) -> None:
        """A set as this process has just written it, without a look at all the others."""
        async with self._turn:
            before, known = self.sets.get(name), self._registry_version
            is_another = before and record and before.created != record.created
            if is_another or known is None or version.number <= known.number:
                await self._look()  # it was seen, or what became of it since; or Redis went back
                return
            if version.follows(known):  # else the next look reads them all
                self._registry_version, self.sets_changed = version, version.changed
            self._see(name, before, record)

    def _see(self, name: str, before: SetRecord | None, record: SetRecord | None) -> None:
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

    def _say_lost(self, before: Mapping[str, SetRecord], sets: Mapping[str, SetRecord]) -> None:
        left = {(record.name, record.created) for record in sets.values()}
        gone = [name for name, record in before.items() if (name, record.created) not in left]
        log.error(
            "Redis has lost data: it was emptied, or began from an older copy; "
            "sets that are gone with their changes: %s",
            ", ".join(gone) or "none",
        )
        self.registry_lost.set()

    def _turn_private(self, before: Mapping[str, SetRecord]) -> None:
        """Tell the channels of each set that was public until now."""
        for channel, feed in self._feeds.items():
            record, old = self.sets.get(channel.set_name), before.get(channel.set_name)
            if record is not None and old is not None and record.private > old.private:
                feed.turn_private()

    def _compare(self, found: Iterable[tuple[ChannelName, Standing | Exception | None]]) -> None:
        """Bring the feeds in line with the journals; one that cannot be read stays as it was."""
        self._end([channel for channel in self._feeds if channel.set_name not in self.sets])
        for channel, standing in found:
            if standing is None:
                self._end([channel])
                continue
            if isinstance(standing, Exception):
                _say_unreadable(channel, standing)
                continue
            head = standing.head
            feed = self._feed_of(channel, head)
            self._ring(channel, head)
            if head < feed.tail.head:
                log.error("%r went back to %s: Redis has lost changes", feed, head)
                feed.go_back(head)

    def _feed_of(self, channel: ChannelName, head: Position) -> Feed:
        """The channel's feed, a new one if the set was made anew."""
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
        """Read on in every channel that rang; render once; push."""
        async with self._turn:
            await self._read_on()

    async def _read_on(self) -> None:
        rung, self._rung = self._rung, {}
        cursors = self._cursors(rung)
        if not cursors:
            return
        feeds = {channel: self._feeds[channel] for channel in cursors}
        read, number = await self._journal.read_on(cursors, count=NOTIFICATION_CHANGES)
        if number != self.sets_version:
            await self._look()  # a change is told by what its set was when it was published
        for channel, rows in read.items():
            feed = self._feeds.get(channel)
            if feed is not feeds[channel] or feed.tail.head != cursors[channel]:
                continue  # of a set that was made anew, or of a journal that went back
            if self._pushed(feed, rows) == NOTIFICATION_CHANGES:
                self._rung.setdefault(channel, rung[channel])
            await asyncio.sleep(0)  # thousands of readers: let the loop serve others in between

    def _pushed(self, feed: Feed, rows: Sequence[Row] | Exception) -> int:
        """How many changes were pushed; a channel that cannot be served holds up no other."""
        try:
            if isinstance(rows, Exception):
                raise rows
            self._push(feed, rows)
        except Exception as error:
            _say_unreadable(feed.channel, error)
            return 0
        return len(rows)

    def _cursors(self, rung: Mapping[ChannelName, Position]) -> dict[ChannelName, Position]:
        """From where to read on; a channel that nobody reads just moves on."""
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


def _say_unreadable(channel: ChannelName, error: Exception) -> None:
    log.warning("what Redis has of %s cannot be read", channel, exc_info=error)
