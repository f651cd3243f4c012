"""The cursors by which caches join the questions of readers who wait.

A cursor says nothing to the hub. It is in the address of a question, so that an answer without
changes is not found again in a cache, and it must grow with each answer. If it came from a clock
alone, or from chance as the protocol proposes, readers of one cache who came at different moments
would never ask the same again. So it is the position that an answer ends at: all who have read so
far ask with the same one. Where nothing happens, waiting ends at moments that all share, and the
cursor is that moment.
"""

from zlib import crc32

from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import ChannelName

SPREAD_PART = 5  # of the longest wait: over so much of it answers without changes are spread


class WaitingGrid:
    """The moments at which waiting for a channel ends, each channel's own."""

    __slots__ = ("_period", "_phase", "spread_seconds")

    def __init__(self, channel: ChannelName, most_seconds: float) -> None:
        self.spread_seconds = most_seconds / SPREAD_PART
        self._period = int((most_seconds - self.spread_seconds) * MICROSECONDS)
        self._phase = crc32(str(channel).encode()) * 1_000 % self._period

    def last(self, now: int) -> int:
        """The newest of these moments; all in microseconds."""
        return now - (now - self._phase) % self._period

    def seconds_left(self, now: int) -> float:
        """Until the next of them."""
        return (self.last(now) + self._period - now) / MICROSECONDS


def next_cursor(asked: int | None, until: Position, moment: int) -> int:
    """The cursor of an answer that ends at `until`; `moment` is the last of the channel's grid.

    >>> next_cursor(7, Position(5), 6)
    8
    """
    return max(until, moment, 0 if asked is None else asked + 1)
