"""What is said again and again, and what is not."""

import logging

from rsnotify.process.logs import RepeatedWarningFilter


def test_a_warning_is_told_once_a_minute_and_errors_each_time():
    now = 0.0
    once = RepeatedWarningFilter(lambda: now)

    def passes(level: int, words: str) -> bool:
        return once.filter(logging.LogRecord("hub", level, "", 0, words, None, None))

    assert passes(logging.WARNING, "Redis is away")
    assert not passes(logging.WARNING, "Redis is away")
    assert passes(logging.WARNING, "something else")
    assert passes(logging.ERROR, "a bug")
    assert passes(logging.ERROR, "a bug")
    now = 60.0
    assert passes(logging.WARNING, "Redis is away")
