"""Ends a connection whose answer is longer than the hub reads.

aiohttp reads `100 Continue`, chunk extensions and empty lines without a limit; so a class of it is
replaced, and the bytes are counted at the socket.
"""

import asyncio
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

ANSWER_BYTES = 32 * 1024  # head, body and all
ANSWER_LINES = 512


class AnswerTooLong(aiohttp.ClientError):
    """The answer is longer than the hub reads."""


class BoundedConnector(aiohttp.TCPConnector):
    """Makes connections that are closed when an answer is longer than the bound."""

    def __init__(
        self, *, answer_bytes: int = ANSWER_BYTES, lines: int = ANSWER_LINES, **options: Any
    ) -> None:
        super().__init__(**options)
        loop = asyncio.get_running_loop()
        self._factory = partial(  # type: ignore[assignment]
            BoundedHandler, loop, answer_bytes=answer_bytes, lines=lines
        )


class BoundedHandler(ResponseHandler):
    """Takes what a connection receives, up to the bound."""

    __slots__ = ("_bound", "_bytes_left", "_is_over", "_lines_left")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, answer_bytes: int, lines: int) -> None:
        super().__init__(loop=loop)
        self._bound = (answer_bytes, lines)
        self.listen_anew()

    def listen_anew(self) -> None:
        self._bytes_left, self._lines_left = self._bound
        self._is_over = False

    def set_response_params(self, **options: Any) -> None:
        """Called before each request: another answer begins."""
        self.listen_anew()
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        heard = data[: self._bytes_left]
        lines = heard.count(b"\n")
        self._is_over = len(data) > self._bytes_left or lines > self._lines_left
        if lines > self._lines_left:
            heard = b"\n".join(heard.split(b"\n", self._lines_left)[: self._lines_left]) + b"\n"
        self._bytes_left -= len(heard)
        self._lines_left -= lines
        super().data_received(heard)
        if self._is_over:
            self._hang_up()

    def _hang_up(self) -> None:
        """Close, and say why to what waits for the answer or for its body."""
        error, payload = AnswerTooLong("its answer has no end"), self._payload
        if payload is not None and not payload.is_eof():
            payload.set_exception(error)
        if self._exception is None:
            self.set_exception(error)
        self._parser = self._payload = None  # else the closing would end the answer
        if self.transport is not None:
            self.transport.abort()
