"""What a channel joins for whoever is behind: as much as one notification may carry, made once."""

import gc
import tracemalloc

import pytest

from rsnotify.live.feed import Feed, Watcher
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import (
    NOTIFICATION_BYTES,
    NOTIFICATION_CHANGES,
    ChannelName,
    Notification,
    render_notification,
)

CHANNEL = ChannelName("a", "change")
SMALL = b"<url></url>"
AT_REST_BYTES = 480  # of memory
COUNT = 1_000  # channels: what else takes memory meanwhile is little beside theirs


def feed() -> Feed:
    return Feed(CHANNEL, "now", Position(0))


def push(feed: Feed, count: int, fragment: bytes = SMALL, mark: str = "") -> None:
    head = feed.tail.head
    rows = [(Position(head + number + 1), fragment) for number in range(count)]
    feed.push(render_notification(CHANNEL, head, rows, base_url="http://hub"), mark)


def from_the_beginning(feed: Feed) -> Notification:
    found = feed.tail.next_after(Position(0))
    assert found is not None
    return feed.join_after(found, "http://hub")


def test_what_has_come_since_a_stretch_was_joined_goes_into_it():
    followed = feed()
    for _ in range(2):
        push(followed, 1)
    assert from_the_beginning(followed).count == 2
    push(followed, 1)
    assert from_the_beginning(followed).count == 3


@pytest.mark.parametrize(("more", "count"), [(1, NOTIFICATION_CHANGES), (2, 999)])
def test_a_stretch_grows_to_as_many_changes_as_a_notification_may_have(more, count):
    followed = feed()
    push(followed, NOTIFICATION_CHANGES - 2)
    push(followed, 1)
    before = from_the_beginning(followed)
    push(followed, more)
    after = from_the_beginning(followed)
    assert (before.count, after.count) == (NOTIFICATION_CHANGES - 1, count)
    assert from_the_beginning(followed) is after, "whoever asks next shares it"


@pytest.mark.parametrize(("beyond", "count"), [(0, 3), (1, 2)])
def test_a_stretch_grows_to_as_many_bytes_as_a_notification_may_have(beyond, count):
    followed = feed()
    for _ in range(2):
        push(followed, 1, b"x" * 1000)
    from_the_beginning(followed)
    push(followed, 1, b"x" * (NOTIFICATION_BYTES - 2000 + beyond))
    after = from_the_beginning(followed)
    assert after.count == count
    assert from_the_beginning(followed) is after, "whoever asks next shares it"


def test_a_stretch_that_reaches_the_head_is_shared():
    followed = feed()
    for _ in range(2):
        push(followed, 1)
    assert from_the_beginning(followed) is from_the_beginning(followed)


@pytest.mark.parametrize("until", [3, 4])
def test_a_stretch_from_within_a_notification_leaves_nothing_out(until):
    """Another process has grouped the changes otherwise; the rest is read from the journal."""
    followed = feed()
    push(followed, 4)
    push(followed, 2)
    rows = [(Position(number), SMALL) for number in range(3, until + 1)]
    found = render_notification(CHANNEL, Position(2), rows, base_url="http://hub")
    joined = followed.join_after(found, "http://hub")
    assert joined.from_ == 2
    assert joined.count == joined.until - joined.from_


# --- at rest -------------------------------------------------------------------------------------


class Ear(Watcher):
    writes = 1

    def push(self, notification: Notification) -> None: ...

    def fall_behind(self, head: Position) -> None: ...

    def turn_private(self) -> None: ...

    def end(self) -> None: ...


def make_busy(followed: Feed) -> Ear:
    """Use everything that a channel may need."""
    ear = Ear()
    followed.watch(ear)
    for _ in range(3):
        push(followed, 1, mark="abc123")
    found = from_the_beginning(followed)
    followed.recent.keep(Notification(found.from_, found.until, 1, SMALL, slice(0, 1)))
    return ear


def traced_bytes() -> int:
    return tracemalloc.get_traced_memory()[0]


def test_a_channel_at_rest_takes_little_memory_also_when_it_was_busy_before():
    tracemalloc.start()
    try:
        before = traced_bytes()
        feeds = [feed() for _ in range(COUNT)]
        new = traced_bytes() - before
        ears = [make_busy(each) for each in feeds]
        busy = traced_bytes() - before
        for each, ear in zip(feeds, ears, strict=True):
            each.unwatch(ear)
            each.release()
            each.witness.note_found(each.witness.changes)
        del ears, ear
        gc.collect()  # also what Python keeps of freed objects for the next ones
        rested = traced_bytes() - before
    finally:
        tracemalloc.stop()
    assert new < COUNT * AT_REST_BYTES
    assert busy > 3 * new, "otherwise this test proves nothing"
    assert rested < COUNT * AT_REST_BYTES


def test_a_channel_can_be_watched_again_after_its_last_watcher_has_gone():
    followed, first, second = feed(), Ear(), Ear()
    followed.unwatch(first)
    followed.watch(first)
    followed.watch(second)
    followed.unwatch(first)
    assert [*followed.watchers] == [second]
    followed.unwatch(second)
    assert not followed.is_watched
    followed.watch(first)
    assert [*followed.watchers] == [first]
