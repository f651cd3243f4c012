"""A Redis of the operator's own for tests: any kind of it, beside no hub."""

import asyncio
import random
import socket
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from redis import asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import ResponseError

from rsnotify.process.embedded_redis.binaries import installed_binaries
from tests.support.running import PATIENT_SECONDS

AGAIN_SECONDS = 0.02


class RedisServer:
    """The first server of this machine, started with these options; `async with` ends it."""

    def __init__(
        self, folder: Path, *options: str, binary: str | None = None, password: str | None = None
    ) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self._binary = binary
        self.password = password
        self.url = f"redis://127.0.0.1:{self.port}"
        self._process: Process

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Start it, or start it again with what it kept."""
        binary = self._binary or (await installed_binaries())[0].path
        self._process = await asyncio.create_subprocess_exec(
            *(binary, *self.options, "--port", str(self.port), "--dir", str(self.folder)),
            stdin=DEVNULL,
            stdout=DEVNULL,
        )
        await self.answers()

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def answers(self) -> None:
        async with self.client() as client:
            try:
                await client.ping()
            except ResponseError:  # that is an answer too
                return

    def client(self) -> Any:
        """Speaks to it as soon as it answers."""
        retry = Retry(ConstantBackoff(AGAIN_SECONDS), int(PATIENT_SECONDS / AGAIN_SECONDS))
        return redis.Redis.from_url(self.url, password=self.password, retry=retry, protocol=2)


async def binary_of(engine: str) -> str:
    """Of another engine where this machine does not have that one."""
    found = await installed_binaries()
    return next((each.path for each in found if each.engine.name == engine), found[0].path)


async def binary_with_tls() -> str:
    """The packaged one is built without."""
    for each in await installed_binaries():
        if not each.is_packaged:
            return each.path
    pytest.skip("no redis-server")


def free_port() -> int:
    """One that no connection uses meanwhile, as Linux begins those at 32,768; a Cluster's own port,
    which is 10,000 higher, is free as well, and nobody is given it. No other test is given this
    one: its UDP side stays bound."""
    while True:
        port = random.SystemRandom().randrange(10_000, 20_000)
        given = socket.socket(type=socket.SOCK_DGRAM)
        if _is_free(port + 10_000) and _is_free(port) and _binds(given, port):
            given.detach()  # open until this process ends
            return port
        given.close()


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        return _binds(tried, port)


def _binds(tried: socket.socket, port: int) -> bool:
    try:
        tried.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
