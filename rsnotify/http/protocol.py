"""One HTTP/1.1 connection: answers its requests in order, and closes so that the peer learns why.

If the peer may still be sending when the connection ends, it is closed in one direction only, and
read for a while. Of uvicorn this uses what it gives to any protocol: configuration, state and
`shutdown`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from rsnotify.http.connection_limits import ConnectionLimits
from rsnotify.http.deadlines import Deadlines
from rsnotify.http.exchange import Exchange, Taking, plain_head, render_head
from rsnotify.http.extensions import HAND_OVER, LEND, PEER, Borrowing, Headers
from rsnotify.http.input_turns import HTTP, BoundedInput, ByTurns, InputTurns, ReceivedCounts
from rsnotify.http.request_reader import BODY, CLOSED, HEAD, IDLE, RequestReader
from rsnotify.http.sockets import TCP_CLOSE_WAIT, TCP_CLOSED, address_of, tcp_state
from rsnotify.http.unread_output import UnreadOutput

HEAD_SECONDS = 10.0
BODY_SECONDS = 15.0  # between two parts of the content
RETURNED_SECONDS = 5.0  # whoever was answered after a wait asks again at once; else it is idle
LAST_REQUEST_SECONDS = 1.0  # for an idle peer, whose next request may be on its way at shutdown
PIPELINED = 8  # requests that may wait for earlier responses
STARTED_A_TURN = 8  # requests and handshakes, on all connections, in a turn of the event loop
FIRST_A_TURN = 16  # of requests that wait for no response
LEFT_A_TURN = 256  # whose peers have left while they waited: to see that costs next to nothing
LINGER_SECONDS = 30.0
LINGER_BYTES = 64 * 1024 * 1024  # eight times the largest body: its sender reads the answer
LINGER_LEAST_BYTES = 1024 * 1024  # of each connection, if all together send more in a second
LINGER_REQUESTS_BYTES = 256 * 1024  # of requests that nobody will answer, and of what is no body
READ_TURN_BYTES = 256 * 1024  # of all connections, in a turn of the event loop
LEAST_BYTES = 512  # most requests are longer


class StartQueue(ByTurns):
    """Starts so many requests or handshakes in a turn of the event loop, one of each address after
    the other: whoever asks once does not wait for the hundreds that another address asks. Those
    whose peers leave while they wait are never started, and take nobody's turn: thousands a second
    may come and leave."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._lines: dict[str | None, deque[Callable[[], bool]]] = {}  # the next address is first

    def start(self, address: str | None, run: Callable[[], bool]) -> None:
        """Now, or when its turn comes; `run` returns whether it began."""
        if self._left and not self._lines:
            self._left -= run()
        else:
            self._lines.setdefault(address, deque()).append(run)
        self._come_back()

    def _turn(self) -> None:
        self._left = self._most
        looks = self._most + LEFT_A_TURN
        try:
            while self._lines and self._left and looks:
                looks -= 1
                self._left -= self._take()()
        finally:  # a bug in what one starts is no reason for others to wait
            if self._lines:
                self._come_back()

    def _take(self) -> Callable[[], bool]:
        """Of the address whose turn it is; its next comes after one of each other."""
        address = next(iter(self._lines))
        line = self._lines.pop(address)
        taken = line.popleft()
        if line:
            self._lines[address] = line
        return taken


class HttpInput:
    """What all HTTP connections of a process share: turns to read in, and their deadlines."""

    def __init__(
        self, received: ReceivedCounts | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.received = ReceivedCounts() if received is None else received
        self.turns = InputTurns(turn_bytes=READ_TURN_BYTES, least_bytes=LEAST_BYTES)
        self.firsts = StartQueue(FIRST_A_TURN)
        self.starts = StartQueue(STARTED_A_TURN)  # of what waited for a response, and of handshakes
        self.deadlines = Deadlines()
        self.lender: ConnectionLender | None = None  # made when it is first needed
        self._clock = clock
        self._lingering_bytes = 0  # of all together, in this second
        self._second_ends = 0.0

    def may_linger(self, count: int, total: int) -> bool:
        """Whether a connection that is ending may have sent so much, of which these bytes now."""
        now = self._clock()
        if now >= self._second_ends:
            self._second_ends, self._lingering_bytes = now + 1, 0
        self._lingering_bytes += count
        bytes_of_all = max(total, self._lingering_bytes)
        return total <= LINGER_LEAST_BYTES or bytes_of_all <= LINGER_BYTES


class ConnectionLender:
    """Takes back connections that were lent, each with a protocol of its own."""

    def __init__(self, make: Callable[[], "HttpProtocol"], server_state: ServerState) -> None:
        self._make = make
        self._server_state = server_state

    def render_head(self, status: int, headers: Headers) -> bytes:
        return render_head(status, [*self._server_state.default_headers, *headers])

    def give_back(
        self, transport: asyncio.Transport, response: Sequence[bytes], early: bytes
    ) -> None:
        protocol = self._make()
        transport.pause_reading()  # uvloop asks how much to read where reading begins
        transport.set_protocol(protocol)
        transport.resume_reading()
        protocol.come_back(transport, response)
        if early:
            protocol.receive_data(early)


class HttpProtocol(BoundedInput):
    """A connection, until it is closed or becomes a WebSocket."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        deadlines: Deadlines | None = None,
        send_timeout_seconds: float,
        connections: ConnectionLimits | None = None,
        http_input: HttpInput | None = None,
    ) -> None:
        self.output: UnreadOutput
        self._reader: RequestReader
        self._config = config
        self.server_state = server_state
        self._app_state = app_state
        self._connections = connections
        self._input = HttpInput() if http_input is None else http_input
        self.turns = self._input.turns
        self._deadlines = self._input.deadlines if deadlines is None else deadlines
        self._send_timeout_seconds = send_timeout_seconds
        self._serving: Exchange | None = None
        self._has_answered = False  # a request
        self._waiting: list[Exchange] = []
        self._final_response = b""  # sent after the responses to earlier requests
        self._is_ending = False  # after the responses to these requests
        self._is_draining = False
        self._has_unread_input = False  # the peer sends data that is not read any more
        self._is_input_over = False  # the peer has closed its direction
        self._is_lingering = False
        self._lingering_bytes = 0
        self._lingers_in_body = False
        self._is_paused = False

    # --- coming and going ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._begin(transport)
        self.start_head_deadline()
        self._enter()

    def come_back(self, transport: asyncio.Transport, response: Sequence[bytes]) -> None:
        """The connection was lent, and is this one's now. If there are too many, it ends with the
        response."""
        self._begin(transport)
        self._has_answered = True
        self._reader.is_timed = False
        self._deadlines.set(self._rest, RETURNED_SECONDS)
        transport.writelines(response)
        if self._connections is not None and self._connections.enter(self, self._host()):
            self._close()

    def _rest(self) -> None:
        self._deadlines.add_idle(self._close)

    def _begin(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.output = UnreadOutput(self.transport, self._deadlines, self._send_timeout_seconds)
        self.server_state.connections.add(self)  # type: ignore[arg-type]
        connection_scope: dict[str, Any] = {
            "client": address_of(transport, "peername"),
            "server": address_of(transport, "sockname"),
            "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
            "extensions": {
                HAND_OVER: {},
                LEND: {},
                PEER: {"socket": transport.get_extra_info("socket")},
            },
        }
        self._reader = RequestReader(self, connection_scope)

    def _enter(self) -> None:
        """Take the connection, or answer why not; if there are far too many, close it at once."""
        connections = self._connections
        if connections is None:
            return
        refusal = connections.enter(self, self._host())
        if connections.is_flooded:
            self.transport.abort()
        elif refusal is not None:
            self.refuse(*refusal)

    def _host(self) -> str:
        client = address_of(self.transport, "peername")
        return "" if client is None else client[0]

    def _address(self) -> str | None:
        """Whose turn it takes."""
        return None if self._connections is None else self._connections.counted_for(self)

    def turn_came(self) -> None:
        if not self._is_paused:
            self.transport.resume_reading()

    def receive_data(self, data: bytes) -> None:
        self._input.received.bytes[HTTP] += len(data)
        if self._reader.state != CLOSED:
            self._reader.read(data)
            return
        self._has_unread_input = True
        if self._is_lingering:
            self._lingering_bytes += len(data)
            if not self._may_linger(len(data)):
                self._input.received.report_flood(HTTP, self.transport)
                self.transport.abort()
        else:
            self.pause_reading()

    def _may_linger(self, count: int) -> bool:
        if self._lingers_in_body:
            return self._input.may_linger(count, self._lingering_bytes)
        return self._lingering_bytes <= LINGER_REQUESTS_BYTES

    def eof_received(self) -> bool:
        """The peer sends nothing more: it gets the answers that it waits for, and then the end.

        Of TLS, which knows no such state, it means that the peer has gone.
        """
        self._is_input_over = True
        if self._reader.state in (HEAD, BODY):
            self.refuse(400, "The request is not complete.")
        elif self._reader.state == IDLE:
            self._make_newest_the_last()
        return self._serving is not None and self.transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        serving = self._serving
        self._let_go()
        if serving is not None:
            serving.disconnect()
        self.output.release()

    def _let_go(self) -> None:
        """The connection is not this one's any more; nothing that was made for it is kept."""
        if self._connections is not None:
            self._connections.leave(self)
        self._unregister()
        if self.turns.leave(self):
            self._is_paused = True
        self._reader.close()
        self._serving = None
        self._drop_waiting()

    def shutdown(self) -> None:
        """Called by uvicorn when the server stops: answer what is asked, and then close.

        An idle peer may be sending a request just now, so it has a moment for it.
        """
        self._is_draining = True
        self._make_newest_the_last()
        if self._reader.state == IDLE:
            self._deadlines.set(self._close, LAST_REQUEST_SECONDS)

    def _make_newest_the_last(self) -> None:
        reader = self._reader
        if reader.newest is not None:
            reader.newest.keep_alive = False
        if reader.state == IDLE and self._serving is not None:
            reader.state = CLOSED

    def _close(self) -> None:
        if self.transport.get_write_buffer_size():
            self.output.start_deadline()  # until the buffer is sent
        self.transport.close()

    def _unregister(self) -> None:
        self.server_state.connections.discard(self)
        self._deadlines.remove_idle(self._close)
        self._deadlines.clear(self._close)
        self._deadlines.clear(self._rest)
        self._deadlines.clear(self._on_read_deadline)
        self.output.clear_deadline()

    # --- requests and their answers --------------------------------------------------------------

    def request_began(self) -> None:
        self._deadlines.clear(self._rest)
        self._deadlines.remove_idle(self._close)
        if self._is_draining:
            self._deadlines.clear(self._close)

    def request_read(self, exchange: Exchange) -> None:
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
        self._input.firsts.start(self._address(), partial(self._run, exchange))

    def _run(self, exchange: Exchange) -> bool:
        if exchange.is_disconnected:
            return False
        is_watched = self._has_answered and not self._is_paused  # a reset would be read soon
        if not is_watched and tcp_state(self.transport.get_extra_info("socket")) == TCP_CLOSED:
            self.transport.abort()
            return False
        tasks = self.server_state.tasks
        task = asyncio.get_running_loop().create_task(exchange.run(self._config.loaded_app))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return True

    def answered(self, exchange: Exchange) -> None:
        self._has_answered = True
        self.server_state.total_requests += 1
        self._serving = None
        if not exchange.keep_alive:
            self._final_response = b""
            self._end()
        elif self._waiting:
            self._serving = self._waiting.pop(0)
            self._input.starts.start(self._address(), partial(self._run, self._serving))
        elif self._is_ending:
            self._end()
        else:
            if self._reader.state == IDLE:
                self._deadlines.add_idle(self._close)
            if self._is_paused:
                self.resume_reading()

    def hand_over(self, take: Taking, *, is_chunked: bool) -> None:
        """Another writes the rest of the response, until the peer leaves."""
        self.server_state.total_requests += 1
        self._let_go()
        if self._is_input_over:  # nobody would ever know that this peer has gone
            self._close()
            return
        take(self.transport, is_chunked=is_chunked)
        if self._is_paused:
            self.transport.resume_reading()

    def lend(self, take: Borrowing) -> bool:
        """Another writes the response, and gives the connection back; false if more of this peer
        waits to be served, or the connection is to end."""
        is_stopped = self._is_paused or self.turns.is_waiting(self)
        if self._waiting or self._reader.state != IDLE or is_stopped or self._is_draining:
            return False
        self.server_state.total_requests += 1
        lender = self._input.lender = self._input.lender or self._lender()
        self._let_go()
        take(self.transport, lender)
        return True

    def _lender(self) -> ConnectionLender:
        make = partial(
            HttpProtocol,
            self._config,
            self.server_state,
            self._app_state,
            deadlines=self._deadlines,
            send_timeout_seconds=self._send_timeout_seconds,
            connections=self._connections,
            http_input=self._input,
        )
        return ConnectionLender(make, self.server_state)

    def upgrade(self, request: bytes) -> None:
        """Hand the connection over to the WebSocket handshake."""
        if self._serving is not None:
            self.refuse(400, "A WebSocket cannot be opened while a request waits for its answer.")
            return
        handshake = cast(Any, self._config.ws_protocol_class)(
            config=self._config, server_state=self.server_state, app_state=self._app_state
        )
        address = self._address()
        if self._connections is not None:
            self._connections.pass_on(self, handshake)
            handshake.counted_in = self._connections
        self._let_go()
        handshake.connection_made(self.transport)
        self.transport.pause_reading()  # until its turn comes
        self.transport.set_protocol(handshake)
        begin = partial(_begin_handshake, self.transport, handshake, request)
        self._input.starts.start(address, begin)

    # --- how it ends -----------------------------------------------------------------------------

    def refuse(self, status: int, text: str) -> None:
        """Read nothing more; send this error after the responses to earlier requests."""
        self._has_unread_input = True
        reader = self._reader
        if reader.state == CLOSED:
            return
        self._final_response = self._plain(status, text.encode())
        if reader.newest is not None and not reader.newest.is_whole:
            self._abandon(reader.newest)
        reader.state = CLOSED
        self._is_ending = True
        self.stop_deadline()
        if self._serving is None:
            self._end()
        else:
            self.pause_reading()

    def _plain(self, status: int, text: bytes) -> bytes:
        headers = plain_head(status, text)["headers"]
        return render_head(status, [*self.server_state.default_headers, *headers]) + text

    def _abandon(self, exchange: Exchange) -> None:
        """Drop a request that will never be complete."""
        exchange.disconnect()
        if self._serving is not exchange:
            self._waiting.pop()
            return
        self._serving = None
        if exchange.is_begun:
            self._final_response = b""

    def _drop_waiting(self) -> None:
        while self._waiting:
            self._waiting.pop().disconnect()

    def _end(self) -> None:
        self._drop_waiting()
        if self.transport.is_closing():
            return
        if self._final_response:
            self.transport.write(self._final_response)
        is_read = self._reader.state in (IDLE, CLOSED)
        is_stopped = self._is_paused or self.turns.is_waiting(self)
        if is_read and not self._has_unread_input and not is_stopped:
            self._close()
        elif not self._is_lingering:
            self._linger()

    def _linger(self) -> None:
        """Close our side only: a full close while the peer sends could lose the response."""
        self._unregister()
        self._lingers_in_body = self._reader.state == BODY
        self._reader.state = CLOSED
        self._is_lingering = True
        if self._is_input_over or not self.transport.can_write_eof():
            self._close()
            return
        self.transport.write_eof()
        self._deadlines.set(self._on_read_deadline, LINGER_SECONDS)
        self._read_on()

    # --- deadlines for a peer that sends nothing -------------------------------------------------

    def start_head_deadline(self) -> None:
        """Start the deadline of a head; that of the first begins with the connection."""
        if not self._deadlines.is_set(self._on_read_deadline):
            self._deadlines.set(self._on_read_deadline, HEAD_SECONDS)

    def start_body_deadline(self) -> None:
        self._deadlines.set(self._on_read_deadline, BODY_SECONDS)

    def stop_deadline(self) -> None:
        self._deadlines.clear(self._on_read_deadline)

    def _on_read_deadline(self) -> None:
        if self._is_paused or self.turns.is_waiting(self):  # we are the ones who do not read
            self._deadlines.set(self._on_read_deadline, BODY_SECONDS)
        elif not self._is_lingering:
            self._close()
        elif self.transport.get_write_buffer_size():
            self.output.start_deadline()
        else:
            self.transport.abort()

    def pause_reading(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._waiting and self._reader.state != CLOSED:
            self._read_on()

    def _read_on(self) -> None:
        """Now, or when its turn comes."""
        if self._is_paused:
            self._is_paused = False
            if not self.turns.is_waiting(self):
                self.transport.resume_reading()

    # --- what the peer has not read yet ----------------------------------------------------------

    def pause_writing(self) -> None:
        self.output.pause()

    def resume_writing(self) -> None:
        self.output.resume()


def _begin_handshake(transport: asyncio.Transport, handshake: BoundedInput, request: bytes) -> bool:
    if tcp_state(transport.get_extra_info("socket")) in (TCP_CLOSED, TCP_CLOSE_WAIT):
        transport.abort()
    if transport.is_closing():
        return False
    transport.resume_reading()
    try:
        handshake.receive_data(request)
    except BaseException:  # a bug: nothing would ever answer this peer
        transport.abort()
        raise
    return True
