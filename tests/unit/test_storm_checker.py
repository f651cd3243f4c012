"""The checker of `make soak SOAK_ARGS=storm` finds what it is there to find."""

import random

import pytest

from tests.soak.histories import check, check_callback, tracebacks
from tests.soak.peers import Publisher, Row, rows_of

LOCS = [f"http://example.com/p/{number}" for number in (1, 2, 3)]
ONE, TWO, THREE = JOURNAL = [(f"2026-11-22T00:00:0{n}Z", loc) for n, loc in enumerate(LOCS)]
TWO_AGAIN = ("2026-11-22T00:00:09Z", LOCS[1])


def publisher(*acknowledged: str, keyed: bool = False) -> Publisher:
    made = Publisher([], random.Random(), "p", keyed=keyed)
    made.acknowledged += acknowledged
    return made


def delivery(begins: int, ends: int, *rows: Row) -> bytes:
    entries = "".join(
        f'<loc>{loc}</loc><lastmod>{at}</lastmod><rs:md change="updated" datetime="{at}"/>'
        for at, loc in rows
    )
    return f'<md from="{begins}" until="{ends}"/>{entries}'.encode()


def test_histories_that_agree_pass():
    told = [delivery(0, 2, ONE, TWO), delivery(1, 3, TWO, THREE)]
    check(JOURNAL, [publisher(LOCS[0], LOCS[2])], [JOURNAL], [told])


def test_rows_are_read_from_a_notification():
    assert rows_of(delivery(0, 2, ONE, TWO)) == [ONE, TWO]


@pytest.mark.parametrize(
    ("journal", "acknowledged", "history"),
    [
        ([ONE, TWO], LOCS, [ONE, TWO]),
        ([ONE, TWO, TWO_AGAIN], LOCS[:2], [ONE, TWO, TWO_AGAIN]),
        ([TWO, ONE], LOCS[:2], [TWO, ONE]),
        (JOURNAL, LOCS, [ONE, THREE]),
        (JOURNAL, LOCS, [ONE, TWO, TWO, THREE]),
        (JOURNAL, LOCS, [TWO, ONE, THREE]),
    ],
    ids=["lost", "stored twice", "out of order", "not told", "told twice", "told out of order"],
)
def test_any_other_is_found(journal, acknowledged, history):
    with pytest.raises(AssertionError):
        check(journal, [publisher(*acknowledged)], [history], [])


def test_what_came_back_after_a_loss_may_be_told_twice():
    history = [*JOURNAL, TWO_AGAIN]
    journal = [ONE, THREE, TWO_AGAIN]
    told = [delivery(0, 3, *JOURNAL), delivery(3, 9, TWO_AGAIN)]
    check(journal, [publisher(*LOCS)], [history, journal], [told], was_lossy=True)


@pytest.mark.parametrize(
    ("journal", "history"),
    [
        (JOURNAL, [ONE, THREE]),
        (JOURNAL, [TWO, ONE, THREE]),
        ([ONE, THREE, TWO_AGAIN], JOURNAL),
        ([ONE, TWO], [ONE, TWO]),
        ([ONE, TWO, THREE], [ONE, TWO, THREE, TWO_AGAIN]),
    ],
    ids=["not told", "told out of order", "not told again", "lost", "told but not kept"],
)
def test_nothing_else_is_allowed_after_a_loss(journal, history):
    with pytest.raises(AssertionError):
        check(journal, [publisher(*LOCS)], [history], [], was_lossy=True)


def test_a_key_that_is_stored_twice_is_found_after_a_loss_too():
    journal = [*JOURNAL, TWO_AGAIN]
    check(journal, [publisher(*LOCS)], [], [], was_lossy=True)
    with pytest.raises(AssertionError, match="stored twice"):
        check(journal, [publisher(*LOCS, keyed=True)], [], [], was_lossy=True)


@pytest.mark.parametrize("by", ["history", "callback"])
def test_a_story_that_has_a_key_twice_is_found_after_a_loss_too(by):
    """Once at a position that the journal still has, and once more."""
    told = [*JOURNAL, TWO_AGAIN]
    stories = {
        "history": ([told], []),
        "callback": ([], [[delivery(0, 3, *JOURNAL), delivery(3, 9, TWO_AGAIN)]]),
    }
    with pytest.raises(AssertionError):
        check(JOURNAL, [publisher(*LOCS, keyed=True)], *stories[by], was_lossy=True)


def test_a_key_that_was_lost_may_be_told_once_more():
    journal = [ONE, THREE, TWO_AGAIN]
    check(journal, [publisher(*LOCS, keyed=True)], [[*JOURNAL, TWO_AGAIN]], [], was_lossy=True)


@pytest.mark.parametrize(
    "told",
    [
        [delivery(0, 1, ONE), delivery(2, 3, THREE)],
        [delivery(0, 2, ONE), delivery(2, 3, THREE)],
        [delivery(0, 1, ONE), delivery(2, 3, TWO, THREE)],
    ],
    ids=["a gap", "a change left out", "an interval that does not join"],
)
@pytest.mark.parametrize("was_lossy", [False, True])
def test_so_is_what_a_callback_was_not_told(told, was_lossy):
    with pytest.raises(AssertionError):
        check_callback(told, JOURNAL, was_lossy=was_lossy)


def test_a_log_that_tells_of_a_bug_is_found():
    log = "2026-11-22 WARNING bad\nTraceback (most recent call last):\n  File\n2026-11-22 INFO x\n"
    assert tracebacks(log) == [log.rpartition("\n2026")[0]]
    assert tracebacks("2026-11-22 INFO fine\n") == []
