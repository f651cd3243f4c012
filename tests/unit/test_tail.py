"""The tail: joined notifications, bounded bytes, and where a reader can join it."""

from itertools import pairwise

import pytest

from rsnotify.live.cache import Tail
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import HELD_BYTES, Notification


def notification(from_: int, until: int, size: int = 10) -> Notification:
    return Notification(Position(from_), Position(until), 1, b"x" * size, slice(0, size))


def tail_of(*edges: int, max_bytes: int = 10_000) -> Tail:
    tail = Tail(Position(edges[0]), max_bytes)
    for from_, until in pairwise(edges):
        tail.append(notification(from_, until))
    return tail


@pytest.mark.parametrize(
    ("cursor", "from_"), [(9, None), (10, 10), (15, None), (20, 20), (30, None), (31, None)]
)
def test_only_a_notification_that_begins_at_the_cursor_follows_it(cursor, from_):
    found = tail_of(10, 20, 30).next_after(Position(cursor))
    assert (found and found.from_) == from_


@pytest.mark.parametrize(
    ("cursor", "boundary"), [(0, 10), (9, 10), (10, 10), (15, 20), (25, 30), (30, 30)]
)
def test_a_reader_joins_at_the_next_edge(cursor, boundary):
    assert tail_of(10, 20, 30).boundary_after(Position(cursor)) == boundary


def test_a_notification_that_does_not_join_is_a_bug():
    with pytest.raises(ValueError, match="does not join"):
        tail_of(10, 20).append(notification(21, 30))


def test_the_oldest_are_forgotten_when_it_grows_too_large():
    tail = tail_of(*range(0, 220, 10), max_bytes=10 * HELD_BYTES)
    assert tail.start > 0
    assert tail.head == 210
    assert tail.next_after(tail.start) is not None


def test_a_tail_that_nobody_reads_skips_to_the_head():
    tail = tail_of(10, 20)
    tail.skip_to(Position(50))
    assert (tail.start, tail.head, tail.size, tail.newest) == (50, 50, 0, None)
    tail.append(notification(50, 60))
    assert tail.next_after(Position(50)) is not None


def test_one_notification_larger_than_the_tail_is_kept():
    tail = Tail(Position(0), 100)
    tail.append(notification(0, 1, size=500))
    assert tail.next_after(Position(0)) is not None


@pytest.mark.parametrize(
    ("changes", "size", "until"),
    [(3, 30, 40), (2, 30, 30), (3, 29, 30), (1, 10, 20), (0, 0, 20)],
)
def test_what_joins_is_taken_up_to_so_many_changes_and_bytes(changes, size, until):
    tail = tail_of(10, 20, 30, 40)
    first = tail.next_after(Position(10))
    assert first is not None
    assert tail.run_from(first, changes=changes, size=size)[-1].until == until
