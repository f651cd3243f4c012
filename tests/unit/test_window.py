"""How a journal is cut: edges, due windows, stretches, index and archive."""

import pytest

from rsnotify.journal.window import (
    INDEX_ENTRIES,
    STRETCH_CHANGES,
    WINDOW_BYTES,
    DocumentSchedule,
    JournalRecord,
    Span,
    Stretch,
    Window,
    changes_since,
    following_from,
    has_much_changed,
    is_due,
    kept_from,
    last_edge,
    split,
    stretch_after,
    until_due,
    whole_from,
)
from rsnotify.resourcesync.change import HOUR, MICROSECONDS, MINUTE, Position


def record(**fields: int) -> JournalRecord:
    values = dict.fromkeys(JournalRecord._fields, 0) | fields
    return JournalRecord(*(Position(value) for value in values.values()))


def window(from_: int, until: int, changes: int = 1, size: int = 100) -> Window:
    return Window(Position(from_), Position(until), changes, size, Position(until))


def span(*windows: Window, count: int = 0, size: int = 0) -> Span:
    begin = windows[-1].until if windows else 0
    opened = record(window_from=begin, window_count=count, window_bytes=size)
    return Span(opened, windows, windows[0] if windows else None)


def test_a_window_is_read_as_it_is_written():
    assert Window.parse(b"1 5 3 200 7") == (1, 5, 3, 200, 7)


@pytest.mark.parametrize(
    ("now", "edge"), [(HOUR + 1, HOUR), (HOUR, 0), (2 * HOUR - 1, HOUR), (2 * HOUR, HOUR)]
)
def test_an_edge_belongs_to_what_lies_before_it(now, edge):
    assert last_edge(now, HOUR) == edge


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        ({"window_from": 5, "window_count": 1, "last": 9}, True),
        ({"window_from": 5, "window_count": 0, "last": 9}, False),  # empty
        ({"window_from": HOUR, "window_count": 1, "last": HOUR + 9}, False),  # since the edge
        ({"window_from": 5, "window_count": 1, "last": HOUR + 9}, False),  # a clock was ahead
    ],
)
def test_time_closes_a_window_that_holds_something_when_an_edge_has_passed(fields, due):
    assert is_due(record(**fields), HOUR + 10, HOUR) is due


@pytest.mark.parametrize("last", [1, 9, HOUR - 1, HOUR, HOUR + 1])
@pytest.mark.parametrize("window_from", [0, 5, HOUR])
def test_until_then_it_is_not_due(last, window_from):
    opened = record(window_from=window_from, window_count=1, last=last)
    left = until_due(opened, 10, HOUR)
    assert left is not None
    assert not is_due(opened, 10 + left - 1, HOUR)
    assert is_due(opened, 10 + left, HOUR)


def test_an_empty_window_is_never_due():
    assert until_due(record(window_from=5, last=9), 10, HOUR) is None


@pytest.mark.parametrize("now", [5, 5 + 60 * MINUTE - 1])
def test_a_snapshot_is_young_until_it_is_as_old_as_was_chosen(now):
    schedule = DocumentSchedule(HOUR, 30, 365, 60)
    left = schedule.until_snapshot(Position(5), Position(now))
    assert left is not None
    grown, taken = record(head=9), Position(5)
    assert not schedule.wants_snapshot(grown, Position(4), taken, Position(now + left - 1))
    assert schedule.wants_snapshot(grown, Position(4), taken, Position(now + left))


@pytest.mark.parametrize("now", [4, 5 + 60 * MINUTE])
def test_one_that_is_old_or_of_a_later_time_is_not_young(now):
    assert DocumentSchedule(HOUR, 30, 365, 60).until_snapshot(Position(5), Position(now)) is None


def after(cursor: int, *windows: Window, count: int = 0, size: int = 0) -> Stretch:
    return stretch_after(Position(cursor), span(*windows, count=count, size=size))


FULL = STRETCH_CHANGES


@pytest.mark.parametrize(
    ("windows", "count", "until"),
    [
        ((), 7, None),
        ((window(0, 10, 3), window(10, 20, 3)), 7, None),
        ((window(0, 10, FULL - 7),), 7, None),
        ((window(0, 10, FULL - 7),), 8, 10),
        ((window(0, 10, FULL), window(10, 20, 1)), 0, 10),
        ((window(0, 10, 1), window(10, 20, FULL)), 0, 10),
        ((window(0, 10, 1), window(10, 20, FULL - 1)), 0, None),
        ((window(0, 10, FULL),), 0, None),
    ],
)
def test_a_stretch_holds_as_many_whole_windows_as_one_document_may(windows, count, until):
    assert after(5, *windows, count=count) == (5, until)


def test_a_stretch_keeps_to_the_size_of_one_document_too():
    large = window(0, 10, 1, WINDOW_BYTES), window(10, 20, 1, 1)
    assert after(0, *large).until == 10
    assert after(0, large[0], count=1, size=1).until == 10


def test_what_is_kept_begins_with_the_oldest_window_or_the_open_one():
    assert kept_from(span(window(3, 5), window(5, 9))) == 3
    assert kept_from(Span(record(window_from=4), ())) == 4


def test_a_window_leaves_the_index_for_the_archive_when_its_end_is_old():
    windows = [window(0, 10), window(10, 20), window(20, 30)]
    assert split(windows, 20) == (windows[:2], windows[2:])
    assert split(windows, 19) == (windows[:1], windows[1:])
    assert split(windows, 0) == ([], windows)


def test_neither_document_has_more_entries_than_a_sitemap_may():
    windows = [window(at, at + 1) for at in range(2 * INDEX_ENTRIES + 5)]
    archive, index = split(windows, 0)
    assert (len(archive), len(index)) == (INDEX_ENTRIES, INDEX_ENTRIES - 1)
    assert archive[-1].until == index[0].from_


@pytest.mark.parametrize(
    ("head", "minutes", "wanted"), [(11, 60, True), (10, 60, False), (11, 59, False)]
)
def test_a_snapshot_is_wanted_when_it_is_old_and_something_has_changed(head, minutes, wanted):
    schedule = DocumentSchedule(HOUR, 30, 365, resourcelist_minutes=60)
    taken, now = Position(10), Position(10 + minutes * MINUTE)
    assert schedule.wants_snapshot(record(head=head), Position(10), taken, now) is wanted


def test_a_stretch_ends_before_a_gap():
    assert after(0, window(0, 5), window(5, 9), window(10, 12)) == (0, 9)
    assert after(9, window(10, 12)) == (9, None)


def test_a_stretch_ends_before_a_gap_in_front_of_the_open_list():
    windows = (window(0, 5), window(5, 9))
    opened = record(window_from=10, window_count=1)
    assert stretch_after(Position(0), Span(opened, windows, windows[0])).until == 9


@pytest.mark.parametrize(
    ("windows", "begin"),
    [
        ((window(1, 5), window(5, 9)), 1),
        ((window(1, 5), window(6, 9)), 6),
        ((window(1, 5), window(6, 7), window(8, 9)), 8),
        ((), 0),
    ],
)
def test_where_the_history_begins_that_has_no_gap(windows, begin):
    assert whole_from(span(*windows)) == begin


def test_what_follows_a_position_before_a_gap_begins_behind_it():
    assert following_from(span(window(6, 9))) == 6
    assert following_from(span()) == 0


@pytest.mark.parametrize(
    ("head", "open_list", "closed", "expected"),
    [
        (100, (50, 7), [], 0),  # the newest change came at that moment
        (101, (100, 7), [], 7),
        (101, (99, 7), [], None),  # the open list reaches across it
        (300, (200, 7), [window(100, 200, 5)], 12),
        (300, (200, 7), [window(99, 200, 5)], None),
        (300, (200, 7), [window(100, 150, 5), window(150, 200, 3)], 15),
        (300, (300, 0), [window(100, 300, 5)], 5),
    ],
)
def test_changes_since_a_moment_are_counted_by_whole_lists(head, open_list, closed, expected):
    assert changes_since(100, head, *open_list, closed) == expected


@pytest.mark.parametrize(
    ("changes", "resources", "much"),
    [(0, 0, False), (1, 0, True), (1, 10, True), (9, 100, False), (10, 100, True)],
)
def test_a_tenth_is_much(changes, resources, much):
    assert has_much_changed(changes, resources) is much


@pytest.mark.parametrize(
    ("took", "seconds"), [(0, 60), (6, 60), (7, 70)], ids=["at once", "six seconds", "seven"]
)
def test_a_list_stays_for_a_minute_and_ten_times_as_long_as_it_took(took, seconds):
    schedule = DocumentSchedule(HOUR, 30, 365, 60)
    taken, completed = Position(5), Position(5 + took * MICROSECONDS)
    last = Position(5 + seconds * MICROSECONDS - 1)
    assert schedule.until_early_snapshot(taken, completed, last) == 1
    assert schedule.until_early_snapshot(taken, completed, Position(last + 1)) is None
    assert schedule.until_early_snapshot(taken, completed, Position(4)) is None
