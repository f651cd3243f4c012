"""What holds locks, threads or files is told when its process forks.

Rules that hold here: a fork happens while nobody else holds a lock of ours, so that none is locked
for ever in the child; what may not be inherited is let go before, or begun anew in the child.
"""

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Who wants to be told."""

    def before_fork(self) -> None: ...

    def after_fork(self, *, in_child: bool) -> None: ...


_members: WeakSet[Forked] = WeakSet()
_told: list[Forked] = []
_one_at_a_time = threading.RLock()


def tell_of_forks(member: Forked) -> None:
    _members.add(member)


def _before() -> None:
    _one_at_a_time.acquire()
    _told[:] = list(_members)
    for member in _told:
        member.before_fork()


def _after_in_parent() -> None:
    for member in reversed(_told):
        member.after_fork(in_child=False)
    _told.clear()
    _one_at_a_time.release()


def _after_in_child() -> None:
    """Some servers (uWSGI) tell of a fork only here."""
    global _one_at_a_time  # noqa: PLW0603
    _one_at_a_time = threading.RLock()
    _told.clear()
    for member in list(_members):
        member.after_fork(in_child=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
