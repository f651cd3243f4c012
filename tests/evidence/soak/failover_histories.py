"""Failovers that lose changes, again and again, while Sources repeat what was acknowledged.

Two hubs without confirmation by replicas, two that wait for one replica, and two on a Cluster. The
judge is that of the storms: what was acknowledged is there once, or its loss was said. Where a
replica confirms, nothing is lost.

`SOAK_RUNS=10 SOAK_SECONDS=40 make soak SOAK_ARGS=failover_histories` runs each ten times;
`SOAK_KINDS="cluster"` only some.
"""

import asyncio
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tests.evidence.soak.failover_storm import Failovers, FailoverStorm
from tests.evidence.soak.storm import Size, Storm
from tests.evidence.soak.troubles import SETTLE_SECONDS, Stage, Troubles
from tests.support.redis_cluster import RunningCluster, cluster, slot_of_set
from tests.support.redis_sentinels import Watched
from tests.support.redis_server import RedisServer
from tests.support.running import until

SECONDS = 40
SET = "dataset1"
TOLD = (
    *("failed over", "primary frozen", "changes in the journal", "acknowledged"),
    *("of these, lost and said to be", "readers told of a loss, in all"),
    *("acknowledged, and repeated", "requests refused or without answer"),
)


class OnlyFailovers(Failovers):
    """Nothing is done to the hubs."""

    def __init__(self, stage: Stage, watched: Watched) -> None:
        super().__init__(stage, watched)
        self._acts = [self.failed_over, self.primary_frozen]


class Unconfirmed(FailoverStorm):
    """A publish is answered before any replica has it."""

    names = "ab"
    is_long = False

    def _troubles(self, stage: Stage) -> Troubles:
        return OnlyFailovers(stage, self._watched)


class Confirmed(Unconfirmed):
    """A publish is answered when one replica has it."""

    settings: Mapping[str, str] = {"replicas": "1"}
    may_lose = False


class ClusterFailovers(Troubles):
    """The master of the set is replaced by a replica that lags, or frozen."""

    def __init__(self, stage: Stage, running: RunningCluster) -> None:
        super().__init__(stage)
        self._running = running
        self._acts = [self.failed_over, self.primary_frozen]

    async def primary_frozen(self) -> None:
        master = await self._master()
        master.signal(signal.SIGSTOP)
        await self._until_replaced(master)
        master.signal(signal.SIGCONT)
        await self._until_said()
        await self._until_followed()

    async def failed_over(self) -> None:
        """Replication stops, some more is stored, and the master dies; later it comes back."""
        master = await self._master()
        others = [each for each in self._running.servers if each is not master]
        await self._let_replicate(others, user="nobody", password="wrong")
        async with master.client() as client:
            await client.execute_command("CLIENT", "KILL", "TYPE", "replica")
        await self._moment(2)
        await master.kill()
        await self._let_replicate(others, user="", password="")
        await self._until_replaced(master)
        await self._until_said()
        await master.start()
        await self._until_followed()

    async def _let_replicate(
        self, servers: Sequence[RedisServer], *, user: str, password: str
    ) -> None:
        for each in servers:
            async with each.client() as client:
                await client.config_set("masterauth", password)
                await client.config_set("masteruser", user)

    async def _master(self) -> RedisServer:
        return await self._running.master_of_set(SET)

    async def _until_replaced(self, master: RedisServer) -> None:
        slot = slot_of_set(SET)
        await until(lambda: self._running.is_promoted(master, slot), SETTLE_SECONDS)

    async def _until_followed(self) -> None:
        """Each master has a replica that has all it has."""

        async def are_followed() -> bool:
            roles = [await self._running.say(each, "ROLE") for each in self._running.servers]
            masters = [role for role in roles if role[0] == b"master"]
            linked = [role for role in roles if role[0] == b"slave" and role[3] == b"connected"]
            return len(masters) == len(linked) == len(roles) // 2

        await until(are_followed, SETTLE_SECONDS)


class OnCluster(Storm):
    """The set's master fails over, to its only replica."""

    settings: Mapping[str, str] = {"replicas": "0"}
    names = "ab"
    is_long = False

    async def _start_redis(self, stack: AsyncExitStack) -> str:
        self._running = await stack.enter_async_context(cluster(self._folder))
        return self._running.url

    def _troubles(self, stage: Stage) -> Troubles:
        return ClusterFailovers(stage, self._running)


KINDS = {"unconfirmed": Unconfirmed, "confirmed": Confirmed, "cluster": OnCluster}


def main() -> None:
    seconds = float(os.environ.get("SOAK_SECONDS", SECONDS))
    runs = int(os.environ.get("SOAK_RUNS", "1"))
    seed = int(os.environ.get("SOAK_SEED", random.randrange(1_000_000)))
    for name in os.environ.get("SOAK_KINDS", " ".join(KINDS)).split():
        for run in range(runs):
            print(f"{name}, SOAK_SEED={seed + run}: {_live(name, seconds, seed + run)}", flush=True)


def _live(name: str, seconds: float, seed: int) -> str:
    folder = Path(tempfile.mkdtemp())
    size = Size(seconds, readers=20, callbacks=5, publishers=8)
    try:
        rows = dict(asyncio.run(KINDS[name](folder, size, seed).run()))
    except BaseException:
        print(f"the logs, and what is left, are in {folder}", flush=True)
        raise
    shutil.rmtree(folder)
    return "; ".join(f"{each}: {rows[each]}" for each in TOLD)
