"""A primary with replicas, to be stopped and promoted by tests."""

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from rsnotify.process.embedded_redis.binaries import Binary
from tests.support.redis_server import RedisServer
from tests.support.running import until

DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
FORGETFUL = ("--appendonly", "no", "--save", "")
QUICK = ("--repl-diskless-sync-delay", "0", "--repl-diskless-load", "on-empty-db")


class Replicated(NamedTuple):
    """A Redis, and those that copy it."""

    primary: RedisServer
    replicas: Sequence[RedisServer]


def knows_files(binary: Binary) -> bool:
    """Whether this server can say which replicas have on disk what was written."""
    return binary.engine.version >= (7, 2)


@asynccontextmanager
async def replicated(
    folder: Path, count: int = 1, *, binary: str | None = None, primary_keeps: bool = True
) -> AsyncIterator[Replicated]:
    """A primary with so many replicas that are connected and have all it has; it may keep no file
    of its own."""
    async with AsyncExitStack() as started:

        async def server(name: str, *options: str) -> RedisServer:
            (folder / name).mkdir()
            one = RedisServer(folder / name, *options, *QUICK, binary=binary)
            return await started.enter_async_context(one)

        primary = await server("primary", *(DURABLE if primary_keeps else FORGETFUL))
        following = ("--replicaof", f"127.0.0.1 {primary.port}")
        names = [f"replica{number}" for number in range(count)]
        replicas = [await server(name, *DURABLE, *following) for name in names]
        client = await started.enter_async_context(primary.client())

        async def all_follow() -> bool:
            await client.set("rsnotify:waited", "")
            return bool(await client.wait(count, 100) == count)

        await until(all_follow)
        yield Replicated(primary, replicas)
        for each in replicas:
            each.signal(signal.SIGCONT)
