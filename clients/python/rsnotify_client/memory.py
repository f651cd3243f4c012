"""A queue in memory: bounded, gone with its process.

Rules that hold here: whoever puts a change waits for room, or is refused, as was chosen; a forked
process begins with an empty queue, for what waits is its parent's to send.
"""

import threading
from collections import deque
from collections.abc import Collection
from itertools import islice
from typing import Literal

from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.batch import Batch, fitting, new_key
from rsnotify_client.fork import tell_of_forks

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
        self._waiting: dict[ChannelName, deque[tuple[int, bytes]]] = {}
        self._taken: dict[ChannelName, Batch] = {}
        self._count = self._last = 0

    def put(self, channel: ChannelName, change: bytes, *, may_wait: bool = True) -> None:
        with self._lock:
            while self._count >= self._size:
                if not may_wait or self._when_full == "raise":
                    raise QueueFull(f"{self._count} changes wait for the hub: no more are taken")
                self._room.wait()
            self._last += 1
            self._count += 1
            if (queue := self._waiting.get(channel)) is None:
                queue = self._waiting[channel] = deque()
            queue.append((self._last, change))

    @property
    def taken(self) -> int:
        return self._last

    def may_wait(self) -> bool:
        """Whether a change that is put now may have to wait."""
        return self._count >= self._size

    def lead(self) -> bool:
        return True

    def rest(self) -> None:
        pass

    def take(self, postponed: Collection[ChannelName], at_most: int) -> Batch | None:
        with self._lock:
            ready = [channel for channel in self._waiting if channel not in postponed]
            if not ready:
                return None
            channel = min(ready, key=self._oldest)
            return self._taken.get(channel) or self._take(channel, at_most)

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
            self._count -= len(ids)
            self._room.notify(len(ids))
            return len(ids)

    def ends(self) -> tuple[int, int] | None:
        with self._lock:
            return (min(map(self._oldest, self._waiting)), self._last) if self._waiting else None

    def waiting(self) -> int:
        return self._count

    def close(self) -> None:
        pass

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._begin()
        else:
            self._lock.release()
