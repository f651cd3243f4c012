"""Reads the requests of one HTTP/1.1 connection with httptools, with limits on everything.

A head has a maximum size and one deadline. A body may take long as long as content keeps coming;
chunk extensions and trailers do not count as content, and trailers are dropped. After the last
request, or an invalid one, nothing more is read.
"""

import logging
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools
from starlette.types import Scope

from rsnotify.http.exchange import Exchange, ExchangeConnection
from rsnotify.http.extensions import Headers

log = logging.getLogger(__name__)

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
        self.is_timed = True  # a deadline runs: that of the connection, for its first request
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
        if self.is_timed:
            self.is_timed = False
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
            self.is_timed = True
            self._handler.start_head_deadline()

    def _measure_body(self, size: int) -> None:
        if self._has_content:
            self._framing_bytes = 0
            self.is_timed = True
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
