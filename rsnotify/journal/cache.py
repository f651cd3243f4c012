"""What is kept in memory of the journals: each channel's newest notifications, within one limit.

Everything here can be read again from the journal, except what is remembered for repairs, so any
entry may be released at any time. A channel that nobody reads is released after a while even if
there is room.

A channel's tail holds its newest notifications for all readers. Consecutive ones join: `from_` is
the `until` of the one before. It has a limit in bytes, too, which includes the frames made of its
notifications.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Notification

# --- a limit for all -----------------------------------------------------------------------------

NOTHING = (0, 0.0)

Owner = TypeVar("Owner")


class Budget(Generic[Owner]):
    """How many bytes each owner holds, the least recently used owner first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._kept: dict[Owner, tuple[int, float]] = {}  # its size, and when it was used

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._kept

    def use(self, owner: Owner, size: int, now: float) -> list[Owner]:
        """Note that the owner was used and holds so much; return those that must be released."""
        size_before, _ = self._kept.pop(owner, NOTHING)
        self._kept[owner] = size, now
        self.total += size - size_before
        return self._evicted() if self.total > self.limit else []

    def forget(self, owner: Owner) -> None:
        """Forget the owner, which holds nothing any more."""
        size, _ = self._kept.pop(owner, NOTHING)
        self.total -= size

    def idle(self, since: float) -> list[Owner]:
        """The owners that have not been used since that time."""
        return [owner for owner, (_, used_at) in self._kept.items() if used_at < since]

    def _evicted(self) -> list[Owner]:
        given: list[Owner] = []
        while self.total > self.limit:
            owner = next(iter(self._kept))
            self.forget(owner)
            given.append(owner)
        return given

    def __repr__(self) -> str:
        return f"<Budget {self.total} of {self.limit} bytes, {len(self._kept)} owners>"


IDLE_SECONDS = 60.0
MIB = 1024 * 1024


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
        self._budget: Budget[CacheEntry] = Budget(mebibytes * MIB)
        self._clock = clock

    def __contains__(self, entry: CacheEntry) -> bool:
        return entry in self._budget

    @property
    def size(self) -> int:
        return self._budget.total

    def use(self, entry: CacheEntry) -> None:
        """The entry was used or has grown; release others, or itself, if the limit is passed."""
        for other in self._budget.use(entry, entry.size, self._clock()):
            other.release()

    def forget(self, entry: CacheEntry) -> None:
        """Forget an entry that does not exist any more."""
        self._budget.forget(entry)

    def release_idle(self) -> None:
        for entry in self._budget.idle(self._clock() - IDLE_SECONDS):
            if not entry.stays_when_idle:
                self._budget.forget(entry)
                entry.release()


# --- of one channel ------------------------------------------------------------------------------

TAIL_BYTES = 16 * 1024 * 1024  # some 4 MiB of payload and its frames


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
