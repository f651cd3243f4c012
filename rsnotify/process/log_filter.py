"""What is not logged: a warning that repeats, and more of a kind than anybody reads.

Strangers can cause many messages: of each kind there is a limit for each minute, and how many were
left out is told with the next one.
"""

import logging
from collections.abc import Callable
from time import monotonic

REPEAT_SECONDS = 60.0
MESSAGES_KEPT = 1_000
OF_A_KIND = 30  # messages with the same words, in a minute

ACCESS = "rsnotify.registry.access"


class RepeatedWarningFilter(logging.Filter):
    """Drops a warning if the same text was logged within the last minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last_logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        message, now = record.getMessage(), self._clock()
        if now - self._last_logged.get(message, float("-inf")) < REPEAT_SECONDS:
            return False
        if len(self._last_logged) >= MESSAGES_KEPT:
            self._last_logged.clear()
        self._last_logged[message] = now
        return True


class FloodFilter(logging.Filter):
    """Lets so many messages of a kind through in a minute. The access log has no limit."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}  # when its minute began, how many since

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == ACCESS:
            return True
        now, kind = self._clock(), str(record.msg)
        since, count = self._kinds.get(kind, (now, 0))
        if now - since >= REPEAT_SECONDS:
            _tell_left_out(record, count - OF_A_KIND)
            since, count = now, 0
        if kind not in self._kinds and len(self._kinds) >= MESSAGES_KEPT:
            self._kinds.clear()
        self._kinds[kind] = (since, count + 1)
        return count < OF_A_KIND


def _tell_left_out(record: logging.LogRecord, left_out: int) -> None:
    if left_out > 0:
        told = record.getMessage()
        record.msg, record.args = "%s (%d more like this were left out)", (told, left_out)
