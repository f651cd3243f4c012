"""Hosts that are left alone for a while: they do not answer, or they have asked for time.

Rules that hold here: requests that were under way together and failed count once; a host that has
not answered for half a minute is away, however many of its resources were asked for.
"""

import msgspec

LONGEST_SECONDS = 3_600.0  # that a host may ask for
AWAY_AFTER = 150  # times the first pause
AWAY_FAILURES = 2
SILENT_FAILURES = 5


class Pause(msgspec.Struct):
    """Until when one host is left alone, and why."""

    until: float = 0.0
    problem: str = ""
    failures: int = 0  # to answer, in a row; none if it has asked for time
    since: float = 0.0  # the first of them
    is_away: bool = False

    @property
    def is_hosts_fault(self) -> bool:
        """Not that of one resource: nothing was answered again and again."""
        return self.is_away or self.failures >= SILENT_FAILURES

    def failed(
        self, problem: str, began: float, now: float, chance: float, first_seconds: float
    ) -> None:
        """A request that began then was not answered."""
        if began < self.until or (self.until > now and not self.failures):
            return
        if not self.failures:
            self.since = began
        longest = AWAY_AFTER * first_seconds
        seconds = min(first_seconds * 2.0 ** min(self.failures, 20), longest)
        self.failures += 1
        self.problem = problem
        self.until = now + seconds * (0.5 + chance / 2)
        self.is_away = self.failures >= AWAY_FAILURES and now - self.since >= longest


def asked_for(seconds: float, host: str, now: float) -> Pause:
    """As the host wants it.

    >>> asked_for(9_999, "http://a.example", now=100.0).until
    3700.0
    """
    return Pause(now + min(seconds, LONGEST_SECONDS), f"{host} has asked for time")
