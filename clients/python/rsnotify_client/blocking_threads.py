"""Threads for what would block an event loop.

Rules that hold here: only programs with an event loop import this: `asyncio` takes long to load.
A forked process has none of its parent's threads, and starts its own.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, ParamSpec, TypeVar

from rsnotify_client.threads import given_up_if

Given = ParamSpec("Given")
Made = TypeVar("Made")
Abort = Callable[[], None] | None
Work = Callable[[], None]


class BlockingThreads:
    """Threads up to a number, started as they are needed; they end when nobody has them more."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._threads = self._busy = 0
        self._work: SimpleQueue[Work | None] = SimpleQueue()

    async def run(self, act: Callable[..., Made], *args: Any, abort: Abort = None) -> Made:
        """Run it in a thread; return its result, or raise its error.

        If cancelled, it calls `abort` and waits for the end of the work; without `abort` it does
        not wait, and the result is closed when it comes.
        """
        if self._process != os.getpid():
            self._begin()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Made] = loop.create_future()
        self._busy += 1
        if self._busy > self._threads and self._threads < self._size:
            self._threads += 1
            Thread(target=_serve, args=(self._work,), daemon=True).start()

        def work() -> None:
            made, error = _outcome(act, args)
            if future.cancelled():  # perhaps as the loop ends, and runs nothing more
                _close(made)
                made = None
            try:
                loop.call_soon_threadsafe(self._settle, future, made, error)
            except RuntimeError:  # the loop has ended
                _close(made)

        self._work.put(work)
        if abort is None:
            return await _result_of(future)
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            abort()
            await asyncio.wait([future])
            future.exception()
            raise
        return future.result()

    def _settle(self, future: asyncio.Future[Any], made: Any, error: Exception | None) -> None:
        self._busy -= 1
        if future.cancelled():
            _close(made)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(made)

    def close(self) -> None:
        """Let the threads end when they have done what they do."""
        for _ in range(self._threads):
            self._work.put(None)
        self._threads = 0

    __del__ = close


async def beside(
    threads: BlockingThreads,
    work: Callable[Given, Made],
    *args: Given.args,
    **options: Given.kwargs,
) -> Made:
    """In one of the threads; if cancelled, neither waits for the other any more."""
    is_cancelled = Event()

    def act() -> Made:
        if is_cancelled.is_set():
            raise TimeoutError  # nobody waits any more: do not begin; nobody sees this
        with given_up_if(is_cancelled.is_set):
            return work(*args, **options)

    try:
        return await threads.run(act)
    except asyncio.CancelledError:
        is_cancelled.set()
        raise


def _serve(works: SimpleQueue[Work | None]) -> None:
    while (work := works.get()) is not None:
        work()
        del work  # it has the threads, which could not end


def _outcome(act: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    try:
        return act(*args), None
    except Exception as error:
        return None, error


async def _result_of(future: asyncio.Future[Made]) -> Made:
    try:
        return await future
    except asyncio.CancelledError:
        if not future.cancelled() and future.exception() is None:  # it came at the same moment
            _close(future.result())
        raise


def _close(made: Any) -> None:
    with suppress(AttributeError, OSError):
        made.close()
