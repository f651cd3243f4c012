"""When to try again: a pure schedule, with chance passed in.

The jitter is the whole delay, so that thousands of peers of one hub that was restarted come back
spread out, not in step.
"""

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0


def delay_seconds(attempt: int, chance: float) -> float:
    """How long to wait before repetition `attempt` (0 is the first); `chance` is in [0, 1).

    >>> [delay_seconds(attempt, 0.5) for attempt in (0, 1, 2, 99)]
    [0.25, 0.5, 1.0, 15.0]
    """
    return min(FIRST_SECONDS * 2.0 ** min(attempt, 10), LONGEST_SECONDS) * chance
