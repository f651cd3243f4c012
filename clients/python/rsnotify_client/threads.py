"""Waiting that is given up, and what a fork must not inherit; without an event loop.

Rules that hold here: a thread waits as long as its caller said, unless a condition that was named
before ends it. A fork happens while nobody else holds a lock of ours, so that none stays locked in
the child. A fork cannot be stopped, so all objects are notified even if one of them fails.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Protocol
from weakref import WeakSet

GIVE_UP_SECONDS = 0.1
"""How long a waiting thread sleeps before it looks again."""


class _OfThread(threading.local):
    is_given_up: Callable[[], bool] | None = None


_of_thread = _OfThread()


@contextmanager
def given_up_if(condition: Callable[[], bool]) -> Iterator[None]:
    """In this block, whatever this thread calls stops waiting as soon as the condition holds."""
    before = _of_thread.is_given_up
    _of_thread.is_given_up = condition
    try:
        yield
    finally:
        _of_thread.is_given_up = before


def is_given_up() -> bool:
    """Whether this thread must not wait, or not any longer."""
    return _of_thread.is_given_up is not None and _of_thread.is_given_up()


def waited(seconds: float) -> bool:
    """Sleep for that long; False as soon as the wait is given up."""
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        if is_given_up():
            return False
        sleep(min(left, GIVE_UP_SECONDS))
    return True


log = logging.getLogger(__name__)


class Forked(Protocol):
    """An object that has to act before and after a fork."""

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
    """Log what is raised, Ctrl-C too: Python would print it, and fork."""
    try:
        yield
    except BaseException:
        log.exception("a fork goes on in spite of:")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
