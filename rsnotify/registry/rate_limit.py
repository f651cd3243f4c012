"""How often something may be done in a second, by each who does it.

Whoever did nothing for a second may do a second's worth at once. Memory is bounded: what is
forgotten only makes the limit more patient.
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

KNOWN = 10_000  # of whom something is kept


class RateLimit:
    """So many in a second, for each key."""

    def __init__(self, per_second: int, clock: Callable[[], float] = monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._free_at: OrderedDict[str, float] = OrderedDict()  # when all that was done is forgiven

    def seconds_to_wait(self, key: str) -> float:
        """How long it must wait; zero if it may be done now, and then it is counted."""
        now = self._clock()
        free_at = max(self._free_at.pop(key, now), now)
        wait = free_at + 1 / self._per_second - now - 1
        if wait <= 1e-9:
            free_at, wait = free_at + 1 / self._per_second, 0.0
        self._free_at[key] = free_at
        if len(self._free_at) > KNOWN:
            self._free_at.popitem(last=False)
        return wait
