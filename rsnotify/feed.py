"""A channel as this process follows it, for all its readers.

Rules that hold here: each notification is told to every watcher once, in order; whatever is kept is
bounded and can be read again from the journal. Nothing here knows who watches.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from rsnotify.core.recent import Recent
from rsnotify.core.tail import Tail
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import (
    NOTIFICATION_BYTES,
    NOTIFICATION_CHANGES,
    ChannelName,
    Notification,
    join_notifications,
)

log = logging.getLogger(__name__)

PAST_KEPT = 16  # stretches below the tail, and as many joined ones


class Watcher(Protocol):
    """Who wants to hear of a channel. No call may wait."""

    def push(self, notification: Notification) -> None: ...

    def turn_private(self) -> None:
        """Whoever reads has shown no right to."""

    def end(self) -> None:
        """The channel is no more."""


class Feed:
    """One channel as this process follows it: its tail, and who is told of each notification."""

    def __init__(self, channel: ChannelName, created: str, head: Position) -> None:
        self.channel = channel
        self.created = created
        self.heard = head  # the newest change, read or not
        self.tail = Tail(head)
        self.watchers: set[Watcher] = set()
        self.past = Recent(PAST_KEPT)
        self.joined = Recent(PAST_KEPT)

    @property
    def size(self) -> int:
        """The bytes of memory that it takes."""
        return self.tail.size + self.past.size + self.joined.size

    @property
    def is_watched(self) -> bool:
        return bool(self.watchers)

    stays_when_idle = is_watched

    def let_go(self) -> None:
        """Keep nothing but where the channel stands."""
        self.tail.let_go()
        self.past.let_go()
        self.joined.let_go()

    def push(self, notification: Notification) -> None:
        self.tail.push(notification)
        self._tell(lambda watcher: watcher.push(notification))

    def skip_to(self, head: Position) -> None:
        """Nobody reads what came until there."""
        self.let_go()
        self.tail.skip_to(head)

    def go_back(self, head: Position) -> None:
        """The journal has lost what came after `head`: so must whatever was made of it."""
        self.let_go()
        self.heard, self.tail = head, Tail(head)

    def turn_private(self) -> None:
        self._tell(lambda watcher: watcher.turn_private())

    def end(self) -> None:
        self._tell(lambda watcher: watcher.end())
        self.watchers.clear()

    def _tell(self, how: Callable[[Watcher], None]) -> None:
        """Tell each of them; one that fails holds up no other."""
        for watcher in tuple(self.watchers):
            try:
                how(watcher)
            except Exception as error:
                log.warning("a way out of %s fails: %r", self.channel, watcher, exc_info=error)

    def join_after(self, found: Notification, base_url: str) -> Notification:
        """The notification and those after it as one; the same for all who ask at its cursor."""
        joined = self.joined.get(found.from_)
        if joined is None or self._has_room(joined):
            run = self.tail.run_after(
                found.from_, changes=NOTIFICATION_CHANGES, size=NOTIFICATION_BYTES
            )
            joined = join_notifications(self.channel, run or [found], base_url=base_url)
            if joined.keeper is None:  # else it stands alone in the tail
                self.joined.keep(joined)
        return joined

    def _has_room(self, joined: Notification) -> bool:
        """Whether what has come since would have gone into it."""
        following = self.tail.next_after(joined.until)
        return (
            following is not None
            and joined.count + following.count <= NOTIFICATION_CHANGES
            and joined.entries_size + following.entries_size <= NOTIFICATION_BYTES
        )

    def __repr__(self) -> str:
        return f"<Feed {self.channel} {self.tail} {len(self.watchers)} watchers>"
