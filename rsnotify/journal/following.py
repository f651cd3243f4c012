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

from rsnotify.errors import TooFewReplicas, TryAgain
from rsnotify.journal.call import Appended
from rsnotify.journal.coordination import TOKEN_ACTS, Bell
from rsnotify.journal.feed import Feed, Feeds, log_unreadable
from rsnotify.journal.journal import Continuation, Journal, Standing
from rsnotify.journal.losses import Losses
from rsnotify.journal.set_options import SetRecord
from rsnotify.journal.sets import KnownSets, Sets, Version
from rsnotify.journal.witness import KnownChange, proved_by
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

PROBE_SECONDS = 10.0  # after replicas did not confirm: the bell says it when they do
STALE_SECONDS = 5.0  # a follow loop this far behind makes the hub unready


class Checking:
    """When to check, and what a check finds."""

    def __init__(
        self,
        journal: Journal,
        stored_sets: Sets,
        losses: Losses,
        sets: KnownSets,
        feeds: Feeds,
        bell: Bell,
    ) -> None:
        self.lock = asyncio.Lock()
        self._journal = journal
        self._stored_sets = stored_sets
        self._losses = losses
        self._sets = sets
        self._feeds = feeds
        self._bell = bell
        self._schedule = CompareSchedule(feeds, bell)
        self._out_of_turn: dict[ChannelName, None] = {}  # to be compared in the next check
        self._next = self._next_of_sets = self._next_probe = float("-inf")
        self._ended = monotonic() - STALE_SECONDS
        self._sets_rang = False
        losses.after_another_server += (self._close_sets_again, self._hear_anew)

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

    async def _close_sets_again(self) -> None:
        """Redis has gone back, perhaps: what was private stays so. What is lost besides is said."""
        known, number = self._sets.records, self._sets.number
        stored = await self._stored_sets.all()
        for name, record in stored.items():
            before = known.get(name)
            if before is None and self._sets.removed.has(name, monotonic()):
                log.error("Redis has lost that the set %r was removed: it is there again", name)
            elif before is not None and before.age > record.age:
                log.error("Redis has lost the last change of the set %r, or the set itself", name)
                if before.private and not record.private:
                    await self._stored_sets.edit(name, {"private": True})
        for name in known.keys() - stored.keys():
            log.error("Redis has lost the set %r", name)
        await self._stored_sets.begin_lost_journals(stored.values())
        await self._stored_sets.pass_version(number)

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
        await self._losses.check_lineage()
        version = await self._stored_sets.version()
        records = before = self._sets.records
        if version != self._sets.version:
            self._sets.note_former(await self._stored_sets.former())
            records = await self._stored_sets.all()
            due.update(dict.fromkeys(self._without_feed(records)))
        asked = [each for each in due if each.set_name in records]
        known = [self._feeds.evidence(channel) for channel in asked]
        standings = await self._confirmed(asked, await self._standings(asked))
        # From here on nothing is awaited, so sets and feeds change together.
        self._feeds.turn_private(self._sets.replace(records, version))
        if records is not before:
            self._feeds.keep_sets(records)
        for channel, evidence, standing in zip(asked, known, standings, strict=True):
            if not self._feeds.compare(channel, records[channel.set_name].created, standing):
                self.look_at([channel])
            feed = self._feeds.get(channel)
            if feed is not None and isinstance(standing, Standing):
                self._losses.check(feed, evidence, standing)
        await self._losses.look_at_suspects()
        self._ended = monotonic()
        self._next_of_sets = self._ended + (CHECK_SHARE - 1) * (self._ended - began)

    async def _standings(
        self, channels: Sequence[ChannelName]
    ) -> list[Standing | Exception | None]:
        found: list[Standing | Exception | None] = []
        for start in range(0, len(channels), AT_ONCE):
            found += await self._journal.standings(channels[start : start + AT_ONCE])
        return found

    async def _confirmed(
        self, channels: Sequence[ChannelName], standings: Sequence[Standing | Exception | None]
    ) -> Sequence[Standing | Exception | None]:
        """Where replicas confirm: up to what they have, if that is news. A hub that starts while
        they are away begins with what is there."""
        if not self._journal.client.confirms:
            return standings
        news = [
            channel
            for channel, standing in zip(channels, standings, strict=True)
            if isinstance(standing, Standing) and self._feeds.is_news(channel, standing)
        ]
        found: dict[ChannelName, Standing | Exception | None] = {}
        if news and monotonic() >= self._next_probe:
            found = dict(zip(news, await self._journal.confirmed(news), strict=True))
            if any(isinstance(each, TooFewReplicas) for each in found.values()):
                self._next_probe = monotonic() + PROBE_SECONDS
        confirmed = {
            name: each for name, each in found.items() if not isinstance(each, TooFewReplicas)
        }
        without = {*news} - confirmed.keys()
        return [
            self._feeds.without_news(channel, standing)
            if channel in without
            else confirmed.get(channel, standing)
            for channel, standing in zip(channels, standings, strict=True)
        ]

    def _without_feed(self, records: Mapping[str, SetRecord]) -> Iterator[ChannelName]:
        """The channels that are not followed yet."""
        for channel in starmap(ChannelName, product(records, KINDS)):
            if not self._feeds.knows(channel, records[channel.set_name].created):
                yield channel


# --- following -----------------------------------------------------------------------------------

FEW_READERS = 8  # to write to them takes less than to make the answer
OWN_STROKE_SECONDS = 0.25  # our own are looked at after this time, or twice as long

HearOfToken = Callable[[str, str], None]
"""Called with what was done to a token, of `TOKEN_ACTS`, and with the token's key."""


def not_heard(_: str, __: str) -> None:
    """Nobody here judges tokens."""


class Following:
    """The follow loop, and what the bell wakes it for."""

    def __init__(
        self,
        journal: Journal,
        bell: Bell,
        checking: Checking,
        losses: Losses,
        sets: KnownSets,
        feeds: Feeds,
        *,
        base_url: str,
        hear_of_token: HearOfToken,
    ) -> None:
        self.process = journal.appends.process
        self._journal = journal
        self._bell = bell
        self._checking = checking
        self._losses = losses
        self._sets = sets
        self._feeds = feeds
        # By channel: head and mark, since the timer ran last.
        self._own_strokes: dict[str, tuple[str, str]] = {}
        self._older_strokes: dict[str, tuple[str, str]] = {}  # those before: looked at next
        self._waiting: dict[ChannelName, dict[Position, Appended]] = {}  # by where each begins
        self._rounds = asyncio.Condition()  # notified after each
        self._base_url = base_url
        self._hear_of_token = hear_of_token

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
        """Take a stroke of the bell: a process has appended, or something else has changed."""
        name, _, appended = stroke.partition(" ")
        who, _, head = appended.partition(" ")
        process, _, mark = who.partition(":")
        if name in TOKEN_ACTS:
            self._hear_of_token(name, appended)
        elif process == self.process:
            self._hear_own(name, head, mark)
        elif not self._ring(name, head, mark):
            self._checking.ring()
            self._feeds.woken.set()

    def _ring(self, name: str, head: str, mark: str) -> bool:
        """The channel's journal ends there; False if that is no channel, or no position."""
        set_name, _, kind = name.partition("/")
        if kind not in KINDS or not head.isdecimal():
            return False
        self._feeds.ring(ChannelName(set_name, kind), KnownChange(Position(int(head)), mark))
        return True

    def _hear_own(self, name: str, head: str, mark: str) -> None:
        """As a rule, readers are notified at once of what was appended here. The journal is looked
        at later all the same: if the Source has gone meanwhile, nobody has notified them."""
        if not self._own_strokes and not self._older_strokes:
            asyncio.get_running_loop().call_later(OWN_STROKE_SECONDS, self._ring_own)
        self._own_strokes[name] = head, mark

    def _ring_own(self) -> None:
        for name, stroke in self._older_strokes.items():
            self._ring(name, *stroke)
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

    async def _read(self, rung: Mapping[ChannelName, tuple[Feed, KnownChange]]) -> None:
        wanted = {
            channel: (feed.tail.head, newest.position) for channel, (feed, newest) in rung.items()
        }
        read, number = await self._journal.read_from(wanted, count=NOTIFICATION_CHANGES)
        if number != self._sets.number:
            # So that it is known which set became private.
            await self._checking.update(rung)
        for channel, found in read.items():
            feed, newest = rung[channel]
            if self._feeds.get(channel) is not feed or feed.tail.head != wanted[channel][0]:
                continue  # the set was created again, or Redis has lost changes
            await self._follow(feed, newest, found)
            await asyncio.sleep(0)  # let others run: there may be thousands of readers

    async def _follow(
        self, feed: Feed, newest: KnownChange, found: Continuation | Exception | None
    ) -> None:
        """Push what was found behind the tail, if all that is known to be there is there.

        An error in one channel does not stop the others.
        """
        if isinstance(found, TryAgain):
            self._checking.look_at([feed.channel])  # its part of Redis is away
        elif isinstance(found, Exception):
            log_unreadable(feed.channel, found)
        elif found is not None and self._losses.pass_gap(feed, found.gap):
            self._feeds.ring(feed.channel, newest)
        elif found is not None:
            head, rows = feed.tail.head, found.rows
            begin = max(found.first, found.gap, Position(head - 1))
            end = rows[-1][0] if rows else head
            there = proved_by(feed.witness.changes, found.marks, begin, end)
            is_more = len(rows) >= NOTIFICATION_CHANGES  # and one more where the stream begins
            if there is None or not (is_more or end >= newest.position):
                await self._losses.look(feed)
                if there is None or feed.tail.head != head:
                    self._feeds.ring(feed.channel, newest)
                    return
            self.push_rows(feed, rows, found.marks)
            feed.witness.proved(there or ())
            if is_more:
                self._feeds.ring_again(feed.channel, newest)
            if feed.witness.is_crowded:
                await self._losses.look(feed)

    def push_rows(self, feed: Feed, rows: Sequence[Row], marks: Mapping[Position, str]) -> None:
        """Push what follows the tail, with the marks that are known."""
        try:
            while rows:
                taken = first_batch(rows)
                begin, mark = feed.tail.head, marks.get(taken[-1][0], "")
                found = render_notification(feed.channel, begin, taken, base_url=self._base_url)
                feed.push(found, mark)
                self._feeds.note_read(feed)
                rows = rows[len(taken) :]
        except Exception as error:
            log_unreadable(feed.channel, error)

    # --- what this process has appended ----------------------------------------------------------

    def appended(self, feed: Feed, stored: Appended) -> None:
        """The journal has it: notify readers. A few are notified at once. Where there are many, or
        several appends, they get one notification, after the Sources have their answers."""
        if stored.is_repeated or not self._feeds.is_read(feed):
            self._feeds.ring(feed.channel, KnownChange(stored.until, stored.mark))
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
            following = [*self._next(feed.tail.head, waiting)]
            rows = [row for each in following for row in each.rows]
            self.push_rows(feed, rows, {each.until: each.mark for each in following})
        newest = max(waiting.values(), key=attrgetter("until"))
        # If it was not pushed, or not all of it:
        self._feeds.ring(feed.channel, KnownChange(newest.until, newest.mark))

    def _next(self, cursor: Position, waiting: dict[Position, Appended]) -> Iterator[Appended]:
        """The appends that follow the cursor without a gap."""
        while following := waiting.get(cursor):
            if following.sets_version != self._sets.number or following.until == cursor:
                return
            yield following
            cursor = following.until
