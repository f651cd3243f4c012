"""A log that can be read: what goes wrong for minutes is said once a minute, not each second.

Nothing here knows what is said.
"""

import logging
from collections.abc import Callable
from time import monotonic

MINUTE = 60.0
WORDS_KEPT = 1_000


class OnceAMinute(logging.Filter):
    """Lets a warning pass unless the very same words did within the last minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        words, now = record.getMessage(), self._clock()
        if now - self._told.get(words, float("-inf")) < MINUTE:
            return False
        if len(self._told) >= WORDS_KEPT:
            self._told.clear()
        self._told[words] = now
        return True
