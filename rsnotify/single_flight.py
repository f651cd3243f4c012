"""Single flight: work that several callers need at the same time is done once for all of them.

The work goes on even if all callers give up. If it fails unexpectedly, that is logged.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

from rsnotify.errors import Rejected, TryAgain

log = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SingleFlight(Generic[Key, Result]):
    """One kind of work; `what` is its name in the log."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tasks: dict[Key, asyncio.Task[Result]] = {}

    def task(self, key: Key, work: Callable[[], Awaitable[Result]]) -> asyncio.Task[Result]:
        """The running task for this key, or a new one."""
        task = self._tasks.get(key)
        if task is None or task.done():
            task = asyncio.create_task(_run(work), name=f"{self._what} of {key}")
            self._tasks[key] = task
            task.add_done_callback(partial(self._ended, key))
        return task

    async def result(self, key: Key, work: Callable[[], Awaitable[Result]]) -> Result:
        """Wait for the result. Cancelling the caller does not cancel the work."""
        return await asyncio.shield(self.task(key, work))

    def _ended(self, key: Key, task: asyncio.Task[Result]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, TryAgain | Rejected):
            log.error("internal error in the %s of %r", self._what, key, exc_info=error)


async def _run(work: Callable[[], Awaitable[Result]]) -> Result:
    return await work()
