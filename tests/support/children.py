"""Forks that do one thing and end: whatever happens in them, none goes on with the tests."""

import os
import traceback
from collections.abc import Callable


def begun(act: Callable[[], object], *, says: bool = True) -> int:
    """In a process of its own: its number."""
    child, status = os.fork(), 1
    if child:
        return child
    try:
        act()
        status = 0
    except BaseException:
        if says:
            traceback.print_exc()
    finally:
        os._exit(status)


def in_child(act: Callable[[], object]) -> int:
    """Do it in a process of its own; its exit status, less than 0 if a signal has ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(begun(act), 0)[1])
