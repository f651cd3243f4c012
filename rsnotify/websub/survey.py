"""Where the subscribers of a process stand, counted."""

from rsnotify.live.feed import Feed
from rsnotify.resourcesync.change import Position
from rsnotify.websub.share import Subscriber


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
