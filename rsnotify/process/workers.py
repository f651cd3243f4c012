"""Runs several hub processes on one port and one Redis; the parent does nothing else.

All accept from one socket, each when it has time to. The parent keeps it open: if a process dies,
or is replaced because of SIGHUP, no connection is refused or reset meanwhile. SIGTERM to the parent
stops all processes, and kills those that do not end in time.
"""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from signal import SIGHUP, SIGINT, SIGTERM, Signals
from socket import socket
from threading import Thread

from rsnotify import sd_notify
from rsnotify.errors import InvalidSettings
from rsnotify.loops import Loop
from rsnotify.process.listening import BACKLOG, accept_the_last
from rsnotify.process.logs import log_ending
from rsnotify.process.settings import WORKER, Settings, for_worker

RESTART_SECONDS = 1.0
KILL_SECONDS = 30.0  # after the drain; a worker that is not stuck ends before


def end_with_parent() -> None:
    """End this worker at once if its parent was killed: the next hub must be alone."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):  # releases the GIL while it waits
            pass
        os._exit(1)

    Thread(target=watch, name="watch the parent", daemon=True).start()


class Child:
    """One process: starting, serving, ended."""

    def __init__(self, process: Process, ready: asyncio.Event, kill_seconds: float) -> None:
        self.process = process
        self.is_ready = False
        self._ready = ready
        self.started = asyncio.Event()  # ready, or dead before it was
        self.replaced = asyncio.Event()  # or dead
        self.ended = asyncio.create_task(self._watch(), name="watch a worker")
        self._kill_seconds = kill_seconds

    async def _watch(self) -> None:
        assert self.process.stdout is not None  # noqa: S101
        async for line in self.process.stdout:
            if line.startswith(b"rsnotify ready"):
                self.is_ready = True
                self._ready.set()
                self.started.set()
        await self.process.wait()
        self.started.set()
        self.replaced.set()

    def end(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(SIGTERM)
            asyncio.get_running_loop().call_later(self._kill_seconds, self._kill)

    def _kill(self) -> None:
        if self.process.returncode is None:
            log.error("worker %d does not end; killing it", self.process.pid)
            self.process.kill()


@dataclass(repr=False, eq=False)
class Worker:
    """A place, and the process that serves there: another one when it has died or is replaced."""

    command: Sequence[str]
    environment: Mapping[str, str]
    ending: asyncio.Event
    kill_seconds: float
    inherited: Collection[int] = ()
    ready: asyncio.Event = field(default_factory=asyncio.Event)  # a process has served here
    _children: set[Child] = field(default_factory=set)
    _serving: Child = field(init=False)
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)  # who serves here

    @property
    def pid(self) -> int:
        """Of the process that serves here."""
        return self._serving.process.pid

    async def run(self) -> None:
        """Keep a process here until the hub ends."""
        self._serving = await self._start()
        while not self.ending.is_set():
            serving = self._serving
            await serving.replaced.wait()
            async with self._changing:
                if serving is self._serving and not self.ending.is_set():
                    await self._handle_exit(serving)
                    self._serving = await self._start()
        await asyncio.gather(*(child.ended for child in self._children))

    async def replace(self) -> bool:
        """Let another process serve here, then end this one; false if the other cannot start."""
        async with self._changing:
            successor = await self._start()
            await successor.started.wait()
            if not successor.is_ready:
                log.error("%s did not become ready; the rest stay", _how_it_ended(successor))
                return False
            former, self._serving = self._serving, successor
            former.replaced.set()
        former.end()
        await former.ended
        return True

    async def _start(self) -> Child:
        process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=PIPE,  # it is closed when we end, even if we are killed
            stdout=PIPE,
            env=self.environment,
            pass_fds=self.inherited,
            start_new_session=True,  # Ctrl-C must reach the parent only
        )
        child = Child(process, self.ready, self.kill_seconds)
        self._children.add(child)
        child.ended.add_done_callback(lambda _: self._children.discard(child))
        if self.ending.is_set():  # during the start
            child.end()
        return child

    async def _handle_exit(self, child: Child) -> None:
        """Return when another is to start; one that failed at first would fail again."""
        message = _how_it_ended(child)
        if not self.ready.is_set():
            raise InvalidSettings(f"{message} before it was ready; see its message above")
        log.error("%s; starting another", message)
        await asyncio.sleep(RESTART_SECONDS)

    def end(self) -> None:
        for child in self._children:
            child.end()


def _how_it_ended(child: Child) -> str:
    return f"worker {child.process.pid} ended with status {child.process.returncode}"


log = logging.getLogger(__name__)


async def run_workers(
    settings: Settings,
    sets: Sequence[str],
    redis_url: str,
    bound: socket,
    on_ready: Callable[[], None],
    inherited: Collection[int] = (),
    *,
    command: Sequence[str] = (),
    kill_seconds: float = KILL_SECONDS,
) -> None:
    """Keep the workers running until SIGTERM or SIGINT, then stop them.

    The inherited files stay open, and so locked, as long as one worker lives. A worker is this
    program, or the `command`; one that lives for `kill_seconds` after its drain is killed.
    """
    bound.listen(BACKLOG)

    def noted(name: str) -> None:
        log_ending(name, settings.drain_seconds + kill_seconds, workers=settings.workers)

    ending, hangup = _on_signal(SIGINT, SIGTERM, first=noted), _on_signal(SIGHUP)
    ours = {name: value for name, value in os.environ.items() if name != sd_notify.VARIABLE}
    environment = for_worker(ours, redis_url)  # arguments would be visible to all users
    workers = [
        Worker(
            command or _command(settings, sets, bound.fileno()),
            environment | {WORKER: str(number)},
            ending,
            settings.drain_seconds + kill_seconds,
            [bound.fileno(), *inherited],
        )
        for number in range(1, settings.workers + 1)
    ]
    await _keep(workers, bound, ending, _announce_and_replace(workers, on_ready, hangup))


def _on_signal(*signals: Signals, first: Callable[[str], None] = lambda _: None) -> asyncio.Event:
    """Set by each of these signals; the name of the first that comes is handed on."""
    event = asyncio.Event()

    def received(signal: Signals) -> None:
        if not event.is_set():
            first(signal.name)
        event.set()

    for signal in signals:
        asyncio.get_running_loop().add_signal_handler(signal, received, signal)
    return event


async def _keep(
    workers: Sequence[Worker],
    bound: socket,
    ending: asyncio.Event,
    replacing: Loop,
) -> None:
    """Run the workers until they are to end."""
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.run(), name="keep a worker")
        beside = tasks.create_task(replacing)
        await ending.wait()
        sd_notify.notify(sd_notify.STOPPING)
        beside.cancel()
        await accept_the_last(bound)
        for worker in workers:
            worker.end()
        bound.close()  # or new connections would wait for nobody


async def _announce_and_replace(
    workers: Sequence[Worker], on_ready: Callable[[], None], hangup: asyncio.Event
) -> None:
    for worker in workers:
        await worker.ready.wait()
    on_ready()
    while True:
        await hangup.wait()
        hangup.clear()
        sd_notify.notify(sd_notify.reloading())
        await _replace(workers)
        sd_notify.notify(sd_notify.READY)


async def _replace(workers: Sequence[Worker]) -> None:
    """One after another; the first that cannot be replaced ends it, and the others stay."""
    log.warning("replacing %d workers, because of SIGHUP: %s", len(workers), _pids(workers))
    for worker in workers:
        if not await worker.replace():
            return
    log.warning("all workers are replaced, by %s", _pids(workers))


def _pids(workers: Sequence[Worker]) -> str:
    return ", ".join(str(worker.pid) for worker in workers)


def _command(settings: Settings, sets: Sequence[str], bound: int) -> list[str]:
    """The same command for one process; other settings come from the environment."""
    command = [sys.executable, "-m", "rsnotify", "serve", "--workers", "1"]
    command += ["--inherited-socket", str(bound)]
    command += ["--host", settings.host, "--data", str(settings.data)]
    if settings.public_url:
        command += ["--public-url", settings.public_url]
    return command + [word for name in sets for word in ("--set", name)]
