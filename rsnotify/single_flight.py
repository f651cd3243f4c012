"""Work that is shared or cut into slices, so that nothing is done twice or holds up the loop.

`SingleFlight`: what several callers need at the same time is done once for all of them. It goes on
even if all callers give up; if it fails unexpectedly, that is logged.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Generic, TypeVar

from rsnotify.errors import Rejected, TryAgain

log = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
FEW_SETS = 100  # what is made of so few is made anew each time…
SECONDS_OF_A_SET = 0.0005  # …and of more it is kept for so long for each
RESULTS_KEPT = 8
WAIT_SECONDS = 5.0  # for a turn
WAITING = 100  # for the same turn
SLICE = 100  # sets, before others have their turn


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

    async def aclose(self) -> None:
        """End what is under way, and wait for that."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: Key, task: asyncio.Task[Result]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, TryAgain | Rejected):
            log.error("internal error in the %s of %r", self._what, key, exc_info=error)


async def _run(work: Callable[[], Awaitable[Result]]) -> Result:
    return await work()


Item = TypeVar("Item")


def kept_seconds(sets: int) -> float:
    """How long to keep what was made of so many sets."""
    return 0.0 if sets <= FEW_SETS else sets * SECONDS_OF_A_SET


def slices(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """So many at a time that the event loop is not held up."""
    return (items[start : start + SLICE] for start in range(0, len(items), SLICE))


class Costly(Generic[Result]):
    """Results by their keys; `what` is the name of the work in the log."""

    def __init__(self, what: str, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._flights = SingleFlight[str, Result](what)
        self._kept: OrderedDict[str, tuple[Result, float]] = OrderedDict()  # until when

    async def result(
        self, key: str, work: Callable[[], Awaitable[Result]], seconds: float
    ) -> Result:
        """What is kept, or was made just now; then it is kept for so many seconds."""
        result, until = self._kept.get(key, (None, float("-inf")))
        if result is not None and self._clock() < until:
            return result
        return await self._flights.result(key, partial(self._made, key, work, seconds))

    async def _made(
        self, key: str, work: Callable[[], Awaitable[Result]], seconds: float
    ) -> Result:
        result = await work()
        self._kept.pop(key, None)
        if seconds:
            self._kept[key] = result, self._clock() + seconds
        if len(self._kept) > RESULTS_KEPT:
            self._kept.popitem(last=False)
        return result


class AtOnce:
    """How much costly work is done at once: one more waits for a while, and is then refused. If too
    many wait, it is refused at once."""

    def __init__(self, most: int, refusal: str, wait_seconds: float = WAIT_SECONDS) -> None:
        self._turns = asyncio.Semaphore(most)
        self._waiting = 0
        self._refusal = refusal
        self._wait_seconds = wait_seconds

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._waiting >= WAITING:
            raise TryAgain(self._refusal, retry_after_seconds=10)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._turns.acquire()
        except TimeoutError:
            raise TryAgain(self._refusal, retry_after_seconds=10) from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turns.release()


async def let_others_go_on() -> None:
    """Between two slices."""
    await asyncio.sleep(0)
