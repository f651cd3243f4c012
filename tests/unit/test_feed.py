"""What a channel joins for whoever is behind: as much as one notification may carry, made once."""

import pytest

from rsnotify.errors import NoSuchSet
from rsnotify.feed import Feed
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


def feed() -> Feed:
    return Feed(CHANNEL, "now", Position(0))


def push(feed: Feed, count: int, fragment: bytes = SMALL) -> None:
    head = feed.tail.head
    rows = [(Position(head + number + 1), fragment) for number in range(count)]
    feed.push(render_notification(CHANNEL, head, rows, base_url="http://hub"))


def from_the_beginning(feed: Feed) -> Notification:
    found = feed.tail.next_after(Position(0))
    assert found is not None
    return feed.join_after(found, "http://hub")


def test_what_has_come_since_a_stretch_was_joined_goes_into_it() -> None:
    followed = feed()
    for _ in range(2):
        push(followed, 1)
    assert from_the_beginning(followed).count == 2
    push(followed, 1)
    assert from_the_beginning(followed).count == 3


@pytest.mark.parametrize(("more", "count"), [(1, NOTIFICATION_CHANGES), (2, 999)])
def test_a_stretch_grows_to_as_many_changes_as_a_notification_may_have(
    more: int, count: int
) -> None:
    followed = feed()
    push(followed, NOTIFICATION_CHANGES - 2)
    push(followed, 1)
    before = from_the_beginning(followed)
    push(followed, more)
    after = from_the_beginning(followed)
    assert (before.count, after.count) == (NOTIFICATION_CHANGES - 1, count)
    assert from_the_beginning(followed) is after, "whoever asks next shares it"


@pytest.mark.parametrize(("beyond", "count"), [(0, 3), (1, 2)])
def test_a_stretch_grows_to_as_many_bytes_as_a_notification_may_have(
    beyond: int, count: int
) -> None:
    followed = feed()
    for _ in range(2):
        push(followed, 1, b"x" * 1000)
    from_the_beginning(followed)
    push(followed, 1, b"x" * (NOTIFICATION_BYTES - 2000 + beyond))
    after = from_the_beginning(followed)
    assert after.count == count
    assert from_the_beginning(followed) is after, "whoever asks next shares it"


def test_a_stretch_that_reaches_the_head_is_shared() -> None:
    followed = feed()
    for _ in range(2):
        push(followed, 1)
    assert from_the_beginning(followed) is from_the_beginning(followed)


@pytest.mark.parametrize("until", [3, 4])
def test_a_stretch_from_within_a_notification_leaves_nothing_out(until: int) -> None:
    """Another process has grouped the changes otherwise; the rest is read from the journal."""
    followed = feed()
    push(followed, 4)
    push(followed, 2)
    rows = [(Position(number), SMALL) for number in range(3, until + 1)]
    found = render_notification(CHANNEL, Position(2), rows, base_url="http://hub")
    joined = followed.join_after(found, "http://hub")
    assert joined.from_ == 2
    assert joined.count == joined.until - joined.from_


async def test_who_waits_for_a_position_is_woken_when_it_comes_and_watches_no_longer() -> None:
    followed = feed()
    with followed.arrival_at(Position(2)) as arrived:
        push(followed, 1)
        assert not arrived.done()
        followed.turn_private()
        push(followed, 2)
        await arrived
        push(followed, 1)
    assert not followed.is_watched


async def test_who_waits_for_a_position_is_told_when_the_set_is_removed() -> None:
    followed = feed()
    with followed.arrival_at(Position(2)) as arrived:
        followed.end()
        with pytest.raises(NoSuchSet):
            await arrived
