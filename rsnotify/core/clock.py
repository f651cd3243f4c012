"""Two clocks that are not ours to trust: one that jumps, and the life of others.

Rules that hold here: durations are those of one's own monotonic clock, which is passed in; another
machine's wall clock tells moments, and is believed about a leap ahead only after that has stood for
an hour: what is ended for being old must have been seen to grow old. Nothing here reads a clock.
"""

from rsnotify.resourcesync.change import MICROSECONDS

LEAP_SECONDS = 60.0
BELIEVED_AFTER_SECONDS = 3600.0
FORGOTTEN_AFTER = 20  # times the patience: whoever is gone for so long is not remembered


class SteadyClock:
    """Another's wall clock, in microseconds, carried on by ours between two looks at it."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._leap: float | None = None  # the offset that is not believed yet
        self._leapt_at = 0.0

    def look(self, theirs: int, mine: float) -> float:
        """Compare; by how many seconds theirs has just leapt, 0 if it has not."""
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


class Watch:
    """Who shows signs of life: a number that rises, looked at again and again."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._seen: dict[str, tuple[int, float]] = {}  # the last number, and when it was new

    def look(self, name: str, beat: int, mine: float) -> None:
        if beat > self._seen.get(name, (-1, 0.0))[0]:
            self._seen[name] = (beat, mine)

    def gone(self, mine: float) -> dict[str, int]:
        """Those who have shown no sign for too long, with their last one."""
        self._forget(mine - FORGOTTEN_AFTER * self._patience)
        return {
            name: beat for name, (beat, since) in self._seen.items() if self._is_over(since, mine)
        }

    def next_end(self, mine: float) -> float | None:
        """When the next one counts as gone if nothing is heard of it; None if there is none."""
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
