"""Tells readers of what was appended here, from memory: no bell, no reading back.

This is a shortcut only. It is taken where the appended changes are next in the channel, and nothing
was decided about the sets that this process does not know. All else is left to the follow loop,
which makes the same notifications of the same changes. So is what more is on its way for: on a busy
channel the follow loop joins many changes into one notification.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rsnotify.hub.checking import Checking
from rsnotify.hub.feeds import Feeds
from rsnotify.hub.following import Following
from rsnotify.hub.known_sets import KnownSets
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Row
from rsnotify.storage.append_call import Appended
from rsnotify.storage.appends import Appends

FEW_READERS = 8  # to write to them takes less than to make the answer


class _Own(NamedTuple):
    """What one append of this process stored."""

    until: Position
    sets_version: int
    rows: Sequence[Row]


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
        self._waiting: dict[ChannelName, dict[Position, _Own]] = {}  # by where each begins

    def appended(self, channel: ChannelName, stored: Appended) -> None:
        """The journal has it: tell readers. Few are told at once; many, or of many changes, after
        the Sources of this round have their answers."""
        feed = self._feeds.get(channel)
        if feed is None or stored.is_repeated or not self._feeds.is_read(feed):
            self._feeds.ring(channel, stored.until)
            return
        own = _Own(stored.until, stored.sets_version, stored.rows)
        if stored.is_alone and feed.writes_at_most(FEW_READERS):
            self._tell(channel, {stored.from_: own})
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._push_one)
        self._waiting.setdefault(channel, {})[stored.from_] = own

    def _push_one(self) -> None:
        """Push those of one channel: it may have thousands of readers."""
        channel = next(iter(self._waiting))
        waiting = self._waiting.pop(channel)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._push_one)
        self._tell(channel, waiting)

    def _tell(self, channel: ChannelName, waiting: dict[Position, _Own]) -> None:
        self._push(channel, waiting)
        for own in waiting.values():
            self._feeds.ring(channel, own.until)  # no news, if it was pushed

    def _push(self, channel: ChannelName, waiting: dict[Position, _Own]) -> None:
        feed = self._feeds.get(channel)
        if feed is None or self._appends.is_busy or self._checking.lock.locked():
            return
        rows = [row for own in self._next(feed.tail.head, waiting) for row in own.rows]
        self._following.push(feed, rows)

    def _next(self, cursor: Position, waiting: dict[Position, _Own]) -> Iterator[_Own]:
        """Those that follow the cursor without a gap."""
        while own := waiting.get(cursor):
            if own.sets_version != self._sets.number or own.until == cursor:
                return
            yield own
            cursor = own.until
