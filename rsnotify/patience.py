"""HTTP connections of peers that send slowly, or not at all: they are not kept for ever.

Rules that hold here: a request's head has a deadline as a whole; a body may take its time as long
as some of it keeps coming, or as long as it is we who do not read. Nothing here knows what is
sent.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
BODY_SECONDS = 10.0  # between two parts of it


class PatientHttp(HttpToolsProtocol):
    """uvicorn's protocol, with an end to its patience."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_within(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
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
