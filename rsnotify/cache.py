"""What this process keeps of the journals in memory, within one budget for all of it.

Rules that hold here: what is kept can be read again from the journal, so letting go of it breaks
nothing; a channel that nobody reads is let go of after a while, be there room or not. Nothing here
knows what is kept.
"""

from collections.abc import Callable
from time import monotonic
from typing import Protocol

from rsnotify.core.budget import Budget

IDLE_SECONDS = 60.0
MIB = 1024 * 1024


class CacheEntry(Protocol):
    """Something in memory that a journal has too."""

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        ...

    @property
    def stays_when_idle(self) -> bool:
        """Whether it is kept, where there is room, though nobody has used it for a while."""
        ...

    def release(self) -> None: ...


class Cache:
    """Tails, frames, stretches and open lists, the least recently used of which go first."""

    def __init__(self, mebibytes: int, clock: Callable[[], float] = monotonic) -> None:
        self._budget: Budget[CacheEntry] = Budget(mebibytes * MIB)
        self._clock = clock

    def __contains__(self, entry: CacheEntry) -> bool:
        return entry in self._budget

    @property
    def size(self) -> int:
        return self._budget.total

    def use(self, entry: CacheEntry) -> None:
        """It is used, or has grown: others may have to go for it, or it may itself."""
        for other in self._budget.use(entry, entry.size, self._clock()):
            other.release()

    def forget(self, entry: CacheEntry) -> None:
        """It is no more."""
        self._budget.forget(entry)

    def release_idle(self) -> None:
        for entry in self._budget.idle(self._clock() - IDLE_SECONDS):
            if not entry.stays_when_idle:
                self._budget.forget(entry)
                entry.release()
