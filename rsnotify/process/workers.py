"""Runs several hub processes on one port and one Redis; the parent does nothing else.

All accept from one socket, each when it has time to. The parent keeps it open: if a process dies,
or is replaced because of SIGHUP, no connection is refused or reset meanwhile. SIGTERM to the parent
stops all processes, and kills those that do not end in time.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Collection, Sequence
from signal import SIGHUP, SIGINT, SIGTERM
from socket import socket

from rsnotify.loops import Loop
from rsnotify.process import sd_notify
from rsnotify.process.listening import BACKLOG, accept_the_last
from rsnotify.process.settings import WORKER, Settings, for_worker
from rsnotify.process.worker import Worker

log = logging.getLogger(__name__)

KILL_SECONDS = 30.0  # after the drain; a worker that is not stuck ends before


async def run_workers(
    settings: Settings,
    sets: Sequence[str],
    redis_url: str,
    bound: socket,
    on_ready: Callable[[], None],
    inherited: Collection[int] = (),
) -> None:
    """Keep the workers running until SIGTERM or SIGINT, then stop them.

    The inherited files stay open, and so locked, as long as one worker lives.
    """
    bound.listen(BACKLOG)
    ending, hangup = _on_signal(SIGINT, SIGTERM), _on_signal(SIGHUP)
    environment = _environment(redis_url)
    workers = [
        Worker(
            _command(settings, sets, bound.fileno()),
            environment | {WORKER: str(number)},
            ending,
            settings.drain_seconds + KILL_SECONDS,
            [bound.fileno(), *inherited],
        )
        for number in range(1, settings.workers + 1)
    ]
    await _keep(workers, bound, ending, _announce_and_replace(workers, on_ready, hangup))


def _on_signal(*signals: int) -> asyncio.Event:
    """Set by each of these signals."""
    event = asyncio.Event()
    for signal in signals:
        asyncio.get_running_loop().add_signal_handler(signal, event.set)
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


def _environment(redis_url: str) -> dict[str, str]:
    """Ours, with the address of Redis: arguments would be visible to all users."""
    kept = {name: value for name, value in os.environ.items() if name != sd_notify.VARIABLE}
    return for_worker(kept, redis_url)
