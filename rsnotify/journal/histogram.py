"""How often a measured number fell between which bounds."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of numbers; the last count is of those above every bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, number: float) -> None:
        self.counts[bisect_left(self.bounds, number)] += 1
        self.total += number
