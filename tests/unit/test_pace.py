"""How far long work is, as it is said on a terminal: with its rate and the time it will take."""

import pytest

from rsnotify.cli.output import SaidSince, WorkPace, how_far, in_time
from rsnotify_bridge.commands import BridgePace, Far
from rsnotify_mirror.commands.mirror_output import standing


@pytest.mark.parametrize(
    ("done", "total", "seconds", "said"),
    [
        (0, 10, 0.0, "0 of 10"),
        (0, 10, 9.0, "0 of 10"),
        (1_200, 5_000, 4.0, "1,200 of 5,000 at 300/s, 13 s left"),
        (1_200, None, 4.0, "1,200 at 300/s"),
        (3, 5_000, 4.0, "3 of 5,000 at 0.8/s, 1 h 51 min left"),
        (5_000, 5_000, 4.0, "5,000 of 5,000 at 1,250/s"),
        (5_001, 5_000, 4.0, "5,001 of 5,000 at 1,250/s"),
        (5, 10, 0.0, "5 of 10"),
    ],
)
def test_what_is_done_is_said_with_its_rate_and_the_time_left(done, total, seconds, said):
    assert how_far(done, total, seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (59.4, "59 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3_600, "1 h"),
     (86_399, "23 h 59 min"), (86_400, "1 day"), (2_000_000, "23 days 3 h")],
)  # fmt: skip
def test_a_time_is_said_in_its_two_largest_units(seconds, said):
    assert in_time(seconds) == said


def test_what_stands_for_a_while_is_said_with_how_long():
    """Such as a hub that compares a load: it says nothing until it is done."""
    now = 100.0
    said = SaidSince("the hub [compares]", clock=lambda: now)
    now = 101.9
    assert str(said.__rich__()) == "the hub [compares]"
    now = 102.0
    assert str(said.__rich__()) == "the hub [compares] (2 s)"
    now = 225.0
    assert str(said.__rich__()) == "the hub [compares] (2 min 5 s)"


def test_what_is_said_again_goes_on_and_what_is_new_begins():
    """A load that is published is asked for each second: its time is that of the whole."""
    now = 100.0
    said = SaidSince("sending", clock=lambda: now)
    now = 110.0
    said.say("the hub publishes 9 differences")
    assert str(said.__rich__()) == "the hub publishes 9 differences"
    now = 113.0
    said.say("the hub publishes 9 differences")
    assert str(said.__rich__()) == "the hub publishes 9 differences (3 s)"


def test_a_pace_counts_from_its_first_step_to_its_last():
    said, now = list[str](), 100.0
    pace = WorkPace(said.append, "packed", clock=lambda: now)
    now = 102.0
    pace(10, 40)
    now = 104.0
    pace(20, 40)
    assert said == ["packed 10 of 40 at 5/s, 6 s left", "packed 20 of 40 at 5/s, 4 s left"]


def test_a_bridge_says_what_it_has_read_then_what_it_has_published_of_what_waits():
    said, now = list[str](), 0.0
    pace = BridgePace(said.append, Far(0, 1_000, 70, 0, 0), clock=lambda: now)
    now = 2.0
    pace(Far(400, 1_000, 70, 0, 0))
    pace(Far(1_000, 1_000, 70, 200, 0))
    now = 4.0
    pace(Far(1_000, 1_100, 120, 150, 0))
    assert said == ["read: 400 of 1,000 at 200/s, 3 s left", "published: 0 of 200",
                    "published: 50 of 200 at 25/s, 6 s left"]  # fmt: skip


def test_a_bridge_at_rest_says_what_it_knows_and_later_work_has_a_rate_of_its_own():
    said, now = list[str](), 0.0
    pace = BridgePace(said.append, Far(0, 0, 0, 0, 0), clock=lambda: now)
    now = 1_000.0
    pace(Far(0, 1_000, 70, 0, 1))
    now = 1_002.0
    pace(Far(400, 1_000, 70, 0, 0))
    assert said == ["1,000 resources known, 70 published, 1 failing",
                    "read: 400 of 1,000 at 200/s, 3 s left"]  # fmt: skip


def test_a_bridge_that_knows_nothing_yet_says_how_fast_it_reads():
    said, now = list[str](), 0.0
    pace = BridgePace(said.append, Far(0, 0, 0, 0, 0), clock=lambda: now)
    now = 2.0
    pace(Far(400, 400, 0, 0, 0))
    assert said == ["read: 400 at 200/s"]


@pytest.mark.parametrize(
    ("changed_ago", "trouble", "said"),
    [
        (3.0, None, "live; last change 3 s ago"),
        (None, None, "live; no change yet"),
        (7_300.0, None, "live; last change 2 h 1 min ago"),
        (3.0, "the channel is closed", "not live: the channel is closed"),
    ],
)
def test_a_mirror_that_follows_says_when_something_changed_last(changed_ago, trouble, said):
    assert standing(changed_ago, trouble) == said
