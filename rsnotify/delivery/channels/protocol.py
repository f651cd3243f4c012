"""What of the websockets library is overridden, and nothing else: `tests/unit/test_seams.py` fails
when one of these places moves.

`ReaderProtocol.recv_frame`: the library checks UTF-8 only in its connections, which we do not use,
and refuses a Close between the fragments of a message, which RFC 6455 (5.4) allows.
`SharedDeflate`: the library also accepts a smaller window, which needs frames of its own.
Nothing here reads or writes a socket.
"""

import codecs
import logging
from collections.abc import Sequence

from websockets.exceptions import NegotiationError
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import (
    PerMessageDeflate,
    ServerPerMessageDeflateFactory,
)
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import ExtensionParameter

from rsnotify.delivery.channels.frames import deflate

MESSAGE_BYTES = 4096  # readers have nothing to say; this keeps them from filling memory

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


class SharedDeflate(ServerPerMessageDeflateFactory):
    """Accepts offers so that one compressed frame serves all readers: without context takeover,
    which the server may choose unasked (RFC 7692, 7.1.1.1), and with the usual window."""

    def __init__(self) -> None:
        super().__init__(server_no_context_takeover=True, client_no_context_takeover=True)

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        if dict(params).get("server_max_window_bits", "15") != "15":
            raise NegotiationError("shared frames have a window of 15 bits")
        return super().process_request_params(params, accepted_extensions)


def is_one_ping_or_pong(data: bytes) -> bool:
    """Whether the data is one complete ping or pong, after which nothing has to be remembered."""
    if len(data) < 6 or data[0] not in (0x89, 0x8A):
        return False
    length = data[1] - 0x80  # without the mask bit, which every frame of a client has
    return 0 <= length <= 125 and len(data) == 6 + length
