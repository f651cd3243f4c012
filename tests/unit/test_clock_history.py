"""Ages are what was watched: a jump of the clock makes nothing old."""

from rsnotify.coordination.clock import GAP, GAPS_KEPT, ClockHistory, Gap
from rsnotify.resourcesync.change import DAY, HOUR, MINUTE

NOON = 20_000 * DAY


def test_without_a_gap_the_moment_so_long_ago_is_that_of_the_calendar():
    assert ClockHistory(NOON).at(NOON + MINUTE).ago(DAY) == NOON + MINUTE - DAY


def test_a_look_as_late_as_the_longest_pause_finds_no_gap():
    assert ClockHistory(NOON).at(NOON + GAP).gaps == ()
    assert ClockHistory(NOON).at(NOON + GAP + 1).gaps == (Gap(NOON + GAP + 1, GAP + 1),)


def test_right_after_a_jump_nothing_is_older_than_right_before_it():
    jumped = ClockHistory(NOON).at(NOON + 2 * DAY)
    assert jumped.ago(DAY) == NOON - DAY


def test_ages_count_from_the_jump():
    watched = ClockHistory(NOON, (Gap(NOON, 2 * DAY),))
    assert watched.at(NOON + HOUR - 1).ago(HOUR) == NOON - 2 * DAY - 1
    assert watched.at(NOON + HOUR).ago(HOUR) == NOON


def test_several_jumps_are_all_left_out():
    gaps = (Gap(NOON - 5 * HOUR, DAY), Gap(NOON - 2 * HOUR, DAY))
    assert ClockHistory(NOON, gaps).ago(6 * HOUR) == NOON - 6 * HOUR - 2 * DAY


def test_a_clock_that_has_come_back_has_no_gap():
    jumped = ClockHistory(NOON).at(NOON + 2 * DAY)
    assert jumped.at(NOON + MINUTE) == ClockHistory(NOON + MINUTE)


def test_of_more_gaps_than_are_kept_the_oldest_become_one():
    watched, at = ClockHistory(NOON), NOON
    for _ in range(GAPS_KEPT + 1):
        at += 2 * HOUR
        watched = watched.at(at)
    assert len(watched.gaps) == GAPS_KEPT
    assert watched.ago(HOUR) == NOON - HOUR
