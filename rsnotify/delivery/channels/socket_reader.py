"""An open WebSocket of a Destination, with as little memory as possible while it is idle.

A reader has no task and no timer of its own. Its `ReaderProtocol` exists only once the peer has
sent something other than a single ping or pong.

It writes to its socket itself, and its transport only gets what the kernel did not take. That keeps
the order, because the transport says so at once when it holds anything (its limit is 0 bytes), and
it leaves the socket open until `connection_lost`.
"""

import asyncio
import os

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN

from rsnotify.core.forms import XML, Form
from rsnotify.delivery.channels.frames import WIRE_FORMATS, WireFormat, close_reason
from rsnotify.delivery.channels.protocol import ReaderProtocol, one_ping_or_pong, pong
from rsnotify.delivery.channels.reader import Reader
from rsnotify.socket_backlog import unread_bytes

CLOSE_SECONDS = 5.0  # how long the other side may take to answer a close
CLOSED = -1  # a descriptor to which nothing can be written


class SocketReader(Reader, asyncio.Protocol):
    """Writes shared frames to its transport, and tells its channel when the socket is full."""

    __slots__ = (
        "_closing",
        "_descriptor",
        "_is_deflated",
        "_pending_pong",
        "_transport",
        "parser",
    )

    def __init__(self, transport: asyncio.Transport, *, is_deflated: bool) -> None:
        self._is_deflated = is_deflated
        super().__init__(self._format_of(XML))
        self._transport = transport
        self._descriptor = _descriptor_of(transport)
        self.parser: ReaderProtocol | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._pending_pong = b""  # to the newest ping, while the socket is full

    def __repr__(self) -> str:
        return f"<Reader {'paused' if self.is_paused else 'writable'} in {self.channel}>"

    # --- called by the channel -------------------------------------------------------------------

    def write_in(self, form: Form) -> None:
        self.wire_format = self._format_of(form)

    def _format_of(self, form: Form) -> WireFormat:
        formats = WIRE_FORMATS[form]
        return formats.deflated if self._is_deflated else formats.text

    @property
    def is_open(self) -> bool:
        return self._closing is None and not self._transport.is_closing()

    def write(self, data: bytes, /) -> None:
        """Write it, or have it written as soon as there is room."""
        written = 0
        if not self.is_paused:
            try:
                written = os.write(self._descriptor, data)
            except OSError:  # no room, or an error that the transport will have, too
                written = 0
        if written != len(data):
            self._transport.write(memoryview(data)[written:])

    def ping(self) -> bool:
        self.write(self.wire_format.idle)
        return True

    def backlog(self) -> int:
        return unread_bytes(self._transport)

    def close(self, code: int, reason: str) -> None:
        """Send a close frame, and wait a few seconds for the peer's."""
        if self.is_open:
            protocol = self.parser = self.parser or ReaderProtocol(is_deflated=self._is_deflated)
            protocol.send_close(code, close_reason(reason))
            self._act_on(protocol)

    # --- called by the transport -----------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.parser is None:
            frame = one_ping_or_pong(data)
            if frame is not None:
                self._receive_control(frame)
                return
            self.parser = ReaderProtocol(is_deflated=self._is_deflated)
        self.parser.receive_data(data)
        self._act_on(self.parser)

    def pause_writing(self) -> None:
        self.is_paused = True
        if self.channel is not None:
            self.channel.pause(self)

    def resume_writing(self) -> None:
        self.is_paused = False
        self.deadline = None  # a peer that reads is alive
        self._send_pending_pong()
        if self.channel is not None:
            self.channel.resume(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.leave_channel()
        if self._closing is not None:
            self._closing.cancel()
        self.parser = None
        self._descriptor = CLOSED

    # --- reactions -------------------------------------------------------------------------------

    def _receive_control(self, frame: Frame) -> None:
        """A ping or a pong that came alone: most of what readers ever send."""
        if frame.opcode is Opcode.PONG:
            self.deadline = None
        elif self.is_paused:
            self._pending_pong = pong(frame)
        else:
            self.write(pong(frame))

    def _act_on(self, protocol: ReaderProtocol) -> None:
        for frame in protocol.events_received():
            if isinstance(frame, Frame) and frame.opcode is Opcode.PONG:
                self.deadline = None
        for data in protocol.data_to_send():
            if self.is_paused and protocol.state is OPEN:
                self._pending_pong = data
            else:
                self._write_or_end(data)
        if protocol.state is not OPEN and self._closing is None:
            self.leave_channel()
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(CLOSE_SECONDS, self._transport.abort)

    def _write_or_end(self, data: bytes) -> None:
        if data:
            self.write(data)
        else:
            self._half_close()

    def _send_pending_pong(self) -> None:
        """Answer only the newest of several pings (RFC 6455, 5.5.3), so that no buffer grows."""
        owed, self._pending_pong = self._pending_pong, b""
        if owed and self.is_open:
            self.write(owed)

    def _half_close(self) -> None:
        """Close our side only: a full close while the peer sends could lose our close frame."""
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()


def _descriptor_of(transport: asyncio.Transport) -> int:
    """Where a frame can be written as it is: nowhere if the transport encrypts."""
    if transport.get_extra_info("sslcontext") is not None:
        return CLOSED
    descriptor: int = transport.get_extra_info("socket").fileno()
    return descriptor
