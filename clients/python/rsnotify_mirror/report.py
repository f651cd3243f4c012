"""What a mirror tells while it works: events, sums, and the time from change to file.

Nothing here knows how it is shown.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

LAGS_KEPT = 10_000

Kind = Literal[
    "stored",
    "unchanged",
    "deleted",
    "failed",
    "trouble",  # the first failure at a host, which is tried again soon
    "skipped",
    "baseline",
    "live",
    "synced",
]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened."""

    event: Kind
    loc: str | None = None
    path: str | None = None
    change: str | None = None
    length: int | None = None
    links: tuple[dict[str, object], ...] = ()
    lag_seconds: float | None = None
    problem: str | None = None
    resources: int | None = None  # of the Resource List, that are selected
    to_do: int | None = None
    listed: int | None = None  # in the Resource List, where only some of them are selected
    selection: str | None = None


Report = Callable[[Event], None]


class Sums:
    """What was done since the start."""

    def __init__(self) -> None:
        self.stored = self.deleted = self.unchanged = self.failed = self.skipped = 0
        self.fetched_bytes = 0
        self.lags: deque[float] = deque(maxlen=LAGS_KEPT)

    def add(self, event: Event) -> None:
        if event.event == "stored":
            self.stored += 1
        elif event.event in ("deleted", "unchanged", "failed", "skipped"):
            setattr(self, event.event, getattr(self, event.event) + 1)
        if event.lag_seconds is not None:
            self.lags.append(event.lag_seconds)


def percentile(values: Sequence[float], part: float) -> float | None:
    """The value that this part of all does not exceed.

    >>> percentile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
