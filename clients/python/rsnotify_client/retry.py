"""When to try again: as a peer says, or by a pure schedule, with chance passed in.

The jitter is the whole delay, so that thousands of peers of one hub that was restarted come back
spread out, not in step.
"""

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
DIGITS = 9  # what has more is longer than anybody waits, and perhaps than `int` reads


def delay_seconds(attempt: int, chance: float) -> float:
    """How long to wait before repetition `attempt` (0 is the first); `chance` is in [0, 1).

    >>> [delay_seconds(attempt, 0.5) for attempt in (0, 1, 2, 99)]
    [0.25, 0.5, 1.0, 15.0]
    """
    return min(FIRST_SECONDS * 2.0 ** min(attempt, 10), LONGEST_SECONDS) * chance


def in_words(seconds: float) -> str:
    """A pause as a person is told of it: none is as short as nothing.

    >>> in_words(0.01), in_words(2.345)
    ('0.1 s', '2.3 s')
    """
    return f"{max(seconds, 0.1):.1f} s"


def told_seconds(digits: str, most: int) -> int:
    """What a peer says by a number of seconds, however long that is.

    >>> told_seconds("7", 60), told_seconds("61", 60), told_seconds("9" * 5_000, 60)
    (7, 60, 60)
    """
    return most if len(digits) > DIGITS else min(int(digits), most)
