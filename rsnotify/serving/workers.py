"""Several hub processes that share one port and one Redis, under a parent that does nothing else.

Rules that hold here: the kernel spreads connections over the processes' own sockets; one that dies
is started anew; SIGTERM to the parent drains them all, and one that does not end in time is killed.
Nothing here knows what a hub does.
"""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Collection, Mapping, Sequence
from signal import SIGINT, SIGTERM
from threading import Thread

from rsnotify.errors import InvalidSettings
from rsnotify.settings import Settings

log = logging.getLogger(__name__)

RESTART_SECONDS = 1.0
KILL_SECONDS = 30.0  # after the drain: a worker bounds its own end, unless it is stuck for good


async def run_workers(
    settings: Settings,
    sets: Sequence[str],
    redis_url: str,
    address: str,
    on_ready: Callable[[str], None],
    inherited: Collection[int] = (),
) -> None:
    """Keep the workers running until SIGTERM or SIGINT, then drain them.

    The files that they inherit stay open, and so locked, for as long as one of them lives.
    """
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    for signal in (SIGINT, SIGTERM):
        loop.add_signal_handler(signal, ending.set)
    command = _command(settings, sets, address)
    environment = os.environ | {"RSNOTIFY_REDIS_URL": redis_url}  # not for all to see, as arguments
    workers = [Worker(command, environment, ending, inherited) for _ in range(settings.workers)]
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.run(), name="keep a worker")
        announcing = tasks.create_task(_announce(workers, lambda: on_ready(address)))
        await ending.wait()
        announcing.cancel()
        for worker in workers:
            worker.end()
            loop.call_later(settings.drain_seconds + KILL_SECONDS, worker.kill)


async def _announce(workers: Sequence["Worker"], on_ready: Callable[[], None]) -> None:
    for worker in workers:
        await worker.ready.wait()
    on_ready()


def end_with_parent() -> None:
    """End this worker when its parent was killed, at once: whoever comes next must be alone."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):  # no lock of ours is held meanwhile
            pass
        os._exit(1)

    Thread(target=watch, name="watch the parent", daemon=True).start()


def _command(settings: Settings, sets: Sequence[str], address: str) -> list[str]:
    """A worker is the same command for one process; the environment brings the other settings."""
    command = [sys.executable, "-m", "rsnotify", "serve", "--workers", "1", "--share-port"]
    command += ["--host", settings.host, "--port", address.rpartition(":")[2]]
    command += ["--data", str(settings.data)]
    if settings.public_url:
        command += ["--public-url", settings.public_url]
    return command + [word for name in sets for word in ("--set", name)]


class Worker:
    """One process, started anew when it dies unasked."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        ending: asyncio.Event,
        inherited: Collection[int] = (),
    ) -> None:
        self.ready = asyncio.Event()
        self._command = command
        self._environment = environment
        self._ending = ending
        self._inherited = inherited
        self._process: Process | None = None

    def __repr__(self) -> str:
        return f"<Worker {self._process.pid if self._process else 'not started'}>"

    async def run(self) -> None:
        while not self._ending.is_set():
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,  # it ends when we do, however we end
                stdout=PIPE,
                env=self._environment,
                pass_fds=self._inherited,
                start_new_session=True,  # Ctrl-C reaches the parent, which drains us
            )
            if self._ending.is_set():  # while it was being started
                self.end()
            await self._watch(self._process)
            if not self._ending.is_set():
                await self._handle_exit(self._process)

    async def _handle_exit(self, process: Process) -> None:
        """One that ran is started anew; one that could not start would not the next time either."""
        message = f"worker {process.pid} ended with status {process.returncode}"
        if not self.ready.is_set():
            raise InvalidSettings([f"{message} before it was ready; its message stands above"])
        log.error("%s; another is started", message)
        await asyncio.sleep(RESTART_SECONDS)

    async def _watch(self, process: Process) -> None:
        assert process.stdout is not None  # noqa: S101
        async for line in process.stdout:
            if line.startswith(b"rsnotify ready"):
                self.ready.set()
        await process.wait()

    def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(SIGTERM)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            log.error("worker %d does not end: it is killed", self._process.pid)
            self._process.kill()
