"""A channel as this process follows it, for all its readers.

Rules that hold here: each notification is told to every watcher once, in order; whatever is kept is
bounded and can be read again from the journal. Nothing here knows who watches.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from rsnotify.core.change import Position
from rsnotify.core.notification import (
    NOTIFICATION_BYTES,
    NOTIFICATION_CHANGES,
    ChannelName,
    Notification,
    join_notifications,
)
from rsnotify.core.tail import Tail

log = logging.getLogger(__name__)

PAST_KEPT = 16  # stretches below the tail, kept for the next reader: 16 MiB a channel at most


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
        self.tail = Tail(head)
        self.watchers: set[Watcher] = set()
        self.past: dict[Position, asyncio.Task[Notification]] = {}
        self.joined: dict[Position, Notification] = {}

    def push(self, notification: Notification) -> None:
        self.tail.push(notification)
        self._tell(lambda watcher: watcher.push(notification))

    def go_back(self, head: Position) -> None:
        """The journal has lost what came after `head`: so must whatever was made of it."""
        self.tail = Tail(head)
        self.past.clear()
        self.joined.clear()

    def turn_private(self) -> None:
        self._tell(lambda watcher: watcher.turn_private())

    def end(self) -> None:
        self._tell(lambda watcher: watcher.end())

    def _tell(self, how: Callable[[Watcher], None]) -> None:
        """Tell each of them; one that fails holds up no other."""
        for watcher in tuple(self.watchers):
            try:
                how(watcher)
            except Exception as error:
                log.warning("a way out of %s fails: %r", self.channel, watcher, exc_info=error)

    def remember(self, cursor: Position, stretch: asyncio.Task[Notification]) -> None:
        self.past[cursor] = stretch
        stretch.add_done_callback(partial(self._forget_failure, cursor))
        while len(self.past) > PAST_KEPT:
            del self.past[next(iter(self.past))]

    def join_after(self, found: Notification, base_url: str) -> Notification:
        """The notification and those after it as one; the same for all who ask at its cursor."""
        joined = self.joined.get(found.from_)
        if joined is None:
            run = self.tail.run_after(
                found.from_, changes=NOTIFICATION_CHANGES, size=NOTIFICATION_BYTES
            )
            joined = join_notifications(self.channel, run or [found], base_url=base_url)
            self.joined[found.from_] = joined
            while len(self.joined) > PAST_KEPT:
                del self.joined[next(iter(self.joined))]
        return joined

    def _forget_failure(self, cursor: Position, stretch: asyncio.Task[Notification]) -> None:
        if stretch.cancelled() or stretch.exception() is not None:
            self.past.pop(cursor, None)

    def __repr__(self) -> str:
        return f"<Feed {self.channel} {self.tail} {len(self.watchers)} watchers>"
