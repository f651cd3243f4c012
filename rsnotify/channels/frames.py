"""The bytes that readers get: WebSocket frames and SSE blocks, made once and shared by all readers.

A shared frame has no mask and no compression context, so every reader can decode it by itself. In
an event stream in gzip, an event is a part that ends at a whole byte and refers to nothing before.
Such a stream has no end: its checksum would be another one for each reader.

`SharedDeflate` overrides a part of the websockets library, which also accepts a smaller window, and
that needs frames of its own; `tests/unit/test_seams.py` fails when it moves. Nothing here reads or
writes a socket.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from isal import isal_zlib
from websockets.exceptions import NegotiationError
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import (
    PerMessageDeflate,
    ServerPerMessageDeflateFactory,
)
from websockets.frames import CTRL_OPCODES, Frame, Opcode
from websockets.typing import ExtensionParameter

from rsnotify.journal.gzip_parts import LEVEL, stored
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.forms import JSON, XML, Form
from rsnotify.resourcesync.json_writer import render_notification_json
from rsnotify.resourcesync.notification import Notification

REASON_BYTES = 123  # what a close frame can carry
WINDOW_BITS = 15
FLUSH = b"\0\0\xff\xff"  # how flushed deflate ends; a WebSocket leaves it out (RFC 7692, 7.2.1)

PING = Frame(Opcode.PING, b"").serialize(mask=False)
COMMENT = b":\n\n"

MakePayload = Callable[[Notification], bytes]


class WireFormat(NamedTuple):
    """How a notification is written to one kind of reader."""

    name: str
    make: Callable[[Notification], bytes]
    idle: bytes  # written when nothing happens, to keep the connection alive
    write_cursors: Callable[[bytes], bytes] | None = None
    """What to write before a notification to a reader of several channels, with its cursors."""

    cache_key: str = ""
    """The key under which a notification keeps the bytes; the name if it is empty."""

    make_newest: Callable[[Notification], bytes] | None = None
    """What is written instead to somebody who has read all with this notification."""

    def render(self, notification: Notification, *, is_newest: bool = False) -> bytes:
        key = self.cache_key or self.name
        if is_newest and self.make_newest is not None:
            return notification.derived(f"{key}, the newest", self.make_newest)
        return notification.derived(key, self.make)


class WireFormats(NamedTuple):
    """Every way to write a notification in one form."""

    text: WireFormat
    deflated: WireFormat
    event: WireFormat
    gzip_event: WireFormat
    data: WireFormat  # of several channels: the id has the reader's own cursors, the data is shared
    gzip_data: WireFormat


class Deflate(PerMessageDeflate):
    """The one compression that is agreed on: no context is kept between two messages."""

    def encode(self, frame: Frame) -> Frame:
        """Compress as the library does, but by ISA-L. Control frames are never compressed."""
        if frame.opcode in CTRL_OPCODES:
            return frame
        data = flushed(bytes(frame.data)).removesuffix(FLUSH)
        return Frame(frame.opcode, data, frame.fin, rsv1=True)


def deflate() -> Deflate:
    return Deflate(True, True, WINDOW_BITS, WINDOW_BITS)


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


def _xml(notification: Notification) -> bytes:
    return notification.payload


def _json(notification: Notification) -> bytes:
    return notification.derived(JSON.name, render_notification_json)


def flushed(data: bytes) -> bytes:
    """Deflate that ends at a whole byte and refers to nothing before it: a part of any stream."""
    deflate = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, -15)
    return deflate.compress(data) + deflate.flush(isal_zlib.Z_FULL_FLUSH)


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


def _wire_formats(form: Form, payload: MakePayload) -> WireFormats:
    def event(each: Notification) -> bytes:
        return _event(each.until, payload(each))

    def stored_id(cursors: bytes) -> bytes:
        return stored(_id(cursors))

    def named(name: str) -> str:
        return f"{name} of {form.name}"

    silence = flushed(COMMENT)
    return WireFormats(
        WireFormat(named("frame"), lambda each: _text_frame(payload(each)), PING),
        WireFormat(named("deflated frame"), lambda each: _deflated_frame(payload(each)), PING),
        WireFormat(named("event"), event, COMMENT),
        WireFormat(named("event in gzip"), lambda each: flushed(event(each)), silence),
        WireFormat(named("data"), lambda each: _data(payload(each)), COMMENT, _id),
        WireFormat(
            named("data in gzip"), lambda each: flushed(_data(payload(each))), silence, stored_id
        ),
    )


@cache
def in_chunks(plain: WireFormat) -> WireFormat:
    """The format for a response of HTTP/1.1 without a length."""
    write, newest = plain.write_cursors, plain.make_newest
    return WireFormat(
        plain.name,
        lambda each: _chunk(plain.make(each)),
        _chunk(plain.idle),
        None if write is None else lambda cursors: _chunk(write(cursors)),
        f"{plain.name} in chunks",
        None if newest is None else lambda each: _chunk(newest(each)),
    )


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


WIRE_FORMATS = {XML: _wire_formats(XML, _xml), JSON: _wire_formats(JSON, _json)}
TEXT, DEFLATED, EVENT, GZIP_EVENT, DATA, GZIP_DATA = WIRE_FORMATS[XML]


def close_reason(detail: str) -> str:
    return detail.encode()[:REASON_BYTES].decode(errors="ignore")


def transport_of(name: str) -> str:
    """The transport that writes a format of this name."""
    if name == "long poll":
        return name
    return "websocket" if "frame" in name else "event stream"
