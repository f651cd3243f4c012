"""A log filter: a warning that repeats is logged once a minute, not every second."""

import logging
from collections.abc import Callable
from time import monotonic

REPEAT_SECONDS = 60.0
MESSAGES_KEPT = 1_000


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
