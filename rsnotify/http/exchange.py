"""One request and its response: what the ASGI application reads and writes.

Head and first body part leave in one write. A response that begins before its request is complete
ends the connection. URLs may contain a token, so only the path is logged.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Protocol

from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState

from rsnotify.http.extensions import HAND_OVER, LEND, Borrowing, Headers
from rsnotify.http.unread_output import UnreadOutput

log = logging.getLogger(__name__)

JOINED_BYTES = 64 * 1024  # a larger body part is not copied to join it with the head
READ_AHEAD_BYTES = 64 * 1024  # of a body, before the application asks for it
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
WITHOUT_BODY = (204, 304)

STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}".encode() for each in HTTPStatus}


class Taking(Protocol):
    """Takes a connection, to write the rest of a response."""

    def __call__(self, transport: asyncio.Transport, /, *, is_chunked: bool) -> None: ...


class ExchangeConnection(Protocol):
    """The connection, as its exchanges see it."""

    transport: asyncio.Transport
    output: UnreadOutput
    server_state: ServerState  # which knows the headers that all answers have

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def hand_over(self, take: Taking, *, is_chunked: bool) -> None: ...
    def lend(self, take: Borrowing) -> bool: ...
    def answered(self, exchange: "Exchange") -> None: ...


class Exchange:
    """A request, whose body may still be coming, and its response."""

    __slots__ = (
        "_connection",
        "_has_body",
        "_head",
        "_is_all_received",
        "_is_chunked",
        "_parts",
        "_remaining",
        "_size",
        "_waiter",
        "expects_continue",
        "is_answered",
        "is_begun",
        "is_disconnected",
        "is_whole",
        "keep_alive",
        "scope",
    )

    def __init__(
        self,
        connection: ExchangeConnection,
        scope: Scope,
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue
        self.is_whole = False  # the request
        self.is_begun = False  # the answer
        self.is_answered = False
        self.is_disconnected = False
        self._connection = connection
        self._parts: list[bytes] = []  # of the body, not yet received by the application
        self._size = 0  # of these
        self._is_all_received = False
        self._waiter: asyncio.Future[None] | None = None
        self._head: bytes | None = None  # of the response, until a body part follows
        self._has_body = True
        self._is_chunked = False
        self._remaining: int | None = None  # of the content-length

    # --- called by the connection -----------------------------------------------------------------

    def feed(self, body: bytes) -> None:
        self._parts.append(body)
        self._size += len(body)
        if self._size > READ_AHEAD_BYTES:
            self._connection.pause_reading()
        if self._waiter is not None:
            self._wake(self._waiter)

    def complete(self) -> None:
        self.is_whole = True
        if self._waiter is not None:
            self._wake(self._waiter)

    def disconnect(self) -> None:
        """The connection is closed."""
        self.is_disconnected = True
        if self._waiter is not None:
            self._wake(self._waiter)

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        self._waiter = None
        if not waiter.done():
            waiter.set_result(None)

    # --- the conversation with the application ----------------------------------------------------

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._abort()
            raise
        except Exception:
            if not self.is_answered:  # else the application has logged it
                log.exception("internal error while answering %s", self.scope["path"])
            await self._answer_error()
        else:
            if not self.is_answered and not self.is_disconnected:
                self._log_unfinished()
                await self._answer_error()

    async def receive(self) -> Message:
        if self.expects_continue:
            self._send_continue()
        while not (self._parts or self._has_ended()):
            self._connection.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.is_disconnected or self.is_answered:
            return {"type": "http.disconnect"}
        parts, self._parts, self._size = self._parts, [], 0
        self._is_all_received = self.is_whole
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return {"type": "http.request", "body": body, "more_body": not self.is_whole}

    async def send(self, message: Message) -> None:
        if self._connection.output.is_full and not self.is_disconnected:
            await self._connection.output.wait()
        if self.is_disconnected:
            return
        if not self.is_begun and message["type"] == LEND:
            self.is_answered = self.is_whole and self._connection.lend(message["take"])
        elif not self.is_begun:
            self._send_start(message)
        elif not self.is_answered:
            self._send_body(message)
        else:
            raise RuntimeError(f"{message['type']} after the end of the response")

    def _has_ended(self) -> bool:
        """Whether no more of the body will come, and the application does not know that yet."""
        is_whole = self.is_whole and not self._is_all_received
        return is_whole or self.is_disconnected or self.is_answered

    def _send_continue(self) -> None:
        self.expects_continue = False
        if not (self._parts or self.is_whole or self.is_begun or self.is_disconnected):
            self._connection.transport.write(CONTINUE)

    def _log_unfinished(self) -> None:
        """Log that no whole response was sent; one that has begun was broken off on purpose."""
        if self.is_begun:
            log.warning("the response to %s is not complete", self.scope["path"])
        else:
            log.error("internal error: %s was not answered", self.scope["path"])

    async def _answer_error(self) -> None:
        if self.is_answered or self.is_disconnected:
            return
        if self.is_begun:
            self._abort()
            return
        head = plain_head(500, b"Internal Server Error")
        await self.send(head)
        await self.send({"type": "http.response.body", "body": b"Internal Server Error"})

    def _abort(self) -> None:
        """Abort the connection, so that the peer sees an incomplete response."""
        if not self.is_answered and not self.is_disconnected:
            self._connection.transport.abort()

    # --- the response -----------------------------------------------------------------------------

    def _send_start(self, message: Message) -> None:
        if message["type"] != "http.response.start":
            raise RuntimeError(f"{message['type']} before http.response.start")
        if not self.is_whole:
            self.keep_alive = False
        status = message["status"]
        self._has_body = status not in WITHOUT_BODY and self.scope["method"] != "HEAD"
        self._head = render_head(status, self._decide_headers(message.get("headers", ())))
        self.is_begun = True

    def _decide_headers(self, given: Headers) -> Headers:
        """All headers of the response; whether the connection stays open is decided here."""
        headers = list(self._connection.server_state.default_headers)
        for name, value in given:
            if name == b"connection":
                self.keep_alive = self.keep_alive and b"close" not in value.lower()
                continue
            if name == b"content-length":
                self._remaining = int(value)
            headers.append((name, value))
        if self._has_body and self._remaining is None:
            self._choose_framing(headers)
        if not self.keep_alive:
            headers.append((b"connection", b"close"))
        return headers

    def _choose_framing(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Decide what ends a response without a length: the last chunk, or the connection's end."""
        self._is_chunked = self.scope["http_version"] == "1.1"
        if self._is_chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        else:
            self.keep_alive = False

    def _send_body(self, message: Message) -> None:
        if message["type"] == HAND_OVER:
            self._hand_over(message["take"])
            return
        if message["type"] != "http.response.body":
            raise RuntimeError(f"{message['type']} within a response")
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        self._write(self._framed(body, is_last=is_last))
        if is_last:
            self.is_answered = True
            if self._waiter is not None:
                self._wake(self._waiter)
            self._connection.answered(self)

    def _hand_over(self, take: Taking) -> None:
        self._connection.hand_over(take, is_chunked=self._is_chunked)
        self.is_answered = True  # not if that failed: then the connection is aborted

    def _framed(self, body: bytes, *, is_last: bool) -> bytes:
        if not self._has_body:
            return b""
        if self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk + b"0\r\n\r\n" if is_last else chunk
        if self._remaining is not None:
            self._remaining -= len(body)
            if self._remaining < 0 or (is_last and self._remaining):
                raise RuntimeError("the response is not as long as its Content-Length")
        return body

    def _write(self, data: bytes) -> None:
        head, self._head = self._head, None
        if head is None:
            if data:
                self._connection.transport.write(data)
        elif len(data) > JOINED_BYTES:
            self._connection.transport.writelines((head, data))
        else:
            self._connection.transport.write(head + data)


def render_head(status: int, headers: Headers) -> bytes:
    """The head of a response. A line break in a header is an error, never sent."""
    lines = [STATUS_LINES[status], *map(b": ".join, headers)]
    head = b"\r\n".join(lines)
    ends = len(lines) - 1
    if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head:
        raise RuntimeError("a header of the response contains a line break")
    return head + b"\r\n\r\n"


def plain_head(status: int, body: bytes) -> Message:
    """The start of a plain-text response, the last one of its connection."""
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    return {"type": "http.response.start", "status": status, "headers": headers}
