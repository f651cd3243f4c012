"""The loops that run beside a server: begun together, ended together, whatever they swallow.

Rules that hold here: a loop lives as long as the process, so one that ends by itself ends all; a
cancellation is repeated until it is heard, for `wait_for` of Python 3.11, by which redis-py sends,
loses one that arrives as its work completes; nothing is waited for without a bound. Loops stand
side by side: a `TaskGroup` that is ending hands no second cancellation on to those in it.
"""

import asyncio
import logging
import os
from collections.abc import Collection, Coroutine, Mapping
from time import monotonic
from typing import Any, TypeVar

log = logging.getLogger(__name__)

END_SECONDS = 10.0  # how long a loop may take to end
REST_SECONDS = 2.0  # how long what is left may take when all else has ended
RECANCEL_SECONDS = 0.1

Loop = Coroutine[Any, Any, None]
Task = asyncio.Task[Any]
Result = TypeVar("Result")


async def run_beside(loops: Mapping[str, Loop], main: Loop) -> None:
    """Run `main` to its end with these loops beside it; one that dies ends all."""
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
    """Cancel until it is heard; those that have not ended within this time."""
    until = monotonic() + (END_SECONDS if seconds is None else seconds)
    while (waiting := [task for task in tasks if not task.done()]) and monotonic() < until:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting, timeout=RECANCEL_SECONDS)
    return waiting


async def within(seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """The result, or TimeoutError; unlike `asyncio.timeout`, it cancels until that is heard."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        await end([task])
    if not task.done() or task.cancelled():
        raise TimeoutError
    return task.result()


async def run_to_the_end(main: Loop) -> None:
    """Run it, and end what it leaves behind; the process goes without what does not end."""
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
    """Whether anything of this process goes on, which is said."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    left = [repr(task.get_name()) for task in await end(others, REST_SECONDS)]
    threads = asyncio.create_task(asyncio.get_running_loop().shutdown_default_executor())
    await asyncio.wait([threads], timeout=REST_SECONDS)
    if not threads.done():
        left.append("work beside the event loop")
    if left:
        log.error("%s did not end; the process goes without", ", ".join(sorted(left)))
    return bool(left)


def _leave() -> None:
    """Without waiting for anybody: the runner of the event loop would wait for ever."""
    logging.shutdown()
    os._exit(1)


def _raise_errors(tasks: Collection[Task], ended: Collection[Task]) -> None:
    """What any of them died of; a loop that just ended is a mistake of ours."""
    done = [task for task in tasks if task.done() and not task.cancelled()]
    errors = [error for task in done if (error := task.exception()) is not None]
    quiet = [task.get_name() for task in ended if not task.cancelled() and not task.exception()]
    if quiet:
        errors.append(RuntimeError(f"these loops ended by themselves: {', '.join(quiet)}"))
    if errors:
        raise BaseExceptionGroup("the hub ends", errors)
