"""Changes that wait to be published: in batches, kept by a store; and the store in memory.

Rules that hold here: a batch is fixed, with its key, before it is tried for the first time, and
stays so until the hub has answered it; the changes of one channel keep their order. In memory, a
caller waits for room, or is refused, as the publisher's options say; a forked process begins with
an empty queue, because its parent sends what waits. A call of `put` does no work that the sender
can do.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from rsnotify.errors import Error, shown
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import ChannelName, Kind, wrong_name
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.threads import GIVE_UP_SECONDS, notify_of_forks

BATCH_CHANGES = 1_000
BATCH_BYTES = 1024 * 1024
"""Of a body, unless one change is longer: what a common proxy lets through by itself."""

_encode: Callable[[Change], bytes] = msgspec.json.Encoder().encode

MARGIN = 256
"""So close to its limit the queue is counted under the lock; fewer threads put at once."""


class Batch(NamedTuple):
    """Changes of one channel that go to the hub together, under one key."""

    channel: ChannelName
    key: str
    ids: Sequence[int]
    changes: Sequence[bytes]

    @property
    def body(self) -> bytes:
        return b"[" + b",".join(self.changes) + b"]"


class Refusal(NamedTuple):
    """Why the hub does not take changes of a batch, and the last of them."""

    reason: str
    last: bytes


class ChangeStore(Protocol):
    """A place where changes wait, in the order in which they came."""

    lasts: bool
    """Whether waiting changes outlive the process."""

    def lead(self) -> bool:
        """Try to be the only sender; if that fails, no harm is done, only double work."""

    def rest(self) -> None:
        """Let another process send."""

    def take(self, postponed: Collection[ChannelName], at_most: int) -> Batch | None:
        """The next batch, the same one again until it is removed."""

    def remove(self, batch: Batch, ids: Collection[int], refusal: Refusal | None = None) -> int:
        """Remove these changes, and free the others of the batch; return how many were there.

        If they were refused they are counted in the same step, where somebody can look for that.
        """

    def ends(self) -> tuple[int, int] | None:
        """The ids of the oldest change that waits and of the newest; None if none waits."""

    def waiting(self) -> int:
        """How many changes wait."""

    def close(self) -> None:
        """Close what is open."""


class OutboxError(Error):
    """The outbox cannot take or give changes; the call had no effect."""


def check_name(set_name: str) -> None:
    """Refuse a name that no set can have."""
    if not isinstance(set_name, str):
        raise InvalidArgument(f"the set is {set_name!r}: give its name, such as dataset1")
    if (wrong := wrong_name(set_name)) is not None:
        raise InvalidArgument(wrong)


@lru_cache(maxsize=1_000)  # to make one takes longer than to find it
def channel_of(set_name: str, kind: Kind = "change") -> ChannelName:
    """The channel for a set's changes; a name that no set can have is refused."""
    check_name(set_name)
    return ChannelName(set_name, kind)


def encode(change: Change) -> bytes:
    """The change as the hub reads it."""
    if not isinstance(change.loc, str):
        raise InvalidArgument(
            f"the change's loc is {change.loc!r}: it must be the resource's address"
        )
    return encoded(_encode, change)


def encoded(encode: Callable[[Any], bytes], what: Any) -> bytes:
    """What is sent, as JSON; what cannot be in JSON was given wrong."""
    try:
        return encode(what)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"{shown(repr(what))} cannot be sent: {error}") from None


def checked_key(key: str | None) -> str:
    """The key that a caller chose, or a new one; refused if no header can carry it."""
    if key is not None and (not key.isprintable() or not key.isascii()):
        raise InvalidArgument(f"the key is {key!r}: give printable ASCII")
    return key or new_key()


def new_key() -> str:
    return os.urandom(16).hex()


def fitting(sizes: Sequence[int]) -> int:
    """How many changes of these sizes, in bytes, fit in one batch; the first always does.

    >>> fitting([10, BATCH_BYTES - 20, 10])
    2
    """
    room = BATCH_BYTES - 1  # the brackets are one more than the last comma
    for number, size in enumerate(sizes):
        room -= size + 1  # and a comma
        if room < 0 and number > 0:
            return number
    return len(sizes)


WhenFull = Literal["wait", "raise"]


class QueueFull(Error):
    """The change was not taken: the queue has as many as it may hold."""


class MemoryQueue:
    """Changes of any number of channels, each in its order."""

    lasts = False

    def __init__(self, size: int, when_full: WhenFull) -> None:
        self._size = size
        self._when_full = when_full
        self._begin()
        notify_of_forks(self)

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
        """Take a change; if the queue is full, ask `cannot_wait`, and again while waiting."""
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
        """Give each arrived change its number and its place in its channel."""
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

    def remove(
        self,
        batch: Batch,
        ids: Collection[int],
        refusal: Refusal | None = None,  # noqa: ARG002 # the sender counts: nobody else can look
    ) -> int:
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
