"""A trio of Sentinels over a primary and two replicas, quick to notice and to decide.

Not so quick that a server which waits for the processor is taken for one that has failed.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from redis import asyncio as redis
from redis.exceptions import ResponseError

from tests.support.redis_replicas import Replicated, replicated
from tests.support.redis_server import RedisServer
from tests.support.running import until

NAME, PASSWORD = "main", "of-the-sentinels"
FOLLOWED_SECONDS = 180  # by then a server that came back is a replica

CONFIGURATION = """
requirepass {password}
sentinel sentinel-pass {password}
sentinel monitor {name} 127.0.0.1 {port} 2
sentinel down-after-milliseconds {name} 3000
sentinel failover-timeout {name} 4000
"""


class Watched(NamedTuple):
    """A Redis with two replicas, and the Sentinels that watch them."""

    redis: Replicated
    url: str
    sentinels: Sequence[RedisServer]

    async def switch(self) -> None:
        """Another server takes over, while the primary goes on as one and is never told."""
        async with self.redis.primary.client() as client:
            await client.execute_command("ACL", "SETUSER", "default", "-replicaof", "-slaveof")
        first, *others = [each.port for each in self.sentinels]
        is_done = False
        while not is_done:  # a slow machine's Sentinel may give up, and stay with the primary
            await until(lambda: self._has_begun(first))
            with suppress(TimeoutError):
                is_done = await until(lambda: self._names_another(first), seconds=20)
        for port in others:
            await until(lambda port=port: self._names_another(port))

    async def _has_begun(self, port: int) -> bool:
        """A failover, as asked for; not before this one has seen that a replica is good."""
        if await self._names_another(port):
            return True
        async with _asked(port) as client:
            with suppress(ResponseError):
                await client.execute_command("SENTINEL", "FAILOVER", NAME)
                return True
        return False

    async def _names_another(self, port: int) -> bool:
        async with _asked(port) as client:
            return bool((await client.sentinel_master(NAME))["port"] != self.redis.primary.port)


def sentinel(folder: Path, port: int) -> RedisServer:
    """One that watches the primary at that port."""
    folder.mkdir()
    configuration = folder / "sentinel.conf"
    configuration.write_text(CONFIGURATION.format(name=NAME, port=port, password=PASSWORD))
    return RedisServer(folder, str(configuration), "--sentinel", password=PASSWORD)


def address_of(sentinels: Sequence[RedisServer]) -> str:
    """Where the Redis is that these watch."""
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in sentinels)
    return f"redis+sentinel://{hosts}/{NAME}?sentinel_password={PASSWORD}"


async def primary_of(servers: Sequence[RedisServer], *, replicas: int) -> RedisServer:
    """Wait until one of them is the primary of so many replicas that have all it has."""

    async def found() -> RedisServer | None:
        for each in servers:
            async with each.client() as client:
                said = await client.info("replication")
            online = [
                n for n in range(replicas) if said.get(f"slave{n}", {}).get("state") == "online"
            ]
            if said["role"] == "master" and len(online) == replicas:
                return each
        return None

    chosen: RedisServer = await until(found, FOLLOWED_SECONDS)
    return chosen


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[Watched]:
    """They know each other and the replicas, so that they can decide."""
    async with replicated(folder, count=2) as servers, AsyncExitStack() as started:
        sentinels = []
        for number in range(3):
            one = sentinel(folder / f"sentinel{number}", servers.primary.port)
            sentinels.append(await started.enter_async_context(one))
        for each in sentinels:
            await until(lambda port=each.port: _knows_all(port))
        yield Watched(servers, address_of(sentinels), sentinels)


def _asked(port: int) -> redis.Redis:
    return redis.Redis(port=port, password=PASSWORD, protocol=2)


async def _knows_all(port: int) -> bool:
    async with _asked(port) as client:
        said = await client.sentinel_master(NAME)
    return bool(said["num-other-sentinels"] == 2 and said["num-slaves"] == 2)
