"""The bytes that readers get: WebSocket frames and SSE blocks, made once and shared by all readers.

A shared frame has no mask and no compression context, so every reader can decode it by itself. In
an event stream in gzip, an event is a part that ends at a whole byte and refers to nothing before.
Such a stream has no end: its checksum would be another one for each reader.
"""

from collections.abc import Callable
from typing import NamedTuple

from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import CTRL_OPCODES, Frame, Opcode

from rsnotify.core.gzip_parts import flushed, stored
from rsnotify.resourcesync.notification import Notification

REASON_BYTES = 123  # what a close frame can carry
WINDOW_BITS = 15
FLUSH = b"\0\0\xff\xff"  # how flushed deflate ends; a WebSocket leaves it out (RFC 7692, 7.2.1)


class WireFormat(NamedTuple):
    """How a notification is written to one kind of reader."""

    name: str
    make: Callable[[Notification], bytes]
    idle: bytes  # written when nothing happens, to keep the connection alive
    tell_cursors: Callable[[bytes], bytes] | None = None
    """What to write before a notification to a reader of several channels, with its cursors."""

    def render(self, notification: Notification) -> bytes:
        return notification.once(self.name, self.make)


def _text_frame(notification: Notification) -> bytes:
    return Frame(Opcode.TEXT, notification.payload).serialize(mask=False)


def _deflated_frame(notification: Notification) -> bytes:
    return Frame(Opcode.TEXT, notification.payload).serialize(mask=False, extensions=[deflate()])


def _event(notification: Notification) -> bytes:
    return _id(str(notification.until).encode()) + _data(notification)


def _id(cursor: bytes) -> bytes:
    return b"id: %s\n" % cursor


def _data(notification: Notification) -> bytes:
    return b"data: %s\n\n" % notification.payload.replace(b"\n", b"\ndata: ")


PING = Frame(Opcode.PING, b"").serialize(mask=False)
COMMENT = b":\n\n"

TEXT = WireFormat("text frame", _text_frame, PING)
DEFLATED = WireFormat("deflated frame", _deflated_frame, PING)
EVENT = WireFormat("event", _event, COMMENT)
GZIP_EVENT = WireFormat("event in gzip", lambda each: flushed(_event(each)), flushed(COMMENT))

# Of several channels: the id has the reader's own cursors, the data is shared.
DATA = WireFormat("data", _data, COMMENT, _id)
GZIP_DATA = WireFormat(
    "data in gzip",
    lambda each: flushed(_data(each)),
    flushed(COMMENT),
    lambda cursors: stored(_id(cursors)),
)


def close_reason(detail: str) -> str:
    return detail.encode()[:REASON_BYTES].decode(errors="ignore")


class Deflate(PerMessageDeflate):
    """The one compression that is agreed on: no context is kept between two messages."""

    def encode(self, frame: Frame) -> Frame:
        """As the library does it, but by ISA-L. Control frames are never compressed."""
        if frame.opcode in CTRL_OPCODES:
            return frame
        data = flushed(bytes(frame.data)).removesuffix(FLUSH)
        return Frame(frame.opcode, data, frame.fin, rsv1=True)


def deflate() -> Deflate:
    return Deflate(True, True, WINDOW_BITS, WINDOW_BITS)
