"""Discrete events: a clock that jumps from one event to the next, and cores that work in turn."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Act = Callable[[], None]


class Clock:
    """What happens when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Act]] = []
        self._order = count()

    def at(self, time: float, act: Act) -> None:
        heappush(self._events, (max(time, self.now), next(self._order), act))

    def run(self, until: float = float("inf")) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, act = heappop(self._events)
            act()


class Core:
    """Does one piece of work after another; `busy` is how long it has worked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at = 0.0
        self.busy = 0.0

    def do(self, seconds: float, then: Act) -> float:
        """Begin when the work before is done; when this begins."""
        begins = max(self._clock.now, self._free_at)
        self._free_at = begins + seconds
        self.busy += seconds
        self._clock.at(self._free_at, then)
        return begins

    def stop_until(self, time: float) -> None:
        """Nothing is done before then."""
        self._free_at = max(self._free_at, time)
