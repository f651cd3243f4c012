"""What is written to a reader, made once and shared: frames of RFC 6455 and blocks of SSE.

Rules that hold here: a frame for all has no mask and no compression context, so the same bytes
serve every reader of its wire_format. Nothing here writes anything.
"""

from collections.abc import Callable
from typing import NamedTuple

from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode

from rsnotify.resourcesync.notification import Notification

REASON_BYTES = 123  # what a close frame can carry
WINDOW_BITS = 15


class WireFormat(NamedTuple):
    """How a notification is written for one kind of readers."""

    name: str
    make: Callable[[Notification], bytes]

    def render(self, notification: Notification) -> bytes:
        return notification.once(self.name, self.make)


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
COMMENT = b":\n\n"  # what keeps an event stream alive


def close_reason(detail: str) -> str:
    return detail.encode()[:REASON_BYTES].decode(errors="ignore")


def deflate() -> PerMessageDeflate:
    """The compression of every reader that has one: nothing is kept between two messages."""
    return PerMessageDeflate(True, True, WINDOW_BITS, WINDOW_BITS, {"memLevel": 9})
