"""Event streams: the response that begins one, and the reader that its connection becomes."""

import asyncio
import random

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rsnotify.access.cors import CREDENTIALS
from rsnotify.channels.admission import ChannelEntry
from rsnotify.channels.channels import Channels
from rsnotify.channels.frames import WIRE_FORMATS, WireFormat, flushed, in_chunks
from rsnotify.channels.plain_asgi import SendingTransport
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.requested_channels import requested_channels, requested_filter
from rsnotify.channels.transport_reader import CLOSE_SECONDS, TransportReader
from rsnotify.http.extensions import HAND_OVER
from rsnotify.http.input_turns import EVENT_STREAM
from rsnotify.journal.gzip_parts import GZIP_HEAD
from rsnotify.resourcesync.forms import accepts_gzip
from rsnotify.resourcesync.notification import FROM_HEADER, kind_named

LAST_CHUNK = b"0\r\n\r\n"
IGNORED_BYTES = 64 * 1024  # that a peer may send behind its request, or as the content of it


class SseReader(TransportReader):
    """Writes events as the rest of a response, in chunks if its request was of HTTP/1.1."""

    __slots__ = ("_ignored_bytes", "_is_chunked")

    def __init__(
        self,
        wire_format: WireFormat,
        transport: asyncio.Transport,
        reader_input: ReaderInput,
        *,
        is_chunked: bool,
    ) -> None:
        written = in_chunks(wire_format) if is_chunked else wire_format
        super().__init__(written, transport, reader_input)
        self._is_chunked = is_chunked
        self._ignored_bytes = 0

    # --- called by the channel -------------------------------------------------------------------

    def ping(self) -> bool:
        """Send a comment, which keeps proxies from closing the stream. Nobody answers it."""
        self.write(self.wire_format.idle)
        return False

    def close(self, code: int, reason: str) -> None:  # noqa: ARG002
        """End the stream, which cannot carry a code or a reason."""
        if self.is_open:
            self.end_within(CLOSE_SECONDS)
            if self._is_chunked:
                self.write(LAST_CHUNK)
            self.transport.close()

    # --- called by the transport -----------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        self.turns.received.bytes[EVENT_STREAM] += len(data)
        self._ignored_bytes += len(data)
        if self._ignored_bytes > IGNORED_BYTES:
            self.end_flood(EVENT_STREAM)
            self.transport.abort()


RETRY_MILLISECONDS = (1_000, 5_000)  # random, or all browsers reconnect at once


def wants_stream(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    types = (part.partition(";")[0].strip().lower() for part in accepted.split(","))
    return "text/event-stream" in types


class Sse:
    """Opens event streams."""

    def __init__(self, channels: Channels, *, is_compressed: bool = True) -> None:
        self._channels = channels
        self._admission = channels.admission
        self._is_compressed = is_compressed

    async def stream(self, request: Request) -> Response:
        """The stream; for HEAD its headers, which say where it begins."""
        kind = kind_named(request.path_params["kind"])
        wanted, filter_ = requested_channels(request, kind), requested_filter(request, kind)
        admitted = await self._admission.admit(request, wanted)
        find_cursor = self._admission.servable_cursor
        entry = await self._admission.entry(request, wanted, admitted, find_cursor, filter_)
        in_gzip = self._is_compressed and accepts_gzip(request.headers.get("accept-encoding"))
        origin = request.headers.get("origin")
        headers = _headers(entry, origin, in_gzip=in_gzip)
        if origin is not None and self._admission.reads_by_cookie(origin):
            headers[CREDENTIALS] = "true"
        if request.method == "HEAD":
            return Response(headers=headers)
        retry = random.randint(*RETRY_MILLISECONDS)  # noqa: S311
        # An event without data sets the last event id, and no event handler is called.
        opening = f"id: {entry.cursor}\nretry: {retry}\n\n".encode()
        wire_format = _wire_format(entry, in_gzip=in_gzip)
        return EventStream(self._channels, entry, headers, opening, wire_format, in_gzip=in_gzip)


class EventStream(Response):
    """A response that goes on until either side ends it.

    `Response.__init__` is not called: it would set a length.
    """

    make_reader = SseReader

    def __init__(
        self,
        channels: Channels,
        entry: ChannelEntry,
        headers: dict[str, str],
        opening: bytes,
        wire_format: WireFormat,
        *,
        in_gzip: bool,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._channels = channels
        self._entry = entry
        self._opening = opening
        self._wire_format = wire_format
        self._in_gzip = in_gzip
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        body = GZIP_HEAD + flushed(self._opening) if self._in_gzip else self._opening
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if HAND_OVER in scope.get("extensions", ()):
            await send({"type": HAND_OVER, "take": self._take})
            return
        transport = SendingTransport()
        self._take(transport, is_chunked=False)  # the server makes the chunks

        async def send_part(body: bytes) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": True})

        await transport.run(receive, send_part)
        await send({"type": "http.response.body", "body": b""})

    def _take(self, transport: asyncio.Transport, *, is_chunked: bool) -> None:
        reader = self.make_reader(
            self._wire_format, transport, self._channels.reader_input, is_chunked=is_chunked
        )
        reader.take_over()
        self._channels.join(reader, self._entry)


def _wire_format(entry: ChannelEntry, *, in_gzip: bool) -> WireFormat:
    formats = WIRE_FORMATS[entry.form]
    if entry.is_several:
        return formats.gzip_data if in_gzip else formats.data
    return formats.gzip_event if in_gzip else formats.event


def _headers(entry: ChannelEntry, origin: str | None, *, in_gzip: bool) -> dict[str, str]:
    """The origin was checked before. Proxies must neither cache nor buffer the stream."""
    headers = {
        "content-type": "text/event-stream",
        "cache-control": "no-store",
        "connection": "close",  # when the stream ends
        "x-accel-buffering": "no",
        "vary": "accept-encoding",
        FROM_HEADER.lower(): entry.cursor,
    }
    if in_gzip:
        headers["content-encoding"] = "gzip"
    if origin is not None:
        headers |= {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": FROM_HEADER,
            "vary": "accept-encoding, origin",
        }
    return headers
