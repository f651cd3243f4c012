"""The clock of Redis, watched for all hub processes together and across restarts.

What is old is deleted only if hub processes observed it to grow that old (`ClockHistory`): a jump
of the clock creates no ages. If the clock of Redis is far ahead of the last observation, it has
jumped, or no hub was running: that time is a gap, and no age is counted across it.
"""

import logging
from typing import NamedTuple

import msgspec

from rsnotify.coordination import keys
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import HOUR, MICROSECONDS, Position

log = logging.getLogger(__name__)

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
        """The history after another look at the clock."""
        gaps = tuple(gap for gap in self.gaps if gap.end <= now)  # else the clock has gone back
        if now - self.seen > GAP:
            gaps = (*gaps, Gap(now, now - self.seen))
        return ClockHistory(now, _fewer(gaps))

    @property
    def is_behind_a_gap(self) -> bool:
        """Whether the last look found a gap."""
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


JUMPED = (
    "the clock of Redis is %.1f h ahead of what was last seen of it: it has jumped, or no hub was "
    "running. Nothing is deleted for its age before it has been observed to grow that old."
)


async def observed_clock(client: Client) -> ClockHistory:
    """What hub processes have observed of the clock of Redis, up to now; stored before anybody acts
    on it."""
    while True:
        stored = await client.get(keys.CLOCK_HISTORY)
        now = int(await redis_now(client))
        before = (
            ClockHistory(now) if stored is None else msgspec.json.decode(stored, type=ClockHistory)
        )
        history = before.at(now)
        if await _is_stored(client, stored, history):
            if history.is_behind_a_gap:
                log.warning(JUMPED, (history.seen - before.seen) / HOUR)
            return history


async def _is_stored(client: Client, before: bytes | None, history: ClockHistory) -> bool:
    new = msgspec.json.encode(history)
    if before is None:
        return bool(await client.set(keys.CLOCK_HISTORY, new, nx=True))
    return bool(await client.if_equals(keys.CLOCK_HISTORY, before, "SET", new))


async def redis_now(client: Client) -> Position:
    """The time by the clock of Redis, which all hub processes share."""
    seconds, microseconds = await client.time()
    return Position(int(seconds) * MICROSECONDS + int(microseconds))
