"""Which channels have changes to read, and how far."""

import asyncio
from time import monotonic

from rsnotify.journal.cache import Cache
from rsnotify.journal.feed import Feed, Feeds
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


def after(feed: Feed, changes: int) -> Position:
    return Position(feed.tail.head + changes)


async def test_an_older_stroke_does_not_take_the_place_of_a_newer_one():
    feeds, feed, woken = feeds_of_one_set()
    feeds.remember_read(feed, [(after(feed, 1), b"<url></url>")])  # as somebody has read it lately
    for changes in (5, 3):
        feeds.ring(CHANNEL, after(feed, changes))
    assert woken.is_set()
    assert feeds.take_rung() == {CHANNEL: (feed, after(feed, 5))}


async def test_each_stroke_after_a_look_wakes_whoever_follows_again():
    feeds, feed, woken = feeds_of_one_set()
    for changes in (1, 2):
        woken.clear()
        feeds.ring(CHANNEL, after(feed, changes))
        assert woken.is_set()
        assert feeds.take_rung() == {}  # nobody reads it: it moves on
        woken.clear()
        feeds.ring(CHANNEL, feed.tail.head)
        assert not woken.is_set(), "that is no news"
