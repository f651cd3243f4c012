"""Waiting that is given up: for somebody who was cancelled, or in an event loop.

Rules that hold here: a thread waits as long as it was told to, unless a condition was named before
that ends it; whatever waits asks for it every now and then.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep

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
