"""An open WebSocket of a Destination.

Its `ReaderProtocol` exists only once the peer has sent something other than a single ping or pong.
"""

import asyncio
from collections.abc import Sequence

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN, Event

from rsnotify.channels.frames import WIRE_FORMATS, WireFormat, close_reason
from rsnotify.channels.reader import CLOSE_SECONDS, ReaderInput, TransportReader
from rsnotify.channels.websockets_protocol import ReaderProtocol, one_ping_or_pong, pong
from rsnotify.http.socket_input import WEBSOCKET
from rsnotify.resourcesync.forms import XML, Form

PARSED_BYTES = 600  # before its frames are counted: a hundred of the shortest
TOO_MUCH = "readers may not send so much"


class SocketReader(TransportReader):
    """Speaks RFC 6455 with its peer."""

    __slots__ = ("_is_deflated", "_pending_pong", "parser")

    def __init__(
        self,
        transport: asyncio.Transport,
        reader_input: ReaderInput,
        *,
        is_deflated: bool,
    ) -> None:
        self._is_deflated = is_deflated
        super().__init__(self._format_of(XML), transport, reader_input)
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
            protocol = self._parsing()
            protocol.send_close(code, close_reason(reason))
            self._act_on(protocol)

    def _parsing(self) -> ReaderProtocol:
        self.parser = self.parser or ReaderProtocol(is_deflated=self._is_deflated)
        return self.parser

    # --- called by the transport -----------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._input.takes_bytes(self, len(data)):
            self._end_flood()
            return
        frame = one_ping_or_pong(data) if self.parser is None else None
        if frame is None:
            self._parse(data)
        elif self._input.takes_frames(self, 1):
            self._receive_control(frame)
        else:
            self._end_flood()

    def _parse(self, data: bytes) -> None:
        protocol = self._parsing()
        for start in range(0, len(data), PARSED_BYTES):
            protocol.receive_data(data[start : start + PARSED_BYTES])
            frames = protocol.events_received()
            if not self._input.takes_frames(self, len(frames)):
                self._end_flood()
                return
            self._react_to(frames)
            self._act_on(protocol)

    def _end_flood(self) -> None:
        protocol = self._parsing()
        protocol.fail(1008, TOO_MUCH)  # the end of our side, too: we wait for no answer
        self._act_on(protocol)
        self.end_flood(WEBSOCKET)

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

    def _react_to(self, frames: Sequence[Event]) -> None:
        if any(isinstance(frame, Frame) and frame.opcode is Opcode.PONG for frame in frames):
            self.deadline = None

    def _act_on(self, protocol: ReaderProtocol) -> None:
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
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
