"""The storm on a Redis under Sentinels, which fails over to replicas that lag.

`SOAK_SECONDS=3600 make soak SOAK_ARGS=failover_storm` makes it last.
"""

import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack

from tests.evidence.soak.storm import SECONDS, Size, Storm, prove
from tests.evidence.soak.troubles import Stage, Troubles
from tests.support.lossy_failover import let_replicate, stop_replication
from tests.support.redis_replicas import Replicated
from tests.support.redis_sentinels import Watched, primary_of, watched
from tests.support.redis_server import RedisServer


class Failovers(Troubles):
    """What is done to hubs, and failovers."""

    def __init__(self, stage: Stage, watched: Watched) -> None:
        super().__init__(stage)
        self._watched = watched
        self._acts += [self.failed_over, self.primary_frozen]

    async def _servers(self) -> tuple[RedisServer, list[RedisServer]]:
        """The primary of the moment, and the others, who have all it has."""
        servers = [self._watched.redis.primary, *self._watched.redis.replicas]
        primary = await primary_of(servers, replicas=len(servers) - 1)
        return primary, [each for each in servers if each is not primary]

    async def primary_frozen(self) -> None:
        """Another takes its place; then it wakes up, and does not know that yet."""
        primary, others = await self._servers()
        primary.signal(signal.SIGSTOP)
        await primary_of(others, replicas=len(others) - 1)
        primary.signal(signal.SIGCONT)
        await self._until_said()
        await primary_of(others, replicas=len(others))

    async def failed_over(self) -> None:
        """Replication stops, some more is stored, and the primary dies; later it comes back."""
        primary, others = await self._servers()
        now = self._watched._replace(redis=Replicated(primary, others))
        await stop_replication(now)
        await self._moment(2)
        await primary.kill()
        await let_replicate(others)
        await primary_of(others, replicas=len(others) - 1)
        await self._until_said()
        await primary.start()
        await primary_of(others, replicas=len(others))


class FailoverStorm(Storm):
    """The storm under Sentinels, in which no replica confirms anything."""

    settings: Mapping[str, str] = {"replicas": "0"}

    async def _start_redis(self, stack: AsyncExitStack) -> str:
        self._watched = await stack.enter_async_context(watched(self._folder))
        return self._watched.url

    def _troubles(self, stage: Stage) -> Troubles:
        return Failovers(stage, self._watched)


def main() -> None:
    prove(FailoverStorm, Size(SECONDS))
