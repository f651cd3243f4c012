"""A queue in memory: bounded, gone with its process.

Rules that hold here: whoever puts a change waits for room, or is refused, as was chosen; a forked
process begins with an empty queue, for what waits is its parent's to send. What can be done by the
one who sends is not done by those who put, for each step takes them time.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection
from itertools import islice
from typing import Literal

from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.batch import Batch, fitting, new_key
from rsnotify_client.fork import tell_of_forks
from rsnotify_client.given_up import GIVE_UP_SECONDS

MARGIN = 256
"""So near its size the queue is counted under the lock; never do as many threads put at once."""

WhenFull = Literal["wait", "raise"]


class QueueFull(Exception):
    """The change was not taken: as many as may be are waiting for the hub."""


class MemoryQueue:
    """Changes of any number of channels, each in its order."""

    lasts = False

    def __init__(self, size: int, when_full: WhenFull) -> None:
        self._size = size
        self._when_full = when_full
        self._begin()
        tell_of_forks(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._arrived: deque[tuple[ChannelName, bytes]] = deque()
        self._waiting: dict[ChannelName, deque[tuple[int, bytes]]] = {}
        self._taken: dict[ChannelName, Batch] = {}
        self._in_line = self._last = 0

    def put(
        self, channel: ChannelName, change: bytes, cannot_wait: Callable[[], bool] = lambda: False
    ) -> None:
        """Only where it is full, `cannot_wait` is asked, and again while somebody waits."""
        if self._in_line + len(self._arrived) < self._size - MARGIN:
            self._arrived.append((channel, change))
            return
        with self._lock:
            while self.waiting() >= self._size:
                if self._when_full == "raise" or cannot_wait():
                    raise self._full()
                self._room.wait(GIVE_UP_SECONDS)
                if cannot_wait():  # though there may be room now
                    raise self._full()
            self._arrived.append((channel, change))

    def _full(self) -> QueueFull:
        return QueueFull(f"{self.waiting()} changes wait for the hub: no more are taken")

    @property
    def taken(self) -> int:
        with self._lock:
            return self._last + len(self._arrived)

    def may_wait(self) -> bool:
        """Whether a change that is put now may have to wait."""
        return self.waiting() >= self._size

    def lead(self) -> bool:
        return True

    def rest(self) -> None:
        pass

    def take(self, postponed: Collection[ChannelName], at_most: int) -> Batch | None:
        with self._lock:
            self._line_up()
            ready = [channel for channel in self._waiting if channel not in postponed]
            if not ready:
                return None
            channel = min(ready, key=self._oldest)
            return self._taken.get(channel) or self._take(channel, at_most)

    def _line_up(self) -> None:
        """What has arrived gets its number and its place among the changes of its channel."""
        while self._arrived:
            channel, change = self._arrived.popleft()
            self._last += 1
            self._in_line += 1
            self._waiting.setdefault(channel, deque()).append((self._last, change))

    def _oldest(self, channel: ChannelName) -> int:
        return self._waiting[channel][0][0]

    def _take(self, channel: ChannelName, at_most: int) -> Batch:
        head = list(islice(self._waiting[channel], at_most))
        head = head[: fitting([len(change) for _, change in head])]
        ids, changes = zip(*head, strict=True)
        self._taken[channel] = batch = Batch(channel, new_key(), ids, changes)
        return batch

    def remove(self, batch: Batch, ids: Collection[int]) -> int:
        with self._lock:
            if self._taken.get(batch.channel) is not batch:
                return 0  # another sender was quicker
            waiting = self._waiting[batch.channel]
            head = [waiting.popleft() for _ in batch.ids]
            waiting.extendleft(reversed([row for row in head if row[0] not in ids]))
            if not waiting:
                del self._waiting[batch.channel]
            del self._taken[batch.channel]
            self._in_line -= len(ids)
            self._room.notify(len(ids))
            return len(ids)

    def ends(self) -> tuple[int, int] | None:
        with self._lock:
            self._line_up()
            return (min(map(self._oldest, self._waiting)), self._last) if self._waiting else None

    def waiting(self) -> int:
        with self._lock:
            return self._in_line + len(self._arrived)

    def close(self) -> None:
        pass

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._begin()
        else:
            self._lock.release()


class DiscardingQueue(MemoryQueue):
    """Keeps nothing: for a publisher that is switched off."""

    def __init__(self) -> None:
        super().__init__(1, "raise")

    def put(
        self, channel: ChannelName, change: bytes, cannot_wait: Callable[[], bool] = lambda: False
    ) -> None:
        """Keep nothing."""
