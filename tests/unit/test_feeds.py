"""Which channels have changes to read, and how far."""

import asyncio
from time import monotonic

from rsnotify.journal.witness import KnownChange
from rsnotify.live.cache import Cache
from rsnotify.live.feed import Feed, Feeds
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName

CHANNEL = ChannelName("dataset1", "change")
CREATED = "2026-11-22T00:00:00.000000Z"


def feeds_of_one_set() -> tuple[Feeds, Feed, asyncio.Event]:
    feeds = Feeds(Cache(1, monotonic))
    feeds.add_set("dataset1", CREATED)
    feed = feeds.get(CHANNEL)
    assert feed is not None
    return feeds, feed, feeds.woken


def after(feed: Feed, changes: int) -> KnownChange:
    return KnownChange(Position(feed.tail.head + changes), f"mark{changes:02}")


async def test_an_older_message_does_not_take_the_place_of_a_newer_one():
    feeds, feed, woken = feeds_of_one_set()
    feeds.note_read(feed)
    five = after(feed, 5)
    for newest in (five, after(feed, 3)):
        feeds.note_unread(CHANNEL, newest)
    assert woken.is_set()
    assert feeds.take_unread() == {CHANNEL: (feed, five)}


async def test_each_message_after_a_look_wakes_whoever_follows_again():
    feeds, feed, woken = feeds_of_one_set()
    for changes in (1, 2):
        woken.clear()
        feeds.note_unread(CHANNEL, after(feed, changes))
        assert woken.is_set()
        assert feeds.take_unread() == {}  # nobody reads it: it moves on
        woken.clear()
        feeds.note_unread(CHANNEL, after(feed, 0))
        assert not woken.is_set(), "that is no news"


async def test_a_feed_that_nobody_reads_moves_on_and_what_is_known_of_it_stays():
    feeds, feed, _ = feeds_of_one_set()
    known = after(feed, 1)
    feed.witness.note_change(*known)
    feeds.note_unread(CHANNEL, after(feed, 5))
    newest = after(feed, 5)
    assert feeds.take_unread() == {}
    assert (feed.tail.head, feed.mark) == newest
    assert feed.witness.changes == (known,), "nobody has looked whether it is still there"
    assert feed.witness.given == known.position, "nobody was given where it has moved to"


async def test_a_message_heard_before_a_loss_was_noticed_counts_after_it():
    """Else whatever is given of this journal would end at the gap, until somebody publishes."""
    feeds, feed, _ = feeds_of_one_set()
    newest = after(feed, 5)
    feeds.note_unread(CHANNEL, newest)
    feed.pass_gap(after(feed, 3).position)
    assert feeds.take_unread() == {}
    assert (feed.tail.head, feed.known_head) == (newest.position, newest.position)
