"""What a reader says over WebSocket, judged by RFC 6455: the protocol without its socket.

Rules that hold here: a reader may say little, so messages are short and thrown away; faults are
answered with their close code and never logged. Nothing here reads or writes a socket.
"""

import codecs
import logging

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from rsnotify.delivery.channels.frames import deflate

MESSAGE_BYTES = 4096  # nobody has anything to say to a channel; a cap against filling memory

quiet = logging.getLogger("rsnotify.websocket")
quiet.setLevel(logging.WARNING)  # a handshake's address may hold a token: it is never logged

_utf8 = codecs.getincrementaldecoder("utf-8")


class ReaderProtocol(ServerProtocol):
    """The server's side of an open connection."""

    def __init__(self, *, is_deflated: bool) -> None:
        super().__init__(state=OPEN, max_size=MESSAGE_BYTES, logger=quiet)
        if is_deflated:
            self.extensions = [deflate()]
        self._text: codecs.IncrementalDecoder | None = None

    def recv_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self.current_size = None  # a Close may come between the fragments of a message
        super().recv_frame(frame)
        if frame.opcode is Opcode.TEXT:
            self._text = _utf8()
        if self._text is not None and frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._text.decode(bytes(frame.data), frame.fin)  # answered 1007 by whoever parses
            if frame.fin:
                self._text = None

    def close(self) -> None:
        """Let go: the parser, a generator, and the protocol hold each other."""
        self.parser.close()


def is_one_ping_or_pong(data: bytes) -> bool:
    """Whether this is one whole ping or pong: who has read it may forget all about it."""
    if len(data) < 6 or data[0] not in (0x89, 0x8A):
        return False
    length = data[1] - 0x80  # the mask bit, which every frame of a client has
    return 0 <= length <= 125 and len(data) == 6 + length
