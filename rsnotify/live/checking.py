"""Compares what this process knows with Redis: the sets once a second, the journals in turn
(`CompareSchedule`), and at once what this process changes itself.

It does so under one lock, so that nobody changes the sets between reading and comparing.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product, starmap
from math import ceil
from time import monotonic

from rsnotify.coordination.bell import Bell
from rsnotify.errors import NoSuchSet, TooFewReplicas
from rsnotify.journal.journal_store import JournalStore, Standing
from rsnotify.live.feed import Feeds
from rsnotify.live.losses import AfterAnotherServer, Losses
from rsnotify.resourcesync.notification import (
    KINDS,
    ChannelName,
)
from rsnotify.sets.options import SetRecord
from rsnotify.sets.records import KnownSets, Sets, Version

log = logging.getLogger(__name__)

CYCLE_SECONDS = 60  # in which all are compared: what the bell has missed is found so soon…
LEAST_CHANNELS = 200  # …or in the next second, if there are no more channels than this
MOST_CHANNELS = 4_000  # in a second, while the bell is not heard
UNREAD_EVERY = 10  # a channel without readers is compared in every tenth cycle
TICK_SECONDS = 1.0
CHECK_SHARE = 10  # at most a tenth of the time is spent on checks because the bell rang
AT_ONCE = 2_000  # journals to ask about in one round trip

PROBE_SECONDS = 10.0  # after replicas did not confirm: the bell says it when they do
STALE_SECONDS = 5.0  # a follow loop this far behind makes the hub unready


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
        return max(LEAST_CHANNELS, ceil(len(self._feeds) / CYCLE_SECONDS))

    def _begin(self) -> Iterator[tuple[int, ChannelName]]:
        self._number += 1
        return enumerate(list(self._feeds))

    def _is_read(self, channel: ChannelName) -> bool:
        feed = self._feeds.get(channel)
        return feed is not None and self._feeds.is_read(feed)


class Checking:
    """When to check, and what a check finds."""

    def __init__(
        self,
        journal: JournalStore,
        stored_sets: Sets,
        losses: Losses,
        sets: KnownSets,
        feeds: Feeds,
        bell: Bell,
        after_another_server: Collection[AfterAnotherServer],
    ) -> None:
        """`after_another_server`: who asks later to be called stands in it, too."""
        self.lock = asyncio.Lock()
        self._journal = journal
        self._stored_sets = stored_sets
        self._losses = losses
        self._sets = sets
        self._feeds = feeds
        self._bell = bell
        self._after_another_server = after_another_server
        self._schedule = CompareSchedule(feeds, bell)
        self._out_of_turn: dict[ChannelName, None] = {}  # to be compared in the next check
        self._next = self._next_of_sets = self._next_probe = float("-inf")
        self._ended = monotonic() - STALE_SECONDS
        self._sets_have_changed = False

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
        return min(self._next, self._next_of_sets) if self._sets_have_changed else self._next

    def note_sets_changed(self) -> None:
        """Another process may have created, edited or deleted a set."""
        self._sets_have_changed = True

    def postpone(self) -> None:
        """Something went wrong: check again, but not at once."""
        self._next = monotonic() + TICK_SECONDS

    def look_at(self, channels: Iterable[ChannelName]) -> None:
        """Compare these in the next check, even if it is not their turn."""
        self._out_of_turn.update(dict.fromkeys(channels))

    async def check_what_is_due(self) -> None:
        if monotonic() >= self._next:
            await self.check_some()
        elif self._sets_have_changed and monotonic() >= self._next_of_sets:
            self._sets_have_changed = False
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
        """Redis is another one now: messages of the bell may have gone elsewhere."""
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
                    with suppress(NoSuchSet):  # it is removed just now
                        await self._stored_sets.edit(name, {"private": True})
        for name in known.keys() - stored.keys():
            log.error("Redis has lost the set %r", name)
        await self._stored_sets.begin_lost_journals(stored.values())
        await self._stored_sets.raise_version(number)

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
        began, self._sets_have_changed = monotonic(), False
        self._next = began + TICK_SECONDS
        others = self._after_another_server
        await self._losses.check_lineage((self._close_sets_again, self._hear_anew, *others))
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
