"""A turn of whoever is behind: read what follows its cursor, write some of it, let others go on.

It is the same for a reader of one channel, and for each channel of a reader of several.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from rsnotify.channels.frames import WireFormat
from rsnotify.errors import INTERNAL_ERROR, Rejected, TryAgain
from rsnotify.journal.feed import Feed
from rsnotify.journal.hub import Hub
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Notification

log = logging.getLogger(__name__)

TURN_BYTES = 64 * 1024  # before the next one's turn
YIELD_BYTES = 1024 * 1024  # before the event loop serves others


class Sent:
    """How many notifications this process has written in each form, and how many bytes."""

    def __init__(self) -> None:
        self.notifications: dict[str, int] = {}
        self.bytes: dict[str, int] = {}

    def count(self, wire_format: WireFormat, size: int, readers: int = 1) -> None:
        """A notification of this size was written to so many readers."""
        name = wire_format.name
        self.notifications[name] = self.notifications.get(name, 0) + readers
        self.bytes[name] = self.bytes.get(name, 0) + readers * size


class ChannelFollower(Protocol):
    """Whoever follows one channel."""

    cursor: Position

    @property
    def is_paused(self) -> bool: ...

    @property
    def wire_format(self) -> WireFormat: ...

    def write(self, data: bytes, /) -> None: ...

    def close(self, code: int, reason: str) -> None: ...


async def read_on(hub: Hub, feed: Feed, follower: ChannelFollower) -> Notification | None:
    """What follows its cursor; None at the head. If that cannot be read, it is closed."""
    try:
        return await hub.after(feed, follower.cursor)
    except (Rejected, TryAgain) as error:
        follower.close(error.close_code, error.detail)
    except Exception:
        close_for_a_bug([follower])
    return None


def write_turn(
    feed: Feed, follower: ChannelFollower, found: Notification | None, sent: Sent
) -> int:
    """Write this and what follows, up to TURN_BYTES; how many bytes. If it fails, it is closed."""
    try:
        return _write(feed, follower, found, sent)
    except Exception:
        close_for_a_bug([follower])
    return 0


def _write(feed: Feed, follower: ChannelFollower, found: Notification | None, sent: Sent) -> int:
    written = 0
    while found is not None and not follower.is_paused:
        follower.cursor = found.until
        frame = follower.wire_format.render(found)
        follower.write(frame)
        sent.count(follower.wire_format, len(frame))
        written += len(frame)
        found = feed.tail.next_after(follower.cursor) if written < TURN_BYTES else None
    return written


def close_for_a_bug(followers: Sequence[ChannelFollower]) -> None:
    """End the connections of those who would otherwise miss something and not know it."""
    log.exception("internal error while %d readers are served: %r", len(followers), followers[0])
    for follower in followers:
        follower.close(1011, INTERNAL_ERROR)
