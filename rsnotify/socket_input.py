"""What peers send: read a little at a time, and counted.

An event loop reads as much as it can from a socket that always has more: uvloop up to 8 MiB before
it serves anybody else. So whoever reads a peer says how much at a time; the rest stays in the
kernel, which stops the peer.
"""

import asyncio
from abc import abstractmethod

READ_BYTES = 64 * 1024  # at a time, at most

HTTP, WEBSOCKET, EVENT_STREAM = "http", "websocket", "event stream"

_buffer = memoryview(bytearray(READ_BYTES))  # for all: what was read is copied before the next read


class ReceivedCounts:
    """How much this process has read of its peers, by the kind of connection."""

    def __init__(self) -> None:
        self.bytes = dict.fromkeys((HTTP, WEBSOCKET, EVENT_STREAM), 0)
        self.frames = 0
        self.floods = dict.fromkeys((HTTP, WEBSOCKET, EVENT_STREAM), 0)
        """Connections that were closed because their peers sent too much."""


class BoundedInput(asyncio.BufferedProtocol):
    """A protocol that gets so many bytes at once, and no more."""

    __slots__ = ()

    def read_size(self) -> int:
        """How much to read now."""
        return READ_BYTES

    @abstractmethod
    def data_received(self, data: bytes) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return _buffer[: self.read_size()]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_buffer[:nbytes]))


def peer_address(transport: asyncio.BaseTransport) -> str:
    """The address of whoever is connected, as it stands in the log."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else "a local peer"
