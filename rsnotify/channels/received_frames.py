"""What readers send over a WebSocket: a ping or a pong that comes alone, else all of RFC 6455.

`ReaderProtocol` overrides parts of the websockets library: it checks UTF-8 only in its connections,
which we do not use, and refuses a Close between the fragments of a message, which RFC 6455 (5.4)
allows. `tests/unit/test_seams.py` fails when these places move. Nothing here reads or writes a
socket.
"""

import codecs
import logging

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.utils import apply_mask

from rsnotify.channels.frames import deflate

MESSAGE_BYTES = 4096  # readers have nothing to say; this keeps them from filling memory
CONTROL_BYTES = 125  # what a control frame can carry
HEAD_BYTES = 6  # of a short frame from a client: two, and the mask
MASK_BIT = 0x80  # which every frame of a client has
_FINAL = 0x80
_PING, _PONG = _FINAL | Opcode.PING, _FINAL | Opcode.PONG
ANY_PONG = Frame(Opcode.PONG, b"")

quiet = logging.getLogger("rsnotify.websocket")
quiet.setLevel(logging.WARNING)  # below that, the library logs addresses, which may hold tokens

_utf8 = codecs.getincrementaldecoder("utf-8")


class ReaderProtocol(ServerProtocol):
    """The protocol of an open connection, as RFC 6455 has it for the server."""

    def __init__(self, *, is_deflated: bool) -> None:
        super().__init__(state=OPEN, max_size=MESSAGE_BYTES, logger=quiet)
        if is_deflated:
            self.extensions = [deflate()]
        self._text: codecs.IncrementalDecoder | None = None

    def recv_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self.current_size = None  # a Close may stand between two fragments
        super().recv_frame(frame)
        if frame.opcode is Opcode.TEXT:
            self._text = _utf8()
        if self._text is not None and frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._text.decode(bytes(frame.data), frame.fin)  # the parser answers an error with 1007
            if frame.fin:
                self._text = None

    def close(self) -> None:
        """Break the cycle of parser (a generator) and protocol, so that both are freed at once."""
        self.parser.close()


def one_ping_or_pong(data: bytes) -> Frame | None:
    """The data as a frame if it is one complete ping or pong, after which nothing has to be kept.

    The payload of a pong is not decoded: nobody reads it.
    """
    if len(data) < HEAD_BYTES or data[0] not in (_PING, _PONG):
        return None
    length = data[1] - MASK_BIT
    if not 0 <= length <= CONTROL_BYTES or len(data) != HEAD_BYTES + length:
        return None
    if data[0] == _PONG:
        return ANY_PONG
    return Frame(Opcode.PING, apply_mask(data[HEAD_BYTES:], data[2:HEAD_BYTES]))


def pong(ping: Frame) -> bytes:
    """The answer to a ping."""
    return Frame(Opcode.PONG, ping.data).serialize(mask=False)
