"""Tells readers of what was appended here, from memory: no bell, no reading back.

This is a shortcut only. It is taken where the appended changes are next in the channel, and nothing
was decided about the sets that this process does not know. All else is left to the follow loop,
which makes the same notifications of the same changes. So is what more is on its way for: on a busy
channel the follow loop joins many changes into one notification.
"""

import asyncio
from collections.abc import Iterator

from rsnotify.journal.append_call import Appended
from rsnotify.journal.appends import Appends
from rsnotify.journal.checking import Checking
from rsnotify.journal.feed import Feed
from rsnotify.journal.feeds import Feeds
from rsnotify.journal.following import Following
from rsnotify.journal.known_sets import KnownSets
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName

FEW_READERS = 8  # to write to them takes less than to make the answer


class Shortcut:
    """Collects what was appended in one round, and pushes it as one notification."""

    def __init__(
        self,
        appends: Appends,
        following: Following,
        checking: Checking,
        sets: KnownSets,
        feeds: Feeds,
    ) -> None:
        self._appends = appends
        self._following = following
        self._checking = checking
        self._sets = sets
        self._feeds = feeds
        self._waiting: dict[ChannelName, dict[Position, Appended]] = {}  # by where each begins

    def appended(self, feed: Feed, stored: Appended) -> None:
        """The journal has it: tell readers. Few are told at once; many, or of many changes, after
        the Sources of this round have their answers."""
        if stored.is_repeated or not self._feeds.is_read(feed):
            self._feeds.ring(feed.channel, stored.until)
            return
        if stored.is_alone and feed.writes_at_most(FEW_READERS):
            self._tell(feed, {stored.from_: stored})
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._push_one)
        self._waiting.setdefault(feed.channel, {})[stored.from_] = stored

    def _push_one(self) -> None:
        """Push those of one channel: it may have thousands of readers."""
        channel = next(iter(self._waiting))
        waiting = self._waiting.pop(channel)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._push_one)
        if (feed := self._feeds.get(channel)) is not None:
            self._tell(feed, waiting)

    def _tell(self, feed: Feed, waiting: dict[Position, Appended]) -> None:
        if not self._appends.is_busy and not self._checking.lock.locked():
            rows = [row for each in self._next(feed.tail.head, waiting) for row in each.rows]
            self._following.push(feed, rows)
        newest = max(each.until for each in waiting.values())
        self._feeds.ring(feed.channel, newest)  # no news, if it was pushed

    def _next(self, cursor: Position, waiting: dict[Position, Appended]) -> Iterator[Appended]:
        """Those that follow the cursor without a gap."""
        while following := waiting.get(cursor):
            if following.sets_version != self._sets.number or following.until == cursor:
                return
            yield following
            cursor = following.until
