"""The bytes that readers get: WebSocket frames and SSE blocks, made once and shared by all readers.

A shared frame has no mask and no compression context, so every reader can decode it by itself. In
an event stream in gzip, an event is a part that ends at a whole byte and refers to nothing before.
"""

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode

from rsnotify.resourcesync.notification import Notification

REASON_BYTES = 123  # what a close frame can carry
WINDOW_BITS = 15


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


def gzip_part(data: bytes) -> bytes:
    """A part of any gzip stream, which a reader can decode as soon as it has it."""
    deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -WINDOW_BITS, 9)
    return deflate.compress(data) + deflate.flush(zlib.Z_FULL_FLUSH)


def _stored_part(data: bytes) -> bytes:
    """The same without compression, for what only one reader gets."""
    return struct.pack("<BHH", 0, len(data), len(data) ^ 0xFFFF) + data


GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
"""How a gzip stream begins. It has no end: the checksum would be different for each reader."""

PING = Frame(Opcode.PING, b"").serialize(mask=False)
COMMENT = b":\n\n"

TEXT = WireFormat("text frame", _text_frame, PING)
DEFLATED = WireFormat("deflated frame", _deflated_frame, PING)
EVENT = WireFormat("event", _event, COMMENT)
GZIP_EVENT = WireFormat("event in gzip", lambda each: gzip_part(_event(each)), gzip_part(COMMENT))

# Of several channels: the id has the reader's own cursors, the data is shared.
DATA = WireFormat("data", _data, COMMENT, _id)
GZIP_DATA = WireFormat(
    "data in gzip",
    lambda each: gzip_part(_data(each)),
    gzip_part(COMMENT),
    lambda cursors: _stored_part(_id(cursors)),
)


def close_reason(detail: str) -> str:
    return detail.encode()[:REASON_BYTES].decode(errors="ignore")


def deflate() -> PerMessageDeflate:
    """The one compression that is offered: no context is kept between two messages."""
    return PerMessageDeflate(True, True, WINDOW_BITS, WINDOW_BITS, {"memLevel": 9})
