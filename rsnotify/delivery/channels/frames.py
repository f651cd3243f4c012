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

from rsnotify.core.forms import JSON, XML, Form
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.json_writer import render_notification_json
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


Payload = Callable[[Notification], bytes]


def _xml(notification: Notification) -> bytes:
    return notification.payload


def _json(notification: Notification) -> bytes:
    return notification.once(JSON.name, render_notification_json)


def _text_frame(payload: bytes) -> bytes:
    return Frame(Opcode.TEXT, payload).serialize(mask=False)


def _deflated_frame(payload: bytes) -> bytes:
    return Frame(Opcode.TEXT, payload).serialize(mask=False, extensions=[deflate()])


def _event(cursor: Position, payload: bytes) -> bytes:
    return _id(str(cursor).encode()) + _data(payload)


def _id(cursor: bytes) -> bytes:
    return b"id: %s\n" % cursor


def _data(payload: bytes) -> bytes:
    return b"data: %s\n\n" % payload.replace(b"\n", b"\ndata: ")


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


class WireFormats(NamedTuple):
    """Every way to write a notification in one form."""

    text: WireFormat
    deflated: WireFormat
    event: WireFormat
    gzip_event: WireFormat
    data: WireFormat  # of several channels: the id has the reader's own cursors, the data is shared
    gzip_data: WireFormat


def _wire_formats(form: Form, payload: Payload) -> WireFormats:
    def event(each: Notification) -> bytes:
        return _event(each.until, payload(each))

    def stored_id(cursors: bytes) -> bytes:
        return _stored_part(_id(cursors))

    def named(name: str) -> str:
        return f"{name} of {form.name}"

    silence = gzip_part(COMMENT)
    return WireFormats(
        WireFormat(named("frame"), lambda each: _text_frame(payload(each)), PING),
        WireFormat(named("deflated frame"), lambda each: _deflated_frame(payload(each)), PING),
        WireFormat(named("event"), event, COMMENT),
        WireFormat(named("event in gzip"), lambda each: gzip_part(event(each)), silence),
        WireFormat(named("data"), lambda each: _data(payload(each)), COMMENT, _id),
        WireFormat(
            named("data in gzip"), lambda each: gzip_part(_data(payload(each))), silence, stored_id
        ),
    )


WIRE_FORMATS = {XML: _wire_formats(XML, _xml), JSON: _wire_formats(JSON, _json)}
TEXT, DEFLATED, EVENT, GZIP_EVENT, DATA, GZIP_DATA = WIRE_FORMATS[XML]


def close_reason(detail: str) -> str:
    return detail.encode()[:REASON_BYTES].decode(errors="ignore")


def deflate() -> PerMessageDeflate:
    """The one compression that is offered: no context is kept between two messages."""
    return PerMessageDeflate(True, True, WINDOW_BITS, WINDOW_BITS, {"memLevel": 9})
