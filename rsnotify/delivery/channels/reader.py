"""The interfaces between a channel and its readers, which are connections of Destinations."""

from typing import Protocol

from rsnotify.delivery.channels.frames import WireFormat
from rsnotify.resourcesync.change import Position


class Reader(Protocol):
    """A Destination's connection, as its channel sees it."""

    channel: "ReaderChannel | None"
    counted_for: str | None  # the address, for the limits; None if it is not counted
    cursor: Position  # not used while the reader is at the head
    is_paused: bool
    deadline: float | None  # for the pong
    pushed_at_ping: int  # the channel's `pushed` at the last ping
    slot: int  # of the keep-alive's timer wheel

    @property
    def wire_format(self) -> WireFormat: ...

    @property
    def is_open(self) -> bool: ...

    def write(self, data: bytes, /) -> None: ...

    def ping(self) -> bool:
        """Ping the peer; false if no pong can be expected."""
        ...

    def backlog(self) -> int:
        """How many bytes the peer has not read yet."""
        ...

    def close(self, code: int, reason: str) -> None: ...


class ReaderChannel(Protocol):
    """The channel of a reader, as the reader sees it."""

    pushed: int  # how many notifications so far

    def pause(self, reader: Reader) -> None: ...
    def resume(self, reader: Reader) -> None: ...
    def leave(self, reader: Reader) -> None: ...
