"""An open WebSocket of a Destination.

Its `ReaderProtocol` exists only once the peer has sent something other than a single ping or pong.
"""

import asyncio

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN

from rsnotify.core.forms import XML, Form
from rsnotify.delivery.channels.frames import WIRE_FORMATS, WireFormat, close_reason
from rsnotify.delivery.channels.protocol import ReaderProtocol, one_ping_or_pong, pong
from rsnotify.delivery.channels.transport_reader import CLOSE_SECONDS, TransportReader


class SocketReader(TransportReader):
    """Speaks RFC 6455 with its peer."""

    __slots__ = ("_is_deflated", "_pending_pong", "parser")

    def __init__(self, transport: asyncio.Transport, *, is_deflated: bool) -> None:
        self._is_deflated = is_deflated
        super().__init__(self._format_of(XML), transport)
        self.parser: ReaderProtocol | None = None
        self._pending_pong = b""  # to the newest ping, while the socket is full

    # --- called by the channel -------------------------------------------------------------------

    def write_in(self, form: Form) -> None:
        self.wire_format = self._format_of(form)

    def _format_of(self, form: Form) -> WireFormat:
        formats = WIRE_FORMATS[form]
        return formats.deflated if self._is_deflated else formats.text

    def ping(self) -> bool:
        self.write(self.wire_format.idle)
        return True

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

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.parser = None

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
            self.end_within(CLOSE_SECONDS)

    def _write_or_end(self, data: bytes) -> None:
        if data:
            self.write(data)
        else:
            self._half_close()

    def write_delayed(self) -> None:
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
