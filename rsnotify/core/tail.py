"""A channel's tail: its newest notifications, kept in memory for all its readers.

Rules that hold here: consecutive notifications of a tail join (`from_` is the `until` before it),
the tail is bounded in bytes, and it is a shortcut: whatever it no longer holds, the journal does.
Nothing here waits, and nothing here knows who reads.
"""

from bisect import bisect_left

from rsnotify.core.change import Position
from rsnotify.core.notification import Notification

TAIL_BYTES = 4 * 1024 * 1024


class Tail:
    """The newest notifications of one channel, oldest first."""

    def __init__(self, head: Position, max_bytes: int = TAIL_BYTES) -> None:
        self.start = head
        self.head = head
        self._max_bytes = max_bytes
        self._bytes = 0
        self._notifications: list[Notification] = []

    def push(self, notification: Notification) -> None:
        if notification.from_ != self.head:
            raise ValueError(f"{notification!r} does not join the tail's head {self.head}")
        self._notifications.append(notification)
        self._bytes += len(notification.payload)
        self.head = notification.until
        if self._bytes > self._max_bytes:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget half: trimming one by one would shift the list at every push."""
        keep = 0
        while self._bytes > self._max_bytes // 2 and keep < len(self._notifications) - 1:
            self._bytes -= len(self._notifications[keep].payload)
            keep += 1
        del self._notifications[:keep]
        self.start = self._notifications[0].from_

    def next_after(self, cursor: Position) -> Notification | None:
        """The notification that begins exactly at the cursor; None where the journal must serve."""
        if not self.start <= cursor < self.head:
            return None
        at = bisect_left(self._notifications, cursor, key=_from)
        found = self._notifications[at] if at < len(self._notifications) else None
        return found if found is not None and found.from_ == cursor else None

    @property
    def newest(self) -> Notification | None:
        return self._notifications[-1] if self._notifications else None

    def run_after(self, cursor: Position, *, changes: int, size: int) -> list[Notification]:
        """What follows the cursor, as many as stay within these limits together."""
        run: list[Notification] = []
        for each in self._notifications[bisect_left(self._notifications, cursor, key=_from) :]:
            changes, size = changes - each.count, size - len(each.payload)
            if run and (changes < 0 or size < 0):
                break
            run.append(each)
        return run

    def boundary_after(self, cursor: Position) -> Position:
        """Where a reader at this cursor can join the tail: the next edge of a notification."""
        if cursor < self.start:
            return self.start
        at = bisect_left(self._notifications, cursor, key=_from)
        return self._notifications[at].from_ if at < len(self._notifications) else self.head

    def __repr__(self) -> str:
        return f"<Tail of {len(self._notifications)} notifications ({self.start}, {self.head}]>"


def _from(notification: Notification) -> Position:
    return notification.from_
