"""Where the subscribers of this process stand, counted for those who watch the hub."""

import asyncio
from collections.abc import Iterable, Mapping

from rsnotify.journal.feed import Feed
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.websub.state import Share, Subscriber


class Survey:
    """How many subscribers are up to date, behind and so on; and the oldest change not yet sent."""

    def __init__(self) -> None:
        self.places = {"up to date": 0, "behind": 0, "failing": 0, "suspended": 0}
        self.owed_since: Position | None = None

    def add(self, subscriber: Subscriber, feed: Feed | None) -> None:
        if feed is None or subscriber in subscriber.share.suspended:
            self.places["suspended"] += 1
            return
        owed = feed.owed_since(Position(subscriber.progress.cursor))
        if owed is None:
            self.places["up to date"] += 1
            return
        self.places["failing" if subscriber.progress.failures else "behind"] += 1
        self.owed_since = owed if self.owed_since is None else min(self.owed_since, owed)


async def survey(shares: Iterable[Share], feeds: Mapping[ChannelName, Feed]) -> Survey:
    """Look at all; the event loop serves others between two shares."""
    found = Survey()
    for share in shares:
        for subscriber in list(share.subscribers.values()):
            found.add(subscriber, feeds.get(subscriber.channel))
        await asyncio.sleep(0)
    return found
