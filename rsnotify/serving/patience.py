"""HTTP connections of peers that send or read nothing: they are not kept for ever.

Rules that hold here: a request's head has a deadline as a whole; a body may take its time as long
as some of it keeps coming, or as long as it is we who do not read; an answer may take its time as
long as some of it is read. Nothing here knows what is sent.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rsnotify.unread import unread_bytes

HEAD_SECONDS = 10.0
BODY_SECONDS = 10.0  # between two parts of it


class PatientHttp(HttpToolsProtocol):
    """uvicorn's protocol, with an end to its patience."""

    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, send_timeout_seconds: float, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._send_timeout_seconds = send_timeout_seconds

    # --- a peer that sends nothing -------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_within(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self._expect_no_reading()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._expect_nothing()
        super().handle_websocket_upgrade()
        self.parser = None  # type: ignore[assignment]  # it and we hold each other

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_within(HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._expect_within(BODY_SECONDS)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._expect_within(BODY_SECONDS)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._expect_nothing()

    def _expect_within(self, seconds: float) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(seconds, self._lose_patience)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _lose_patience(self) -> None:
        if self.flow.read_paused:
            self._expect_within(BODY_SECONDS)
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
