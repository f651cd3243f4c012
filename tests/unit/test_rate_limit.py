"""How often something may be done in a second."""

import pytest

from rsnotify.access.throttle import KNOWN, RateLimit


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_seconds_worth_may_be_done_at_once_and_one_more_waits():
    clock = Clock()
    limit = RateLimit(5, clock)
    assert [limit.seconds_to_wait("a") for _ in range(5)] == [0.0] * 5
    assert limit.seconds_to_wait("a") == pytest.approx(0.2)
    assert limit.seconds_to_wait("b") == 0.0
    clock.now += 0.2
    assert limit.seconds_to_wait("a") == 0.0
    assert limit.seconds_to_wait("a") > 0


def test_what_is_refused_does_not_count():
    clock = Clock()
    limit = RateLimit(1, clock)
    limit.seconds_to_wait("a")
    waits = {limit.seconds_to_wait("a") for _ in range(100)}
    assert waits == {1.0}


def test_who_was_forgotten_is_not_held_up():
    limit = RateLimit(1, Clock())
    for number in range(KNOWN + 1):
        limit.seconds_to_wait(str(number))
    assert limit.seconds_to_wait("0") == 0.0
    assert limit.seconds_to_wait(str(KNOWN)) > 0


def test_who_asks_most_lately_is_forgotten_last():
    limit = RateLimit(1, Clock())
    limit.seconds_to_wait("refused")
    for number in range(KNOWN - 1):
        limit.seconds_to_wait(str(number))
    assert limit.seconds_to_wait("refused") > 0
    limit.seconds_to_wait("one more")
    assert limit.seconds_to_wait("refused") > 0
    assert limit.seconds_to_wait("0") == 0.0
