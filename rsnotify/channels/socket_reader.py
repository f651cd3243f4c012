"""An open WebSocket: it speaks RFC 6455 with its peer.

Its `ReaderProtocol` exists only once the peer has sent something other than a single ping or pong.
"""

import asyncio

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN

from rsnotify.channels.frames import DEFLATED, TEXT, WIRE_FORMATS, close_reason
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.received_frames import ReaderProtocol, one_ping_or_pong, pong
from rsnotify.channels.transport_reader import CLOSE_SECONDS, TransportReader
from rsnotify.errors import CloseCode
from rsnotify.http.input_turns import WEBSOCKET
from rsnotify.resourcesync.forms import JSON, Form

PARSED_BYTES = 600  # before its frames are counted: a hundred of the shortest
TOO_MUCH = "readers may not send so much"


class SocketReader(TransportReader):
    """Speaks RFC 6455 with its peer."""

    __slots__ = ("_pending_pong", "parser")

    def __init__(
        self,
        transport: asyncio.Transport,
        reader_input: ReaderInput,
        *,
        is_deflated: bool,
    ) -> None:
        super().__init__(DEFLATED if is_deflated else TEXT, transport, reader_input)
        self.parser: ReaderProtocol | None = None
        self._pending_pong = b""  # to the newest ping, while the socket is full

    # --- called by the channel -------------------------------------------------------------------

    def write_in(self, form: Form) -> None:
        formats = WIRE_FORMATS[form]
        self.wire_format = formats.deflated if self._is_deflated else formats.text

    @property
    def _is_deflated(self) -> bool:
        return self.wire_format in (DEFLATED, WIRE_FORMATS[JSON].deflated)

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

    def receive_data(self, data: bytes) -> None:
        if not self.turns.takes_bytes(self, len(data)):
            self._end_flood()
            return
        frame = one_ping_or_pong(data) if self.parser is None else None
        if frame is None:
            self._parse(data)
        elif self.turns.takes_frames(self, 1):
            self._receive_control(frame)
        else:
            self._end_flood()

    def _parse(self, data: bytes) -> None:
        protocol = self._parsing()
        for start in range(0, len(data), PARSED_BYTES):
            protocol.receive_data(data[start : start + PARSED_BYTES])
            frames = protocol.events_received()
            if not self.turns.takes_frames(self, len(frames)):
                self._end_flood()
                return
            if any(isinstance(each, Frame) and each.opcode is Opcode.PONG for each in frames):
                self.deadline = None
            self._act_on(protocol)

    def _end_flood(self) -> None:
        protocol = self._parsing()
        protocol.fail(
            CloseCode.NOT_ALLOWED, TOO_MUCH
        )  # the end of our side, too: we wait for no answer
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

    def _act_on(self, protocol: ReaderProtocol) -> None:
        for data in protocol.data_to_send():
            if self.is_paused and protocol.state is OPEN:
                self._pending_pong = data
            else:
                self._write_or_end(data)
        if protocol.state is not OPEN and self._closing is None:
            self.end_within(CLOSE_SECONDS)

    def _write_or_end(self, data: bytes) -> None:
        """Close our side only: a full close while the peer sends could lose our close frame."""
        if data:
            self.write(data)
        elif self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def write_delayed(self) -> None:
        """Answer only the newest of several pings (RFC 6455, 5.5.3), so that no buffer grows."""
        owed, self._pending_pong = self._pending_pong, b""
        if owed and self.is_open:
            self.write(owed)
