"""Keeps parts of the journals in memory, within one size limit for all of them.

Everything here can be read again from the journal, so any entry may be released at any time. A
channel that nobody reads is released after a while even if there is room.
"""

from collections.abc import Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar

NOTHING = (0, 0.0)

Owner = TypeVar("Owner")


class Budget(Generic[Owner]):
    """How many bytes each owner holds, the least recently used owner first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._kept: dict[Owner, tuple[int, float]] = {}  # its size, and when it was used

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._kept

    def use(self, owner: Owner, size: int, now: float) -> list[Owner]:
        """Note that the owner was used and holds so much; return those that must be released."""
        size_before, _ = self._kept.pop(owner, NOTHING)
        self._kept[owner] = size, now
        self.total += size - size_before
        return self._evicted() if self.total > self.limit else []

    def forget(self, owner: Owner) -> None:
        """The owner holds nothing any more."""
        size, _ = self._kept.pop(owner, NOTHING)
        self.total -= size

    def idle(self, since: float) -> list[Owner]:
        """The keepers that were not used since then."""
        return [owner for owner, (_, used_at) in self._kept.items() if used_at < since]

    def _evicted(self) -> list[Owner]:
        given: list[Owner] = []
        while self.total > self.limit:
            owner = next(iter(self._kept))
            self.forget(owner)
            given.append(owner)
        return given

    def __repr__(self) -> str:
        return f"<Budget {self.total} of {self.limit} bytes, {len(self._kept)} keepers>"


IDLE_SECONDS = 60.0
MIB = 1024 * 1024


class CacheEntry(Protocol):
    """Something in memory that can be read again from a journal."""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        ...

    @property
    def stays_when_idle(self) -> bool:
        """Whether to keep it, if there is room, although nobody has used it for a while."""
        ...

    def release(self) -> None: ...


class Cache:
    """Tails, frames, stretches and open lists. The least recently used are released first."""

    def __init__(self, mebibytes: int, clock: Callable[[], float] = monotonic) -> None:
        self._budget: Budget[CacheEntry] = Budget(mebibytes * MIB)
        self._clock = clock

    def __contains__(self, entry: CacheEntry) -> bool:
        return entry in self._budget

    @property
    def size(self) -> int:
        return self._budget.total

    def use(self, entry: CacheEntry) -> None:
        """The entry was used or has grown; release others, or itself, if the limit is passed."""
        for other in self._budget.use(entry, entry.size, self._clock()):
            other.release()

    def forget(self, entry: CacheEntry) -> None:
        """The entry does not exist any more."""
        self._budget.forget(entry)

    def release_idle(self) -> None:
        for entry in self._budget.idle(self._clock() - IDLE_SECONDS):
            if not entry.stays_when_idle:
                self._budget.forget(entry)
                entry.release()
