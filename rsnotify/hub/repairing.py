"""Repairs journals that Redis has lost the end of, from what this process remembers.

A loss shows in four ways: an append is told that the journal is behind; what is read on does not
join; a journal ends before a position that was seen; Redis is another one, or was started again.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress

from rsnotify.core.healing import Repair, plan_repair
from rsnotify.core.submission import Submission
from rsnotify.errors import JournalIsBehind, NoSuchSet, TryAgain
from rsnotify.feed import Feed
from rsnotify.hub.feeds import Feeds
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Row
from rsnotify.single_flight import SingleFlight
from rsnotify.storage.journal import Appended, Journal, Standing
from rsnotify.storage.repairs import Repairs

log = logging.getLogger(__name__)


class Repairing:
    """Appends and reads, and what they find out about losses."""

    def __init__(self, journal: Journal, repairs: Repairs, feeds: Feeds) -> None:
        self._journal = journal
        self._repairs = repairs
        self._feeds = feeds
        self._lineage = ""
        self._running: SingleFlight[Feed, None] = SingleFlight("repair of a journal")

    async def append(self, channel: ChannelName, submission: Submission) -> Appended:
        """Append, and remember what was acknowledged; repair the journal first if it is behind."""
        feed = self._feeds.get(channel)
        if feed is None:
            return await self._journal.append(channel, submission)
        try:
            stored = await self._journal.append(channel, submission, seen=feed.memory.newest)
        except JournalIsBehind:
            await self.repair(feed)
            stored = await self._journal.append(channel, submission, seen=feed.memory.newest)
        self._feeds.remember_append(feed, submission, stored)
        return stored

    async def joined(
        self, feed: Feed, cursor: Position, found: Sequence[Row] | Exception
    ) -> Sequence[Row] | Exception:
        """The rows after the cursor; none if they do not join, after a repair."""
        if isinstance(found, Exception):
            return found
        if found and found[0][0] == cursor:
            return found[1:]
        standing = await self._standing(feed.channel)
        if standing is None or standing.first >= cursor:
            return found
        await self.repair(feed)
        return ()

    async def check_lineage(self) -> None:
        """Look at every journal of which something is remembered, if Redis is another one now."""
        lineage = await self._repairs.lineage()
        if lineage != self._lineage:
            if self._lineage:
                for feed in self._feeds.with_memory():
                    await self.repair(feed)
            self._lineage = lineage

    async def check(self, feed: Feed, seen: Position, standing: Standing) -> None:
        """Its journal ends here: is that before what had been seen?"""
        if standing.head < seen:
            await self.repair(feed)

    async def repair(self, feed: Feed) -> None:
        """Put back what is remembered, and say what is lost; once for all who ask at a time."""
        with suppress(NoSuchSet):  # the next check ends the feed
            await self._running.result(feed, lambda: self._repair(feed))

    async def _repair(self, feed: Feed) -> None:
        _, plan = await self._plan(feed)
        if plan is not None:
            async with self._repairs.held(feed.channel) as holder:
                await self._carry_out(feed, holder)
        else:
            await self._repairs.released(feed.channel)
        await self._go_back(feed)

    async def _plan(self, feed: Feed) -> tuple[Position, Repair | None]:
        """Where the journal ends, and what it needs; None if nothing."""
        memory = feed.memory
        left = await self._repairs.remains(feed.channel, memory.begins)
        plan = plan_repair(memory, left.rows, left.last, left.repaired)
        return left.last, plan if plan or left.last < memory.newest else None

    async def _carry_out(self, feed: Feed, holder: str) -> None:
        last, plan = await self._plan(feed)
        if plan is None:  # another process has repaired it
            return
        seen = feed.memory.newest
        if not await self._repairs.repair(feed.channel, plan, last=last, seen=seen, holder=holder):
            raise TryAgain("the journal has changed while it was repaired")
        log.error(
            "Redis had lost changes of %s: %d were put back, %d were published again",
            *(feed.channel, len(plan.put_back), len(plan.again)),
        )

    async def _go_back(self, feed: Feed) -> None:
        """Follow the journal as it is now: what nobody remembers is lost."""
        standing = await self._standing(feed.channel)
        if standing is None:
            return
        if standing.head < feed.tail.head:
            log.error(
                "%r went back to %s: changes are lost that nobody remembers", feed, standing.head
            )
            feed.go_back(standing.head)
        self._feeds.ring(feed.channel, standing.head)

    async def _standing(self, channel: ChannelName) -> Standing | None:
        (standing,) = await self._journal.standings([channel])
        if isinstance(standing, Exception):
            raise standing
        return standing
