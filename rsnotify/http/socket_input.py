"""What peers send, and what they have not read yet: both are bounded.

An event loop reads as much as it can from a socket that always has more: uvloop up to 8 MiB before
it serves anybody else. So in a turn of the loop only so much is read of all peers together. A peer
that has more to say waits in line; what it says stays in the kernel, which stops the peer.

What a peer sends is read a little at a time, in turn, and counted. A writer waits for a peer that
reads, however slowly, but not for one that reads nothing.
"""

import asyncio
import fcntl
import logging
import struct
import termios
from abc import abstractmethod
from itertools import islice

from rsnotify.http.deadlines import Deadlines


def unread_bytes(transport: asyncio.Transport) -> int:
    """What the transport still holds, and what the kernel does."""
    return transport.get_write_buffer_size() + _unacknowledged(transport)


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Zero where the kernel does not tell."""
    socket = transport.get_extra_info("socket")
    try:
        held: tuple[int] = struct.unpack(
            "i", fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        )
    except OSError:
        return 0
    return held[0]


class UnreadOutput:
    """The output side of one connection."""

    def __init__(
        self, transport: asyncio.Transport, deadlines: Deadlines, timeout_seconds: float
    ) -> None:
        self._transport = transport
        self._deadlines = deadlines
        self._timeout_seconds = timeout_seconds
        self.is_full = False  # the transport has asked us to wait
        self._read: asyncio.Future[None] | None = None  # until there is room
        self._unread = 0

    async def wait(self) -> None:
        """Until there is room."""
        if self._read is not None:
            await self._read

    def pause(self) -> None:
        self.is_full = True
        self._read = asyncio.get_running_loop().create_future()
        self.start_deadline()

    def resume(self) -> None:
        self.clear_deadline()
        self.release()

    def release(self) -> None:
        """Let the writer go on, even if the peer has gone."""
        self.is_full = False
        read, self._read = self._read, None
        if read is not None and not read.done():
            read.set_result(None)

    def start_deadline(self) -> None:
        """By then the peer must have read something."""
        self._unread = unread_bytes(self._transport)
        self._deadlines.set(self._on_deadline, self._timeout_seconds)

    def clear_deadline(self) -> None:
        self._deadlines.clear(self._on_deadline)

    def _on_deadline(self) -> None:
        if unread_bytes(self._transport) < self._unread:
            self.start_deadline()
        else:
            self._transport.abort()


BUFFER_BYTES = 64 * 1024
RESUMED = 16  # connections from the line, in a turn

HTTP, WEBSOCKET, EVENT_STREAM = "http", "websocket", "event stream"

HAND_OVER = "rsnotify.http.hand_over"
"""A message to our server, within a response: the rest is written by what `take(transport,
is_chunked=…)` makes. The exchange ends here, and nothing of it is kept."""

log = logging.getLogger(__name__)

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


class InputTurns:
    """How much is read of each connection in this turn of the event loop."""

    def __init__(self, *, turn_bytes: int, least_bytes: int) -> None:
        self._turn_bytes = turn_bytes  # of all together, but for what is free
        self._least_bytes = least_bytes  # of each, and free: most peers never say more
        self._left = turn_bytes
        self._is_turning = False
        self._line: dict[BoundedInput, None] = {}

    @property
    def size(self) -> int:
        """How much to read at once."""
        return max(self._left, self._least_bytes)

    def take(self, connection: "BoundedInput", count: int) -> None:
        """So much was read; if there may be more, the connection waits for its next turn."""
        if count < self._least_bytes:
            return
        if count == self.size:
            self._line[connection] = None
            connection.transport.pause_reading()
        self._left -= count
        self._come_back()

    def _come_back(self) -> None:
        if not self._is_turning:
            self._is_turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turning, self._left = False, self._turn_bytes
        for connection in list(islice(self._line, RESUMED)):
            del self._line[connection]
            connection.turn_came()
        if self._line:
            self._come_back()

    def is_waiting(self, connection: "BoundedInput") -> bool:
        return connection in self._line

    def leave(self, connection: "BoundedInput") -> bool:
        """Wait no more; true if it did. Nothing is read until its reading is resumed."""
        was_waiting = connection in self._line
        self._line.pop(connection, None)
        return was_waiting


class BoundedInput(asyncio.BufferedProtocol):
    """A protocol that is read in turn with others."""

    __slots__ = ()

    transport: asyncio.Transport

    @property
    @abstractmethod
    def turns(self) -> InputTurns: ...

    @abstractmethod
    def data_received(self, data: bytes) -> None: ...

    def unread_output_bytes(self) -> int:
        """What was written and the peer has not read yet."""
        return unread_bytes(self.transport)

    def turn_came(self) -> None:
        """Read on."""
        self.transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return _buffer[: self.turns.size]

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(_buffer[:nbytes])
        self.turns.take(self, nbytes)
        self.data_received(data)
