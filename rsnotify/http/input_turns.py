"""The bytes that peers send: how much is read of each in a turn of the event loop.

An event loop reads as much as it can from a socket that always has more: uvloop up to 8 MiB before
it serves anybody else. So in a turn of the loop only so much is read of all peers together. A peer
that has more to say waits in line; what it says stays in the kernel, which stops the peer.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from itertools import islice

log = logging.getLogger(__name__)

BUFFER_BYTES = 64 * 1024
RESUMED = 16  # connections from the line, in a turn

HTTP, WEBSOCKET, EVENT_STREAM = "http", "websocket", "event stream"

_buffer = memoryview(bytearray(BUFFER_BYTES))  # for all: what was read is copied at once


class ReceivedCounts:
    """How much this process has read of its peers, by the kind of connection."""

    def __init__(self) -> None:
        self.bytes = dict.fromkeys((HTTP, WEBSOCKET, EVENT_STREAM), 0)
        self.frames = 0
        self.floods = dict.fromkeys((HTTP, WEBSOCKET, EVENT_STREAM), 0)
        """Connections that were closed because their peers sent too much."""

    def report_flood(self, transport: str, connection: asyncio.BaseTransport) -> None:
        """This connection is closed because of that."""
        self.floods[transport] += 1
        peer = connection.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else "a local peer"
        log.warning("closing a connection (%s) of %s: it sends too much", transport, address)


class ByTurns(ABC):
    """Does something once in a turn of the event loop, as long as it is asked to."""

    _is_asked = False

    def _come_back(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_asked = False
        self._turn()

    @abstractmethod
    def _turn(self) -> None: ...


class InputTurns(ByTurns):
    """How much is read of each connection in this turn of the event loop."""

    def __init__(self, *, turn_bytes: int, least_bytes: int) -> None:
        self._turn_bytes = turn_bytes  # of all together, but for what is free
        self._least_bytes = least_bytes  # of each, and free: most peers never say more
        self._left = turn_bytes
        self._line: dict[BoundedInput, None] = {}
        self.get_buffer = lambda _: _buffer[: max(self._left, self._least_bytes)]

    def take(self, connection: "BoundedInput", count: int) -> None:
        """Count what was read; if there may be more, the connection waits for its next turn."""
        if count < self._least_bytes:
            return
        if count >= self._left:
            self._line[connection] = None
            connection.transport.pause_reading()
        self._left -= count
        self._come_back()

    def _turn(self) -> None:
        self._left = self._turn_bytes
        for connection in list(islice(self._line, RESUMED)):
            del self._line[connection]
            connection.turn_came()
        if self._line:
            self._come_back()

    def is_waiting(self, connection: "BoundedInput") -> bool:
        return connection in self._line

    def leave(self, connection: "BoundedInput") -> bool:
        """Wait no longer; true if it waited. Nothing is read until reading is resumed."""
        was_waiting = connection in self._line
        self._line.pop(connection, None)
        return was_waiting


class BoundedInput(asyncio.BufferedProtocol):
    """A protocol that is read in turn with others.

    uvloop keeps, for each connection, the bound methods that it finds: 64 bytes each. So what it
    calls are the turns and the protocol itself, and there is no `data_received`.
    """

    __slots__ = ()

    transport: asyncio.Transport
    turns: InputTurns

    @abstractmethod
    def receive_data(self, data: bytes) -> None: ...

    def turn_came(self) -> None:
        """Read on."""
        self.transport.resume_reading()

    get_buffer = property(lambda self: self.turns.get_buffer)
    buffer_updated = property(lambda self: self)

    def __call__(self, nbytes: int) -> None:
        data = bytes(_buffer[:nbytes])
        self.turns.take(self, nbytes)
        self.receive_data(data)
