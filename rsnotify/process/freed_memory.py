"""Gives memory that was freed back to the system.

glibc keeps it: after some large documents, several times what the hub needs. Other C libraries
(musl, that of macOS) cannot be asked for it; nothing is done there.
"""

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress

LOOK_SECONDS = 5.0
GROWN_BYTES = 32 * 1024 * 1024
LOOKS = 12  # a minute, by which what it grew for has ended

_ARENAS_AT_MOST = -8  # M_ARENA_MAX


def share_one_arena() -> None:
    """Before there are threads: the free end of any other arena is never given back."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENAS_AT_MOST, 1)


def malloc_trim() -> Callable[[int], object] | None:
    """The function of glibc, which lets other threads run meanwhile."""
    try:
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found


class FreedMemory:
    """Notices that the process has grown, and has it trimmed: in a thread, for it takes a while."""

    def __init__(self, trim: Callable[[int], object] | None, resident: Callable[[], int]) -> None:
        self._trim = trim
        self._resident = resident
        self._least: int | None = None  # since it was trimmed
        self._looks_left = 0

    async def give_back(self) -> None:
        """Trim, if the process has grown by enough to be worth it; and at the looks that follow, as
        what it grew for may end then."""
        if self._trim is None:
            return
        resident = self._resident()
        if self._least is not None and resident >= self._least + GROWN_BYTES:
            self._looks_left = LOOKS
        if self._looks_left:
            self._looks_left -= 1
            await asyncio.to_thread(self._trim, 0)
            self._least = self._resident()
        else:
            self._least = min(resident, self._least or resident)
