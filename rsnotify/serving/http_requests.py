"""Requests of one HTTP/1.1 connection, read by httptools and bounded whatever the peer says.

Rules that hold here: a head has a cap, and a deadline as a whole; a body may take its time as long
as content of it keeps coming, which neither chunk extensions nor trailers are; trailers are
dropped. After the last request, or one that is none, nothing more is heard. Nothing here answers.
"""

import logging
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools
from starlette.types import Scope

from rsnotify.serving.exchange import Exchange, ExchangeConnection, Headers

log = logging.getLogger(__name__)

HEAD_BYTES = 64 * 1024
HEAD_FIELDS = 256
FRAMING_BYTES = 16 * 1024  # between two parts of its content: extensions of chunks, trailers

IDLE, HEAD, BODY, CLOSED = range(4)  # what is being read
ASGI = {"version": "3.0", "spec_version": "2.3"}
MALFORMED = 400, "The request is no HTTP/1.1."
TOO_LONG = 431, "The head of the request is too long."


class RequestHandler(ExchangeConnection, Protocol):
    """What the requests of a connection are told to."""

    def request_began(self) -> None: ...
    def request_read(self, exchange: Exchange) -> None: ...
    def upgrade(self, request: bytes) -> None: ...
    def refuse(self, status: int, text: str) -> None: ...
    def start_head_deadline(self) -> None: ...
    def start_body_deadline(self) -> None: ...
    def stop_deadline(self) -> None: ...


class RequestReader:
    """What the peer of a connection asks for, one request after the other."""

    def __init__(self, handler: RequestHandler, connection_scope: dict[str, Any]) -> None:
        self.state = IDLE
        self.newest: Exchange | None = None  # whose request is being read, or was last
        self._handler = handler
        self._connection_scope = connection_scope  # the connection, in every scope
        self._parser = httptools.HttpRequestParser(self)
        self._refusal = MALFORMED  # of what the parser has just found
        self._head_bytes = 0  # of one that has not come whole, as far as is known
        self._has_begun = False  # a request, with what has just been read
        self._must_measure = False  # the head that has just been read
        self._framing_bytes = 0  # since the last content of the body
        self._has_content = False  # in what has just been read
        self._is_upgrading = False
        self._expects_body_of_upgrade = (
            False  # of a request that proposes to go on in another protocol
        )
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []

    def read(self, data: bytes) -> None:
        """A request that comes whole, as most do, costs no deadline."""
        self._has_begun = self._has_content = False
        self._must_measure = self.state == HEAD or len(data) > HEAD_BYTES
        self._parse(data)
        if self.state == HEAD:
            self._measure_head(len(data))
        elif self.state == BODY:
            self._measure_body(len(data))

    def close(self) -> None:
        """Let go: the parser and its callbacks hold each other."""
        self.state = CLOSED
        self._parser = cast(Any, None)

    def _parse(self, data: bytes) -> None:
        try:
            while data:
                data = self._parsed(data)
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _StopParsing):
                log.error("a bug while reading a request", exc_info=error.__context__)
            self._handler.refuse(*self._refusal)
        except httptools.HttpParserError:
            self._handler.refuse(*MALFORMED)

    def _parsed(self, data: bytes) -> bytes:
        """What is left of it: that follows a request to go on in another protocol."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._is_upgrading:
                return self._head_before_body() + data[upgrade.args[0] :]
            self._handler.upgrade(_render_request(self._url, self._headers))
        return b""

    # --- how much, and how long ----------------------------------------------------------------

    def _measure_head(self, size: int) -> None:
        """One that is not whole yet; the last word on its length is said when it is."""
        self._head_bytes += _head_length(self._url, self._headers) if self._has_begun else size
        if self._head_bytes > 2 * HEAD_BYTES:
            self._handler.refuse(*TOO_LONG)
        elif self._has_begun:
            self._handler.start_head_deadline()

    def _measure_body(self, size: int) -> None:
        if self._has_content:
            self._framing_bytes = 0
            self._handler.start_body_deadline()
        else:
            self._framing_bytes += size
            if self._framing_bytes > FRAMING_BYTES:
                self._handler.refuse(400, "The body has too much around its content.")

    # --- what the parser finds -----------------------------------------------------------------

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

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.state == HEAD:  # else it is a trailer
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._expects_body_of_upgrade:
            self._expects_body_of_upgrade = False
            return
        version = self._parser.get_http_version()
        self._check_head(version)
        scope = self._scope(version)
        self.state = BODY
        self._has_content = True  # none of a body yet, but what leads to it
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
        self._handler.stop_deadline()
        self.state = IDLE if self.newest.keep_alive else CLOSED

    def _check_head(self, version: str) -> None:
        if version not in ("1.1", "1.0"):
            self._refusal = 505, "The hub speaks HTTP/1.1."
            raise _StopParsing
        is_long = self._must_measure and _head_length(self._url, self._headers) > HEAD_BYTES
        if is_long or len(self._headers) > HEAD_FIELDS:
            self._refusal = TOO_LONG
            raise _StopParsing

    def _scope(self, version: str) -> Scope:
        raw_path, query = self._split_url()
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

    def _split_url(self) -> tuple[bytes, bytes]:
        """Path and query of what is asked for, which a proxy may send with scheme and host."""
        url = self._url
        if url.startswith(b"/") and url.isascii() and b"#" not in url:
            path, _, query = url.partition(b"?")
            return path, query
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            raise _StopParsing from None
        if not parsed.path or not url.isascii():
            raise _StopParsing
        return parsed.path, parsed.query or b""

    def _value_of(self, name: bytes) -> bytes:
        return next((value for key, value in self._headers if key == name), b"")

    # --- protocols to go on in -----------------------------------------------------------------

    def _begin_upgrade(self, scope: Scope) -> bool:
        """To a WebSocket; whatever else is proposed, the request is answered in HTTP."""
        has_body = self._value_of(b"transfer-encoding") or self._value_of(b"content-length") > b"0"
        is_websocket = self._value_of(b"upgrade").lower() == b"websocket"
        self._is_upgrading = is_websocket and scope["method"] == "GET" and not has_body
        self._expects_body_of_upgrade = bool(has_body)
        return self._is_upgrading

    def _head_before_body(self) -> bytes:
        """The parser takes what follows for another protocol: it is told that a body does."""
        if not self._expects_body_of_upgrade:
            return b""
        if self._value_of(b"transfer-encoding"):
            return b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        length = self._value_of(b"content-length")
        return b"POST / HTTP/1.1\r\nContent-Length: %b\r\n\r\n" % length


class _StopParsing(Exception):
    """Raised through the parser: what follows is not read."""


def _head_length(url: bytes, headers: Headers) -> int:
    """Of a head, as far as it has been read."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def _render_request(url: bytes, headers: Headers) -> bytes:
    lines = [b"GET %b HTTP/1.1" % url, *(b"%b: %b" % header for header in headers), b"", b""]
    return b"\r\n".join(lines)
