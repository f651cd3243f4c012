"""What waits to be published: changes in batches, and what a store of them can do.

Rules that hold here: a batch is fixed, with its key, before it is tried for the first time, and
stays so until the hub has answered it; the changes of one channel keep their order.
"""

import os
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import ChannelName, Kind
from rsnotify.resourcesync.set_name import wrong_name

BATCH_CHANGES = 1_000
BATCH_BYTES = 1024 * 1024
"""Of a body, unless one change is longer: what a common proxy lets through by itself."""

_encode: Callable[[Change], bytes] = msgspec.json.Encoder().encode


class Batch(NamedTuple):
    """Changes of one channel that go to the hub together, under one key."""

    channel: ChannelName
    key: str
    ids: Sequence[int]
    changes: Sequence[bytes]

    @property
    def body(self) -> bytes:
        return b"[" + b",".join(self.changes) + b"]"


class ChangeStore(Protocol):
    """A place where changes wait, in the order in which they came."""

    lasts: bool
    """Whether what waits is still there after the process has ended."""

    def lead(self) -> bool:
        """Try to be the only one who sends; no is no harm, only double work."""

    def rest(self) -> None:
        """Let another one send."""

    def take(self, postponed: Collection[ChannelName], at_most: int) -> Batch | None:
        """The next batch, the same one again until it is removed."""

    def remove(self, batch: Batch, ids: Collection[int]) -> int:
        """Remove these changes, and loosen the others of the batch; how many were still there."""

    def ends(self) -> tuple[int, int] | None:
        """The ids of the oldest change that waits and of the newest; None if none waits."""

    def waiting(self) -> int:
        """How many changes wait."""

    def close(self) -> None:
        """Let go of what is open."""


class OutboxError(Exception):
    """The outbox cannot take or give changes; what was asked of it has not happened."""


def check_name(set_name: str) -> None:
    """Refuse a name that no set can have."""
    if (wrong := wrong_name(set_name)) is not None:
        raise ValueError(wrong)


@lru_cache(maxsize=1_000)  # to make one takes longer than to find it
def channel_of(set_name: str, kind: Kind = "change") -> ChannelName:
    """The channel for a set's changes; a name that no set can have is refused."""
    check_name(set_name)
    return ChannelName(set_name, kind)


def encode(change: Change) -> bytes:
    """The change as the hub reads it."""
    if not isinstance(change.loc, str):
        raise ValueError(f"the change's loc is {change.loc!r}: it must be the resource's address")
    return _encode(change)


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
