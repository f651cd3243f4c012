"""The schedules of attempts, and what a `Retry-After` says."""

import time
from email.utils import formatdate

import pytest

from rsnotify.errors import TryAgain
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify.resourcesync.retry import Backoff, retry_after_seconds
from rsnotify.websub.rules import wait_seconds
from rsnotify_bridge.feeds import moment
from rsnotify_bridge.rules import spread
from rsnotify_client.answer import HUB_BACKOFF, LONGEST_PAUSE_SECONDS, content_of

NOW = 1_795_210_440.0  # 2026-11-20T21:34:00Z
DAY = 86_400
ALMOST = 1 - 2**-53  # the largest chance


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [(1, 5), (2, 30), (3, 120), (4, 600), (5, 1800), (6, 7200), (7, 21600), (8, 21600)],
)
def test_the_waits_grow_to_six_hours_and_stay_there(attempt, seconds):
    assert wait_seconds(attempt, 0.0) == seconds


def test_the_jitter_makes_a_wait_up_to_a_fifth_longer():
    assert wait_seconds(1, 0.999) == pytest.approx(6.0, abs=0.01)


@pytest.mark.parametrize(
    ("failures", "certain", "chance", "asked", "seconds"),
    [
        (0, 0.0, 0.0, 0, 0.0),
        (0, 0.0, 0.5, 0, 0.25),
        (1, 0.0, 0.5, 0, 0.5),
        (5, 0.0, 0.5, 0, 8.0),
        (6, 0.0, 0.5, 0, 15.0),  # 32 s would be longer than the longest
        (7, 0.0, 0.5, 0, 15.0),
        (10_000, 0.0, 0.5, 0, 15.0),
        (0, 0.5, 0.0, 0, 0.25),
        (0, 0.5, 0.5, 0, 0.375),
        (3, 1.0, 0.0, 0, 4.0),
        (3, 1.0, 0.9, 0, 4.0),
        (0, 0.0, 0.0, 60, 60.0),  # not before the peer's own word,
        (0, 0.0, 0.5, 60, 60.25),  # and not all at that moment
        (99, 0.0, 0.5, 60, 75.0),
    ],
)
def test_waits_double_up_to_the_longest_behind_what_is_asked_for(
    failures, certain, chance, asked, seconds
):
    assert Backoff(0.5, 30.0, certain).seconds(failures, chance, asked) == seconds


def test_readers_of_a_hub_that_names_a_moment_do_not_all_come_at_it():
    waits = {HUB_BACKOFF.seconds(3, number / 100, 10) for number in range(100)}
    assert len(waits) == 100
    assert min(waits) >= 10
    assert HUB_BACKOFF.seconds(99, ALMOST) <= 30


def test_a_wait_that_is_spread_is_never_shorter():
    assert [spread(3_600, chance) for chance in (0.0, 0.5, 1.0)] == pytest.approx(
        [3_600, 3_780, 3_960]
    )


SAID = [
    (None, None),
    ("120", 120),
    (" 0 ", 0),
    ("86400", 86_400),
    ("86401", 86_400),
    ("999999999", 86_400),
    ("9999999999", 86_400),
    ("0" * 20 + "5", 5),
    (" 9" + "9" * 5_000, 86_400),
    ("Fri, 20 Nov 2026 21:34:30 GMT", 30),
    ("Fri, 20 Nov 2026 21:34:30 -0000", 30),
    ("Friday, 20-Nov-26 21:34:30 GMT", 30),
    ("Fri Nov 20 21:34:30 2026", 30),
    ("Fri, 20 Nov 2020 21:34:30 GMT", 0),
    ("Fri, 20 Nov 2099 21:34:30 GMT", 86_400),
    ("Fri, 20 Nov 99999 21:34:30 GMT", None),
    ("-1", None),
    ("1.5", None),
    ("soon", None),
    ("٣", None),
    ("²", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "seconds"), SAID)
def test_a_retry_after_is_seconds_or_a_date(text, seconds, monkeypatch):
    assert retry_after_seconds(text, NOW, DAY) == seconds


def test_a_receiver_is_not_asked_before_the_second_that_it_names():
    assert retry_after_seconds("Fri, 20 Nov 2026 21:34:30 GMT", NOW + 0.9, DAY) == 30


@pytest.mark.parametrize("zone", ["", " GMT", " -0000", " +0000"])
def test_a_date_without_a_zone_is_in_utc_wherever_it_is_read(zone, east_of_utc):
    assert date_seconds(f"Fri, 20 Nov 2026 21:34:00{zone}") == NOW
    assert moment(f"Fri, 20 Nov 2026 21:34:00{zone}") == "2026-11-20T21:34:00.000000Z"


def test_a_hub_may_name_a_moment_too(east_of_utc):
    with pytest.raises(TryAgain) as later:
        content_of("http://hub.example", 503, formatdate(usegmt=True), b"")
    assert later.value.retry_after_seconds == 0
    with pytest.raises(TryAgain) as later:
        content_of("http://hub.example", 503, "Fri, 20 Nov 2099 21:34:00 GMT", b"")
    assert later.value.retry_after_seconds == LONGEST_PAUSE_SECONDS


@pytest.fixture
def east_of_utc(monkeypatch):
    """A machine whose own time is not UTC."""
    monkeypatch.setenv("TZ", "XXX-09:30")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
