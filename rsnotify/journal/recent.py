"""Keeps the last few notifications that were read from behind the tail, for the next readers."""

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Notification


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
