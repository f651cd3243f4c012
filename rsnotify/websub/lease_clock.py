"""The clock by which leases end: that of Redis, but not if it leaps."""

from collections.abc import Callable
from time import monotonic

from rsnotify.resourcesync.change import MICROSECONDS

LEAP_SECONDS = 60.0
BELIEVED_AFTER_SECONDS = 3600.0


class LeaseClock:
    """The clock of Redis, in microseconds, carried on by our own between two looks at it.

    If it jumps ahead, that is believed only after an hour: so nothing ends for its age, as leases
    do, that no process has seen grow old.
    """

    def __init__(self, ours: Callable[[], float] = monotonic) -> None:
        self._ours = ours
        self._offset: float | None = None
        self._leap: float | None = None  # the offset that is not believed yet
        self._leapt_at = 0.0

    def look(self, theirs: int) -> float:
        """By how many seconds theirs has just jumped; 0 if it has not."""
        ours = self._ours()
        offset = theirs - ours * MICROSECONDS
        if self._offset is None:
            self._offset = offset
        leapt = (offset - self._offset) / MICROSECONDS
        if leapt <= LEAP_SECONDS:  # back as well: nothing grows old by that
            self._offset, self._leap = offset, None
            return leapt if leapt < -LEAP_SECONDS else 0
        if self._leap is None or abs(offset - self._leap) > LEAP_SECONDS * MICROSECONDS:
            self._leap, self._leapt_at = offset, ours
            return leapt
        if ours - self._leapt_at >= BELIEVED_AFTER_SECONDS:
            self._offset, self._leap = offset, None
        return 0

    def now(self) -> int:
        return round((self._offset or 0) + self._ours() * MICROSECONDS)
