"""Decides what leaves memory when a size limit is passed: the least recently used, entirely."""

from typing import Generic, NamedTuple, TypeVar

Keeper = TypeVar("Keeper")


class _Usage(NamedTuple):
    size: int
    used_at: float


class Budget(Generic[Keeper]):
    """How many bytes each keeper holds, the least recently used keeper first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._kept: dict[Keeper, _Usage] = {}

    def __contains__(self, keeper: Keeper) -> bool:
        return keeper in self._kept

    def use(self, keeper: Keeper, size: int, now: float) -> list[Keeper]:
        """Note that the keeper was used and holds so much; return those that must be released."""
        self.forget(keeper)
        self._kept[keeper] = _Usage(size, now)
        self.total += size
        return self._evict()

    def forget(self, keeper: Keeper) -> None:
        """The keeper holds nothing any more."""
        kept = self._kept.pop(keeper, None)
        if kept is not None:
            self.total -= kept.size

    def idle(self, since: float) -> list[Keeper]:
        """The keepers that were not used since then."""
        return [keeper for keeper, kept in self._kept.items() if kept.used_at < since]

    def _evict(self) -> list[Keeper]:
        given: list[Keeper] = []
        while self.total > self.limit:
            keeper = next(iter(self._kept))
            self.forget(keeper)
            given.append(keeper)
        return given

    def __repr__(self) -> str:
        return f"<Budget {self.total} of {self.limit} bytes, {len(self._kept)} keepers>"
