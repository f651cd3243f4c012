"""Who takes all the filters of a channel that they may have: the fewest who can."""

from collections.abc import Iterator

from rsnotify.live.filter_counts import FILTERS, FREE_FOR_EACH

LOOPBACK = "127.0.0.{}"


def takers(free: int = FILTERS) -> Iterator[str]:
    """For each filter the address that takes it. 127.0.0.1 is left to others.

    >>> found = list(takers())
    >>> [found.count(LOOPBACK.format(number)) for number in range(2, 18)]
    [50, 38, 28, 21, 16, 12, 9, 7, 5, 4, 3, 2, 2, 1, 1, 1]
    """
    number = 2
    while free:
        has = 0
        while free and (not has or FREE_FOR_EACH * has < free):
            yield LOOPBACK.format(number)
            free, has = free - 1, has + 1
        number += 1
