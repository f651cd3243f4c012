"""Single flight: work that several ask for at once is done once, and goes on if nobody waits.

Rules that hold here: one task a key, shared by all who ask for it while it is under way; none is
lost before it ends, and none fails unseen. Nothing here knows what the work is.
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
    """One kind of work; `what` it is called in the log."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tasks: dict[Key, asyncio.Task[Result]] = {}

    def task(self, key: Key, work: Callable[[], Awaitable[Result]]) -> asyncio.Task[Result]:
        """The task that is under way, or one that begins now."""
        task = self._tasks.get(key)
        if task is None or task.done():
            task = asyncio.create_task(_run(work), name=f"{self._what} of {key}")
            self._tasks[key] = task
            task.add_done_callback(partial(self._ended, key))
        return task

    async def result(self, key: Key, work: Callable[[], Awaitable[Result]]) -> Result:
        """The same for one who waits; whoever gives up leaves the work to the others."""
        return await asyncio.shield(self.task(key, work))

    def _ended(self, key: Key, task: asyncio.Task[Result]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, TryAgain | Rejected):
            log.error("a bug in the %s of %r", self._what, key, exc_info=error)


async def _run(work: Callable[[], Awaitable[Result]]) -> Result:
    return await work()
