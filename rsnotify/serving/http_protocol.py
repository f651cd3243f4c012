"""One HTTP/1.1 connection: its requests are answered in their order, and it ends so that the peer
hears why.

Rules that hold here: an answer may take its time as long as some of it is read; who may still be
sending when we end is told first why: the connection is closed half, and read on for a while. Of
uvicorn this uses only what it hands to any protocol: configuration, state, and `shutdown`.
"""

import asyncio
from collections import deque
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from rsnotify.serving.deadlines import Deadlines
from rsnotify.serving.exchange import Exchange, Headers, plain_head, render_head
from rsnotify.serving.http_requests import DEAF, NOTHING, Requests
from rsnotify.socket_backlog import unread_bytes

HEAD_SECONDS = 10.0
BODY_SECONDS = 15.0  # between two parts of its content
PIPELINED = 100  # requests that may wait for the answers to those before them
LINGER_SECONDS = 30.0
LINGER_BYTES = 64 * 1024 * 1024  # four times the largest body: who sends it may read why not


class HttpProtocol(asyncio.Protocol):
    """A connection, from its first byte until it is closed or becomes a WebSocket."""

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
        self._requests: Requests
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._deadlines = deadlines
        self._send_timeout_seconds = send_timeout_seconds
        self._serving: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._last_words = b""  # once the answers before have been given
        self._is_ending = False  # after these answers
        self._is_draining = False
        self._is_sending = False  # what nobody reads any more
        self._is_lingering = False
        self._lingering_bytes = 0
        self._is_paused = False
        self._writable: asyncio.Future[None] | None = None  # while the peer's buffers are full
        self._unread = 0

    # --- coming and going ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        about = {
            "client": _address(transport, "peername"),
            "server": _address(transport, "sockname"),
            "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        }
        self._requests = Requests(self, about)
        self.expect_head()

    def data_received(self, data: bytes) -> None:
        if self._requests.reading != DEAF:
            self._requests.read(data)
            return
        self._is_sending = True
        if self._is_lingering:
            self._lingering_bytes += len(data)
            if self._lingering_bytes > LINGER_BYTES:
                self.transport.abort()
        else:
            self.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._forget()
        self._requests.close()
        if self._serving is not None:
            self._serving.leave()
        self._drop_waiting()
        self._let_write()

    def shutdown(self) -> None:
        """The server is going away: what was asked is answered, and nothing more is heard."""
        self._is_draining = True
        requests = self._requests
        if requests.newest is not None:
            requests.newest.keep_alive = False
        if requests.reading == NOTHING:
            requests.reading = DEAF
            if self._serving is None:
                self._close()

    def _close(self) -> None:
        if self.transport.get_write_buffer_size():
            self._expect_progress()  # until it has left
        self.transport.close()

    def _forget(self) -> None:
        self._server_state.connections.discard(self)
        self._deadlines.wake(self._close)
        self._deadlines.take_back(self._lose_patience)
        self._deadlines.take_back(self._look_for_progress)

    # --- requests and their answers ------------------------------------------------------------

    def wake(self) -> None:
        self._deadlines.wake(self._close)

    def take(self, exchange: Exchange) -> None:
        if self._is_draining:
            exchange.keep_alive = False
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
            self._last_words = b""
            self._end()
        elif self._waiting:
            self._serve(self._waiting.popleft())
        elif self._is_ending:
            self._end()
        else:
            if self._requests.reading == NOTHING:
                self._deadlines.rest(self._close)
            self.resume_reading()

    def default_headers(self) -> Headers:
        return self._server_state.default_headers

    def upgrade(self, request: bytes) -> None:
        """From here on uvicorn's WebSocket protocol has the connection."""
        if self._serving is not None:
            self.refuse(400, "A WebSocket cannot be opened while a request waits for its answer.")
            return
        self._forget()
        self._requests.close()
        handshake = cast(Any, self._config.ws_protocol_class)(
            config=self._config, server_state=self._server_state, app_state=self._app_state
        )
        handshake.connection_made(self.transport)
        self.transport.set_protocol(handshake)
        handshake.data_received(request)

    # --- how it ends ---------------------------------------------------------------------------

    def refuse(self, status: int, text: str) -> None:
        """Hear nothing more; say why, once the answers before have been given."""
        self._is_sending = True
        requests = self._requests
        if requests.reading == DEAF:
            return
        self._last_words = self._plain(status, text.encode())
        if requests.newest is not None and not requests.newest.is_whole:
            self._give_up(requests.newest)
        requests.reading = DEAF
        self._is_ending = True
        self.expect_no_more()
        if self._serving is None:
            self._end()
        else:
            self.pause_reading()

    def _plain(self, status: int, text: bytes) -> bytes:
        headers = plain_head(status, text)["headers"]
        return render_head(status, [*self.default_headers(), *headers]) + text

    def _give_up(self, exchange: Exchange) -> None:
        """Its request will never be whole."""
        exchange.leave()
        if self._serving is not exchange:
            self._waiting.pop()
            return
        self._serving = None
        if exchange.is_begun:
            self._last_words = b""

    def _drop_waiting(self) -> None:
        while self._waiting:
            self._waiting.pop().leave()

    def _end(self) -> None:
        self._drop_waiting()
        if self.transport.is_closing():
            return
        if self._last_words:
            self.transport.write(self._last_words)
        is_read = self._requests.reading in (NOTHING, DEAF)
        if is_read and not self._is_sending and not self._is_paused:
            self._close()
        elif not self._is_lingering:
            self._linger()

    def _linger(self) -> None:
        """A full close while the peer is still sending would take the answer from it."""
        self._forget()
        self._requests.reading = DEAF
        self._is_lingering = True
        if not self.transport.can_write_eof():
            self._close()
            return
        self.transport.write_eof()
        self._deadlines.expect(self._lose_patience, LINGER_SECONDS)
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    # --- a peer that sends nothing -------------------------------------------------------------

    def expect_head(self) -> None:
        """What has passed since the connection was made counts for its first request."""
        if not self._deadlines.is_expected(self._lose_patience):
            self._deadlines.expect(self._lose_patience, HEAD_SECONDS)

    def expect_body(self) -> None:
        self._deadlines.expect(self._lose_patience, BODY_SECONDS)

    def expect_no_more(self) -> None:
        self._deadlines.take_back(self._lose_patience)

    def _lose_patience(self) -> None:
        if self._is_paused:  # it is we who do not read
            self._deadlines.expect(self._lose_patience, BODY_SECONDS)
        elif not self._is_lingering:
            self._close()
        elif self.transport.get_write_buffer_size():
            self._expect_progress()
        else:
            self.transport.abort()

    def pause_reading(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and not self._waiting and self._requests.reading != DEAF:
            self._is_paused = False
            self.transport.resume_reading()

    # --- a peer that reads nothing -------------------------------------------------------------

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


def _address(transport: asyncio.BaseTransport, name: str) -> tuple[str, int] | None:
    found = transport.get_extra_info(name)
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None
