"""What is done to hubs and to Redis in a storm, one thing at a time."""

import asyncio
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tests.fault.test_workers import workers_of
from tests.support.disks import Disk
from tests.support.faults import OwnRedis, out_of_memory
from tests.support.running import RunningHub, until

SETTLE_SECONDS = 180

log = logging.getLogger(__name__)

UntilSaid = Callable[[], Awaitable[object]]


class Stage(NamedTuple):
    """To whom it is done, in which order, and how quickly."""

    hubs: Sequence[RunningHub]
    chance: random.Random
    until_said: UntilSaid  # waits until all that is lost was said to be
    pace: float


class Troubles:
    """What is done to hubs, in an order of chance."""

    def __init__(self, stage: Stage) -> None:
        self.done: Counter[str] = Counter()
        self._hubs, self._chance, self._until_said, self._pace = stage
        self._acts: list[Callable[[], Awaitable[None]]] = [
            self.hub_killed,
            self.worker_killed,
            self.worker_frozen,
            self.rolling_restart,
        ]

    async def run(self, seconds: float) -> None:
        """All of them in one order after another, until the time is over; each at least once."""
        clock = asyncio.get_running_loop().time
        ends = clock() + seconds
        while not self.done or clock() < ends:
            for act in self._chance.sample(self._acts, len(self._acts)):
                name = act.__name__.replace("_", " ")
                log.info("%s", name)
                await act()
                self.done[name] += 1
                await self._moment(1)

    async def _moment(self, seconds: float) -> None:
        await asyncio.sleep(self._chance.uniform(0, seconds) / self._pace)

    async def hub_killed(self) -> None:
        hub = self._chance.choice(self._hubs)
        await hub.kill()
        await self._moment(1)
        await hub.start()

    async def worker_killed(self) -> None:
        os.kill(await self._worker(), signal.SIGKILL)

    async def worker_frozen(self) -> None:
        worker = await self._worker()
        os.kill(worker, signal.SIGSTOP)
        await self._moment(4)
        os.kill(worker, signal.SIGCONT)

    async def _worker(self) -> int:
        hub = self._chance.choice(self._hubs)

        async def found() -> set[int]:
            return workers_of(hub)

        return self._chance.choice(sorted(await until(found, SETTLE_SECONDS)))

    async def rolling_restart(self) -> None:
        hub = self._chance.choice(self._hubs)
        before = replaced(hub)
        hub.process.send_signal(signal.SIGHUP)

        async def is_over() -> bool:
            return replaced(hub) > before

        await until(is_over, SETTLE_SECONDS)


class TroublesOfRedis(Troubles):
    """…and to its one Redis."""

    def __init__(self, stage: Stage, redis: OwnRedis, disk: Disk) -> None:
        super().__init__(stage)
        self._redis = redis
        self._disk = disk
        self._acts += [
            self.redis_killed,
            self.redis_frozen,
            self.redis_full,
            self.disk_full,
            self.redis_went_back,
        ]

    async def redis_killed(self) -> None:
        await self._redis.kill()
        await self._moment(2)
        await self._redis.start()

    async def redis_frozen(self) -> None:
        self._redis.freeze()
        await self._moment(8)
        self._redis.thaw()

    async def redis_full(self) -> None:
        async with out_of_memory(self._redis.client):
            await self._moment(3)

    async def disk_full(self) -> None:
        """Redis ends, because it can write nothing; somebody makes room, and starts it again."""
        self._disk.fill(self._redis.pid)
        await until(self._redis.has_ended, SETTLE_SECONDS)
        await self._moment(2)
        self._disk.make_room(self._redis.pid)
        await self._redis.start()

    async def redis_went_back(self) -> None:
        """It loses what was stored in a moment, as in a failover to a replica that lags.

        Nobody is killed until those who know of it have said so.
        """
        copy = self._redis.copy_of_data()
        await self._moment(2)
        await self._redis.go_back(copy)
        await self._until_said()


def replaced(hub: RunningHub) -> int:
    """How often its workers were, or could not be."""
    log = hub.log.read_text()
    return log.count("all workers are replaced") + log.count("the rest stay")
