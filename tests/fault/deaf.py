"""`python -m tests.fault.deaf …`: a hub that does not hear, for tests of its end.

Every task of it swallows the first cancellation that it gets; with DEAF_LOOP in the environment one
of its loops swallows each of them.
"""

import asyncio
import os
from collections.abc import Coroutine
from functools import partial
from typing import Any

import uvloop

from rsnotify import loops
from rsnotify.cli import main
from rsnotify.live import following
from rsnotify.process import hub_process

PATIENCE_SECONDS = 0.5


async def deaf_once(work: Coroutine[Any, Any, Any]) -> Any:
    inner = asyncio.Task(work)
    try:
        return await asyncio.shield(inner)
    except asyncio.CancelledError:
        if inner.cancelled():
            raise
    return await inner  # the cancellation is forgotten


async def deaf() -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


def deaf_event_loop() -> asyncio.AbstractEventLoop:
    first = True

    def task(loop: Any, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        nonlocal first
        is_first, first = first, False  # the one that nobody cancels
        return asyncio.Task(work if is_first else deaf_once(work), loop=loop, **options)

    loop = uvloop.new_event_loop()
    loop.set_task_factory(task)
    return loop


if __name__ == "__main__":
    hub_process.uvloop.run = partial(uvloop.run, loop_factory=deaf_event_loop)
    if "DEAF_LOOP" in os.environ:
        loops.END_SECONDS = loops.REST_SECONDS = PATIENCE_SECONDS
        following.Following.listen = lambda _: deaf()
    main()
