"""How much of a bounded Redis one set may take: half of it, so that no Source fills it for all.

What a set takes is counted in Redis when this process has appended some MiB since it was counted
last; in between, what is appended is added by estimate. So a burst is bounded, and most appends
ask nothing. A Redis without `maxmemory` has no bound. What frees room is never asked.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

from rsnotify.errors import StoreFull, TryAgain
from rsnotify.journal import keys
from rsnotify.journal.submission import Submission
from rsnotify.redis_client import Client
from rsnotify.resourcesync.notification import KINDS, ChannelName

SHARE = 2  # of the memory of Redis, for one set: a half
UNCOUNTED_BYTES = 4 * 1024 * 1024  # that this process appends before it counts again
COUNT_SECONDS = 1.0  # between two counts of a set that is full
TIMES, EACH = 2, 200  # what an entry takes: in the stream and in the state, with their nodes

log = logging.getLogger(__name__)


@dataclass
class _Taken:
    """What is known of a set: bytes as counted, and estimates of what came since."""

    counted: int = 0
    since: int = 0
    flying: int = 0  # of appends that are under way
    most: int = 0  # 0: no bound, or not known yet
    at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def total(self) -> int:
        return self.counted + self.since + self.flying

    @property
    def is_to_be_counted(self) -> bool:
        is_full = 0 < self.most < self.total and monotonic() - self.at > COUNT_SECONDS
        return is_full or self.since + self.flying > UNCOUNTED_BYTES


class Room:
    """Refuses what is appended to a set that takes more than its share."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sets: dict[str, _Taken] = {}

    @asynccontextmanager
    async def taken(self, set_name: str, submission: Submission) -> AsyncIterator[None]:
        """While it is appended; `StoreFull` if the set has no room for it."""
        taken = self._sets.setdefault(set_name, _Taken())
        size = sum(TIMES * len(each.xml) + EACH for each in submission.fragments)
        taken.flying += size
        try:
            if taken.is_to_be_counted:
                await self._count(set_name, taken)
            if 0 < taken.most < taken.total:
                raise StoreFull(
                    f"the set {set_name!r} takes its share of the memory of Redis, "
                    f"{taken.most} bytes: remove what is not needed, or give Redis more",
                    retry_after_seconds=60,
                )
            yield
            taken.since += size
        finally:
            taken.flying -= size

    async def _count(self, set_name: str, taken: _Taken) -> None:
        async with taken.lock:
            if not taken.is_to_be_counted and taken.at > 0:
                return
            before = taken.since
            try:
                taken.most = await self._maxmemory() // SHARE
                if taken.most:
                    taken.counted = await self._used(set_name)
            except TryAgain:
                return  # the append says what is wrong
            except Exception as error:  # a user of Redis who may not ask
                log.warning("what a set takes of Redis cannot be counted: %s", error)
                taken.most = 0
            taken.since -= before
            taken.at = monotonic()

    async def _maxmemory(self) -> int:
        if self._client.is_cluster:
            return 0
        found = await self._client.info("memory")
        return int(found.get("maxmemory", 0))

    async def _used(self, set_name: str) -> int:
        pipeline = self._client.pipeline(transaction=False)
        for kind in KINDS:
            channel = ChannelName(set_name, kind)
            pipeline.memory_usage(keys.stream(channel))
            pipeline.memory_usage(keys.windows(channel))
        for shard in range(keys.STATE_SHARDS):
            pipeline.memory_usage(keys.state(set_name, shard))
            pipeline.memory_usage(keys.staged(set_name, shard))
        used = sum(size or 0 for size in await pipeline.execute())
        return used + await self._packed(set_name)

    async def _packed(self, set_name: str) -> int:
        """The bytes of its closed windows, which are packed beside the stream."""
        channel = ChannelName(set_name, "change")
        windows = await self._client.zrange(keys.windows(channel), 0, -1)
        pipeline = self._client.pipeline(transaction=False)
        for window in windows:
            pipeline.strlen(keys.packed(channel, int(window.split()[0])))
        return sum(await pipeline.execute())
