"""What holds locks, threads or files is told when its process forks.

Rules that hold here: a fork happens while nobody else holds a lock of ours, so that none is locked
for ever in the child; what may not be inherited is let go before, or begun anew in the child. A
fork cannot be stopped, so one that fails here keeps no other from being told.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

log = logging.getLogger(__name__)


class Forked(Protocol):
    """Who wants to be told."""

    def before_fork(self) -> None:
        """If this fails, the parent is not told afterwards; the child is."""

    def after_fork(self, *, in_child: bool) -> None: ...


_members: WeakSet[Forked] = WeakSet()
_told: list[Forked] = []
_one_at_a_time = threading.RLock()


def tell_of_forks(member: Forked) -> None:
    with _one_at_a_time:  # a fork of another thread goes through all of them
        _members.add(member)


def _before() -> None:
    _one_at_a_time.acquire()
    for member in list(_members):
        with _logged():
            member.before_fork()
            _told.append(member)


def _after_in_parent() -> None:
    while _told:
        with _logged():
            _told.pop().after_fork(in_child=False)
    _one_at_a_time.release()


def _after_in_child() -> None:
    """Some servers (uWSGI) tell of a fork only here."""
    global _one_at_a_time  # noqa: PLW0603
    _one_at_a_time = threading.RLock()
    _told.clear()
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
