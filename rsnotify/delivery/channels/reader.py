"""What a channel and a Destination's connection know of each other.

Rules that hold here: a reader writes what it is given and says when it can take no more; the
channel decides what it gets. Nothing here does anything.
"""

from typing import Protocol

from rsnotify.delivery.channels.frames import WireFormat
from rsnotify.resourcesync.change import Position


class Reader(Protocol):
    """A Destination's connection, as its channel knows it."""

    channel: "ReaderChannel | None"
    cursor: Position  # counts only while the reader is not at the head
    is_paused: bool
    deadline: float | None  # when an answer to a ping must have come
    pushed_at_ping: int  # what the channel had pushed at the last ping
    slot: int  # of the wheel of pings

    @property
    def wire_format(self) -> WireFormat: ...

    @property
    def is_open(self) -> bool: ...

    def write(self, data: bytes, /) -> None: ...

    def ping(self) -> bool:
        """Ask the peer whether it lives; false where no answer is to be expected."""
        ...

    def backlog(self) -> int:
        """A number that falls as long as the peer reads."""
        ...

    def close(self, code: int, reason: str) -> None: ...


class ReaderChannel(Protocol):
    """A reader's channel, as the reader knows it."""

    pushed: int

    def pause(self, reader: Reader) -> None: ...
    def resume(self, reader: Reader) -> None: ...
    def leave(self, reader: Reader) -> None: ...
