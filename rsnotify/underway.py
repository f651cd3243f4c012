"""Work on sets that goes on whether somebody waits for it or not.

Rules that hold here: one task a set, shared by all who ask for it while it is under way; none is
lost before it ends, and none fails unseen. Nothing here knows what the work is.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from rsnotify.errors import Rejected, TryAgain

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Underway(Generic[Result]):
    """One kind of work, set by set; `what` it is called in the log."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tasks: dict[str, asyncio.Task[Result]] = {}

    def task(self, set_name: str, work: Callable[[], Awaitable[Result]]) -> asyncio.Task[Result]:
        """The task that is under way, or one that begins now."""
        task = self._tasks.get(set_name)
        if task is None or task.done():
            task = asyncio.create_task(_run(work), name=f"{self._what} of {set_name}")
            self._tasks[set_name] = task
            task.add_done_callback(partial(self._ended, set_name))
        return task

    def _ended(self, set_name: str, task: asyncio.Task[Result]) -> None:
        if self._tasks.get(set_name) is task:
            del self._tasks[set_name]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, TryAgain | Rejected):
            log.error("a bug in the %s of %r", self._what, set_name, exc_info=error)


async def _run(work: Callable[[], Awaitable[Result]]) -> Result:
    return await work()
