"""HTTP connections of peers that send or read nothing: they are not kept for ever.

Rules that hold here: a request's head has a deadline as a whole; a body may take its time as long
as some of it keeps coming, or as long as it is we who do not read; an answer may take its time as
long as some of it is read. Nothing here knows what is sent.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rsnotify.serving.cork import Corked
from rsnotify.unread import unread_bytes

HEAD_SECONDS = 10.0
HEAD_BYTES = 64 * 1024
BODY_SECONDS = 15.0  # between two parts of it


class PatientHttp(HttpToolsProtocol):
    """uvicorn's protocol, with an end to its patience."""

    _expected: float | None = None  # seconds until the rest of what has begun must come
    _head_bytes = 0  # of a head that has not come whole
    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, send_timeout_seconds: float, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._send_timeout_seconds = send_timeout_seconds

    # --- a peer that sends nothing -------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]
        self._expected = HEAD_SECONDS
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expected = None
        self._expect()
        self._expect_no_reading()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A request that comes whole, as most do, costs no timer."""
        before = self._expected
        super().data_received(data)
        if self._expected == HEAD_SECONDS:
            self._measure_head(len(data))
        if self._expected != before or self._expected == BODY_SECONDS:
            self._expect()

    def _measure_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            self._expected = None
            self.send_400_response("The head of the request is too long.")

    def handle_websocket_upgrade(self) -> None:
        self._expected = None
        self.transport = self.transport.bare  # type: ignore[attr-defined]
        super().handle_websocket_upgrade()
        self.parser = None  # type: ignore[assignment]  # it and we hold each other

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expected = HEAD_SECONDS

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._expected = BODY_SECONDS
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._expected = None

    def _expect(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._expected is not None:
            self._deadline = self.loop.call_later(self._expected, self._lose_patience)

    def _lose_patience(self) -> None:
        if self.flow.read_paused:
            self._expect()
        else:
            self.transport.close()

    # --- a peer that reads nothing -------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._expect_no_reading()

    def _expect_reading(self) -> None:
        self._expect_no_reading()
        self._reading = self.loop.call_later(
            self._send_timeout_seconds, self._look_for_progress, unread_bytes(self.transport)
        )

    def _expect_no_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _look_for_progress(self, unread: int) -> None:
        if unread_bytes(self.transport) < unread:
            self._expect_reading()
        else:
            self.transport.abort()
