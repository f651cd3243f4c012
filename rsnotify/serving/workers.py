"""Runs several hub processes on one port and one Redis; the parent does nothing else.

The kernel spreads connections over the processes. A process that dies is restarted. SIGTERM to the
parent stops them all, and kills those that do not end in time.
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
from rsnotify.settings import WORKER, Settings, for_worker

log = logging.getLogger(__name__)

RESTART_SECONDS = 1.0
KILL_SECONDS = 30.0  # after the drain; a worker that is not stuck ends before


async def run_workers(
    settings: Settings,
    sets: Sequence[str],
    redis_url: str,
    address: str,
    on_ready: Callable[[str], None],
    inherited: Collection[int] = (),
) -> None:
    """Keep the workers running until SIGTERM or SIGINT, then stop them.

    The inherited files stay open, and so locked, as long as one worker lives.
    """
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    for signal in (SIGINT, SIGTERM):
        loop.add_signal_handler(signal, ending.set)
    command = _command(settings, sets, address)
    environment = for_worker(os.environ, redis_url)  # arguments would be visible to all users
    workers = [
        Worker(command, environment | {WORKER: str(number)}, ending, inherited)
        for number in range(1, settings.workers + 1)
    ]
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
    """End this worker at once if its parent was killed: the next hub must be alone."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):  # releases the GIL while it waits
            pass
        os._exit(1)

    Thread(target=watch, name="watch the parent", daemon=True).start()


def _command(settings: Settings, sets: Sequence[str], address: str) -> list[str]:
    """The same command for one process; other settings come from the environment."""
    command = [sys.executable, "-m", "rsnotify", "serve", "--workers", "1", "--share-port"]
    command += ["--host", settings.host, "--port", address.rpartition(":")[2]]
    command += ["--data", str(settings.data)]
    if settings.public_url:
        command += ["--public-url", settings.public_url]
    return command + [word for name in sets for word in ("--set", name)]


class Worker:
    """One process, restarted when it dies."""

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
                stdin=PIPE,  # it is closed when we end, even if we are killed
                stdout=PIPE,
                env=self._environment,
                pass_fds=self._inherited,
                start_new_session=True,  # Ctrl-C must reach the parent only
            )
            if self._ending.is_set():  # during the start
                self.end()
            await self._watch(self._process)
            if not self._ending.is_set():
                await self._handle_exit(self._process)

    async def _handle_exit(self, process: Process) -> None:
        """Restart a worker that was running; one that failed to start would fail again."""
        message = f"worker {process.pid} ended with status {process.returncode}"
        if not self.ready.is_set():
            raise InvalidSettings([f"{message} before it was ready; see its message above"])
        log.error("%s; starting another", message)
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
            log.error("worker %d does not end; killing it", self._process.pid)
            self._process.kill()
