"""Runs several hub processes on one port and one Redis; the parent does nothing else.

Each process has a socket of its own, over which the kernel spreads connections. Each tells how many
it has, so that the parent can see to it that all get as many (`steering.py`). The parent keeps
the sockets open: if a process dies, or is replaced because of SIGHUP, the next one in its place
goes on with the same socket, and no connection is refused or reset meanwhile. SIGTERM to the parent
stops all processes, and kills those that do not end in time.
"""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from contextlib import suppress
from signal import SIGHUP, SIGINT, SIGTERM
from socket import socket
from threading import Thread
from time import monotonic

from rsnotify.errors import InvalidSettings
from rsnotify.serving import sd_notify
from rsnotify.serving.listening import BACKLOG
from rsnotify.serving.steering import STEER_SECONDS, Steering
from rsnotify.settings import WORKER, Settings, for_worker

log = logging.getLogger(__name__)

CONNECTIONS = b"connections "  # begins a line in which a worker tells how many it has
RESTART_SECONDS = 1.0
TELL_SECONDS = 0.1
SILENT_SECONDS = 2.0  # after these a worker gets no new connections
KILL_SECONDS = 30.0  # after the drain; a worker that is not stuck ends before


async def run_workers(
    settings: Settings,
    sets: Sequence[str],
    redis_url: str,
    sockets: Sequence[socket],
    on_ready: Callable[[], None],
    inherited: Collection[int] = (),
) -> None:
    """Keep a worker on each socket until SIGTERM or SIGINT, then stop them.

    The inherited files stay open, and so locked, as long as one worker lives.
    """
    for bound in sockets:  # in this order, which steering goes by
        bound.listen(BACKLOG)
    loop, ending, hangup = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    for signal, event in ((SIGINT, ending), (SIGTERM, ending), (SIGHUP, hangup)):
        loop.add_signal_handler(signal, event.set)
    environment = _environment(redis_url)
    kill_seconds = settings.drain_seconds + KILL_SECONDS
    workers = [
        Worker(
            _command(settings, sets, bound.fileno()),
            environment | {WORKER: str(number)},
            ending,
            kill_seconds,
            [bound.fileno(), *inherited],
        )
        for number, bound in enumerate(sockets, start=1)
    ]
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.run(), name="keep a worker")
        beside = [
            tasks.create_task(_announce_and_replace(workers, on_ready, hangup)),
            tasks.create_task(_steer(workers, Steering(sockets)), name="steer"),
        ]
        await ending.wait()
        sd_notify.notify(sd_notify.STOPPING)
        for task in beside:
            task.cancel()
        for worker in workers:
            worker.end()


async def _announce_and_replace(
    workers: Sequence["Worker"], on_ready: Callable[[], None], hangup: asyncio.Event
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


async def _replace(workers: Sequence["Worker"]) -> None:
    """One after another; the first that cannot be replaced ends it, and the others stay."""
    log.warning("replacing %d workers, because of SIGHUP: %s", len(workers), _pids(workers))
    for worker in workers:
        if not await worker.replace():
            return
    log.warning("all workers are replaced, by %s", _pids(workers))


async def _steer(workers: Sequence["Worker"], steering: Steering) -> None:
    while True:
        steering.look([worker.connections for worker in workers])
        await asyncio.sleep(STEER_SECONDS)


def _pids(workers: Sequence["Worker"]) -> str:
    return ", ".join(str(worker.pid) for worker in workers)


def end_with_parent() -> None:
    """End this worker at once if its parent was killed: the next hub must be alone."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):  # releases the GIL while it waits
            pass
        os._exit(1)

    Thread(target=watch, name="watch the parent", daemon=True).start()


async def tell_parent(connections: Sized) -> None:
    """Tell the parent how many connections this worker has, and so that it lives."""
    descriptor = sys.stdout.fileno()
    os.set_blocking(descriptor, False)
    told, last = -1, 0.0
    while True:
        now, count = monotonic(), len(connections)
        if count != told or now - last >= SILENT_SECONDS / 4:
            with suppress(BlockingIOError):  # the parent hangs
                os.write(descriptor, b"%s%d\n" % (CONNECTIONS, count))
            told, last = count, now
        await asyncio.sleep(TELL_SECONDS)


def _command(settings: Settings, sets: Sequence[str], bound: int) -> list[str]:
    """The same command for one process; other settings come from the environment."""
    command = [sys.executable, "-m", "rsnotify", "serve", "--workers", "1"]
    command += ["--inherited-socket", str(bound)]
    command += ["--host", settings.host, "--data", str(settings.data)]
    if settings.public_url:
        command += ["--public-url", settings.public_url]
    return command + [word for name in sets for word in ("--set", name)]


def _environment(redis_url: str) -> dict[str, str]:
    """Ours, with the address of Redis: arguments would be visible to all users."""
    kept = {name: value for name, value in os.environ.items() if name != sd_notify.VARIABLE}
    return for_worker(kept, redis_url)


class Child:
    """One process: starting, serving, ended."""

    def __init__(self, process: Process, ready: asyncio.Event, kill_seconds: float) -> None:
        self.process = process
        self.is_ready = False
        self._connections = 0
        self._heard = 0.0
        self._ready = ready
        self.started = asyncio.Event()  # ready, or dead before it was
        self.replaced = asyncio.Event()  # or dead
        self.ended = asyncio.create_task(self._watch(), name="watch a worker")
        self._kill_seconds = kill_seconds

    @property
    def connections(self) -> int | None:
        """How many it has; None if it has not told lately."""
        is_silent = monotonic() - self._heard > SILENT_SECONDS
        return None if is_silent or self.process.returncode is not None else self._connections

    async def _watch(self) -> None:
        assert self.process.stdout is not None  # noqa: S101
        async for line in self.process.stdout:
            if line.startswith(b"rsnotify ready"):
                self.is_ready = True
                self._ready.set()
                self.started.set()
            elif line.startswith(CONNECTIONS):
                self._connections, self._heard = int(line.removeprefix(CONNECTIONS)), monotonic()
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


class Worker:
    """A place with a socket of its own, and the process that serves there."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        ending: asyncio.Event,
        kill_seconds: float,
        inherited: Collection[int] = (),
    ) -> None:
        self.ready = asyncio.Event()  # a process has served here
        self._command = command
        self._environment = environment
        self._ending = ending
        self._kill_seconds = kill_seconds
        self._inherited = inherited
        self._children: set[Child] = set()
        self._serving: Child
        self._changing = asyncio.Lock()  # who serves here

    @property
    def pid(self) -> int:
        """Of the process that serves here."""
        return self._serving.process.pid

    @property
    def connections(self) -> int | None:
        """Of the process that serves here; None if none does, or it is frozen."""
        return self._serving.connections if self.ready.is_set() else None

    async def run(self) -> None:
        """Keep a process here until the hub ends."""
        self._serving = await self._start()
        while not self._ending.is_set():
            serving = self._serving
            await serving.replaced.wait()
            async with self._changing:
                if serving is self._serving and not self._ending.is_set():
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
            *self._command,
            stdin=PIPE,  # it is closed when we end, even if we are killed
            stdout=PIPE,
            env=self._environment,
            pass_fds=self._inherited,
            start_new_session=True,  # Ctrl-C must reach the parent only
        )
        child = Child(process, self.ready, self._kill_seconds)
        self._children.add(child)
        child.ended.add_done_callback(lambda _: self._children.discard(child))
        if self._ending.is_set():  # during the start
            child.end()
        return child

    async def _handle_exit(self, child: Child) -> None:
        """Return when another is to start; one that failed at first would fail again."""
        message = _how_it_ended(child)
        if not self.ready.is_set():
            raise InvalidSettings([f"{message} before it was ready; see its message above"])
        log.error("%s; starting another", message)
        await asyncio.sleep(RESTART_SECONDS)

    def end(self) -> None:
        for child in self._children:
            child.end()


def _how_it_ended(child: Child) -> str:
    return f"worker {child.process.pid} ended with status {child.process.returncode}"
