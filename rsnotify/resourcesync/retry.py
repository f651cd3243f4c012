"""When to try again what has failed: pure schedules, with clock and chance passed in.

Rules that hold here: nothing is tried before the moment that the peer has named, nor all at that
moment, for everybody else was told the same. What a peer says of time is bounded by its reader.
"""

from math import ceil
from typing import NamedTuple

from rsnotify.resourcesync.http_date import date_seconds

DOUBLINGS = 60  # a number of failures has no bound, a power of two in a float has
DIGITS = 9  # what has more is longer than anybody waits, and perhaps than `int` reads


class Backoff(NamedTuple):
    """Waits that double, from the first to the longest; chance shortens all but a part of each.

    Where thousands come back at once, nothing is certain of a wait, so they come spread out.
    """

    first_seconds: float
    longest_seconds: float
    certain: float = 0.0  # the part of a wait that chance leaves: 0 none of it, 1 all

    def seconds(self, failures: int, chance: float, asked: float = 0.0) -> float:
        """How long to wait after so many failures before this one; `chance` is in [0, 1).

        The peer has `asked` for so many seconds: the wait begins then.

        >>> [Backoff(0.5, 30.0).seconds(failures, 0.5) for failures in (0, 1, 2, 99)]
        [0.25, 0.5, 1.0, 15.0]
        """
        whole = min(self.first_seconds * 2.0 ** min(failures, DOUBLINGS), self.longest_seconds)
        return asked + whole * (self.certain + (1.0 - self.certain) * chance)


def retry_after_seconds(text: str | None, now: float, most: int) -> int | None:
    """What a `Retry-After` asks for, as a number or a date, `most` at most; None if neither.

    >>> retry_after_seconds("7", 0.0, 60), retry_after_seconds("9" * 5_000, 0.0, 60)
    (7, 60)
    """
    said = (text or "").strip()
    if said.isascii() and said.isdecimal():
        return most if len(said.lstrip("0")) > DIGITS else min(int(said), most)
    until = date_seconds(said)
    return None if until is None else min(max(0, ceil(until - now)), most)
