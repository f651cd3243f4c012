"""How many of something each one holds, and how many one may hold."""

from collections import Counter
from collections.abc import ItemsView
from math import inf
from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class Held(Generic[Holder]):
    """Counts, with a limit for each who holds."""

    def __init__(self, limit: float = inf) -> None:
        self.limit = limit
        self._counts: Counter[Holder] = Counter()
        self._total = 0

    def is_full(self, holder: Holder) -> bool:
        return self._counts[holder] >= self.limit

    def take(self, holder: Holder) -> None:
        self._counts[holder] += 1
        self._total += 1

    def give_back(self, holder: Holder) -> None:
        """One of those that it holds; KeyError if it holds none."""
        left = self._counts.pop(holder) - 1
        if left:
            self._counts[holder] = left
        self._total -= 1

    def items(self) -> ItemsView[Holder, int]:
        """Each who holds any, with how many."""
        return self._counts.items()

    def __len__(self) -> int:
        return self._total
