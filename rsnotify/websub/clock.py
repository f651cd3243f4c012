"""Two clocks that cannot be trusted: the wall clock of another machine, and the heartbeat of
others.

Durations are measured by the own monotonic clock, which is passed in. The wall clock says
moments; a jump ahead is believed only after an hour, so that what ends for its age has been
observed to grow old. Nothing here reads a clock.
"""

from rsnotify.resourcesync.change import MICROSECONDS

LEAP_SECONDS = 60.0
BELIEVED_AFTER_SECONDS = 3600.0
FORGOTTEN_AFTER = 20  # times the patience: a process gone for so long is forgotten


class SteadyClock:
    """Another wall clock, in microseconds, carried on by our own between two looks at it."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._leap: float | None = None  # the offset that is not believed yet
        self._leapt_at = 0.0

    def look(self, theirs: int, mine: float) -> float:
        """Compare both clocks: by how many seconds theirs has just jumped, 0 if it has not."""
        offset = theirs - mine * MICROSECONDS
        if self._offset is None:
            self._offset = offset
        leapt = (offset - self._offset) / MICROSECONDS
        if leapt <= LEAP_SECONDS:  # back as well: nothing grows old by that
            self._offset, self._leap = offset, None
            return leapt if leapt < -LEAP_SECONDS else 0
        if self._leap is None or abs(offset - self._leap) > LEAP_SECONDS * MICROSECONDS:
            self._leap, self._leapt_at = offset, mine
            return leapt
        if mine - self._leapt_at >= BELIEVED_AFTER_SECONDS:
            self._offset, self._leap = offset, None
        return 0

    def at(self, mine: float) -> int:
        return round((self._offset or 0) + mine * MICROSECONDS)


class LivenessTracker:
    """Which processes are alive: the heartbeat of each is a number that rises."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._seen: dict[str, tuple[int, float]] = {}  # the last number, and when it was new

    def look(self, name: str, beat: int, mine: float) -> None:
        if beat > self._seen.get(name, (-1, 0.0))[0]:
            self._seen[name] = (beat, mine)

    def gone(self, mine: float) -> dict[str, int]:
        """The processes whose heartbeat has stood still for too long, each with its last one."""
        self._forget(mine - FORGOTTEN_AFTER * self._patience)
        return {
            name: beat for name, (beat, since) in self._seen.items() if self._is_over(since, mine)
        }

    def next_end(self, mine: float) -> float | None:
        """When the next process counts as gone without another heartbeat; None if none does."""
        ends = [
            since + self._patience
            for _, since in self._seen.values()
            if not self._is_over(since, mine)
        ]
        return min(ends, default=None)

    def _is_over(self, since: float, mine: float) -> bool:
        return mine >= since + self._patience

    def _forget(self, before: float) -> None:
        self._seen = {name: seen for name, seen in self._seen.items() if seen[1] > before}
