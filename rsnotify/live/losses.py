"""When a journal is looked at for a loss: it does not end as it should, or Redis is another one.

Whoever appends or reads on looks on the way (`append.lua`, `following`). Here is the rest: journals
that are compared in turn, and all of them after a failover. What a loss is, journal.lua decides.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from time import monotonic, time
from typing import NamedTuple

from rsnotify.coordination import keys
from rsnotify.coordination.clock import redis_now
from rsnotify.errors import NoSuchSet, TooFewReplicas, TryAgain
from rsnotify.journal.journal_store import JournalStore, Standing
from rsnotify.journal.witness import Evidence
from rsnotify.live.feed import Feed, Feeds, log_unreadable
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.sets.records import new_data_id

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25  # of each second; appends and readers look at their own journals anyway
AHEAD = 60 * MICROSECONDS  # so much at most is our own clock believed


AfterAnotherServer = Callable[[], Awaitable[None]]
"""Done once another Redis serves, or the same one has been started again."""


class Lineage(NamedTuple):
    """Which servers have the journals: `servers` changes after a restart or a failover, `data`
    after Redis has been emptied."""

    servers: tuple[str, ...]  # of a `Client`: one, or that of each slot of a Cluster
    data: bytes


class Losses:
    """Looks for what this process knows of the journals."""

    def __init__(self, journal: JournalStore, feeds: Feeds) -> None:
        self._journal = journal
        self._feeds = feeds
        self._lineage: Lineage | None = None
        self._suspects: dict[Feed, None] = {}  # each is looked at

    async def check_lineage(self, after_another_server: Iterable[AfterAnotherServer]) -> None:
        """Doubt all that is known, if another server has our data now, or this one started anew."""
        before, now = self._lineage, await lineage_of(self._journal.client)
        if now == before:
            return
        there = await redis_now(self._journal.client)  # its clock may be behind that of the former
        ours = min(int(time() * MICROSECONDS), there + AHEAD)
        self._journal.appends.found_at = Position(max(there, ours))
        if before is not None and before.data == now.data:
            log.warning("another Redis serves now, or it was started again: looking for losses")
            for act in after_another_server:
                await _unless_damaged(act)
        self._lineage = now

    def check(self, feed: Feed, known: Evidence, standing: Standing) -> None:
        """Compare where its journal stands with what was known before that was read. Most journals
        end with the only change that is known; the others are looked at."""
        self.pass_gap(feed, standing.gap)
        feed.witness.note_found([standing.newest])
        begin = max(standing.first, standing.gap)
        left = [each for each in known.changes if each.position > begin]
        if standing.last < known.given or left not in ([], [standing.newest]):
            self._suspects[feed] = None

    async def look_at_suspects(self) -> None:
        """Look at some, for a short time."""
        until = monotonic() + LOOK_SECONDS
        for feed in list(self._suspects):
            if monotonic() > until:
                break
            try:
                await self.look(feed)
            except TryAgain as error:
                log.debug("%r is looked at later: %s", feed, error.detail)
                continue
            except Exception as error:
                log_unreadable(feed.channel, error)
            self._suspects.pop(feed, None)

    async def look(self, feed: Feed) -> None:
        """Look for all that is known of a journal, and follow it from behind its newest gap."""
        with suppress(NoSuchSet):  # the next check ends the feed
            self.pass_gap(feed, await self._journal.look(feed.channel, feed.witness))

    def pass_gap(self, feed: Feed, gap: Position) -> bool:
        """Follow the journal from behind this gap; False if that is done already."""
        if gap <= feed.tail.head:
            return False
        self._journal.appends.gaps.met(feed.channel, gap)
        feed.pass_gap(gap)
        return True

    async def confirm(self, feed: Feed) -> None:
        """Learn where its journal ends, as far as replicas know."""
        (found,) = await self._journal.confirmed([feed.channel])
        if isinstance(found, Standing):
            self._feeds.note_unread(feed.channel, found.newest)
        elif isinstance(found, Exception) and not isinstance(found, TooFewReplicas):
            raise found


async def lineage_of(client: Client) -> Lineage:
    servers = await client.servers()
    data = await client.get(keys.DATA_ID)
    return Lineage(servers, data or await new_data_id(client))


async def _unless_damaged(act: AfterAnotherServer) -> None:
    """Log data that cannot be read: they must not keep the rest from being looked at."""
    try:
        await act()
    except TryAgain:
        raise
    except Exception as error:
        log.warning("records cannot be compared with what was known of them", exc_info=error)
