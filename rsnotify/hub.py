"""The hub: publish to the journals, follow them, keep each channel's tail.

Rules that hold here: publishing never touches a reader; following is one task, woken by the bell
(a hint) and by the clock (the truth needs no bell); each notification is rendered once a process.
Nothing here knows by which transport a reader came.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic

from rsnotify.core.change import Position
from rsnotify.core.notification import (
    KINDS,
    NOTIFICATION_CHANGES,
    ChannelName,
    Interval,
    Notification,
    Row,
    cut,
    render_notification,
)
from rsnotify.core.submission import Submission
from rsnotify.errors import Rejected, Trimmed, TryAgain, no_such_set
from rsnotify.feed import Feed
from rsnotify.history import History
from rsnotify.storage.bell import Bell
from rsnotify.storage.journal import Journal, Standing
from rsnotify.storage.sets import SetOptions, SetRecord, Sets
from rsnotify.storage.windows import Windows

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
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
    ) -> None:
        self.base_url = base_url
        self.sets: dict[str, SetRecord] = {}
        self.sets_changed = Position(0)
        self._journal = journal
        self._history = History(journal, windows)
        self._registry = sets
        self._registry_version = -1
        self._bell = bell
        self._feeds: dict[ChannelName, Feed] = {}
        self._rung: dict[ChannelName, Position] = {}
        self._woken = asyncio.Event()
        self._turn = asyncio.Lock()
        self._catching_up = asyncio.Semaphore(CATCHING_UP_AT_ONCE)
        self._next_tick = self._current_at = float("-inf")

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
        added = await self._registry.add(name, options)
        await self._look_around()
        return added

    async def edit_set(self, name: str, chosen: Mapping[str, object]) -> SetRecord:
        record = await self._registry.edit(name, chosen)
        await self._look_around()
        return record

    async def remove_set(self, name: str) -> None:
        await self._registry.remove(name)
        await self._look_around()

    # --- the ways out --------------------------------------------------------------------------

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

    async def head(self, channel: ChannelName) -> Position:
        """The newest change of all hub processes, whatever this one has seen of it."""
        return (await self.standing(channel)).head

    async def after(self, feed: Feed, cursor: Position) -> Notification | None:
        """The notification that follows the cursor; None at the head."""
        if cursor >= feed.tail.head:
            return None
        found = feed.tail.next_after(cursor)
        if found is not None:
            return found
        stretch = feed.past.get(cursor)
        if stretch is None:  # ten thousand readers at one cursor read and render it once
            stretch = asyncio.create_task(self._from_journal(feed, cursor))
            feed.remember(cursor, stretch)
        return await asyncio.shield(stretch)

    async def stretch_after(self, feed: Feed, cursor: Position) -> Notification | None:
        """As much of what follows the cursor as one notification may carry; None at the head."""
        found = await self.after(feed, cursor)
        if found is None or found.until >= feed.tail.head or found.from_ < feed.tail.start:
            return found
        return feed.join_after(found, self.base_url)

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
        until = feed.tail.boundary_after(cursor)
        try:
            async with self._catching_up:
                rows = await self._history.read(
                    feed.channel, cursor, until=until, count=NOTIFICATION_CHANGES
                )
        except Trimmed as trimmed:
            raise self._gone(feed.channel, trimmed) from None
        if not rows:
            raise TryAgain("the journal has changed; connect again")
        return self._render(feed.channel, cursor, cut(rows))

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
                self._next_tick = float("-inf")
                self._woken.set()

    def _wait_a_tick(self) -> None:
        self._next_tick = monotonic() + TICK_SECONDS
        self._rung.clear()  # the next look around finds what they rang for

    def _ring(self, channel: ChannelName, head: Position) -> None:
        feed = self._feeds.get(channel)
        if feed is not None and head > feed.tail.head:
            self._rung[channel] = head
            self._woken.set()

    async def _wait(self) -> None:
        if self._rung:
            return
        self._woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._next_tick - monotonic())):
                await self._woken.wait()

    async def _look_around(self) -> None:
        """The clock's round: which sets there are, and which journals have moved unheard."""
        async with self._turn:  # what was seen before somebody's turn must not be judged after it
            await self._look()

    async def _look(self) -> None:
        self._next_tick = monotonic() + TICK_SECONDS
        version = await self._registry.version()
        sets, changed = self.sets, self.sets_changed
        if version != self._registry_version:
            changed, sets = await self._registry.changed(), await self._registry.all()
        channels = [ChannelName(name, kind) for name in sets for kind in KINDS]
        standings = await self._journal.standings(channels) if channels else []
        # From here on nothing is awaited: the sets and their feeds change together.
        before, self.sets = self.sets, sets
        self.sets_changed, self._registry_version = changed, version
        self._turn_private(before)
        self._compare(zip(channels, standings, strict=True))
        self._current_at = monotonic()

    def _turn_private(self, before: Mapping[str, SetRecord]) -> None:
        """Tell the channels of each set that was public until now."""
        for channel, feed in self._feeds.items():
            record, old = self.sets.get(channel.set_name), before.get(channel.set_name)
            if record is not None and old is not None and record.private > old.private:
                feed.turn_private()

    def _compare(self, found: Iterable[tuple[ChannelName, Standing | Exception | None]]) -> None:
        """Bring the feeds in line with the journals; one that cannot be read stays as it was."""
        standings = {channel: standing for channel, standing in found if standing is not None}
        for channel in self._feeds.keys() - standings.keys():
            self._feeds.pop(channel).end()
        for channel, standing in standings.items():
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
            if feed is not None:
                feed.end()
            feed = self._feeds[channel] = Feed(channel, created, head)
        return feed

    async def _advance(self) -> None:
        """Read on in every channel that rang; render once; push."""
        async with self._turn:
            await self._read_on()

    async def _read_on(self) -> None:
        rung, self._rung = self._rung, {}
        cursors = {
            channel: self._feeds[channel].tail.head
            for channel, head in rung.items()
            if channel in self._feeds and head > self._feeds[channel].tail.head
        }
        if not cursors:
            return
        feeds = {channel: self._feeds[channel] for channel in cursors}
        read, version = await self._journal.read_on(cursors, count=NOTIFICATION_CHANGES)
        if version != self._registry_version:
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

    def _push(self, feed: Feed, rows: Sequence[Row]) -> None:
        while rows:
            taken = cut(rows)
            feed.push(self._render(feed.channel, feed.tail.head, taken))
            rows = rows[len(taken) :]


def _say_unreadable(channel: ChannelName, error: Exception) -> None:
    log.warning("what Redis has of %s cannot be read", channel, exc_info=error)
