"""Repairs journals that Redis has lost the end of, from what this process remembers.

A loss shows in four ways: an append gets the answer that the journal is behind; what is read on
does not join; a journal ends before a position that was seen; Redis is another one, or was started
again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import product, starmap
from math import inf
from time import monotonic
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from rsnotify.errors import JournalIsBehind, KeysMoving, NoSuchSet, Rejected, TryAgain
from rsnotify.journal.appends import UNSEEN, Appended
from rsnotify.journal.feed import Feed, Feeds, log_unreadable
from rsnotify.journal.healing import Repair, is_whole, lost_rows, lost_until, plan_repair
from rsnotify.journal.journal import Journal, Standing
from rsnotify.journal.repairs import Lineage, Repairs
from rsnotify.journal.submission import Submission
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import KINDS, ChannelName, Row
from rsnotify.single_flight import SingleFlight

MOVING_SECONDS = 2.0  # then the caller gets 503, before three seconds have passed
AGAIN_SECONDS = 0.05

Done = TypeVar("Done")


async def when_moved(act: Callable[[], Awaitable[Done]]) -> Done:
    """Do it; again, as long as nothing could be done because the keys are being moved."""
    until = monotonic() + MOVING_SECONDS
    while True:
        try:
            return await act()
        except KeysMoving:
            if monotonic() > until:
                raise
        await asyncio.sleep(AGAIN_SECONDS)


ORDER_SECONDS = 1.0  # for others to put back first what was before: they notice within a second
OTHERS_SECONDS = 30.0  # what nobody has put back by then, also who was busy, nobody remembers
SUSPECTS_SECONDS = 0.25  # of each second, to look at journals after Redis has changed
AT_ONCE = 1_000  # journals to ask about in one journey

UNREADABLE = "the journal has lost changes, and cannot be read now; nothing was stored"
LEFT_TO_OTHERS = "lost changes are still to be put back"

log = logging.getLogger(__name__)


class _Look(NamedTuple):
    """What a journal needs; no plan if nothing."""

    last: Position
    plan: Repair | None
    lost: Position | None  # and remembered by nobody here
    is_partial: bool  # some requests are remembered here, but not all their rows
    is_held: bool


class Repairing:
    """Appends and reads, and what they find out about losses."""

    def __init__(self, journal: Journal, repairs: Repairs, feeds: Feeds) -> None:
        self._journal = journal
        self._repairs = repairs
        self._feeds = feeds
        self._lineage: Lineage | None = None
        self._noted: Lineage | None = None  # for which the journals have got a floor
        self.recover: list[Callable[[], Awaitable[None]]] = []  # what puts records back
        self._unproven: list[Feed] = []  # because Redis is another one
        self._suspects: dict[Feed, None] = {}  # of these, and others, what has to be looked at
        self._doubts: WeakKeyDictionary[Feed, float] = WeakKeyDictionary()  # since when
        self._partial: WeakKeyDictionary[Feed, float] = WeakKeyDictionary()  # since when
        self.gaps = 0  # how often changes were lost that nobody remembered
        self._running: SingleFlight[Feed, None] = SingleFlight("repair of a journal")

    async def append(self, feed: Feed, submission: Submission) -> Appended:
        """Append, and remember what was acknowledged; repair the journal first if it is behind, and
        wait a little if a Cluster moves it."""
        try:
            stored = await self._append(feed, submission)
        except (JournalIsBehind, KeysMoving):
            stored = await when_moved(lambda: self._append_repaired(feed, submission))
        self._feeds.remember_append(feed, submission, stored)
        return stored

    def _append(self, feed: Feed, submission: Submission) -> Awaitable[Appended]:
        return self._journal.append(feed.channel, submission, seen=feed.memory.newest)

    async def _append_repaired(self, feed: Feed, submission: Submission) -> Appended:
        try:
            return await self._append(feed, submission)
        except JournalIsBehind:
            await self._repair_for(feed)
            return await self._append(feed, submission)

    async def _repair_for(self, feed: Feed) -> None:
        """…for somebody who publishes, who may repeat that if the journal cannot be read now."""
        try:
            await self.repair(feed)
        except (TryAgain, Rejected):
            raise
        except Exception as error:
            raise TryAgain(UNREADABLE) from error

    async def joined(
        self, feed: Feed, cursor: Position, found: Sequence[Row] | Exception
    ) -> Sequence[Row] | Exception:
        """The rows after the cursor; none if they do not join it, until that is repaired.

        They join if the change at the cursor is there, if nothing was kept before them, or if that
        change was lost and stands further on now: then what follows is all that was not sent yet.
        """
        if isinstance(found, Exception):
            return found
        if found and found[0][0] == cursor:
            return found[1:]
        standing = await self._standing(feed.channel)
        if standing is None or standing.gap <= cursor <= max(standing.first, standing.gap):
            return found
        is_done = await self._is_done(feed)
        return found if is_done and await self._repairs.is_moved(feed.channel, cursor) else ()

    async def check_lineage(self) -> None:
        """Suspect all records and journals, if Redis is another one now, with data that we know."""
        before, now = self._lineage, await self._repairs.lineage()
        if before is not None and before.data == now.data and before.servers != now.servers:
            for recover in self.recover:
                await _unless_damaged(recover)
            for feed in self._feeds.best_remembered():
                if before.server_of(feed.channel) != now.server_of(feed.channel):
                    feed.losses += 1
                    feed.release()  # what was made of lost changes would be listed again
                    self._unproven.append(feed)
        self._lineage = now

    async def check_restart(self, set_names: Iterable[str]) -> None:
        """Before anything is published to a Redis that may have been started with older data."""
        if self._lineage is None or self._lineage == self._noted:
            return
        channels = [*starmap(ChannelName, product(set_names, KINDS))]
        await self._repairs.note_servers(self._lineage.servers.names, channels)
        self._noted = self._lineage

    async def check_suspects(self) -> None:
        """Some at a time: nobody waits long for this, and appends look at their own journals."""
        until = monotonic() + SUSPECTS_SECONDS
        while self._unproven and monotonic() < until:
            await self._sort_out(self._unproven[:AT_ONCE])
        for feed in list(self._suspects):
            if await self._is_done(feed):
                self._suspects.pop(feed, None)
            if monotonic() > until:
                break

    async def _sort_out(self, feeds: Sequence[Feed]) -> None:
        """Those that end where they did, and of which nothing is remembered, need no look."""
        standings = await self._journal.standings([feed.channel for feed in feeds])
        for feed, standing in zip(feeds, standings, strict=True):
            if not isinstance(standing, Standing) or not _is_as_known(feed, standing):
                self._suspects[feed] = None
        del self._unproven[: len(feeds)]

    def check(self, feed: Feed, seen: Position, standing: Standing) -> None:
        """Its journal stands here: is that before what had been seen, or behind a gap?"""
        if standing.gap > feed.tail.head:
            feed.pass_gap(standing.gap)
            self._feeds.ring(feed.channel, standing.head)
        feed.note_removed(standing.removed)
        if standing.head < seen:
            self._suspects[feed] = None

    async def _is_done(self, feed: Feed) -> bool:
        """Whether its journal is as it should be; trouble with one stops no other."""
        try:
            await self.repair(feed)
        except TryAgain as error:
            log.debug("%r is repaired later: %s", feed, error.detail)
            return False
        except Exception as error:
            log_unreadable(feed.channel, error)
        return True

    async def repair(self, feed: Feed) -> None:
        """Put back what is remembered, and say what is lost; once for all who ask at a time."""
        with suppress(NoSuchSet):  # the next check ends the feed
            await self._running.result(feed, lambda: self._repair(feed))

    async def _repair(self, feed: Feed) -> None:
        found = await self._look(feed)
        waited = self._waited_for_others(feed, found)
        if waited < ORDER_SECONDS:
            raise TryAgain(LEFT_TO_OTHERS)
        is_alone = waited >= OTHERS_SECONDS
        if found.lost is not None and not found.plan and not is_alone:
            raise TryAgain(LEFT_TO_OTHERS)  # without the hold, which they need
        if found.plan is not None:
            async with self._repairs.held(feed.channel) as holder:
                await self._carry_out(feed, holder, is_alone=is_alone)
        elif found.is_held:
            await self._repairs.released(feed.channel)
        await self._go_on(feed)

    async def _look(self, feed: Feed) -> _Look:
        memory, created = feed.memory, Position.parse(feed.created)
        left = await self._repairs.remains(feed.channel, created, memory.begins)
        lost_keys = memory.keys_of(lost_rows(memory, left.rows, left.repaired))
        stored = await self._repairs.stored_keys(feed.channel, created, lost_keys)
        plan = plan_repair(memory, left.rows, left.last, left.repaired, stored)
        lost = lost_until(memory, left.rows, left.begin, left.repaired)
        is_needed = plan or lost is not None or left.last < memory.newest
        is_partial = not all(is_whole(key, memory) for key in lost_keys)
        return _Look(left.last, plan if is_needed else None, lost, is_partial, left.is_held)

    def _waited_for_others(self, feed: Feed, found: _Look) -> float:
        """For how many seconds: what is not remembered here, another process may remember."""
        if found.lost is not None and feed not in self._doubts:
            log.warning("Redis has lost changes of %s that are not remembered here", feed.channel)
            feed.release()  # what is read meanwhile is read from the journal
        now, waited = monotonic(), inf
        reasons = (self._doubts, found.lost is not None), (self._partial, found.is_partial)
        for since, is_so in reasons:
            if is_so:
                waited = min(waited, now - since.setdefault(feed, now))
            else:
                since.pop(feed, None)
        return waited

    async def _carry_out(self, feed: Feed, holder: str, *, is_alone: bool) -> None:
        """Put back what is remembered here; if nobody else does, tell of a gap where more was."""
        found = await self._look(feed)
        if found.lost is not None and is_alone:
            await self._leave_gap(feed, found.lost, holder)
            found = await self._look(feed)
        if found.plan or (found.plan is not None and found.lost is None):
            await self._put_back(feed, found, found.plan, holder)
        if found.lost is not None:
            raise TryAgain(LEFT_TO_OTHERS)

    async def _put_back(self, feed: Feed, found: _Look, plan: Repair, holder: str) -> None:
        """Nothing is appended before what has been seen, once all of that is there again."""
        seen = feed.memory.newest if found.lost is None else UNSEEN
        if not await self._repairs.repair(
            feed.channel, plan, last=found.last, seen=seen, holder=holder
        ):
            raise TryAgain("the journal has changed while it was repaired")
        log.error(
            "Redis had lost changes of %s: %d were put back, %d were published again",
            feed.channel,
            len(plan.put_back),
            len(plan.again),
        )

    async def _leave_gap(self, feed: Feed, lost: Position, holder: str) -> None:
        if not await self._repairs.leave_gap(feed.channel, lost, holder):
            raise TryAgain("the journal has changed while it was repaired")
        self.gaps += 1
        log.error(
            "changes of %s up to %s are lost: no hub process remembers them; readers are notified",
            feed.channel,
            lost,
        )

    async def _go_on(self, feed: Feed) -> None:
        """Follow the journal as it is now. If it has lost more, the next check repairs it again:
        what readers have got stays behind them."""
        standing = await self._standing(feed.channel)
        if standing is None:
            return
        if standing.gap > feed.tail.head:
            feed.pass_gap(standing.gap)
        feed.note_removed(standing.removed)
        self._feeds.ring(feed.channel, standing.head)

    async def _standing(self, channel: ChannelName) -> Standing | None:
        (standing,) = await self._journal.standings([channel])
        if isinstance(standing, Exception):
            raise standing
        return standing


def _is_as_known(feed: Feed, standing: Standing) -> bool:
    head, memory = feed.tail.head, feed.memory
    is_at_head = standing.head == head == memory.newest == memory.read_after
    return is_at_head and standing.gap <= head and not memory.rows


async def _unless_damaged(recover: Callable[[], Awaitable[None]]) -> None:
    """Data that cannot be read must not keep the rest from being put back."""
    try:
        await recover()
    except TryAgain:
        raise
    except Exception as error:
        log.warning("records that Redis has lost cannot be put back", exc_info=error)
