"""HTTP/1.1 connections: requests are read here, bounded in bytes and in time, whatever they say.

Rules that hold here: a request's head has a deadline as a whole; a body may take its time as long
as content of it keeps coming, which neither chunk extensions nor trailers are, or as long as it is
we who do not read; an answer may take its time as long as some of it is read. Answers leave in the
order of the requests. Who may still be sending when we end hears first why: the connection is
closed half, and read on for a while. Of uvicorn this uses what it hands to any protocol.
"""

import asyncio
from collections import deque
from typing import Any, cast
from urllib.parse import unquote

import httptools
from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.server import ServerState

from rsnotify.serving.deadlines import Deadlines
from rsnotify.serving.exchange import Exchange, Headers, plain_head, render_head
from rsnotify.unread import unread_bytes

HEAD_SECONDS = 10.0
HEAD_BYTES = 64 * 1024
HEAD_FIELDS = 256
BODY_SECONDS = 15.0  # between two parts of its content
FRAMING_BYTES = 16 * 1024  # between two parts of its content: extensions of chunks, trailers
PIPELINED = 100  # requests that may wait for the answers to those before them
LINGER_SECONDS = 30.0
LINGER_BYTES = (
    64 * 1024 * 1024
)  # four times the largest body: who sends one reads why it is refused

# What is being read.
NOTHING, HEAD, BODY, DEAF, LINGERING = range(5)
ASGI = {"version": "3.0", "spec_version": "2.3"}


class HttpProtocol(asyncio.Protocol):
    """One connection, from its first byte until it is closed or becomes a WebSocket."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        deadlines: Deadlines,
        send_timeout_seconds: float,
    ) -> None:
        self.transport: asyncio.Transport
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._deadlines = deadlines
        self._send_timeout_seconds = send_timeout_seconds
        self._parser = httptools.HttpRequestParser(self)
        self._reading = NOTHING
        self._head_bytes = 0  # of a head that has not come whole, beyond the first read of it
        self._framing_bytes = 0  # since the last content of the body
        self._has_content = False  # in what has just been read
        self._may_be_long = False  # the head that has just been read
        self._is_upgrading = False
        self._is_body_to_come = False  # of a request that proposes to go on in another protocol
        self._refusal: tuple[int, str] | None = None  # of what the parser has just found
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._newest: Exchange | None = None  # whose request is being read, or was last
        self._serving: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._last_words: bytes | None = None  # once the answers before have been given
        self._is_sending = False  # what nobody reads any more
        self._is_draining = False
        self._is_paused = False
        self._writable: asyncio.Future[None] | None = None  # while the peer's buffers are full
        self._unread = 0
        self._lingering_bytes = 0

    # --- coming and going ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        self._client = _address(transport, "peername")
        self._server = _address(transport, "sockname")
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._deadlines.expect(self._lose_patience, HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._reading = DEAF
        self._forget()
        for exchange in (*self._waiting, self._serving):
            if exchange is not None:
                exchange.leave()
        self._waiting.clear()
        self._let_write()
        self._parser = None  # type: ignore[assignment]  # it and we hold each other

    def _forget(self) -> None:
        self._server_state.connections.discard(self)
        self._deadlines.wake(self._close)
        self._deadlines.take_back(self._lose_patience)
        self._deadlines.take_back(self._look_for_progress)

    def shutdown(self) -> None:
        """The server is going away: what was asked is answered, and nothing more is heard."""
        self._is_draining = True
        if self._newest is not None:
            self._newest.keep_alive = False
        if self._reading == NOTHING:
            self._reading = DEAF
            if self._serving is None:
                self._close()

    def _close(self) -> None:
        self.transport.close()

    # --- what is read --------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """A request that comes whole, as most do, costs no deadline."""
        before = self._reading
        if before >= DEAF:
            self._hear_nothing(data)
            return
        self._has_content = False
        self._may_be_long = before == HEAD or len(data) > HEAD_BYTES
        self._parse(data)
        if self._reading == NOTHING:
            self._deadlines.take_back(self._lose_patience)
        elif self._reading == HEAD:
            self._measure_head(len(data) if before == HEAD else 0, is_new=before != HEAD)
        elif self._reading == BODY:
            self._measure_body(len(data), is_new=before != BODY)

    def _parse(self, data: bytes) -> None:
        try:
            while data:
                data = self._parsed(data)
        except httptools.HttpParserError:
            self._refuse(*(self._refusal or (400, "The request is no HTTP/1.1.")))

    def _parsed(self, data: bytes) -> bytes:
        """What is left of it: that follows a request to go on in another protocol."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._is_upgrading:
                return self._head_of_body() + data[upgrade.args[0] :]
            self._upgrade()
        return b""

    def _hear_nothing(self, data: bytes) -> None:
        self._is_sending = True
        if self._reading == LINGERING:
            self._lingering_bytes += len(data)
            if self._lingering_bytes > LINGER_BYTES:
                self.transport.abort()
        else:
            self.pause_reading()

    def _measure_head(self, size: int, *, is_new: bool) -> None:
        """One that is not whole yet; the last word on its length is said when it is."""
        self._head_bytes += _length(self._url, self._headers) if is_new else size
        if self._head_bytes > 2 * HEAD_BYTES:
            self._refuse(*TOO_LONG)
        elif is_new and not self._deadlines.is_expected(self._lose_patience):
            self._deadlines.expect(self._lose_patience, HEAD_SECONDS)

    def _measure_body(self, size: int, *, is_new: bool) -> None:
        if is_new or self._has_content:
            self._framing_bytes = 0
            self._deadlines.expect(self._lose_patience, BODY_SECONDS)
        else:
            self._framing_bytes += size
            if self._framing_bytes > FRAMING_BYTES:
                self._refuse(400, "The body has too much around its content.")

    def _lose_patience(self) -> None:
        if self._is_paused and self._reading == BODY:
            self._deadlines.expect(self._lose_patience, BODY_SECONDS)
        elif self._reading != LINGERING:
            self.transport.close()
        elif self.transport.get_write_buffer_size():
            self._deadlines.expect(self._lose_patience, LINGER_SECONDS)
        else:
            self.transport.abort()

    # --- what the parser finds -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._reading == DEAF:
            raise _Stopped
        if self._is_body_to_come:
            return
        self._deadlines.wake(self._close)
        self._reading = HEAD
        self._head_bytes = 0
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading == HEAD:  # else it is a trailer: nobody may count on one
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._is_body_to_come:
            self._is_body_to_come = False
            return
        if self._may_be_long:
            self._check_length()
        version = self._parser.get_http_version()
        scope = self._scope(version)
        self._reading = BODY
        if self._parser.should_upgrade() and self._does_upgrade(scope):
            return
        self._newest = Exchange(
            self,
            scope,
            keep_alive=version == "1.1" and self._parser.should_keep_alive(),
            expects_continue=self._value_of(b"expect").lower() == b"100-continue",
        )
        self._serve_in_turn(self._newest)

    def on_body(self, body: bytes) -> None:
        self._has_content = True
        if self._newest is not None and not self._newest.is_answered:
            self._newest.feed(body)

    def on_message_complete(self) -> None:
        if self._is_upgrading or self._is_body_to_come:
            return
        assert self._newest is not None  # noqa: S101
        self._newest.complete()
        self._reading = NOTHING if self._newest.keep_alive else DEAF

    def _check_length(self) -> None:
        if _length(self._url, self._headers) > HEAD_BYTES:
            self._refusal = TOO_LONG
            raise _Stopped

    def _scope(self, version: str) -> Scope:
        if version not in ("1.1", "1.0"):
            self._refusal = 505, "The hub speaks HTTP/1.1."
            raise _Stopped
        if len(self._headers) > HEAD_FIELDS:
            self._refusal = TOO_LONG
            raise _Stopped
        raw_path, query = _split(self._url)
        path = raw_path.decode("ascii")
        return {
            "type": "http",
            "asgi": ASGI,
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "method": self._parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
            "state": self._app_state.copy(),
        }

    def _value_of(self, name: bytes) -> bytes:
        return next((value for key, value in self._headers if key == name), b"")

    # --- protocols to go on in -----------------------------------------------------------------

    def _does_upgrade(self, scope: Scope) -> bool:
        """To a WebSocket; whatever else is proposed, the request is answered in HTTP."""
        has_body = self._value_of(b"transfer-encoding") or self._value_of(b"content-length") > b"0"
        is_websocket = self._value_of(b"upgrade").lower() == b"websocket"
        self._is_upgrading = is_websocket and scope["method"] == "GET" and not has_body
        self._is_body_to_come = bool(has_body)
        return self._is_upgrading

    def _head_of_body(self) -> bytes:
        """The parser takes what follows for another protocol: it is told that a body does."""
        if not self._is_body_to_come:
            return b""
        if self._value_of(b"transfer-encoding"):
            return b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        length = self._value_of(b"content-length")
        return b"POST / HTTP/1.1\r\nContent-Length: %b\r\n\r\n" % length

    def _upgrade(self) -> None:
        if self._serving is not None:
            self._refuse(400, "A WebSocket cannot be opened while a request waits for its answer.")
            return
        self._forget()
        handshake = cast(Any, self._config.ws_protocol_class)(
            config=self._config, server_state=self._server_state, app_state=self._app_state
        )
        handshake.connection_made(self.transport)
        self.transport.set_protocol(handshake)
        handshake.data_received(_render_request(self._url, self._headers))
        self._parser = None  # type: ignore[assignment]  # it and we hold each other

    # --- requests and their answers ------------------------------------------------------------

    def _serve_in_turn(self, exchange: Exchange) -> None:
        exchange.keep_alive = exchange.keep_alive and not self._is_draining
        if self._serving is None:
            self._serve(exchange)
            return
        self._waiting.append(exchange)
        self.pause_reading()
        if len(self._waiting) == PIPELINED:
            exchange.keep_alive = False

    def _serve(self, exchange: Exchange) -> None:
        self._serving = exchange
        tasks = self._server_state.tasks
        task = asyncio.get_running_loop().create_task(exchange.run(self._config.loaded_app))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def answered(self, exchange: Exchange) -> None:
        self._server_state.total_requests += 1
        self._serving = None
        if not exchange.keep_alive:
            self._end()
        elif self._waiting:
            self._serve(self._waiting.popleft())
        elif self._last_words is not None or self._reading == DEAF:
            self._end()
        else:
            if self._reading == NOTHING:
                self._deadlines.rest(self._close)
            self.resume_reading()

    def default_headers(self) -> Headers:
        return self._server_state.default_headers

    # --- how it ends ---------------------------------------------------------------------------

    def _refuse(self, status: int, text: str) -> None:
        """Hear nothing more; say why, once the answers before have been given."""
        self._is_sending = True
        if self._reading == DEAF:
            return
        words = plain_head(status, text.encode())
        head = render_head(status, [*self.default_headers(), *words["headers"]])
        self._last_words = head + text.encode()
        if self._reading == BODY and not self._is_upgrading:
            self._give_up_request()
        self._reading = DEAF
        self._deadlines.take_back(self._lose_patience)
        if self._serving is None:
            self._end()
        else:
            self.pause_reading()

    def _give_up_request(self) -> None:
        """The one that is being read will never be whole."""
        assert self._newest is not None  # noqa: S101
        self._newest.leave()
        if self._serving is not self._newest:
            self._waiting.pop()
            return
        self._serving = None
        if self._newest.is_begun:
            self._last_words = b""

    def _end(self) -> None:
        for exchange in self._waiting:
            exchange.leave()
        self._waiting.clear()
        if self._last_words:
            self.transport.write(self._last_words)
        if self._is_sending or self._is_paused or self._reading in (HEAD, BODY):
            self._linger()
        else:
            self._close()

    def _linger(self) -> None:
        """A full close while the peer is still sending would take the answer from it."""
        self._forget()
        self._reading = LINGERING
        if not self.transport.can_write_eof():
            self._close()
            return
        self.transport.write_eof()
        self._deadlines.expect(self._lose_patience, LINGER_SECONDS)
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    # --- who waits for whom --------------------------------------------------------------------

    def pause_reading(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and not self._waiting and self._reading < DEAF:
            self._is_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()
        self._expect_progress()

    def resume_writing(self) -> None:
        self._deadlines.take_back(self._look_for_progress)
        self._let_write()

    def _let_write(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def is_writable(self) -> bool:
        return self._writable is None

    async def writable(self) -> None:
        if self._writable is not None:
            await self._writable

    def _expect_progress(self) -> None:
        self._unread = unread_bytes(self.transport)
        self._deadlines.expect(self._look_for_progress, self._send_timeout_seconds)

    def _look_for_progress(self) -> None:
        if unread_bytes(self.transport) < self._unread:
            self._expect_progress()
        else:
            self.transport.abort()


class _Stopped(Exception):
    """Raised through the parser: what follows is not read."""


TOO_LONG = 431, "The head of the request is too long."


def _address(transport: asyncio.BaseTransport, name: str) -> tuple[str, int] | None:
    found = transport.get_extra_info(name)
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None


def _length(url: bytes, headers: Headers) -> int:
    """Of a head, as far as it has been read."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def _split(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of what is asked for, which a proxy may send with scheme and host."""
    if url.startswith(b"/") and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    return parsed.path, parsed.query or b""


def _render_request(url: bytes, headers: Headers) -> bytes:
    lines = [b"GET %b HTTP/1.1" % url, *(b"%b: %b" % header for header in headers), b"", b""]
    return b"\r\n".join(lines)
