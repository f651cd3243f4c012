"""Threads beside an event loop, waiting that is given up, and what a fork must not inherit.

Rules that hold here: a thread waits as long as its caller said, unless a condition was named before
that ends it. A fork happens while nobody else holds a lock of ours, so that none stays locked in
the child; a fork cannot be stopped, so one that fails here keeps no other from being notified.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

GIVE_UP_SECONDS = 0.1
"""After so long, what waits looks again."""


class _OfThread(threading.local):
    is_given_up: Callable[[], bool] | None = None


_of_thread = _OfThread()


@contextmanager
def given_up_if(condition: Callable[[], bool]) -> Iterator[None]:
    """What this thread calls meanwhile stops waiting as soon as the condition holds."""
    before = _of_thread.is_given_up
    _of_thread.is_given_up = condition
    try:
        yield
    finally:
        _of_thread.is_given_up = before


def is_given_up() -> bool:
    """Whether this thread must not wait, or no longer."""
    return _of_thread.is_given_up is not None and _of_thread.is_given_up()


def waited(seconds: float) -> bool:
    """Sleep so long; False as soon as that is given up."""
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        if is_given_up():
            return False
        sleep(min(left, GIVE_UP_SECONDS))
    return True


log = logging.getLogger(__name__)


class Forked(Protocol):
    """What has to act before and after a fork."""

    def before_fork(self) -> None:
        """If this fails, `after_fork` is not called in the parent, but in the child."""

    def after_fork(self, *, in_child: bool) -> None: ...


_members: WeakSet[Forked] = WeakSet()
_prepared: list[Forked] = []
_one_at_a_time = threading.RLock()


def notify_of_forks(member: Forked) -> None:
    with _one_at_a_time:  # a fork of another thread goes through all of them
        _members.add(member)


def _before() -> None:
    _one_at_a_time.acquire()
    for member in list(_members):
        with _logged():
            member.before_fork()
            _prepared.append(member)


def _after_in_parent() -> None:
    while _prepared:
        with _logged():
            _prepared.pop().after_fork(in_child=False)
    _one_at_a_time.release()


def _after_in_child() -> None:
    """Some servers (uWSGI) report a fork only here."""
    global _one_at_a_time  # noqa: PLW0603
    _one_at_a_time = threading.RLock()
    _prepared.clear()
    for member in list(_members):
        with _logged():
            member.after_fork(in_child=True)


@contextmanager
def _logged() -> Iterator[None]:
    """What is raised, Ctrl-C too, Python would print, and fork."""
    try:
        yield
    except BaseException:
        log.exception("a fork goes on in spite of:")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )


Made = TypeVar("Made")
Abort = Callable[[], None] | None


class BlockingThreads:
    """At most so many threads, started as they are needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._threads = 0
        self._busy = 0
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    async def run(self, act: Callable[..., Made], *args: Any, abort: Abort = None) -> Made:
        """Its result or error.

        If cancelled, it calls `abort` and waits for the end of the work; without `abort` it does
        not wait, and the result is closed when it comes.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Made] = loop.create_future()
        self._busy += 1
        if self._busy > self._threads and self._threads < self._size:
            self._threads += 1
            Thread(target=self._serve, daemon=True).start()

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

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def close(self) -> None:
        """The threads end when what they do is done."""
        for _ in range(self._threads):
            self._work.put(None)
        self._threads = 0


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
