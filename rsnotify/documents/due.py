"""When each of many is due: asking costs nothing for those that are not."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

OUTDATED = 100  # entries of the heap that may be so before it is made anew


class Due:
    """A time for each name; the earliest come out first."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # also what was planned otherwise since

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def __len__(self) -> int:
        return len(self._at)

    @property
    def kept(self) -> int:
        """How many plans are in memory, also those that have been changed since."""
        return len(self._heap)

    def plan(self, name: str, at: float) -> None:
        """At this time, whatever was planned."""
        self._at[name] = at
        heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._at) + OUTDATED:
            self._heap = [(at, name) for name, at in self._at.items()]
            heapify(self._heap)

    def plan_by(self, names: Iterable[str], at: float) -> None:
        """At this time or earlier."""
        for name in names:
            if at < self._at.get(name, float("inf")):
                self.plan(name, at)

    def cancel(self, name: str) -> None:
        self._at.pop(name, None)

    def take(self, now: float, most: int) -> list[str]:
        """Those that are due, at most so many, the earliest first; they are planned no more."""
        taken: list[str] = []
        while self._heap and self._heap[0][0] <= now and len(taken) < most:
            at, name = heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                taken.append(name)
        return taken
