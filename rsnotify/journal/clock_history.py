"""How old things have been observed to grow: ages that a jump of the clock does not create.

Something is deleted for its age only if hub processes observed it for that long. If the clock of
Redis is far ahead of the last observation, it has jumped, or no hub was running: that time is a
gap, and no age is counted across it.
"""

from typing import NamedTuple

from rsnotify.journal.window import HOUR
from rsnotify.resourcesync.change import Position

GAP = HOUR  # by more than this between two looks; hub processes look once a minute
GAPS_KEPT = 100  # if there are more, the two oldest are joined


class Gap(NamedTuple):
    """A stretch of the clock that nobody observed."""

    end: int
    length: int


class ClockHistory(NamedTuple):
    """What was observed of the clock of Redis, in microseconds."""

    seen: int  # last
    gaps: tuple[Gap, ...] = ()  # oldest first

    def at(self, now: int) -> "ClockHistory":
        """The same after another look at the clock."""
        gaps = tuple(gap for gap in self.gaps if gap.end <= now)  # else the clock has gone back
        if now - self.seen > GAP:
            gaps = (*gaps, Gap(now, now - self.seen))
        return ClockHistory(now, _fewer(gaps))

    @property
    def is_behind_a_gap(self) -> bool:
        """Whether the last look found one."""
        return bool(self.gaps) and self.gaps[-1].end == self.seen

    def ago(self, length: int) -> Position:
        """The moment since which so much time was observed.

        >>> int(ClockHistory(100, (Gap(95, 60),)).ago(10))
        30
        """
        moment = self.seen
        for gap in reversed(self.gaps):
            if moment - gap.end >= length:
                break
            length -= moment - gap.end
            moment = gap.end - gap.length
        return Position(moment - length)


def _fewer(gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
    if len(gaps) <= GAPS_KEPT:
        return gaps
    oldest, next_, *others = gaps
    return (Gap(next_.end, next_.end - (oldest.end - oldest.length)), *others)
