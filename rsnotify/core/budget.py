"""Who keeps how much in memory, and who gives first when it is too much.

Rules that hold here: all together never keep more than the limit; whoever was used least recently
gives first, and gives all it has. Nothing here knows what is kept, nor what time it is.
"""

from typing import Generic, NamedTuple, TypeVar

Keeper = TypeVar("Keeper")


class _Usage(NamedTuple):
    size: int
    used: float  # when


class Budget(Generic[Keeper]):
    """The bytes that each keeper has, the least recently used one first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._kept: dict[Keeper, _Usage] = {}

    def __contains__(self, keeper: Keeper) -> bool:
        return keeper in self._kept

    def use(self, keeper: Keeper, size: int, now: float) -> list[Keeper]:
        """The keeper is used, and has so much now; those that must give."""
        self.forget(keeper)
        self._kept[keeper] = _Usage(size, now)
        self.total += size
        return self._evict()

    def forget(self, keeper: Keeper) -> None:
        """It has nothing any more."""
        kept = self._kept.pop(keeper, None)
        if kept is not None:
            self.total -= kept.size

    def idle(self, since: float) -> list[Keeper]:
        """Those that were not used since then."""
        return [keeper for keeper, kept in self._kept.items() if kept.used < since]

    def _evict(self) -> list[Keeper]:
        given: list[Keeper] = []
        while self.total > self.limit:
            keeper = next(iter(self._kept))
            self.forget(keeper)
            given.append(keeper)
        return given

    def __repr__(self) -> str:
        return f"<Budget {self.total} of {self.limit} bytes, {len(self._kept)} keepers>"
