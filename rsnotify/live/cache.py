"""What is kept in memory of the journals: each channel's newest notifications, within one limit.

Everything here can be read again from the journal, so any entry may be released at any time. A
channel that nobody reads is released after a while even if there is room.

A channel's tail holds its newest notifications for all readers. Consecutive ones join: `from_` is
the `until` of the one before. It has a limit in bytes, too, which includes the frames made of its
notifications.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Notification

# --- a limit for all -----------------------------------------------------------------------------

IDLE_SECONDS = 60.0
MIB = 1024 * 1024
TAIL_BYTES = 16 * 1024 * 1024  # some 4 MiB of payload and its frames
NOTHING = (0, 0.0)


class CacheEntry(Protocol):
    """Something in memory that can be read again from a journal."""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        ...

    @property
    def stays_when_idle(self) -> bool:
        """Whether to keep it, if there is room, although nobody has used it for a while."""
        ...

    def release(self) -> None: ...


class Cache:
    """Tails, frames, stretches and open lists. The least recently used are released first."""

    def __init__(self, mebibytes: int, clock: Callable[[], float]) -> None:
        self.size = 0  # bytes that all entries hold, as far as they have said
        self._limit = mebibytes * MIB
        self._clock = clock
        self._held: dict[CacheEntry, tuple[int, float]] = {}  # its size, and when it was used

    def __contains__(self, entry: CacheEntry) -> bool:
        return entry in self._held

    def use(self, entry: CacheEntry) -> None:
        """The entry was used or has grown; release others, or itself, if the limit is passed."""
        self.forget(entry)  # from now on it is the one that was used last
        size = entry.size
        self._held[entry] = size, self._clock()
        self.size += size
        while self.size > self._limit:
            self._release(next(iter(self._held)))

    def forget(self, entry: CacheEntry) -> None:
        """Forget an entry that does not exist any more."""
        size, _ = self._held.pop(entry, NOTHING)
        self.size -= size

    def release_idle(self) -> None:
        since = self._clock() - IDLE_SECONDS
        for entry, (_, used_at) in tuple(self._held.items()):
            if used_at < since and not entry.stays_when_idle:
                self._release(entry)

    def _release(self, entry: CacheEntry) -> None:
        self.forget(entry)
        entry.release()


# --- of one channel ------------------------------------------------------------------------------


class Tail:
    """The newest notifications of one channel, oldest first."""

    __slots__ = ("_max_bytes", "_notifications", "head", "size", "start")

    def __init__(self, head: Position, max_bytes: int = TAIL_BYTES) -> None:
        self.start = head
        self.head = head
        self.size = 0
        self._max_bytes = max_bytes
        self._notifications: list[Notification] = []

    def append(self, notification: Notification) -> None:
        if notification.from_ != self.head:
            raise ValueError(f"{notification!r} does not join the tail's head {self.head}")
        notification.holder = self
        self._notifications.append(notification)
        self.size += notification.size
        self.head = notification.until
        if self.size > self._max_bytes:
            self._drop_oldest()

    def grew(self, size: int) -> None:
        self.size += size

    def skip_to(self, head: Position) -> None:
        """Move the head without reading the changes before it."""
        self.release()
        self.start = self.head = head

    def release(self) -> None:
        """Drop all notifications; the head stays."""
        self._forget(len(self._notifications))

    def _drop_oldest(self) -> None:
        """Drop the older half: to drop one at a time would shift the list at every push."""
        size, number = self.size, 0
        while size > self._max_bytes // 2 and number < len(self._notifications) - 1:
            size -= self._notifications[number].size
            number += 1
        self._forget(number)

    def _forget(self, number: int) -> None:
        for forgotten in self._notifications[:number]:
            forgotten.holder = None
            self.size -= forgotten.size
        del self._notifications[:number]
        self.start = self._notifications[0].from_ if self._notifications else self.head

    def next_after(self, cursor: Position) -> Notification | None:
        """The notification that begins exactly at the cursor; None if the tail has none."""
        if not self.start <= cursor < self.head:
            return None
        at = bisect_left(self._notifications, cursor, key=_from)
        found = self._notifications[at] if at < len(self._notifications) else None
        return found if found is not None and found.from_ == cursor else None

    @property
    def newest(self) -> Notification | None:
        return self._notifications[-1] if self._notifications else None

    def run_from(self, first: Notification, *, changes: int, size: int) -> list[Notification]:
        """This notification and those that join it, up to these limits."""
        run: list[Notification] = []
        following: Notification | None = first
        while following is not None:
            changes, size = changes - following.count, size - following.entries_size
            if run and (changes < 0 or size < 0):
                break
            run.append(following)
            following = self.next_after(following.until)
        return run

    def boundary_after(self, cursor: Position) -> Position:
        """Where a reader at this cursor can join the tail: where a notification begins next."""
        if cursor < self.start:
            return self.start
        at = bisect_left(self._notifications, cursor, key=_from)
        return self._notifications[at].from_ if at < len(self._notifications) else self.head

    def __repr__(self) -> str:
        return f"<Tail of {len(self._notifications)} notifications ({self.start}, {self.head}]>"


def _from(notification: Notification) -> Position:
    return notification.from_


class RecentNotifications:
    """The newest few, by the cursor that they follow."""

    __slots__ = ("_kept", "_most", "size")

    def __init__(self, most: int) -> None:
        self.size = 0
        self._most = most
        self._kept: dict[Position, Notification] = {}

    def get(self, cursor: Position) -> Notification | None:
        return self._kept.get(cursor)

    def keep(self, notification: Notification) -> None:
        self._forget(notification.from_)
        notification.holder = self
        self._kept[notification.from_] = notification
        self.size += notification.size
        while len(self._kept) > self._most:
            self._forget(next(iter(self._kept)))

    def grew(self, size: int) -> None:
        self.size += size

    def release(self) -> None:
        for cursor in tuple(self._kept):
            self._forget(cursor)

    def _forget(self, cursor: Position) -> None:
        forgotten = self._kept.pop(cursor, None)
        if forgotten is not None:
            forgotten.holder = None
            self.size -= forgotten.size
