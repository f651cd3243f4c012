"""The redis-server of an embedded hub: started, kept alive and stopped.

It runs inside the data directory, so its options contain only bare file names. It ends with the
hub; if one was left behind all the same, the next hub shuts it down.
"""

import asyncio
import logging
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from signal import SIGKILL
from time import monotonic
from typing import IO, NamedTuple, Self
from urllib.parse import quote

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify.loops import within
from rsnotify.process.embedded_redis import binaries
from rsnotify.process.embedded_redis.binaries import Binary, find_binary
from rsnotify.process.embedded_redis.directory import (
    REDIS_LOCK,
    SOCKET,
    WORKERS_LIMIT_SECONDS,
    LockFile,
    directory_taken,
    short_enough,
)
from rsnotify.process.engine import Engine
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.retry import Backoff

SCRIPT = 'read -r _; kill -TERM "$0"'


async def guard_over(pid: int) -> Process:
    """Ends process `pid` when we end without having dismissed it."""
    return await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", SCRIPT, str(pid)),
        stdin=PIPE,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,  # Ctrl-C is for the hub
    )


async def dismiss(guard: Process) -> None:
    with suppress(ProcessLookupError):
        guard.kill()
    await guard.wait()


def end_group(pid: str) -> bool:
    """Kill what a dead process has left of its process group; whether there was anything. As long
    as there is, no new process gets the number."""
    try:
        os.killpg(int(pid), SIGKILL)
    except (ValueError, OSError):
        return False
    return True


log = logging.getLogger(__name__)

LOADING_LIMIT_SECONDS = 600.0  # some 100 MB of append-only file are read a second
STOP_LIMIT_SECONDS = 30.0
LEFTOVER_LIMIT_SECONDS = 60.0
STEADY_SECONDS = 60.0  # having lived this long, a redis-server is restarted at once
LOG, LOG_BYTES = "redis.log", 1_000_000
UNFINISHED = ("temp-*.rdb", "temp-rewriteaof-*.aof")  # of a redis-server that was killed

OPTIONS = {
    "port": "0",
    "unixsocket": SOCKET,
    "unixsocketperm": "700",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "aof-load-truncated": "yes",  # a half-written last command was never acknowledged
    "auto-aof-rewrite-percentage": "100",
    "auto-aof-rewrite-min-size": "64mb",
    "maxmemory-policy": "noeviction",
    "stream-node-max-bytes": "16kb",
}


class Patience(NamedTuple):
    """How many seconds each step of a server may take."""

    to_load: float = LOADING_LIMIT_SECONDS
    to_stop: float = STOP_LIMIT_SECONDS
    of_leftover: float = LEFTOVER_LIMIT_SECONDS
    of_workers: float = WORKERS_LIMIT_SECONDS


PATIENCE = Patience()


class EmbeddedRedis:
    """A redis-server on a unix socket in `data_dir`, ours alone; cancel `supervise` before `stop`.

    Signals to the hub's process group do not reach it: the hub drains first. When the hub is
    killed, a guard ends it; the next hub on the directory does not rely on that.
    """

    def __init__(
        self, data_dir: Path, *, patience: Patience = PATIENCE, log_bytes: int = LOG_BYTES
    ) -> None:
        self.data_dir = data_dir.resolve()
        self._patience, self._log_bytes = patience, log_bytes
        self._socket = self.data_dir / SOCKET
        self._process: Process | None = None
        self._guard: Process | None = None
        self._hub_lock: LockFile | None = None
        self._held = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<EmbeddedRedis {self.data_dir} [process {self.pid}]>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Where the started server answers, as redis-py wants it."""
        return f"unix://{quote(str(self._socket))}"

    @property
    def guard_pid(self) -> int | None:
        return None if self._guard is None else self._guard.pid

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def hub_lock(self) -> int:
        """What a worker inherits, so that no other hub begins while it lives."""
        assert self._hub_lock, "not started"  # noqa: S101
        return self._hub_lock.fd

    async def start(self) -> None:
        """Take the data directory, start Redis in it and wait until it has loaded and answers."""
        async with AsyncExitStack() as held:
            taking = directory_taken(self.data_dir, self._patience.of_workers)
            self._hub_lock = await held.enter_async_context(taking)
            self._socket = held.enter_context(short_enough(self._socket))
            await self._launch()
            self._held = held.pop_all()

    async def stop(self) -> None:
        """End Redis in good order, with force if it takes too long; give the directory back."""
        async with self._held:
            if self._process:
                await self._end(self._process)

    async def wait(self) -> int:
        """The exit status of the running redis-server, once it is dead."""
        assert self._process, "not started"  # noqa: S101
        guard = self._guard
        status = await self._process.wait()
        if guard is not None:
            await dismiss(guard)  # the process id may soon be another's
        return status

    async def supervise(self) -> None:
        """Start Redis again whenever it dies."""
        attempt = 0
        while True:
            born = monotonic()
            status = await self.wait()
            attempt = 0 if monotonic() - born > STEADY_SECONDS else attempt + 1
            log.error("redis-server died with status %d%s", status, _last_words(self.data_dir))
            await asyncio.sleep(restart_delay_seconds(attempt))
            await self._relaunch()

    async def _relaunch(self) -> None:
        try:
            await self._launch()
            log.warning("redis-server was started again, process %d", self.pid)
        except (InvalidSettings, OSError) as error:
            log.error("redis-server could not be started again: %s", error)

    async def _launch(self) -> None:
        written_by = binaries.written_by(self.data_dir)
        binary = await find_binary(self.data_dir, written_by)
        with closing(LockFile(self.data_dir / REDIS_LOCK)) as lock, self._log() as output:
            await self._taken_over(lock)
            for pattern in UNFINISHED:
                for file in self.data_dir.glob(pattern):
                    file.unlink(missing_ok=True)
            binaries.note(self.data_dir, binary.engine)
            self._process = await self._spawn(binary, lock, output)
            lock.sign(self._process.pid)
        await self._brought_up(self._process)
        log.info("%s runs in %s%s", binary, self.data_dir, _taken_on(binary.engine, written_by))

    async def _spawn(self, binary: Binary, lock: LockFile, output: IO[bytes]) -> Process:
        options = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
        return await asyncio.create_subprocess_exec(
            binary.path,
            *options,
            cwd=self.data_dir,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(lock.fd,),  # the child's share of the lock lasts as long as the child
            start_new_session=True,
        )

    async def _taken_over(self, lock: LockFile) -> None:
        """Hold `lock`; a redis-server that a killed hub left behind is shut down for it.

        One that is dead may have left what it had started to write its data to a file.
        """
        if lock.taken():
            return
        if not lock.signer_lives and end_group(lock.signature):
            log.warning("ended what a dead redis-server, process %s, had started", lock.signature)
        else:
            log.warning("shutting down process %s, a redis-server left running", lock.signature)
        try:
            await within(self._patience.of_leftover, self._shut_down(until=lock.taken))
        except TimeoutError:
            raise InvalidSettings(
                f"a redis-server that an earlier hub left in {self.data_dir} does not shut down: "
                f"end its process, {lock.signature}, and start again"
            ) from None

    async def _brought_up(self, process: Process) -> None:
        """Return once it is guarded and answers; else leave none behind and raise."""
        try:
            self._guard = await guard_over(process.pid)
            await self._loaded(process)
        except BaseException:
            await self._end(process)
            raise

    async def _loaded(self, process: Process) -> None:
        try:
            await within(self._patience.to_load, self._answering(process))
        except TimeoutError:
            words = _last_words(self.data_dir)
            raise InvalidSettings(f"redis-server takes too long to load{words}") from None

    async def _answering(self, process: Process) -> None:
        async with connect(self.url) as client:
            while not await _answers(client):
                if process.returncode is not None:
                    status, words = process.returncode, _last_words(self.data_dir)
                    raise InvalidSettings(
                        f"redis-server died at its start with status {status}{words}"
                    )
                await asyncio.sleep(0.01)

    async def _shut_down(self, *, until: Callable[[], bool]) -> None:
        async with connect(self.url) as client:
            while not until():
                with suppress(TryAgain):
                    await client.once([("SHUTDOWN", "NOSAVE")])  # its file is synced all the same
                await asyncio.sleep(0.05)

    async def _end(self, process: Process) -> None:
        """SIGTERM, then SIGKILL if that is ignored; the processes that it started end with it."""
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self._patience.to_stop):
                await process.wait()
        except TimeoutError:
            log.error("redis-server does not stop: killing process %d", process.pid)
            os.killpg(process.pid, SIGKILL)
            await process.wait()
        if self._guard is not None:
            await dismiss(self._guard)

    def _log(self) -> IO[bytes]:
        path = self.data_dir / LOG
        if path.exists() and path.stat().st_size > self._log_bytes:
            path.replace(path.with_suffix(".log.1"))
        return path.open("ab")


def restart_delay_seconds(attempt: int) -> float:
    """How long the restart after the `attempt`th quick death in a row waits.

    >>> [restart_delay_seconds(attempt) for attempt in (0, 1, 2, 3, 99)]
    [0.1, 0.2, 0.4, 0.8, 10.0]
    """
    return Backoff(0.1, 10.0, certain=1.0).seconds(attempt, 0.0)


async def _answers(client: Client) -> bool:
    try:
        return bool(await client.ping())
    except TryAgain:  # no socket yet, or still loading
        return False


def _taken_on(engine: Engine, written_by: Engine | None) -> str:
    """What there is to say when another engine goes on with the data."""
    if written_by is None or written_by[:2] == engine[:2]:
        return ""
    return f", on data written by {written_by}"


def _last_words(data_dir: Path) -> str:
    """The end of the server's log, fit to close a sentence."""
    with suppress(OSError):
        lines = (data_dir / LOG).read_bytes()[-2000:].decode("utf-8", "replace").splitlines()
        return ":\n  " + "\n  ".join(lines[-5:])
    return ""
