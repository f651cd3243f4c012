"""Decides what leaves memory when a size limit is passed: the least recently used, entirely."""

from typing import Generic, TypeVar

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
