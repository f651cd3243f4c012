"""An open event stream of a Destination. Nothing here knows what an event looks like."""

import asyncio

from rsnotify.channels.frames import WireFormat, in_chunks
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.transport_reader import CLOSE_SECONDS, TransportReader
from rsnotify.http.socket_input import EVENT_STREAM

"""A message to our server, within a response: the rest is written by what `take(transport,
is_chunked=…)` makes. The exchange ends here, and nothing of it is kept."""

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
        """End the stream, which has no way to tell a code or a reason."""
        if self.is_open:
            self.end_within(CLOSE_SECONDS)
            if self._is_chunked:
                self.write(LAST_CHUNK)
            self.transport.close()

    # --- called by the transport -----------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._input.received.bytes[EVENT_STREAM] += len(data)
        self._ignored_bytes += len(data)
        if self._ignored_bytes > IGNORED_BYTES:
            self.end_flood(EVENT_STREAM)
            self.transport.abort()
