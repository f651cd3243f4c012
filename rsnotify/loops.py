"""Runs background loops beside a server; they start together and end together.

If one loop ends, all end. A task is cancelled again and again until it ends: `wait_for` of Python
3.11, which redis-py uses, can lose a cancellation, and a `TaskGroup` passes only the first one on.
Nothing is waited for without a time limit.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from time import monotonic
from typing import Any, TypeVar

from rsnotify.errors import TryAgain

log = logging.getLogger(__name__)

END_SECONDS = 10.0  # for a loop to end
REST_SECONDS = 2.0  # for tasks and threads that are left at the end
RECANCEL_SECONDS = 0.1

Loop = Coroutine[Any, Any, None]
Task = asyncio.Task[Any]
Result = TypeVar("Result")


async def repeat(chore: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Do it for as long as the hub runs, whatever becomes of it this time."""
    while True:
        try:
            await chore()
        except TryAgain as error:
            log.debug("a chore waits: %s", error.detail)
        except Exception as error:  # a bug, or data that cannot be read: the hub goes on
            log.warning("%s failed, trying again", chore.__qualname__, exc_info=error)
        await asyncio.sleep(seconds)


async def run_beside(loops: Mapping[str, Loop], main: Loop) -> None:
    """Run `main` to its end with these loops beside it. If one of them ends, all end."""
    serving = asyncio.create_task(main, name="main")
    running = [asyncio.create_task(loop, name=name) for name, loop in loops.items()]
    try:
        await asyncio.wait([serving, *running], return_when=asyncio.FIRST_COMPLETED)
        ended = [loop for loop in running if loop.done()]
    finally:
        await end([serving])
        await end(running)
    _raise_errors([serving, *running], ended)


async def end(tasks: Collection[Task], seconds: float | None = None) -> list[Task]:
    """Cancel the tasks until they end; return those that did not within this time."""
    until = monotonic() + (END_SECONDS if seconds is None else seconds)
    while (waiting := [task for task in tasks if not task.done()]) and monotonic() < until:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting, timeout=RECANCEL_SECONDS)
    return waiting


async def within(seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """The result, or TimeoutError. Unlike `asyncio.timeout`, it repeats the cancellation."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        await end([task])
    if not task.done() or task.cancelled():
        raise TimeoutError
    return task.result()


async def run_to_the_end(main: Loop) -> None:
    """Run `main`, then end all other tasks. If some do not end, exit the process anyway."""
    try:
        await main
    except Exception as error:
        if await _end_rest():
            log.error("the hub failed", exc_info=error)
            _leave()
        raise
    if await _end_rest():
        _leave()


async def _end_rest() -> bool:
    """End all other tasks; true, and logged, if some do not end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    left = [repr(task.get_name()) for task in await end(others, REST_SECONDS)]
    threads = asyncio.create_task(asyncio.get_running_loop().shutdown_default_executor())
    await asyncio.wait([threads], timeout=REST_SECONDS)
    if not threads.done():
        left.append("a thread")
    if left:
        log.error("%s did not end; exiting without it", ", ".join(sorted(left)))
    return bool(left)


def _leave() -> None:
    """Exit at once: the runner of the event loop would wait without end."""
    logging.shutdown()
    os._exit(1)


def _raise_errors(tasks: Collection[Task], ended: Collection[Task]) -> None:
    """Raise the errors of all tasks; a loop that simply ended is an error too."""
    done = [task for task in tasks if task.done() and not task.cancelled()]
    errors = [error for task in done if (error := task.exception()) is not None]
    quiet = [task.get_name() for task in ended if not task.cancelled() and not task.exception()]
    if quiet:
        errors.append(RuntimeError(f"these loops ended by themselves: {', '.join(quiet)}"))
    if errors:
        raise BaseExceptionGroup("the hub ends", errors)
