"""A stream as server-sent events: its readers are readers of the channel, as others are.

After each notification, a control event says where the stream goes on. The stream ends after about
a minute, as the protocol wants it, and its reader comes back.
"""

import asyncio
from typing import Self

import msgspec

from rsnotify.channels.admission import ChannelEntry
from rsnotify.channels.channels import Channels
from rsnotify.channels.event_stream import EventStream, SseReader
from rsnotify.channels.frames import COMMENT, WireFormat, flushed
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.errors import CloseCode
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Notification
from rsnotify.streams.replies import messages_of

PINGS = 2  # of the keep-alive, one every 25 s; with the next one the stream ends
HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-store",
    "connection": "close",  # when the stream ends
    "cross-origin-resource-policy": "cross-origin",
    "x-accel-buffering": "no",
    "vary": "accept-encoding",
}


def control(offset: Position, cursor: int, *, is_newest: bool) -> bytes:
    """Where the stream goes on.

    >>> control(Position(0), 7, is_newest=False).splitlines()[0]
    b'event: control'
    """
    said = {"streamNextOffset": str(offset), "streamCursor": str(int(cursor))}
    up_to_date = {"upToDate": True} if is_newest else {}
    return b"event: control\ndata:%s\n\n" % msgspec.json.encode(said | up_to_date)


def _events(found: Notification, *, is_newest: bool) -> bytes:
    end = control(found.until, found.until, is_newest=is_newest)
    if not found.count:
        return end
    lines = messages_of(found).replace(b"\n", b"\ndata:")
    return b"event: data\ndata:%s\n\n%s" % (lines, end)


def _behind(found: Notification) -> bytes:
    return _events(found, is_newest=False)


def _newest(found: Notification) -> bytes:
    return _events(found, is_newest=True)


STREAM_EVENT = WireFormat("stream event", _behind, COMMENT, make_newest=_newest)
GZIP_STREAM_EVENT = WireFormat(
    "stream event in gzip",
    lambda each: flushed(_behind(each)),
    flushed(COMMENT),
    make_newest=lambda each: flushed(_newest(each)),
)


class StreamReader(SseReader):
    """Ends its stream after a while."""

    __slots__ = ("_pings",)

    def __init__(
        self,
        wire_format: WireFormat,
        transport: asyncio.Transport,
        reader_input: ReaderInput,
        *,
        is_chunked: bool,
    ) -> None:
        super().__init__(wire_format, transport, reader_input, is_chunked=is_chunked)
        self._pings = 0

    def ping(self) -> bool:
        self._pings += 1
        if self._pings > PINGS:
            self.close(CloseCode.GOING_AWAY, "")
            return False
        return super().ping()


class StreamEvents(EventStream):
    """A stream's events, until its reader has to come back."""

    make_reader = StreamReader

    @classmethod
    def opened(
        cls, channels: Channels, entry: ChannelEntry, opening: bytes, *, in_gzip: bool
    ) -> Self:
        wire_format = GZIP_STREAM_EVENT if in_gzip else STREAM_EVENT
        coding = {"content-encoding": "gzip"} if in_gzip else {}
        return cls(channels, entry, HEADERS | coding, opening, wire_format, in_gzip=in_gzip)
