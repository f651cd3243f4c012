"""A reader that writes shared bytes to its transport."""

import asyncio
import os

from rsnotify.channels.frames import WireFormat
from rsnotify.channels.reader import NOWHERE, Reader
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.http.input_turns import BoundedInput
from rsnotify.http.sockets import unread_bytes

CLOSE_SECONDS = 5.0  # how long the other side may take to read the end, or to answer it
FLOOD_CLOSE_SECONDS = 0.5  # …if it sends so much that it is not read any more


class TransportReader(Reader, BoundedInput):
    """Writes shared bytes to its transport, and notifies its channel when the socket is full."""

    __slots__ = ("_closing", "transport", "turns")

    def __init__(
        self, wire_format: WireFormat, transport: asyncio.Transport, reader_input: ReaderInput
    ) -> None:
        super().__init__(wire_format)
        self.transport = transport
        self.turns: ReaderInput = reader_input
        self.descriptor = _descriptor_of(transport)
        self._closing: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "paused" if self.is_paused else "writable"
        return f"<{type(self).__name__} {state} in {self.channel}>"

    def take_over(self) -> None:
        """From here on the transport speaks to this reader."""
        self.transport.pause_reading()  # uvloop asks how much to read where reading begins
        self.transport.set_protocol(self)
        self.transport.resume_reading()
        self.transport.set_write_buffer_limits(high=0)  # it says so if it holds anything
        self.is_paused = self.transport.get_write_buffer_size() > 0

    # --- called by the channel -------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._closing is None and not self.transport.is_closing()

    def write(self, data: bytes, /) -> None:
        """Write it, or have it written as soon as there is room."""
        written = 0
        if not self.is_paused:
            try:
                written = os.write(self.descriptor, data)
            except OSError:  # no room, or an error that the transport will have, too
                written = 0
        if written != len(data):
            self.transport.write(memoryview(data)[written:])

    def backlog(self) -> int:
        return unread_bytes(self.transport)

    def end_within(self, seconds: float) -> None:
        """Leave the channel; cut the connection if it has not ended by then."""
        self.leave_channel()
        if self._closing is not None:
            self._closing.cancel()
        self._closing = asyncio.get_running_loop().call_later(seconds, self.transport.abort)

    def end_flood(self, transport: str) -> None:
        """Close the connection of a peer that sends too much, and read nothing more of it."""
        self.turns.leave(self)
        self.transport.pause_reading()
        self.turns.received.report_flood(transport, self.transport)
        self.end_within(FLOOD_CLOSE_SECONDS)

    def write_delayed(self) -> None:
        """Write what could not be written while the socket was full; it may be full again then."""

    # --- called by the transport -----------------------------------------------------------------

    def pause_writing(self) -> None:
        self.is_paused = True
        if self.channel is not None:
            self.channel.pause(self)

    def resume_writing(self) -> None:
        self.is_paused = False
        self.deadline = None  # a peer that reads is alive
        self.write_delayed()
        if self.channel is not None and not self.is_paused:
            self.channel.resume(self)

    def eof_received(self) -> bool:
        """The peer has gone; what it has not read by then is dropped."""
        if self._closing is None:
            self.end_within(CLOSE_SECONDS)
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.leave_channel()
        self.turns.leave(self)
        self.turns.forget(self)
        if self._closing is not None:
            self._closing.cancel()
        self.descriptor = NOWHERE


def _descriptor_of(transport: asyncio.Transport) -> int:
    """Where a frame can be written as it is: nowhere if the transport encrypts."""
    if transport.get_extra_info("sslcontext") is not None:
        return NOWHERE
    descriptor: int = transport.get_extra_info("socket").fileno()
    return descriptor
