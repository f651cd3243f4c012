"""For how long something has not changed, by our own monotonic clock.

So it is noticed that another process has died. No other clock is asked: that of Redis may jump, and
those of two machines differ.
"""

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Generic, TypeVar

Seen = TypeVar("Seen")


class LastSeen(Generic[Seen]):
    """What was seen last under each name, and when it was new."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Seen, float]] = {}

    def note(self, name: str, seen: Seen) -> None:
        """The same as before changes nothing: it has looked like this since then."""
        before = self._seen.get(name)
        if before is None or before[0] != seen:
            self._seen[name] = seen, self._clock()

    def value(self, name: str) -> Seen | None:
        seen = self._seen.get(name)
        return None if seen is None else seen[0]

    def forget(self, name: str) -> None:
        self._seen.pop(name, None)

    def unchanged(self, name: str, seconds: float) -> Seen | None:
        """What it has looked like for so long at least; None if it has not."""
        seen = self._seen.get(name)
        return seen[0] if seen is not None and self._clock() >= seen[1] + seconds else None

    def all_unchanged(self, seconds: float) -> dict[str, Seen]:
        """All that has looked the same for so long at least."""
        now = self._clock()
        return {name: seen for name, (seen, since) in self._seen.items() if now >= since + seconds}

    def seconds_left(self, seconds: float) -> Iterator[float]:
        """For each that changed less than so many seconds ago, how many are left of them."""
        now = self._clock()
        left = (since + seconds - now for _, since in self._seen.values())
        return (each for each in left if each > 0)
