"""What a hub process tells of itself."""

import msgspec

Numbers = dict[str, list[tuple[tuple[str, ...], float]]]
"""By the name of the metric: the values of its labels, and the number."""


class Identity(msgspec.Struct, frozen=True):
    """Which process it is."""

    hub: str  # the machine and the port, which all workers of a hub share
    worker: int
    started: float  # Unix time

    @property
    def name(self) -> str:
        return f"{self.hub}/{self.worker}"


class HistogramNumbers(msgspec.Struct, array_like=True):
    """A histogram, as it is told."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float


class Report(msgspec.Struct):
    """The state of a process, and its counts since its start."""

    identity: Identity
    numbers: Numbers
    histograms: dict[str, HistogramNumbers]
    not_ready: str = ""  # the reason, if it is not

    def total(self, name: str) -> float:
        return sum(number for _, number in self.numbers.get(name, ()))
