"""The requests of one HTTP/1.1 connection, and their responses.

`RequestReader` parses requests with httptools, with limits on everything. A head has a maximum size
and one deadline. A body may take long as long as content keeps coming; chunk extensions and
trailers do not count as content, and trailers are dropped. After the last request, or an invalid
one, nothing more is read.

`Exchange` gives each request to the ASGI application and writes its response. Head and first body
part leave in one write. A response that begins before its request is complete ends the connection.
URLs may contain a token, so only the path is logged.
"""

import asyncio
import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState

from rsnotify.http.extensions import HAND_OVER
from rsnotify.http.unread_output import UnreadOutput

log = logging.getLogger(__name__)

Headers = Iterable[tuple[bytes, bytes]]


# --- an exchange with the application -------------------------------------------------------------


JOINED_BYTES = 64 * 1024  # a larger body part is not copied to join it with the head
READ_AHEAD_BYTES = 64 * 1024  # of a body, before the application asks for it
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
WITHOUT_BODY = (204, 304)


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
        if not self.is_begun:
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


STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}".encode() for each in HTTPStatus}


def plain_head(status: int, body: bytes) -> Message:
    """The start of a plain-text response, the last one of its connection."""
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    return {"type": "http.response.start", "status": status, "headers": headers}


# --- requests -------------------------------------------------------------------------------------


HEAD_BYTES = 64 * 1024
HEAD_FIELDS = 256
LINE_BYTES = 16 * 1024  # an address, or a field: cursors of a hundred sets take ten KiB
QUERY_FIELDS = 256
FRAMING_BYTES = 16 * 1024  # chunk extensions and trailers, between two parts of the content

IDLE, HEAD, BODY, CLOSED = range(4)  # what is being read
ASGI = {"version": "3.0", "spec_version": "2.3"}

MALFORMED = 400, "The request is not valid HTTP/1.1."
TOO_LONG = 431, "The head of the request is too long."
ADDRESS_TOO_LONG = 414, "The address is too long, or has too many parameters."
AMBIGUOUS = (
    400,
    "Send one Host header, and a body with Content-Length or with Transfer-Encoding: chunked.",
)


class RequestHandler(ExchangeConnection, Protocol):
    """The connection, as its `RequestReader` sees it."""

    def request_began(self) -> None: ...
    def request_read(self, exchange: Exchange) -> None: ...
    def upgrade(self, request: bytes) -> None: ...
    def refuse(self, status: int, text: str) -> None: ...
    def start_head_deadline(self) -> None: ...
    def start_body_deadline(self) -> None: ...
    def stop_deadline(self) -> None: ...


class RequestReader:
    """Parses the requests of one connection, one after the other."""

    def __init__(self, handler: RequestHandler, connection_scope: dict[str, Any]) -> None:
        self.state = IDLE
        self.newest: Exchange | None = None  # of the request that is being read, or was read last
        self._handler = handler
        self._connection_scope = connection_scope  # what every scope says of the connection
        self._parser = httptools.HttpRequestParser(self)
        self._refusal = MALFORMED  # what to answer if the parser stops now
        self._head_bytes = 0  # of an incomplete head, so far
        self._has_begun = False  # a request, in the data just read
        self._must_measure = False  # the head: it may be too long
        self._framing_bytes = 0  # since the last content of the body
        self._has_content = False  # in the data just read
        self._is_timed = True  # a deadline runs: that of the connection, for its first request
        self._is_upgrading = False
        self._expects_body_of_upgrade = False  # of a request that asks for another protocol
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []

    def read(self, data: bytes) -> None:
        """Parse this data. A request that comes complete, as most do, needs no deadline."""
        self._has_begun = self._has_content = False
        self._must_measure = self.state == HEAD or len(data) > HEAD_BYTES
        self._parse(data)
        if self.state == HEAD:
            self._measure_head(len(data))
        elif self.state == BODY:
            self._measure_body(len(data))

    def close(self) -> None:
        """Drop parser and connection, so that they are freed without the garbage collector."""
        self.state = CLOSED
        self.newest = None
        self._handler = self._parser = cast(Any, None)

    def _parse(self, data: bytes) -> None:
        try:
            while data:
                data = self._parsed(data)
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _StopParsing):
                log.error("internal error while reading a request", exc_info=error.__context__)
            self._handler.refuse(*self._refusal)
        except httptools.HttpParserError:
            self._handler.refuse(*MALFORMED)

    def _parsed(self, data: bytes) -> bytes:
        """Parse, and return the data that follow a request for another protocol."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._is_upgrading:
                return self._head_before_body() + data[upgrade.args[0] :]
            self._handler.upgrade(render_request(self._url, self._headers))
        return b""

    # --- called by the parser ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.state == CLOSED:
            raise _StopParsing
        if self._expects_body_of_upgrade:
            return
        self._handler.request_began()
        self.state = HEAD
        self._has_begun = True
        self._head_bytes = 0
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > LINE_BYTES or self._url.count(b"&") >= QUERY_FIELDS:
            self._refusal = ADDRESS_TOO_LONG
            raise _StopParsing

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.state == HEAD:  # otherwise it is a trailer
            self._headers.append((name.lower(), value))
            if len(self._headers) > HEAD_FIELDS or len(value) > LINE_BYTES:
                self._refusal = TOO_LONG
                raise _StopParsing

    def on_headers_complete(self) -> None:
        if self._expects_body_of_upgrade:
            self._expects_body_of_upgrade = False
            return
        version = self._parser.get_http_version()
        self._check_head(version)
        scope = self._scope(version)
        self.state = BODY
        self._has_content = True  # none yet, but the body follows
        if self._parser.should_upgrade() and self._begin_upgrade(scope):
            return
        self.newest = Exchange(
            self._handler,
            scope,
            keep_alive=version == "1.1" and self._parser.should_keep_alive(),
            expects_continue=version == "1.1"
            and self._value_of(b"expect").lower() == b"100-continue",
        )
        self._handler.request_read(self.newest)

    def on_body(self, body: bytes) -> None:
        self._has_content = True
        if self.newest is not None:
            self.newest.feed(body)

    def on_message_complete(self) -> None:
        if self._is_upgrading or self._expects_body_of_upgrade or self.newest is None:
            return
        self.newest.complete()
        if self._is_timed:
            self._is_timed = False
            self._handler.stop_deadline()
        self.state = IDLE if self.newest.keep_alive else CLOSED

    def _check_head(self, version: str) -> None:
        if version not in ("1.1", "1.0"):
            self._refusal = 505, "The hub supports HTTP/1.1 only."
            raise _StopParsing
        is_long = self._must_measure and head_length(self._url, self._headers) > HEAD_BYTES
        if is_long:
            self._refusal = TOO_LONG
            raise _StopParsing
        if not is_unambiguous(version, self._headers):
            self._refusal = AMBIGUOUS
            raise _StopParsing

    def _scope(self, version: str) -> Scope:
        """The request as ASGI describes it."""
        raw_path, _, query = self._url.partition(b"?")
        if raw_path[:1] != b"/" or not self._url.isascii() or b"#" in self._url:
            raw_path, query = self._split_whole_url()
        path = raw_path.decode("ascii")
        return self._connection_scope | {
            "type": "http",
            "asgi": ASGI,
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
            "state": {},
        }

    def _split_whole_url(self) -> tuple[bytes, bytes]:
        """Path and query of a request target that is a whole URL, or not valid."""
        try:
            parsed = httptools.parse_url(self._url)
        except httptools.HttpParserInvalidURLError:
            raise _StopParsing from None
        if not parsed.path or not self._url.isascii():
            raise _StopParsing
        return parsed.path, parsed.query or b""

    def _value_of(self, name: bytes) -> bytes:
        for known, value in self._headers:
            if known == name:
                return value
        return b""

    # --- how much, and how long -------------------------------------------------------------------

    def _measure_head(self, size: int) -> None:
        """Estimate the size of an incomplete head; `_check_head` measures the complete one."""
        self._head_bytes += head_length(self._url, self._headers) if self._has_begun else size
        if self._head_bytes > 2 * HEAD_BYTES:
            self._handler.refuse(*TOO_LONG)
        elif self._has_begun:
            self._is_timed = True
            self._handler.start_head_deadline()

    def _measure_body(self, size: int) -> None:
        if self._has_content:
            self._framing_bytes = 0
            self._is_timed = True
            self._handler.start_body_deadline()
        else:
            self._framing_bytes += size
            if self._framing_bytes > FRAMING_BYTES:
                self._handler.refuse(400, "The body has too many chunk extensions or trailers.")

    # --- requests for another protocol ------------------------------------------------------------

    def _begin_upgrade(self, scope: Scope) -> bool:
        """Whether it is a WebSocket; requests for any other protocol are answered as HTTP."""
        has_body = self._value_of(b"transfer-encoding") or self._value_of(b"content-length") > b"0"
        is_websocket = self._value_of(b"upgrade").lower() == b"websocket"
        self._is_upgrading = is_websocket and scope["method"] == "GET" and not has_body
        self._expects_body_of_upgrade = bool(has_body)
        return self._is_upgrading

    def _head_before_body(self) -> bytes:
        """A head that makes the parser read the body, where it would expect another protocol."""
        if not self._expects_body_of_upgrade:
            return b""
        if self._value_of(b"transfer-encoding"):
            return b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        length = self._value_of(b"content-length")
        return b"POST / HTTP/1.1\r\nContent-Length: %b\r\n\r\n" % length


class _StopParsing(Exception):
    """Raised in a callback, so that the parser reads no further."""


def is_unambiguous(version: str, headers: Headers) -> bool:
    """Whether each proxy on the way has read the same host and body (RFC 9112, 3.2 and 6)."""
    hosts = encodings = 0
    encoding = b""
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            encodings, encoding = encodings + 1, value.lower()
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return False
    return encodings == 0 or (encodings == 1 and encoding == b"chunked" and version == "1.1")


def head_length(url: bytes, headers: Headers) -> int:
    """The length of a head, as far as it has been read."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def render_request(url: bytes, headers: Headers) -> bytes:
    lines = [b"GET %b HTTP/1.1" % url, *(b"%b: %b" % header for header in headers), b"", b""]
    return b"\r\n".join(lines)
