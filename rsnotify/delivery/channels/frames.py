"""The bytes that readers get: WebSocket frames and SSE blocks, made once and shared by all readers.

A shared frame has no mask and no compression context, so every reader can decode it by itself.
"""

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

    def render(self, notification: Notification) -> bytes:
        return notification.derived(self.name, self.make)


def _text_frame(notification: Notification) -> bytes:
    return Frame(Opcode.TEXT, notification.payload).serialize(mask=False)


def _deflated_frame(notification: Notification) -> bytes:
    return Frame(Opcode.TEXT, notification.payload).serialize(mask=False, extensions=[deflate()])


def _event(notification: Notification) -> bytes:
    lines = notification.payload.replace(b"\n", b"\ndata: ")
    return b"id: %s\ndata: %s\n\n" % (str(notification.until).encode(), lines)


TEXT = WireFormat("text frame", _text_frame)
DEFLATED = WireFormat("deflated frame", _deflated_frame)
EVENT = WireFormat("event", _event)

PING = Frame(Opcode.PING, b"").serialize(mask=False)
COMMENT = b":\n\n"  # a comment, which keeps an event stream alive


def close_reason(detail: str) -> str:
    return detail.encode()[:REASON_BYTES].decode(errors="ignore")


def deflate() -> PerMessageDeflate:
    """The one compression that is offered: no context is kept between two messages."""
    return PerMessageDeflate(True, True, WINDOW_BITS, WINDOW_BITS, {"memLevel": 9})
