"""Which journals are compared next: all of them in turn, a few each second.

As long as the bell is heard, it tells of everything that is appended, and the comparison is there
for what it may have missed. Without it, the comparison is how appends of other processes are found,
and is done as fast as is reasonable.
"""

from collections.abc import Iterator
from itertools import islice
from math import ceil

from rsnotify.journal.bell import Bell
from rsnotify.journal.feeds import Feeds
from rsnotify.resourcesync.notification import ChannelName

ROUND_TICKS = 60  # what the bell has missed is found within so many seconds…
LEAST_CHANNELS = 200  # …or the next one, if there are no more channels than this
MOST_CHANNELS = 4_000  # in a second, while the bell is not heard
UNREAD_EVERY = 10  # a channel without readers is compared in every tenth round


class Rounds:
    """Goes round all channels."""

    def __init__(self, feeds: Feeds, bell: Bell) -> None:
        self._feeds = feeds
        self._bell = bell
        self._left: Iterator[tuple[int, ChannelName]] = iter(())
        self._number = 0
        self._is_urgent = False
        self._connections = 0

    def look_at_all(self) -> None:
        """Something may have been missed: go round once as fast as is reasonable."""
        self._left = self._begin()
        self._is_urgent = True

    def next(self) -> list[ChannelName]:
        """What to compare in this second."""
        if self._bell.connections != self._connections:
            self._connections = self._bell.connections
            self.look_at_all()
        is_urgent, count = self._is_urgent, self._count()
        passed = list(islice(self._left, count))
        if len(passed) < count:
            self._is_urgent = False
            self._left = self._begin()
            passed += islice(self._left, count - len(passed))
        return [
            channel
            for place, channel in passed
            if is_urgent or self._is_read(channel) or (place + self._number) % UNREAD_EVERY == 0
        ]

    def _count(self) -> int:
        if self._is_urgent or not self._bell.is_heard:
            return MOST_CHANNELS
        return max(LEAST_CHANNELS, ceil(len(self._feeds) / ROUND_TICKS))

    def _begin(self) -> Iterator[tuple[int, ChannelName]]:
        self._number += 1
        return enumerate(list(self._feeds))

    def _is_read(self, channel: ChannelName) -> bool:
        feed = self._feeds.get(channel)
        return feed is not None and self._feeds.is_read(feed)
