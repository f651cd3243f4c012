"""The schedule of attempts, and what a `Retry-After` says."""

import pytest

from rsnotify.websub.rules import retry_after_seconds, wait_seconds

NOW = 1_795_210_440.0  # 2026-11-20T21:34:00Z


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [(1, 5), (2, 30), (3, 120), (4, 600), (5, 1800), (6, 7200), (7, 21600), (8, 21600)],
)
def test_the_waits_grow_to_six_hours_and_stay_there(attempt, seconds):
    assert wait_seconds(attempt, 0.0) == seconds


def test_the_jitter_makes_a_wait_up_to_a_fifth_longer():
    assert wait_seconds(1, 0.999) == pytest.approx(6.0, abs=0.01)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("120", 120),
        (" 0 ", 0),
        ("86400", 86_400),
        ("86401", 86_400),
        ("999999999999999999", 86_400),
        ("Fri, 20 Nov 2026 21:34:30 GMT", 30),
        ("Fri, 20 Nov 2026 21:34:30 -0000", 30),
        ("Fri, 20 Nov 2020 21:34:30 GMT", 0),
        ("Fri, 20 Nov 2099 21:34:30 GMT", 86_400),
        ("-1", None),
        ("soon", None),
        ("٣", None),
        ("", None),
    ],
)
def test_a_retry_after_is_seconds_or_a_date(text, seconds):
    assert retry_after_seconds(text, NOW) == seconds


def test_a_receiver_is_not_asked_before_the_second_that_it_names():
    assert retry_after_seconds("Fri, 20 Nov 2026 21:34:30 GMT", NOW + 0.9) == 30
