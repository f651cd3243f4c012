"""What can go wrong with a Redis, for any test: a server of one's own, refusals, a slow way to it.

    async with OwnRedis(tmp_path) as redis, SlowWay(redis.url) as way:
        hub = RunningHub(tmp_path / "data", "--redis", way.url)
        async with too_few_replicas(redis.client): ...      # NOREPLICAS until the block ends
        way.delay_seconds = 0.2                             # each answer comes that much later
        way.lose_next_answer("EVALSHA")                     # it is done, but nobody is told

`OwnRedis(tmp_path, clock=Clock(tmp_path))` is one whose clock can be moved.
"""

import asyncio
import os
import shutil
import signal
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from redis import asyncio as redis
from redis.exceptions import RedisError

from rsnotify.process.embedded_redis.binaries import find_binary, installed_binaries
from rsnotify.redis_client import Client
from tests.support.clock import Clock
from tests.support.running import until
from tests.support.stream_server import StreamServer

CHUNK_BYTES = 65536

Refusing = AbstractAsyncContextManager[None]


class OwnRedis:
    """A redis-server that a test may maltreat: nobody else uses it."""

    def __init__(
        self, folder: Path, *options: str, clock: Clock | None = None, engine: str | None = None
    ) -> None:
        self.folder = folder / "own-redis"
        self.url = f"unix://{self.folder}/s"
        self._options = options
        self._engine = engine
        self._clock = clock
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)  # it may be a disk of its own
        self.client: Client = redis.Redis.from_url(self.url, protocol=2)
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()
        await self.kill()

    async def start(self, *options: str) -> None:
        """Start it; what it answered before a kill is in its append-only file.

        With `everysec`, Redis keeps writes back for as long as a slow disk is at its fsync.
        """
        await self.launch(*options)
        await until(self._answers)
        if self._clock is not None:
            self._clock.is_of(self.folder / "s")

    async def launch(self, *options: str) -> None:
        """Start it and do not wait until it has loaded."""
        binary = await find_binary(self.folder, None)
        if self._engine is not None:
            found = await installed_binaries()
            binary = next((each for each in found if each.engine.name == self._engine), binary)
        with (self.folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(binary.path, "--port", "0", "--unixsocket", "s", "--save", ""),
                *("--appendonly", "yes", "--appendfsync", "always"),
                *("--enable-debug-command", "yes"),
                *(*self._options, *options),
                cwd=self.folder,
                env=dict(os.environ) | (self._clock.environment if self._clock else {}),
                restore_signals=False,  # a file that may not grow is an error, no signal
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
            )

    def freeze(self) -> None:
        """It keeps its connections and answers nothing any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def has_ended(self) -> bool:
        """By itself, as it does when it must write and cannot."""
        assert self._process is not None
        return self._process.returncode is not None

    def copy_of_data(self) -> Path:
        """What it has written until now."""
        copy = self.folder / "copy"
        shutil.copytree(self.folder / "appendonlydir", copy)
        return copy

    async def go_back(self, copy: Path) -> None:
        """Kill it, and start it with older data."""
        await self.kill()
        shutil.rmtree(self.folder / "appendonlydir")
        copy.rename(self.folder / "appendonlydir")
        await self.start()

    async def _answers(self) -> bool:
        try:
            return bool(await self.client.ping())
        except (RedisError, OSError):
            return False


class Losing:
    """Loses what is written in its block, as a failover to a lagging replica does."""

    def __init__(self, client: Client, pattern: str = "*") -> None:
        self._client = client
        self._pattern = pattern
        self._before: dict[bytes, bytes] = {}

    async def __aenter__(self) -> None:
        names = await self._client.keys(self._pattern)
        found = [(name, await self._client.dump(name)) for name in names]
        self._before = {name: value for name, value in found if value is not None}  # not expired

    async def __aexit__(self, *_: object) -> None:
        for name in await self._client.keys(self._pattern):
            await self._client.delete(name)
        for name, value in self._before.items():
            await self._client.restore(name, 0, value, replace=True)  # somebody may live on
        await self._client.replicaof("127.0.0.1", "1")
        await self._client.replicaof("NO", "ONE")  # it was promoted: its replication id is new


# --- refusals ----------------------------------------------------------------------------------


@asynccontextmanager
async def configured(client: Client, name: str, value: str) -> AsyncIterator[None]:
    """A setting of Redis, until the block ends."""
    before = (await client.config_get(name))[name]
    await client.config_set(name, value)
    try:
        yield
    finally:
        await client.config_set(name, before)


def too_few_replicas(client: Client) -> Refusing:
    """NOREPLICAS to whoever writes."""
    return configured(client, "min-replicas-to-write", "1")


def out_of_memory(client: Client) -> Refusing:
    """OOM to whoever writes."""
    return configured(client, "maxmemory", "1")


@asynccontextmanager
async def a_replica(client: Client) -> AsyncIterator[None]:
    """READONLY to whoever writes: it follows a master that never answers."""
    await client.replicaof("127.0.0.1", "1")
    try:
        yield
    finally:
        await client.replicaof("NO", "ONE")


@asynccontextmanager
async def failing_saves(redis: OwnRedis) -> AsyncIterator[None]:
    """MISCONF to whoever writes: a directory stands where the snapshot file should go."""
    (redis.folder / "dump.rdb").mkdir()
    await redis.client.config_set("save", "3600 1")
    await redis.client.bgsave()

    async def failed() -> bool:
        found = await redis.client.info("persistence")
        return bool(found["rdb_last_bgsave_status"] == "err")

    await until(failed)
    try:
        yield
    finally:
        (redis.folder / "dump.rdb").rmdir()
        await redis.client.config_set("save", "")


@asynccontextmanager
async def busy(client: Client) -> AsyncIterator[None]:
    """Nothing but BUSY, until the block ends: a script that never does."""
    await client.config_set("busy-reply-threshold", "1")
    endless = asyncio.create_task(_swallowed(client.eval("while true do end", 0)))

    async def says_so() -> bool:
        try:
            await client.ping()
        except RedisError as error:
            return "BUSY" in str(error)
        return False

    await until(says_so)
    try:
        yield
    finally:
        await client.script_kill()
        await endless
        await client.config_set("busy-reply-threshold", "5000")


async def _swallowed(answer: Awaitable[object]) -> None:
    with suppress(RedisError):
        await answer


# --- the way to it -----------------------------------------------------------------------------


class SlowWay:
    """A way to a Redis on which answers are delayed, held back, or lost with their connection."""

    def __init__(self, url: str) -> None:
        self._path = urlsplit(url).path
        self.delay_seconds = 0.0
        self.url = ""
        self.lost = 0  # answers, so far
        self._open = asyncio.Event()
        self._open.set()
        self._to_lose: list[bytes] = []
        self._server = StreamServer(self._serve)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        self.url = f"redis://127.0.0.1:{self._server.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    def freeze(self) -> None:
        """Let no answer through; what is asked goes on reaching Redis."""
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def cut(self) -> None:
        """End every connection."""
        self._server.cut()

    def lose_next_answer(self, command: str, *, times: int = 1) -> None:
        """Redis does what the next request with this word in it asks; its connection ends then."""
        self._to_lose = [command.encode()] * times

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._path)
        try:
            await self._carry(reader, writer, there, back)
        finally:
            back.transport.abort()
            writer.transport.abort()

    async def _carry(
        self, reader: StreamReader, writer: StreamWriter, there: StreamReader, back: StreamWriter
    ) -> None:
        losing = asyncio.Event()
        ways = (self._asked(reader, back, losing), self._answered(there, writer, losing))
        tasks = [asyncio.create_task(each) for each in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _asked(
        self, reader: StreamReader, redis: StreamWriter, losing: asyncio.Event
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if self._to_lose and self._to_lose[-1] in data:
                self._to_lose.pop()
                losing.set()
            redis.write(data)
            await redis.drain()

    async def _answered(
        self, redis: StreamReader, writer: StreamWriter, losing: asyncio.Event
    ) -> None:
        while data := await redis.read(CHUNK_BYTES):
            await asyncio.sleep(self.delay_seconds)
            await self._open.wait()
            if losing.is_set():
                self.lost += 1
                break
            writer.write(data)
            await writer.drain()
