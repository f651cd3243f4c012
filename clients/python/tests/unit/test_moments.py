"""What the times of lists say, and the order of changes."""

from functools import partial

import pytest

from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.moments import (
    CLOCK_SECONDS,
    MAX_HELD,
    OUT_OF_ORDER,
    ahead_of_its_time,
    is_ahead,
    ordered,
    set_back,
)
from rsnotify_client.notification import timed_changes


@pytest.mark.parametrize(
    ("before", "now", "is_set_back"),
    [
        ("2026-11-02T00:00:01Z", "2026-11-02T00:00:00Z", True),
        ("2026-11-02T00:00:01Z", "2026-11-02T00:00:01Z", False),
        ("2026-11-02T00:00:01Z", "2026-11-02T00:00:01.5Z", False),
        ("2026-11-02T00:00:01Z", "2026-11-02", False),
        ("2026-11-02T00:00:01Z", "2026-11-01", True),
        ("2026-11-02", "2026-11-01T23:59:59Z", True),
        ("2026-11-02", "2026-11-02T00:00:00Z", False),
        (None, "2026-11-02", False),
        ("2026-11-02", "soon", False),
    ],
)
def test_a_list_of_an_older_moment_than_before_is_noticed(before, now, is_set_back):
    assert (set_back(before, now) is not None) == is_set_back


def test_a_list_of_a_moment_that_has_not_come_yet_is_noticed():
    assert ahead_of_its_time("1970-01-01T00:05:10Z", 10.0) is None
    assert ahead_of_its_time("1970-01-01T00:05:11Z", 10.0) is not None
    assert ahead_of_its_time("1970-01-01", 10.0) is None
    assert ahead_of_its_time("1970-01-02", 10.0 * 3_600) is None  # where a day begins first
    assert ahead_of_its_time("1970-01-02", 10.0 * 3_600 - 1) is not None
    assert ahead_of_its_time(None, 10.0) is None


def test_a_change_that_is_yet_to_come_is_of_the_time_of_the_one_before_it_and_named():
    said: list[str] = []
    entries = [change(name, second) for name, second in (("a", 1), ("b", 10), ("c", 11))]
    found = [
        *timed_changes(entries, None, said.append, partial(is_ahead, now=10.0 - CLOCK_SECONDS))
    ]
    assert [int(at) for at, _ in found] == [1_000_000, 10_000_000, 10_000_000]
    assert [each.datetime is None for _, each in found] == [False, False, True]
    assert ["'c' has changed at" in each for each in said] == [True]


def test_a_change_of_a_day_is_not_yet_to_come_where_that_day_has_begun():
    entry = Entry("a", md=Md(change="updated", datetime="1970-01-02"))
    for hour, is_said in ((9.99, True), (10.0, False)):
        said: list[str] = []
        list(timed_changes([entry], None, said.append, partial(is_ahead, now=hour * 3_600)))
        assert bool(said) == is_said


def change(name: str, second: int | None) -> Entry:
    at = None if second is None else f"1970-01-01T00:00:{second:02}Z"
    return Entry(name, md=Md(change="updated", datetime=at))


def handed_on(
    *batches: list[tuple[str, int | None]], most_held: int = MAX_HELD
) -> tuple[str, list[str]]:
    """The names in the order in which they are handed on, and what is said of the list."""
    said: list[str] = []
    given = ([change(*each) for each in batch] for batch in batches)
    found = ordered(given, said.append, most_held)
    return "".join(each.loc for batch in found for each in batch), said


NEWEST_FIRST = [("d", 4), ("c", 3), ("b", 2), ("a", 1)]


def test_changes_that_are_listed_newest_first_are_turned_round_to_the_last_batch():
    names, (said,) = handed_on(NEWEST_FIRST[:1], NEWEST_FIRST[1:3], NEWEST_FIRST[3:])
    assert (names, "newest first" in said) == ("abcd", True)


def test_changes_of_one_time_keep_their_order_where_a_list_is_turned_round():
    assert handed_on([("d", 3), ("c", 2), ("b", 2), ("a", 1)])[0] == "abcd"
    assert handed_on(NEWEST_FIRST[:3], [("z", None), ("a", 1)])[0] == "azbcd"


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [("a", 1)],
        [("b", 2), ("a", 1)],
        [("a", 1), ("b", 1), ("c", 1)],
        [("a", 1), ("b", 2), ("c", 3)],
        [("a", 7), ("b", 8), ("c", 5), ("d", 6)],  # what is gone is listed last
        [("c", None), ("b", None), ("a", None)],
    ],
)
def test_changes_whose_order_says_nothing_wrong_are_handed_on_as_they_stand(batch):
    assert handed_on(batch) == ("".join(name for name, _ in batch), [])
    assert handed_on(*([each] for each in batch)) == ("".join(name for name, _ in batch), [])


def test_a_change_that_is_older_than_one_before_it_to_the_same_resource_is_left_out():
    names, (said,) = handed_on([("a", 1), ("b", 5), ("c", 6)], [("d", 7), ("b", 4)])
    assert (names, "'b'" in said) == ("abcd", True)


def test_a_list_of_more_changes_than_are_held_is_given_up():
    assert MAX_HELD > 50_000  # a list of the specification is always turned round
    assert handed_on(NEWEST_FIRST[:3], most_held=3)[0] == "bcd"
    names, said = handed_on(NEWEST_FIRST[:3], NEWEST_FIRST[3:], [("z", 0)], most_held=3)
    assert (names, len(said)) == ("abcdz", 2)


def test_what_is_remembered_of_a_list_is_bounded():
    older, names = ("a", 1), [("a", 2), ("b", 3), ("c", 4)]
    assert handed_on(names, [older], most_held=3) == (
        "abc",
        [OUT_OF_ORDER.format("a", "1970-01-01T00:00:01.000000Z")],
    )
    assert handed_on(names, [("d", 5)], [older], most_held=3) == ("abcda", [])
