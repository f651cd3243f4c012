"""What a channel and its readers, which are connections of Destinations, know of each other."""

from abc import ABC, abstractmethod
from typing import Protocol

from rsnotify.channels.frames import WireFormat
from rsnotify.resourcesync.change import Position

NOWHERE = -1  # a descriptor to which nothing can be written


class Reader(ABC):
    """A Destination's connection, as its channel sees it."""

    __slots__ = (
        "channel",
        "counted_for",
        "cursor",
        "deadline",
        "descriptor",
        "is_paused",
        "pushed_at_ping",
        "slot",
        "wire_format",
    )

    def __init__(self, wire_format: WireFormat) -> None:
        self.wire_format = wire_format
        self.channel: ReaderChannel | None = None
        self.counted_for: str | None = None  # the address, for the limits; None if not counted
        self.cursor = Position(0)  # not used while the reader is at the head
        self.descriptor = NOWHERE  # of its socket, if bytes can be written to it as they are
        self.is_paused = False
        self.deadline: float | None = None  # for the pong
        self.pushed_at_ping = -1  # the channel's `pushed` at the last ping
        self.slot = 0  # of the keep-alive's timer wheel

    @property
    @abstractmethod
    def is_open(self) -> bool: ...

    @abstractmethod
    def write(self, data: bytes, /) -> None: ...

    @abstractmethod
    def ping(self) -> bool:
        """Ping the peer; false if no pong can be expected."""

    @abstractmethod
    def backlog(self) -> int:
        """How many bytes the peer has not read yet."""

    @abstractmethod
    def close(self, code: int, reason: str) -> None: ...

    def leave_channel(self) -> None:
        """Leave the channel, if it has not left it yet."""
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.leave(self)


class ReaderChannel(Protocol):
    """The channel of a reader, as the reader sees it."""

    pushed: int  # how many notifications so far

    def pause(self, reader: Reader) -> None: ...
    def resume(self, reader: Reader) -> None: ...
    def leave(self, reader: Reader) -> None: ...
