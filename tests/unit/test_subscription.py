"""What an answer does to a subscription, and which share a callback belongs to.

Each status stands here; that a hub acts by it, in `tests/protocol/test_websub_duties.py`, once.
"""

import pytest

from rsnotify.outbound.answer import CallAnswer
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.websub.subscription import (
    SHARES,
    PendingRequest,
    Progress,
    Subscription,
    after_answer,
    confirmed,
    fair_part,
    seconds_left,
    share_of,
    subscription_id,
)

NOW = 1_000_000_000
SECOND = 1_000_000
BEHIND = Progress(cursor=10, failures=1, next_attempt=NOW, answer="500 Oh", answered_at=1)
UNTIL = Position(20)


def test_whoever_moves_on_without_a_call_is_called_from_where_it_was_told_to_be():
    once = Progress(10).moved_on(Position(20))
    twice = once.moved_on(Position(30))
    assert [(each.cursor, each.begin) for each in (once, twice)] == [(20, 10), (30, 10)]
    failed = after_answer(twice, CallAnswer(500, "Oh"), Position(40), NOW, 0.5)
    assert (failed.cursor, failed.begin) == (30, 10)
    called = after_answer(twice, CallAnswer(200, "Fine"), Position(40), NOW, 0.5)
    assert (called.cursor, called.begin) == (40, 40)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_success_moves_the_cursor_and_forgets_the_failures(status):
    after = after_answer(BEHIND, CallAnswer(status, "Fine"), UNTIL, NOW, 0.5)
    assert after == Progress(20, 0, 0, f"{status} Fine", NOW)


def test_gone_ends_it():
    assert after_answer(BEHIND, CallAnswer(410), UNTIL, NOW, 0.5) is None


@pytest.mark.parametrize("status", [0, 100, 301, 302, 400, 404, 500])
def test_all_else_waits_and_keeps_the_cursor(status):
    after = after_answer(BEHIND, CallAnswer(status, "Oh"), UNTIL, NOW, 0.0)
    assert after is not None
    assert (after.cursor, after.failures, after.next_attempt) == (10, 2, NOW + 30 * SECOND)


@pytest.mark.parametrize(
    ("status", "retry_after", "failures", "wait"),
    [
        (429, "7", 1, 7),
        (503, "7", 1, 7),
        (503, "0", 1, 1),
        (500, "7", 2, 30),
        (429, None, 2, 30),
        (429, "soon", 2, 30),
    ],
)
def test_a_retry_after_is_obeyed_where_it_means_something(status, retry_after, failures, wait):
    after = after_answer(BEHIND, CallAnswer(status, "", retry_after), UNTIL, NOW, 0.0)
    assert after is not None
    assert (after.failures, after.next_attempt) == (failures, NOW + wait * SECOND)


def test_all_callbacks_of_a_host_belong_to_one_share():
    assert share_of("http://example.com/a?b") == share_of("http://EXAMPLE.com:80/c")
    assert 0 <= share_of("https://example.com/a") < SHARES


def test_the_key_is_the_topic_and_the_callback():
    change, framework = ChannelName("a", "change"), ChannelName("a", "framework")
    ids = {subscription_id(change, "http://b/"), subscription_id(framework, "http://b/")}
    ids |= {subscription_id(change, "http://c/")}
    parts = [subscription_id(change, "http://b/", each) for each in ("change=created", "type=a/b")]
    assert len(ids | {*parts}) == 5


def test_a_lease_counts_from_the_verification_and_a_renewal_keeps_the_birthday():
    request = PendingRequest("subscribe", "http://t/", "http://c/", "a", lease_seconds=60)
    first = confirmed(request, NOW, None)
    again = confirmed(request, NOW + SECOND, first)
    assert (first.created, first.lease_end) == (NOW, NOW + 60 * SECOND)
    assert (again.created, again.lease_end) == (NOW, NOW + 61 * SECOND)
    assert isinstance(again, Subscription)


@pytest.mark.parametrize(("hubs", "part"), [(0, 64), (1, 64), (2, 32), (3, 22), (100, 1)])
def test_every_share_finds_a_hub(hubs, part):
    assert fair_part(hubs) == part


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (100, 60),  # as it was answered
        (130, 30),
        (160, 0),
        (100 - 3600, 60),  # the clock went back: no longer than was meant
        (100 + 86_400, 60 - 86_400),
    ],
)
def test_no_clock_makes_a_wait_longer(now, left):
    second = 1_000_000
    waiting = Progress(7, 1, next_attempt=160 * second, answered_at=100 * second)
    assert seconds_left(waiting, now * second) == left


def test_what_was_missed_is_remembered_until_something_has_arrived():
    missed = Progress(7, missed=True)
    failed = after_answer(missed, CallAnswer(500), Position(9), 1, 0)
    assert failed is not None
    assert failed.missed
    arrived = after_answer(failed, CallAnswer(204), Position(9), 1, 0)
    assert arrived is not None
    assert not arrived.missed
