"""How many of something each one holds, and how many one may hold."""

from collections import Counter


class Held:
    """Counts, with a limit for each who holds."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: Counter[object] = Counter()
        self._total = 0

    def is_full(self, holder: object) -> bool:
        return self._counts[holder] >= self.limit

    def take(self, holder: object) -> None:
        self._counts[holder] += 1
        self._total += 1

    def give_back(self, holder: object) -> None:
        self._counts[holder] -= 1
        self._total -= 1
        if self._counts[holder] <= 0:
            del self._counts[holder]

    def __len__(self) -> int:
        return self._total
