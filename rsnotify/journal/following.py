"""Follows all journals and pushes what is new to the feeds.

The bell and the clock wake `Following`; without the bell it is only slower. `Checking` compares
what this process knows with Redis: the sets once a second, the journals in turn
(`CompareSchedule`), and at once what this process changes itself. It does so under one lock, so
that nobody changes the sets between reading and comparing.

What this process has appended itself is pushed from memory (`appended`), before the bell rings.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product, starmap
from math import ceil
from operator import attrgetter
from time import monotonic

from rsnotify.errors import TryAgain
from rsnotify.journal.appends import Appended
from rsnotify.journal.coordination import TOKEN_ACTS, Bell
from rsnotify.journal.feed import Feed, Feeds, log_unreadable
from rsnotify.journal.healing import plan_recall
from rsnotify.journal.journal import Journal, Standing
from rsnotify.journal.repairing import Repairing
from rsnotify.journal.set_options import SetRecord
from rsnotify.journal.sets import KnownSets, Sets, Version
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import (
    KINDS,
    NOTIFICATION_CHANGES,
    ChannelName,
    Row,
    first_batch,
    render_notification,
)

log = logging.getLogger(__name__)

# --- comparing -----------------------------------------------------------------------------------

ROUND_TICKS = 60  # what the bell has missed is found within so many seconds…
LEAST_CHANNELS = 200  # …or the next one, if there are no more channels than this
MOST_CHANNELS = 4_000  # in a second, while the bell is not heard
UNREAD_EVERY = 10  # a channel without readers is compared in every tenth round


class CompareSchedule:
    """Which channels are compared next: all of them in turn."""

    def __init__(self, feeds: Feeds, bell: Bell) -> None:
        self._feeds = feeds
        self._bell = bell
        self._left: Iterator[tuple[int, ChannelName]] = iter(())
        self._number = 0
        self._is_urgent = False
        self._connections = 0

    def look_at_all(self) -> None:
        """Something may have been missed: compare all once, as fast as is reasonable."""
        self._left = self._begin()
        self._is_urgent = True

    def next(self) -> list[ChannelName]:
        """What to compare in this second."""
        if self._bell.connections != self._connections:
            self._connections = self._bell.connections
            self.look_at_all()
        is_urgent, count = self._is_urgent, self._count()
        passed = list(islice(self._left, count))
        if len(passed) < count:
            self._is_urgent = False
            self._left = self._begin()
            passed += islice(self._left, count - len(passed))
        return [
            channel
            for place, channel in passed
            if is_urgent or self._is_read(channel) or (place + self._number) % UNREAD_EVERY == 0
        ]

    def _count(self) -> int:
        if self._is_urgent or not self._bell.is_heard:
            return MOST_CHANNELS
        return max(LEAST_CHANNELS, ceil(len(self._feeds) / ROUND_TICKS))

    def _begin(self) -> Iterator[tuple[int, ChannelName]]:
        self._number += 1
        return enumerate(list(self._feeds))

    def _is_read(self, channel: ChannelName) -> bool:
        feed = self._feeds.get(channel)
        return feed is not None and self._feeds.is_read(feed)


TICK_SECONDS = 1.0
CHECK_SHARE = 10  # at most a tenth of the time is spent on checks because the bell rang
AT_ONCE = 2_000  # journals to ask about in one round trip

STALE_SECONDS = 5.0  # a follow loop this far behind makes the hub unready


class Checking:
    """When to check, and what a check finds."""

    def __init__(
        self,
        journal: Journal,
        stored_sets: Sets,
        repairing: Repairing,
        sets: KnownSets,
        feeds: Feeds,
        bell: Bell,
    ) -> None:
        self.lock = asyncio.Lock()
        self._journal = journal
        self._stored_sets = stored_sets
        self._repairing = repairing
        self._sets = sets
        self._feeds = feeds
        self._bell = bell
        self._schedule = CompareSchedule(feeds, bell)
        self._out_of_turn: dict[ChannelName, None] = {}  # to be compared in the next check
        self._next = self._next_of_sets = float("-inf")
        self._ended = monotonic() - STALE_SECONDS
        self._sets_rang = False
        repairing.recover += (self._put_sets_back, self._hear_anew)

    @property
    def is_current(self) -> bool:
        """Whether the journals have been seen within the last seconds."""
        return self.age < STALE_SECONDS

    @property
    def age(self) -> float:
        """Seconds since the journals were seen."""
        return monotonic() - self._ended

    @property
    def next_at(self) -> float:
        """When the next check is due."""
        return min(self._next, self._next_of_sets) if self._sets_rang else self._next

    def ring(self) -> None:
        """Another process may have created, edited or deleted a set."""
        self._sets_rang = True

    def postpone(self) -> None:
        """Something went wrong: check again, but not at once."""
        self._next = monotonic() + TICK_SECONDS

    def look_at(self, channels: Iterable[ChannelName]) -> None:
        """Compare these in the next check, even if it is not their turn."""
        self._out_of_turn.update(dict.fromkeys(channels))

    async def check_what_is_due(self) -> None:
        if monotonic() >= self._next:
            await self.check_some()
        elif self._sets_rang and monotonic() >= self._next_of_sets:
            self._sets_rang = False
            await self.check_changed_sets()

    async def check_some(self) -> None:
        """Check which sets exist, and those journals whose turn it is."""
        async with self.lock:
            await self.update(self._schedule.next())
        self._feeds.release_idle()

    async def check_sets(self) -> None:
        """Check which sets exist."""
        async with self.lock:
            await self.update()

    async def check_changed_sets(self) -> None:
        """Check which sets exist, if any was changed. To be called before what was read is given
        to anybody: its set may have become private before that was published."""
        if await self._stored_sets.version() != self._sets.version:
            await self.check_sets()

    async def check_all(self) -> None:
        """Check which sets exist and which journals have new changes."""
        async with self.lock:
            await self.update(list(self._feeds))

    async def _hear_anew(self) -> None:
        """Redis is another one now: strokes of the bell may have gone elsewhere."""
        self._bell.doubt()
        self._schedule.look_at_all()

    async def apply_own_change(self, name: str, record: SetRecord | None, version: Version) -> None:
        """Apply a change of a set by this process, without reading all other sets."""
        async with self.lock:
            if self._sets.has_seen(name, record, version):
                return
            if not self._sets.can_apply(name, record, version):
                await self.update()
                return
            is_new = name not in self._sets.records
            self._feeds.turn_private(self._sets.apply(name, record, version))
            if record is None:
                self._feeds.remove_set(name)
            elif is_new:
                self._feeds.add_set(name, record.created)
                self.look_at(ChannelName(name, kind) for kind in KINDS)  # see `update`

    async def _put_sets_back(self) -> None:
        """Put back the sets that Redis has lost, and remove again those that were removed."""
        known, number = self._sets.records, self._sets.number
        stored = await self._stored_sets.stored()
        records = {name: record for name, (_, record) in stored.items()}
        removed = self._sets.removed.at(monotonic())
        plan = plan_recall(known, removed, records, lambda record: (record.created, record.edited))
        for name in plan.remove:
            await self._stored_sets.remove(name)
        for name in plan.put_back:
            await self._put_set_back(known[name], *stored.get(name, (b"", None)))
        kept = [record for name, record in records.items() if name not in plan.remove]
        await self._stored_sets.begin_lost_journals(kept)
        await self._stored_sets.pass_version(number)

    async def _put_set_back(
        self, record: SetRecord, before: bytes, other: SetRecord | None
    ) -> None:
        if other is not None and other.created != record.created:
            await self._stored_sets.remove(record.name)  # it was, before the set was made again
            before = b""
        if await self._stored_sets.put_back(record, before):
            log.error("Redis had lost the set %r, or its last change: it is put back", record.name)

    async def update(self, channels: Iterable[ChannelName] = ()) -> None:
        """Read which sets there are, and where these journals stand; under the lock.

        What cannot be compared now is compared in the next check, and so is a feed that is made
        now: the bell may have rung before it was followed.
        """
        self.look_at(channels)
        due, self._out_of_turn = self._out_of_turn, {}  # others may add to it meanwhile
        try:
            await self._update(due)
        except BaseException:
            self.look_at(due)
            raise

    async def _update(self, due: dict[ChannelName, None]) -> None:
        began, self._sets_rang = monotonic(), False
        self._next = began + TICK_SECONDS
        await self._repairing.check_lineage()
        version = await self._stored_sets.version()
        records = known = self._sets.records
        if version != self._sets.version:
            self._sets.former = await self._stored_sets.former()
            records = await self._stored_sets.all()
            due.update(dict.fromkeys(self._without_feed(records)))
        await self._repairing.check_restart(records)
        asked = [each for each in due if each.set_name in records]
        seen = [self._feeds.seen(channel) for channel in asked]
        standings = await self._standings(asked)
        # From here on nothing is awaited, so sets and feeds change together.
        self._feeds.turn_private(self._sets.replace(records, version))
        if records is not known:
            self._feeds.keep_sets(records)
        for channel, position, standing in zip(asked, seen, standings, strict=True):
            if not self._feeds.compare(channel, records[channel.set_name].created, standing):
                self.look_at([channel])
            feed = self._feeds.get(channel)
            if feed is not None and isinstance(standing, Standing):
                self._repairing.check(feed, position, standing)
        await self._repairing.check_suspects()
        self._ended = monotonic()
        self._next_of_sets = self._ended + (CHECK_SHARE - 1) * (self._ended - began)

    async def _standings(
        self, channels: Sequence[ChannelName]
    ) -> list[Standing | Exception | None]:
        found: list[Standing | Exception | None] = []
        for start in range(0, len(channels), AT_ONCE):
            found += await self._journal.standings(channels[start : start + AT_ONCE])
        return found

    def _without_feed(self, records: Mapping[str, SetRecord]) -> Iterator[ChannelName]:
        """The channels that are not followed yet."""
        for channel in starmap(ChannelName, product(records, KINDS)):
            if not self._feeds.knows(channel, records[channel.set_name].created):
                yield channel


# --- following -----------------------------------------------------------------------------------

FEW_READERS = 8  # to write to them takes less than to make the answer
OWN_STROKE_SECONDS = 0.25  # our own are looked at after this time, or twice as long


class Following:
    """The follow loop, and what the bell wakes it for."""

    def __init__(
        self,
        journal: Journal,
        bell: Bell,
        checking: Checking,
        repairing: Repairing,
        sets: KnownSets,
        feeds: Feeds,
        *,
        base_url: str,
    ) -> None:
        self.caller = journal.appends.caller
        self._journal = journal
        self._bell = bell
        self._checking = checking
        self._repairing = repairing
        self._sets = sets
        self._feeds = feeds
        self._own_strokes: dict[str, str] = {}  # channel -> head, since the timer ran last
        self._older_strokes: dict[str, str] = {}  # those before: looked at when it runs next
        self._waiting: dict[ChannelName, dict[Position, Appended]] = {}  # by where each begins
        self._rounds = asyncio.Condition()  # notified after each
        self._base_url = base_url
        self.hear_of_token: Callable[[str, str], None] = lambda _, __: None

    async def run(self) -> None:
        """Follow for as long as the hub runs."""
        while True:
            await self.go_on()
            async with self._rounds:
                self._rounds.notify_all()
            await self._wait()

    async def reached(self, feed: Feed, position: Position) -> None:
        """Wait until the channel was read so far, or is no more."""
        async with self._rounds:
            await self._rounds.wait_for(
                lambda: feed.tail.head >= position or self._feeds.get(feed.channel) is not feed
            )

    async def go_on(self) -> None:
        """Check what is due, read what is new."""
        try:
            await self._checking.check_what_is_due()
            await self.read_new()
        except TryAgain as error:
            log.debug("cannot follow the journals, trying again: %s", error.detail)
            self._try_again_later()
        except Exception as error:  # a bug, or damaged data: keep the readers
            log.warning("following the journals failed, trying again", exc_info=error)
            self._try_again_later()

    async def listen(self) -> None:
        """Listen to the bell, which other hub processes ring too, for as long as the hub runs."""
        await self._bell.listen(self.hear)

    def hear(self, stroke: str) -> None:
        """Take a stroke of the bell: a caller has appended, or something else has changed."""
        name, _, appended = stroke.partition(" ")
        caller, _, head = appended.partition(" ")
        if name in TOKEN_ACTS:
            self.hear_of_token(name, appended)
        elif caller == self.caller:
            self._hear_own(name, head)
        elif not self._ring(name, head):
            self._checking.ring()
            self._feeds.woken.set()

    def _ring(self, name: str, head: str) -> bool:
        """The channel's journal ends there; False if that is no channel, or no position."""
        set_name, _, kind = name.partition("/")
        if kind not in KINDS or not head.isdecimal():
            return False
        self._feeds.ring(ChannelName(set_name, kind), Position(int(head)))
        return True

    def _hear_own(self, name: str, head: str) -> None:
        """As a rule, readers are notified at once of what was appended here. The journal is looked
        at later all the same: if the Source has gone meanwhile, nobody has notified them."""
        if not self._own_strokes and not self._older_strokes:
            asyncio.get_running_loop().call_later(OWN_STROKE_SECONDS, self._ring_own)
        self._own_strokes[name] = head

    def _ring_own(self) -> None:
        for name, head in self._older_strokes.items():
            self._ring(name, head)
        self._older_strokes, self._own_strokes = self._own_strokes, {}
        if self._older_strokes:
            asyncio.get_running_loop().call_later(OWN_STROKE_SECONDS, self._ring_own)

    def _try_again_later(self) -> None:
        self._checking.postpone()
        self._checking.look_at(self._feeds.forget_rung())

    async def _wait(self) -> None:
        if self._feeds.have_rung:
            return
        self._feeds.woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._checking.next_at - monotonic())):
                await self._feeds.woken.wait()

    async def read_new(self) -> None:
        """Read new changes of the channels that rang, render them, push them."""
        async with self._checking.lock:
            rung = self._feeds.take_rung()
            if not rung:
                return
            try:
                await self._read(rung)
            except Exception:
                self._checking.look_at(rung)
                raise

    async def _read(self, rung: Mapping[ChannelName, tuple[Feed, Position]]) -> None:
        cursors = {channel: feed.tail.head for channel, (feed, _) in rung.items()}
        read, number = await self._journal.read_from(cursors, count=NOTIFICATION_CHANGES)
        if number != self._sets.number:
            # So that a gap is known before, and a set that became private.
            await self._checking.update(rung)
        for channel, found in read.items():
            feed, head = rung[channel]
            rows = await self._repairing.joined(feed, cursors[channel], found)
            if self._feeds.get(channel) is not feed or feed.tail.head != cursors[channel]:
                continue  # the set was created again, or Redis lost changes
            if self.push_rows(feed, rows) >= NOTIFICATION_CHANGES:  # one row more where it begins
                self._feeds.ring_again(channel, head)
            await asyncio.sleep(0)  # let others run: there may be thousands of readers

    def push_rows(self, feed: Feed, rows: Sequence[Row] | Exception) -> int:
        """Push what follows the tail; return how many changes.

        An error in one channel does not stop the others.
        """
        if isinstance(rows, TryAgain):
            self._checking.look_at([feed.channel])  # its part of Redis is away
            return 0
        try:
            if isinstance(rows, Exception):
                raise rows
            self._push_batches(feed, rows)
        except Exception as error:
            log_unreadable(feed.channel, error)
            return 0
        return len(rows)

    def _push_batches(self, feed: Feed, rows: Sequence[Row]) -> None:
        while rows:
            taken = first_batch(rows)
            begin = feed.tail.head
            feed.push(render_notification(feed.channel, begin, taken, base_url=self._base_url))
            self._feeds.remember_read(feed, taken)
            rows = rows[len(taken) :]

    # --- what this process has appended ----------------------------------------------------------

    def appended(self, feed: Feed, stored: Appended) -> None:
        """The journal has it: notify readers. A few are notified at once. Where there are many, or
        several appends, they get one notification, after the Sources have their answers."""
        if stored.is_repeated or not self._feeds.is_read(feed):
            self._feeds.ring(feed.channel, stored.until)
            return
        if stored.is_alone and feed.writes_at_most(FEW_READERS):
            self._push_appended(feed, {stored.from_: stored})
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._push_one)
        self._waiting.setdefault(feed.channel, {})[stored.from_] = stored

    def _push_one(self) -> None:
        """Push what was appended to one channel, as it may have thousands of readers."""
        channel = next(iter(self._waiting))
        waiting = self._waiting.pop(channel)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._push_one)
        if (feed := self._feeds.get(channel)) is not None:
            self._push_appended(feed, waiting)

    def _push_appended(self, feed: Feed, waiting: dict[Position, Appended]) -> None:
        if not self._journal.appends.writing and not self._checking.lock.locked():
            rows = [row for each in self._next(feed.tail.head, waiting) for row in each.rows]
            self.push_rows(feed, rows)
        newest = max(map(attrgetter("until"), waiting.values()))
        if newest > feed.tail.head:  # it was not pushed, or not all of it
            self._feeds.ring(feed.channel, newest)

    def _next(self, cursor: Position, waiting: dict[Position, Appended]) -> Iterator[Appended]:
        """The appends that follow the cursor without a gap."""
        while following := waiting.get(cursor):
            if following.sets_version != self._sets.number or following.until == cursor:
                return
            yield following
            cursor = following.until
