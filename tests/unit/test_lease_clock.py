"""A clock that is not trusted at once, and who shows signs of life."""

import pytest

from rsnotify.redis_client import connect
from rsnotify.websub.heartbeats import CLAIM_SECONDS, FORGOTTEN_SECONDS, Heartbeats
from rsnotify.websub.lease_clock import BELIEVED_AFTER_SECONDS, LEAP_SECONDS, LeaseClock

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND
TWO_DAYS = 2 * 86_400.0


class Steady:
    """The clock of Redis, and our own beside it."""

    def __init__(self) -> None:
        self._ours = 0.0
        self._clock = LeaseClock(lambda: self._ours)

    def look(self, theirs: float, ours: float) -> float:
        self._ours = ours
        return self._clock.look(round(theirs))

    def at(self, ours: float) -> int:
        self._ours = ours
        return self._clock.now()


def clock_after_a_leap(seconds: float) -> Steady:
    """It stood at `NOW` a second ago."""
    clock = Steady()
    clock.look(NOW, 0)
    clock.look(NOW + round((1 + seconds) * SECOND), 1)
    return clock


def test_it_goes_on_by_our_own_clock():
    clock = Steady()
    assert clock.look(NOW, 100) == 0
    assert clock.at(107) == NOW + 7 * SECOND


@pytest.mark.parametrize("leap", [LEAP_SECONDS, -3600.0])
def test_a_small_step_and_one_back_are_believed_at_once(leap):
    assert clock_after_a_leap(leap).at(1) == NOW + (1 + leap) * SECOND


@pytest.mark.parametrize("leap", [LEAP_SECONDS + 0.001, TWO_DAYS])
def test_a_leap_ahead_is_said_once_and_waited_out(leap):
    clock = Steady()
    clock.look(NOW, 0)
    theirs = NOW + round(leap * SECOND)
    assert clock.look(theirs, 0) == pytest.approx(leap)
    for mine in (2.0, BELIEVED_AFTER_SECONDS - 0.001):
        assert clock.look(theirs + round(mine * SECOND), mine) == 0
        assert clock.at(mine) == NOW + round(mine * SECOND)
    mine = BELIEVED_AFTER_SECONDS
    assert clock.look(theirs + round(mine * SECOND), mine) == 0
    assert clock.at(mine) == theirs + round(mine * SECOND)


def test_a_leap_that_was_undone_leaves_nothing_behind():
    clock = clock_after_a_leap(TWO_DAYS)
    clock.look(NOW + 10 * SECOND, 10)
    mine = 2 * BELIEVED_AFTER_SECONDS
    assert clock.look(NOW + round((mine + TWO_DAYS) * SECOND), mine) == pytest.approx(TWO_DAYS)
    assert clock.at(mine) == NOW + round(mine * SECOND)


def test_after_another_leap_the_wait_begins_anew():
    clock = clock_after_a_leap(TWO_DAYS)
    late = BELIEVED_AFTER_SECONDS
    theirs = NOW + round((late + 2 * TWO_DAYS) * SECOND)
    assert clock.look(theirs, late) == pytest.approx(2 * TWO_DAYS)
    assert clock.look(theirs + 2 * SECOND, late + 2) == 0
    assert clock.at(late + 2) == NOW + round((late + 2) * SECOND)


class Others(Heartbeats):
    """The heartbeats that one process has seen, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(connect("redis://nowhere"), "here:1", lambda: self.now)

    def seen(self, name: str, beat: int, now: float) -> None:
        self.now = now
        self.look(name, beat)

    def gone_at(self, now: float) -> dict[str, int]:
        self.now = now
        return self.gone()


def test_whoever_shows_no_sign_for_long_enough_is_gone():
    others = Others()
    others.seen("one", 7, 100)
    others.seen("one", 7, 114)  # the same sign again
    others.seen("other", 1, 114)
    assert others.gone_at(99.5 + CLAIM_SECONDS) == {}
    assert others.seconds_to_next_end() == 0.5
    assert others.gone_at(100 + CLAIM_SECONDS) == {"one": 7}
    assert others.seconds_to_next_end() == 14


def test_an_older_sign_of_life_is_none():
    others = Others()
    others.seen("one", 7, 100)
    others.seen("one", 6, 110)
    assert others.gone_at(100 + CLAIM_SECONDS) == {"one": 7}
    others.seen("one", 8, 115)
    assert others.gone_at(115) == {}


def test_whoever_is_gone_for_long_is_not_remembered():
    others = Others()
    others.seen("one", 7, 0)
    assert others.gone_at(FORGOTTEN_SECONDS - 0.001) == {"one": 7}
    assert others.gone_at(FORGOTTEN_SECONDS) == {}
