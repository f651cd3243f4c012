"""What is kept in memory: everything is counted, and what is let go of is not missed."""

from time import monotonic

import pytest

from rsnotify.channels.frames import DEFLATED, EVENT, TEXT, WireFormat
from rsnotify.live.cache import IDLE_SECONDS, MIB, Cache, RecentNotifications, Tail
from rsnotify.live.feed import Feed
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import HELD_BYTES, MADE_BYTES, ChannelName, Notification


def notification(from_: int, until: int, size: int = 10) -> Notification:
    return Notification(Position(from_), Position(until), 1, b"x" * size, slice(0, size))


def feed(set_name: str, *sizes: int) -> Feed:
    made = Feed(ChannelName(set_name, "change"), "now", Position(0))
    for number, size in enumerate(sizes):
        made.push(notification(number, number + 1, size))
    return made


class Ear:
    """Somebody who reads a channel."""

    writes = 1

    def __init__(self, wire_format: WireFormat = TEXT) -> None:
        self.wire_format = wire_format
        self.known_head: list[Position] = []

    def push(self, notification: Notification) -> None:
        self.wire_format.render(notification)
        self.known_head.append(notification.until)

    def fall_behind(self, head: Position) -> None: ...

    def turn_private(self) -> None: ...

    def end(self) -> None: ...


@pytest.mark.parametrize(
    "wire_format", [TEXT, DEFLATED, EVENT], ids=lambda wire_format: wire_format.name
)
def test_what_is_made_of_a_notification_counts(wire_format):
    tail, told = Tail(Position(0)), notification(0, 1, 500)
    tail.append(told)
    frame = wire_format.render(told)
    wire_format.render(told)
    assert tail.size == HELD_BYTES + 500 + len(frame) + MADE_BYTES


def test_stretches_behind_the_tail_count_too_and_the_oldest_of_too_many_goes():
    recent = RecentNotifications(2)
    kept = [notification(number, number + 1, 500) for number in range(3)]
    for each in kept:
        recent.keep(each)
        TEXT.render(each)
    TEXT.render(kept[0])
    assert recent.size == kept[1].size + kept[2].size
    assert [recent.get(each.from_) for each in kept] == [None, *kept[1:]]


def test_what_was_let_go_of_grows_for_nobody():
    tail, told = Tail(Position(0)), notification(0, 1)
    tail.append(told)
    tail.release()
    TEXT.render(told)
    assert (tail.size, tail.start, tail.head) == (0, 1, 1)


class Held:
    """An entry of some size."""

    stays_when_idle = False

    def __init__(self, name: str, released: list[str]) -> None:
        self.size = 0
        self._name = name
        self._released = released

    def release(self) -> None:
        self._released.append(self._name)


@pytest.mark.parametrize(
    ("uses", "released", "total"),
    [
        ([("a", 100)], [], 100),
        ([("a", 101)], ["a"], 0),
        ([("a", 60), ("b", 40)], [], 100),
        ([("a", 60), ("b", 41)], ["a"], 41),
        ([("a", 50), ("b", 50), ("c", 1)], ["a"], 51),
        ([("a", 50), ("b", 50), ("c", 51)], ["a", "b"], 51),
        ([("a", 50), ("b", 50), ("a", 50), ("c", 1)], ["b"], 51),  # used again: not the oldest
        ([("a", 90), ("b", 10), ("a", 20), ("c", 70)], [], 100),  # it has shrunk since
        ([("a", 10), ("b", 50), ("a", 51)], ["b"], 51),  # it has grown since
        ([("a", 10), ("b", 101)], ["a", "b"], 0),  # too large to be kept at all
        ([("a", 0), ("b", 100), ("c", 1)], ["a", "b"], 1),
    ],
)
def test_who_was_used_least_recently_is_released_first(uses, released, total):
    cache, found = Cache(100, monotonic), list[str]()
    entries = {name: Held(name, found) for name in "abc"}
    for name, size in uses:
        entries[name].size = size * MIB
        cache.use(entries[name])
    assert (found, cache.size) == (released, total * MIB)
    assert {name for name in found if entries[name] in cache} == set()


def test_who_is_forgotten_has_nothing():
    cache, found = Cache(1, monotonic), list[str]()
    kept, gone, never_seen = (Held(name, found) for name in "abc")
    kept.size = gone.size = MIB // 2
    cache.use(kept)
    cache.use(gone)
    cache.forget(gone)
    cache.forget(never_seen)
    assert (kept in cache, gone in cache, cache.size) == (True, False, MIB // 2)
    assert not found, "it is not released, as it does not exist any more"


@pytest.mark.parametrize(("more", "is_kept"), [(0, True), (1, False)])
def test_at_the_budget_all_is_kept_and_one_past_it_the_least_recently_used_goes(more, is_kept):
    cache = Cache(1, monotonic)
    first = feed("first", 1_000)
    second = feed("second", MIB - first.size - HELD_BYTES + more)
    cache.use(first)
    cache.use(second)
    assert (first in cache, first.size > 0) == (is_kept, is_kept)
    assert cache.size == first.size + second.size
    assert cache.size <= MIB


def test_whoever_reads_at_the_head_hears_everything_though_nothing_fits():
    cache, read, ear = Cache(0, monotonic), feed("read"), Ear()
    read.watch(ear)
    for number in range(5):
        read.push(notification(number, number + 1))
        cache.use(read)
    assert ear.known_head == [1, 2, 3, 4, 5]
    assert (read.size, read.tail.head) == (0, 5)


@pytest.mark.parametrize(("seconds", "is_kept"), [(IDLE_SECONDS, True), (IDLE_SECONDS + 1, False)])
def test_a_channel_that_nobody_reads_shrinks_to_nothing(seconds, is_kept):
    now = 0.0
    cache, unread, read = Cache(1, clock=lambda: now), feed("unread", 10), feed("read", 10)
    read.watch(Ear())
    cache.use(unread)
    cache.use(read)
    now = seconds
    cache.release_idle()
    assert (unread.size > 0, unread in cache) == (is_kept, is_kept)
    assert read.size > 0
