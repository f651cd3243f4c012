"""When a failed callback is called again: a pure function, with chance passed in.

Never earlier than the schedule or the receiver says, and up to a fifth later, so that receivers
that failed together are not called together again.
"""

from datetime import UTC
from email.utils import parsedate_to_datetime
from math import ceil

WAITS = (5, 30, 2 * 60, 10 * 60, 30 * 60, 2 * 3600, 6 * 3600)
VERIFICATION_WAITS = (1, 5, 25)  # only while nothing accepts the connection
LONGEST_RETRY_AFTER = 24 * 3600

JITTER = 0.2


def wait_seconds(attempt: int, chance: float) -> float:
    """How long to wait after failure number `attempt` (1 is the first); `chance` is in [0, 1).

    >>> [wait_seconds(attempt, 0) for attempt in (1, 2, 7, 99)]
    [5.0, 30.0, 21600.0, 21600.0]
    """
    return WAITS[min(attempt, len(WAITS)) - 1] * (1 + JITTER * chance)


def retry_after_seconds(text: str | None, now: float) -> int | None:
    """What a `Retry-After` asks for, as seconds or as a date; None if it says nothing sensible."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdecimal():
        return min(int(text.strip()[:9]), LONGEST_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError, TypeError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(0, ceil(moment.timestamp() - now)), LONGEST_RETRY_AFTER)
