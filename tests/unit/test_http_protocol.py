"""One HTTP connection by itself: what it reads and how much of it, what it answers, how it ends."""

import asyncio
import gc
import socket
import struct
import sys
import weakref
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies
from starlette.types import Message, Receive, Scope, Send
from uvicorn.server import ServerState

from rsnotify.http.connection_limits import ConnectionLimits
from rsnotify.http.deadlines import IDLE_SECONDS, Deadlines, idle_limit
from rsnotify.http.extensions import HAND_OVER, LEND, Lender
from rsnotify.http.protocol import (
    BODY_SECONDS,
    FIRST_A_TURN,
    HEAD_SECONDS,
    LAST_REQUEST_SECONDS,
    LEFT_A_TURN,
    LINGER_BYTES,
    LINGER_LEAST_BYTES,
    LINGER_REQUESTS_BYTES,
    LINGER_SECONDS,
    PIPELINED,
    RETURNED_SECONDS,
    STARTED_A_TURN,
    HttpInput,
    HttpProtocol,
)
from rsnotify.http.request_reader import (
    FRAMING_BYTES,
    HEAD_BYTES,
    HEAD_FIELDS,
    LINE_BYTES,
    QUERY_FIELDS,
)

GET = b"GET /quick HTTP/1.1\r\nHost: h\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
EVENTS = GET.replace(b"quick", b"events")
CHUNKED = b"POST /body HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSE = b"connection: close"


def post(size: int, path: str = "/body", more: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\n{more}Content-Length: {size}\r\n\r\n"
    return head.encode()


class Transport(asyncio.Transport):
    """Keeps what is done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended: list[str] = []
        self.is_paused = False
        self.unsent = 0
        self.is_tls = False

    def write(self, data: Any) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return not self.is_tls

    def write_eof(self) -> None:
        self.ended.append("half")

    def close(self) -> None:
        self.ended.append("closed")

    def abort(self) -> None:
        self.ended.append("aborted")

    def is_closing(self) -> bool:
        return "closed" in self.ended or "aborted" in self.ended

    def set_protocol(self, protocol: Any) -> None: ...

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    @property
    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.written.split(b"HTTP/1.1 ")[1:]]


class Peer:
    """Whoever has the connection; time passes when it says so."""

    def __init__(
        self, deadlines: Deadlines | None = None, http_input: HttpInput | None = None
    ) -> None:
        self.now = 0.0
        self.state = ServerState()
        self.transport = Transport()
        self.slow = asyncio.Event()
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []
        self.taken: list[tuple[asyncio.Transport, bool]] = []
        self.cannot_take = False
        self.deadlines = deadlines or Deadlines(clock=lambda: self.now)
        self.config: Any = SimpleNamespace(loaded_app=self.app)
        self.connections = ConnectionLimits(1, 100, lambda host: host, [])
        self.protocol = HttpProtocol(
            self.config,
            self.state,
            {},
            deadlines=self.deadlines,
            send_timeout_seconds=60,
            connections=self.connections,
            http_input=http_input,
        )
        self.protocol.connection_made(self.transport)

    async def sends(self, *parts: bytes) -> None:
        for part in parts:
            self.protocol.receive_data(part)
        await settled()

    async def closes_its_direction(self) -> None:
        stays_open = self.protocol.eof_received()
        if not stays_open and not self.transport.is_closing():
            self.transport.close()
        await settled()

    def waits(self, seconds: float) -> None:
        self.now += seconds
        self.deadlines.tick()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["path"] == "/slow":
            await self.slow.wait()
        if scope["path"] == "/body":
            self.bodies.append(await _read(receive))
        status = 401 if scope["path"] == "/refused" else 200
        headers = [(b"content-length", b"2")]
        if scope["path"] == "/events":
            headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope["path"] == "/events":
            await send({"type": "http.response.body", "body": b"id: 1\n\n", "more_body": True})
            await send({"type": HAND_OVER, "take": self.take})
            return
        await send({"type": "http.response.body", "body": b"ok"})

    def take(self, transport: asyncio.Transport, *, is_chunked: bool) -> None:
        if self.cannot_take:
            raise ValueError
        self.taken.append((transport, is_chunked))


async def _read(receive: Receive) -> bytes:
    body = b""
    message: Message = {"more_body": True}
    while message.get("more_body", False):
        message = await receive()
        body += message.get("body", b"")
    return body


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def peer() -> Peer:
    return Peer()


# --- heads ---------------------------------------------------------------------------------------


def head_of(size: int) -> bytes:
    """A head whose address and fields have this size."""
    fields = [b"host", *(b"a%05d" % number for number in range(1, 100))]
    left = size - len(b"/quick") - sum(len(name) + 4 for name in fields)
    each, rest = divmod(left, 100)
    values = [b"x" * each for _ in fields[1:]] + [b"x" * (each + rest)]
    lines = [b"%b: %b" % pair for pair in zip(fields, values, strict=True)]
    return b"\r\n".join([b"GET /quick HTTP/1.1", *lines, b"", b""])


@pytest.mark.parametrize("step", [1 << 20, 65_000, 1_000])
@pytest.mark.parametrize(("over", "status"), [(0, 200), (1, 431)])
async def test_a_head_has_at_most_64_kib_however_it_comes(peer, step, over, status):
    head = head_of(HEAD_BYTES + over)
    await peer.sends(*(head[at : at + step] for at in range(0, len(head), step)))
    assert peer.transport.statuses == [status]


@pytest.mark.parametrize(("over", "status"), [(0, 200), (1, 431)])
async def test_a_head_has_at_most_256_fields(peer, over, status):
    fields = b"Host: h\r\n" + b"a: b\r\n" * (HEAD_FIELDS - 1 + over)
    await peer.sends(b"GET /quick HTTP/1.1\r\n" + fields + b"\r\n")
    assert peer.transport.statuses == [status]


async def test_a_head_is_refused_as_soon_as_it_has_too_many_fields(peer):
    await peer.sends(b"GET /quick HTTP/1.1\r\n" + b"a: b\r\n" * (HEAD_FIELDS + 2))
    assert peer.transport.statuses == [431]


async def test_a_field_without_end_is_refused(peer):
    await peer.sends(b"GET /quick HTTP/1.1\r\nA: ", *[b"x" * 4096] * 33)
    assert peer.transport.statuses == [431]


@pytest.mark.parametrize("step", [1 << 20, 1_000])
@pytest.mark.parametrize(("over", "status"), [(0, 200), (1, 431)])
async def test_a_field_has_at_most_16_kib_however_it_comes(peer, step, over, status):
    head = b"GET /quick HTTP/1.1\r\nHost: h\r\nA: %b\r\n\r\n" % (b"x" * (LINE_BYTES + over))
    await peer.sends(*(head[at : at + step] for at in range(0, len(head), step)))
    assert peer.transport.statuses == [status]


LONG_QUERY = b"x" * (LINE_BYTES - len("/quick?"))
MANY_PARAMETERS = b"&".join([b"a"] * QUERY_FIELDS)


@pytest.mark.parametrize("step", [1 << 20, 1_000])
@pytest.mark.parametrize("at_limit", [LONG_QUERY, MANY_PARAMETERS])
@pytest.mark.parametrize(("over", "status"), [(b"", 200), (b"&", 414)])
async def test_an_address_has_at_most_16_kib_and_256_parameters(peer, at_limit, over, status, step):
    head = b"GET /quick?%b%b HTTP/1.1\r\nHost: h\r\n\r\n" % (at_limit, over)
    await peer.sends(*(head[at : at + step] for at in range(0, len(head), step)))
    assert peer.transport.statuses == [status]


@pytest.mark.parametrize("query", [LONG_QUERY + b"x", MANY_PARAMETERS + b"&a"])
async def test_nor_has_that_of_a_websocket(peer, query):
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    await peer.sends(b"GET /quick?%b HTTP/1.1\r\nHost: h\r\n%b\r\n" % (query, upgrade))
    assert peer.transport.statuses == [414]


async def test_a_chunk_that_ends_a_large_body_and_begins_a_request_is_no_long_head(peer):
    body = b"x" * 200_000
    await peer.sends(post(len(body)), body + GET[:20])
    await peer.sends(GET[20:])
    assert peer.transport.statuses == [200, 200]
    assert peer.bodies == [body]


async def test_a_head_must_come_within_10_seconds_as_a_whole(peer):
    await peer.sends(GET[:4])
    peer.waits(HEAD_SECONDS - 1)
    await peer.sends(GET[4:8])
    assert peer.transport.ended == []
    peer.waits(1)
    assert peer.transport.ended == ["closed"]


@pytest.mark.parametrize("parts", [(SLOW[:4], SLOW[4:]), (post(1, "/slow"), b"x")])
async def test_no_deadline_runs_on_for_a_later_request_that_is_complete(peer, parts):
    await peer.sends(GET)
    await peer.sends(*parts)
    peer.waits(HEAD_SECONDS + BODY_SECONDS)
    assert peer.transport.ended == []
    peer.slow.set()
    await settled()
    assert peer.transport.statuses == [200, 200]


async def test_line_ends_without_a_request_do_not_keep_a_connection(peer):
    await peer.sends(b"\r\n")
    peer.waits(HEAD_SECONDS)
    assert peer.transport.ended == ["closed"]


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n folded\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        CHUNKED.replace(b"Host", b"Transfer-Encoding: identity\r\nHost"),
        CHUNKED.replace(b"chunked", b"gzip, chunked"),
        CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
async def test_what_could_be_read_in_two_ways_is_refused(peer, head):
    await peer.sends(head)
    assert peer.transport.statuses == [400]
    assert peer.scopes == []
    assert peer.transport.ended == ["half"]


@pytest.mark.parametrize(
    "head", [b"GET /quick HTTP/1.1\r\nHost:\r\n\r\n", b"GET /quick HTTP/1.0\r\n\r\n"]
)
async def test_a_head_with_one_meaning_is_answered(peer, head):
    await peer.sends(head)
    assert peer.transport.statuses == [200]


# --- bodies --------------------------------------------------------------------------------------


async def test_trailers_are_no_headers(peer):
    await peer.sends(CHUNKED, b"1\r\nx\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
    assert peer.transport.statuses == [200]
    assert dict(peer.scopes[0]["headers"]).keys() == {b"host", b"transfer-encoding"}


@pytest.mark.parametrize("begin", [b"0\r\n", b"5;a="], ids=["trailers", "extension"])
@pytest.mark.parametrize(("over", "statuses"), [(0, []), (1, [400])])
async def test_what_surrounds_the_content_has_at_most_16_kib(peer, begin, over, statuses):
    await peer.sends(CHUNKED, b"1\r\nx\r\n", begin)
    trailer = b"A: b\r\n" if begin == b"0\r\n" else b"b"
    left = FRAMING_BYTES - len(begin) + over
    await peer.sends(*[trailer * 100] * (left // len(trailer * 100)))
    await peer.sends(b"x" * (left % len(trailer * 100)))
    assert peer.transport.statuses == statuses


@pytest.mark.parametrize("begin", [b"0\r\nA: ", b"5;a="], ids=["trailers", "extension"])
async def test_what_surrounds_the_content_has_15_seconds_as_a_whole(peer, begin):
    await peer.sends(CHUNKED, b"1\r\nx\r\n")
    for byte in begin + b"b" * 8:
        await peer.sends(bytes([byte]))
        peer.waits(1)
        if peer.now < BODY_SECONDS:
            assert peer.transport.ended == []
    peer.waits(BODY_SECONDS - peer.now)
    assert peer.transport.ended == ["closed"]


async def test_a_body_may_take_its_time_as_long_as_content_comes(peer):
    await peer.sends(post(10))
    for _ in range(9):
        await peer.sends(b"x")
        peer.waits(BODY_SECONDS - 1)
    assert peer.transport.ended == []
    peer.waits(1)
    assert peer.transport.ended == ["closed"]


async def test_a_body_of_tiny_chunks_is_read(peer):
    await peer.sends(CHUNKED + b"1\r\nx\r\n" * 30_000 + b"0\r\n\r\n")
    assert peer.bodies == [b"x" * 30_000]


async def test_who_asks_whether_to_go_on_is_told_so_only_if_the_body_is_read(peer):
    expect = "Expect: 100-continue\r\n"
    await peer.sends(post(1, more=expect))
    assert peer.transport.statuses == [100]
    await peer.sends(b"x")
    assert peer.transport.statuses == [100, 200]
    await peer.sends(post(1, "/refused", expect))
    assert peer.transport.statuses == [100, 200, 401]
    assert CLOSE in peer.transport.written


@pytest.mark.parametrize("length", ["Content-Length: 3", "Transfer-Encoding: chunked"])
async def test_a_request_that_proposes_another_protocol_keeps_its_body(peer, length):
    """As the HTTP client of Java does."""
    proposal = "Host: h\r\nConnection: Upgrade\r\nUpgrade: h2c"
    head = f"POST /body HTTP/1.1\r\n{proposal}\r\n{length}\r\n\r\n"
    body = b"abc" if length.startswith("C") else b"3\r\nabc\r\n0\r\n\r\n"
    await peer.sends(head.encode() + body[:2], body[2:] + GET)
    assert peer.transport.statuses == [200, 200]
    assert peer.bodies == [b"abc"]


# --- what is kept of a connection that has gone --------------------------------------------------


class Handshake(asyncio.Protocol):
    """Takes over and closes."""

    def __init__(self, **_: Any) -> None: ...

    def connection_made(self, transport: Any) -> None:
        transport.close()


async def is_freed(peer: Peer) -> bool:
    """Whether its protocol is, without the garbage collector."""
    freed = weakref.ref(peer.protocol)
    gc.disable()
    try:
        peer.scopes.clear()
        del peer.protocol
        await settled()
        return freed() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("earlier", [b"", GET, GET + GET, post(1) + b"x"])
async def test_a_connection_that_becomes_a_websocket_leaves_nothing(earlier):
    """Thousands of readers may come at once."""
    peer = Peer()
    peer.config.ws_protocol_class = Handshake
    await peer.sends(earlier)
    await peer.sends(UPGRADE)
    assert await is_freed(peer)


@pytest.mark.parametrize(
    ("request_", "is_chunked"), [(EVENTS, True), (EVENTS.replace(b"1.1", b"1.0"), False)]
)
async def test_the_rest_of_an_event_stream_is_written_by_another(request_, is_chunked):
    peer = Peer()
    await peer.sends(GET)
    await peer.sends(request_ + GET)
    assert peer.taken == [(peer.transport, is_chunked)]
    assert len(peer.scopes) == 2
    assert peer.transport.written.rstrip(b"\r\n").endswith(b"id: 1")
    assert (peer.state.connections, peer.state.tasks) == (set(), set())
    assert not peer.transport.is_paused
    assert not peer.deadlines.are_any
    assert await is_freed(peer)


async def test_an_event_stream_that_nobody_can_take_is_aborted(peer, caplog):
    peer.cannot_take = True
    await peer.sends(EVENTS)
    assert peer.transport.ended == ["aborted"]
    assert "internal error while answering /events" in caplog.text


# --- the order of answers ------------------------------------------------------------------------


async def test_answers_come_in_the_order_of_the_requests(peer):
    await peer.sends(SLOW + post(1) + b"x" + GET)
    assert peer.transport.statuses == []
    peer.slow.set()
    await settled()
    assert [scope["path"] for scope in peer.scopes] == ["/slow", "/body", "/quick"]
    assert peer.transport.statuses == [200, 200, 200]
    assert not peer.transport.is_paused


async def test_a_websocket_behind_an_unanswered_request_is_refused_after_its_answer(peer):
    await peer.sends(SLOW + UPGRADE)
    assert peer.transport.written == b""
    peer.slow.set()
    await settled()
    assert peer.transport.statuses == [200, 400]
    assert peer.transport.ended == ["half"]


@pytest.mark.parametrize("over", [0, 1])
async def test_8_requests_may_wait_for_an_answer(peer, over):
    await peer.sends(SLOW + GET * (PIPELINED - 1 + over))
    peer.slow.set()
    for _ in range(PIPELINED):
        await settled()
    assert peer.transport.statuses == [200] * (PIPELINED + over)
    assert peer.transport.written.count(CLOSE) == over


@pytest.mark.parametrize("over", [0, 1])
async def test_8_requests_that_waited_begin_in_a_turn_whoever_sent_them(over):
    shared = HttpInput()
    peers = [Peer(http_input=shared) for _ in range(STARTED_A_TURN + over)]
    for peer in peers:
        await peer.sends(SLOW + GET)
    for peer in peers:
        peer.slow.set()

    def begun() -> int:
        return sum(len(peer.scopes) - 1 for peer in peers)

    rising = []
    while begun() < len(peers):
        await asyncio.sleep(0)
        rising.append(begun())
    assert max(now - before for before, now in pairwise([0, *rising])) == STARTED_A_TURN
    await settled()
    assert all(peer.transport.statuses == [200, 200] for peer in peers)


async def test_of_one_who_has_gone_no_request_begins():
    shared = HttpInput()
    peers = [Peer(http_input=shared) for _ in range(3 * STARTED_A_TURN)]
    for peer in peers:
        await peer.sends(SLOW + GET)
    for peer in peers:
        peer.slow.set()
    while not any(len(peer.scopes) == 2 for peer in peers):
        await asyncio.sleep(0)
    gone = [peer for peer in peers if len(peer.scopes) == 1][-1]
    gone.protocol.connection_lost(None)
    await settled()
    assert [peer for peer in peers if len(peer.scopes) == 1] == [gone]


@pytest.mark.parametrize("over", [0, 1])
async def test_16_requests_begin_in_a_turn_but_none_of_one_who_has_gone(over):
    shared = HttpInput()
    peers = [Peer(http_input=shared) for _ in range(FIRST_A_TURN + over)]
    gone = Peer(http_input=shared)
    for peer in (*peers, gone):
        peer.protocol.receive_data(GET)
    gone.protocol.connection_lost(None)
    await asyncio.sleep(0)
    assert [len(peer.scopes) for peer in peers] == [1] * FIRST_A_TURN + [0] * over
    await settled()
    assert [len(peer.scopes) for peer in peers] == [1] * len(peers)
    assert not gone.scopes


@pytest.mark.skipif(sys.platform != "linux", reason="no TCP_INFO: only Linux tells of it")
@pytest.mark.parametrize("earlier", [b"", SLOW + GET], ids=["first", "waiting"])
@pytest.mark.parametrize("is_reset", [False, True])
async def test_no_request_begins_of_one_who_has_reset_the_connection_before_its_turn(
    peer, is_reset, earlier
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs, ours = socket.create_connection(server.getsockname()), server.accept()[0]
    peer.transport._extra["socket"] = ours
    await peer.sends(earlier)
    if is_reset:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    peer.slow.set()
    await peer.sends(GET)
    assert len(peer.scopes) == (earlier.count(b"GET ") + 1 if not is_reset else bool(earlier))
    assert peer.transport.ended == (["aborted"] if is_reset else [])
    ours.close()


class Asked(asyncio.Protocol):
    """A handshake that keeps what it was asked."""

    def __init__(self, **_: Any) -> None:
        self.request = b""

    def connection_made(self, transport: Any) -> None:
        transport.asked = self

    def receive_data(self, data: bytes) -> None:
        assert not self.request
        self.request = data


@pytest.mark.parametrize("over", [0, 1])
async def test_8_handshakes_begin_in_a_turn_but_none_of_one_who_has_gone(over):
    shared = HttpInput()
    peers = [Peer(http_input=shared) for _ in range(STARTED_A_TURN + over)]
    for peer in peers:
        peer.config.ws_protocol_class = Asked
        peer.protocol.receive_data(UPGRADE)
    begun = [bool(peer.transport.asked.request) for peer in peers]
    assert begun == [True] * STARTED_A_TURN + [False] * over
    assert [peer.transport.is_paused for peer in peers] == [not each for each in begun]
    gone = Peer(http_input=shared)
    gone.config.ws_protocol_class = Asked
    gone.protocol.receive_data(UPGRADE)
    gone.transport.close()
    await settled()
    assert all(peer.transport.asked.request.startswith(b"GET / ") for peer in peers)
    assert not any(peer.transport.is_paused for peer in peers)
    assert not gone.transport.asked.request


@pytest.mark.parametrize("over", [0, 1])
async def test_256_who_have_left_take_no_turn_of_a_handshake(over):
    shared = HttpInput()
    peers = [Peer(http_input=shared) for _ in range(STARTED_A_TURN * 2 + LEFT_A_TURN + over)]
    for peer in peers:
        peer.config.ws_protocol_class = Asked
        peer.protocol.receive_data(UPGRADE)
    for gone in peers[STARTED_A_TURN:-STARTED_A_TURN]:
        gone.transport.close()
    await asyncio.sleep(0)
    begun = [bool(peer.transport.asked.request) for peer in peers[-STARTED_A_TURN:]]
    assert begun == [True] * (STARTED_A_TURN - over) + [False] * over
    await settled()


@pytest.mark.skipif(sys.platform != "linux", reason="no TCP_INFO: only Linux tells of it")
@pytest.mark.parametrize("is_reset", [False, True])
async def test_no_handshake_begins_of_one_who_has_left_while_it_was_not_read(is_reset):
    shared = HttpInput()
    peers = [Peer(http_input=shared) for _ in range(STARTED_A_TURN + 2)]
    with socket.create_server(("127.0.0.1", 0)) as server:
        ends = [(socket.create_connection(server.getsockname()), server.accept()[0]) for _ in "ab"]
    for peer, (_, ours) in zip(peers[-2:], ends, strict=True):
        peer.transport._extra["socket"] = ours
    for peer in peers:
        peer.config.ws_protocol_class = Asked
        peer.protocol.receive_data(UPGRADE)
    theirs, _ = ends[-1]
    if is_reset:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    await settled()
    assert [bool(peer.transport.asked.request) for peer in peers[-2:]] == [True, False]
    assert [peer.transport.ended for peer in peers[-2:]] == [[], ["aborted"]]
    for end in (*ends[0], ends[-1][1]):
        end.close()


# --- how it ends ---------------------------------------------------------------------------------


async def test_an_answer_before_the_body_has_come_closes_half_and_reads_on(peer):
    await peer.sends(post(LINGER_BYTES * 2, "/refused"))
    assert peer.transport.statuses == [401]
    assert CLOSE in peer.transport.written
    part = b"x" * (1 << 20)
    await peer.sends(*[part] * (LINGER_BYTES // len(part)))
    assert peer.transport.ended == ["half"]
    await peer.sends(b"x")
    assert peer.transport.ended == ["half", "aborted"]


async def test_those_who_are_read_on_share_64_mib_in_a_second_beyond_1_mib_each():
    now = 0.0
    shared = HttpInput(clock=lambda: now)
    first, second, third = (Peer(http_input=shared) for _ in range(3))
    for peer in (first, second, third):
        await peer.sends(post(LINGER_BYTES * 2, "/refused"))
    await first.sends(bytes(LINGER_BYTES // 2))
    await second.sends(bytes(LINGER_BYTES // 2))
    assert [first.transport.ended, second.transport.ended] == [["half"], ["half"]]
    await third.sends(bytes(LINGER_LEAST_BYTES))
    assert third.transport.ended == ["half"]
    await first.sends(b"x")
    await third.sends(b"x")
    assert first.transport.ended == third.transport.ended == ["half", "aborted"]
    now += 1
    await second.sends(b"x")
    assert second.transport.ended == ["half"]
    assert shared.received.floods["http"] == 2


@pytest.mark.parametrize("over", [0, 1])
async def test_what_is_no_body_is_read_on_for_256_kib(peer, over):
    await peer.sends(SLOW + GET * (PIPELINED + 1))
    peer.slow.set()
    for _ in range(PIPELINED):
        await settled()
    await peer.sends(bytes(LINGER_REQUESTS_BYTES), b"x" * over)
    assert peer.transport.ended == ["half", "aborted"][: 1 + over]


async def test_reading_on_ends_after_30_seconds(peer):
    await peer.sends(post(10, "/refused"))
    peer.waits(LINGER_SECONDS - 1)
    await peer.sends(b"x")
    assert peer.transport.ended == ["half"]
    peer.waits(1)
    assert peer.transport.ended == ["half", "aborted"]


async def test_trailers_after_a_refused_request_are_not_read_for_ever(peer):
    await peer.sends(CHUNKED.replace(b"/body", b"/refused"))
    await peer.sends(b"0\r\n", b"A: b\r\n" * 10_000)
    assert peer.transport.statuses == [401]
    peer.waits(LINGER_SECONDS)
    assert peer.transport.ended == ["half", "aborted"]


async def test_whoever_closes_after_the_answer_is_closed_at_once(peer):
    await peer.sends(GET.replace(b"Host", b"Connection: close\r\nHost"))
    assert CLOSE in peer.transport.written
    assert peer.transport.ended == ["closed"]


async def test_an_idle_connection_is_kept_for_75_seconds(peer):
    await peer.sends(GET)
    peer.waits(IDLE_SECONDS - 1)
    await peer.sends(GET)
    peer.waits(IDLE_SECONDS - 1)
    assert peer.transport.ended == []
    peer.waits(1)
    assert peer.transport.ended == ["closed"]


async def test_beyond_the_cap_the_connection_that_rests_longest_is_closed():
    deadlines = Deadlines(idle_connections=2)
    peers = [Peer(deadlines) for _ in range(3)]
    for each in (*peers[:2], peers[0], peers[2]):
        await each.sends(GET)
    assert [each.transport.ended for each in peers] == [[], ["closed"], []]


@pytest.mark.parametrize(
    ("files", "kept"), [(4_000, 1_000), (3_996, 999), (1 << 20, 1_000), (3, 1), (-1, 1_000)]
)
def test_at_most_a_quarter_of_the_files_and_1000_are_idle_connections(files, kept):
    assert idle_limit(files) == kept


async def test_when_the_hub_ends_idle_connections_are_closed_and_others_answered_first():
    idle, busy, fresh = Peer(), Peer(), Peer()
    await idle.sends(GET)
    await busy.sends(SLOW)
    for each in (idle, busy, fresh):
        each.protocol.shutdown()
        each.waits(LAST_REQUEST_SECONDS)
    assert idle.transport.ended == fresh.transport.ended == ["closed"]
    assert busy.transport.ended == []
    busy.slow.set()
    await settled()
    assert CLOSE in busy.transport.written
    assert busy.transport.ended == ["closed"]


async def test_a_request_that_was_on_its_way_when_the_hub_ends_is_answered():
    idle, fresh = Peer(), Peer()
    await idle.sends(GET)
    for each in (idle, fresh):
        each.protocol.shutdown()
        each.waits(LAST_REQUEST_SECONDS - 0.1)
        assert each.transport.ended == []
        await each.sends(GET)
        assert each.transport.statuses[-1] == 200
        assert CLOSE in each.transport.written
        assert each.transport.ended == ["closed"]


async def test_one_that_begins_within_that_moment_has_its_usual_time(peer):
    peer.protocol.shutdown()
    await peer.sends(GET[:10])
    peer.waits(LAST_REQUEST_SECONDS)
    assert peer.transport.ended == []
    await peer.sends(GET[10:])
    assert peer.transport.statuses == [200]


async def test_a_request_under_way_when_the_hub_ends_is_told_that_it_is_the_last(peer):
    await peer.sends(GET[:10])
    peer.protocol.shutdown()
    await peer.sends(GET[10:])
    assert peer.transport.statuses == [200]
    assert CLOSE in peer.transport.written
    assert peer.transport.ended == ["closed"]


async def test_a_peer_that_has_gone_is_told_nothing(peer):
    await peer.sends(SLOW + GET)
    peer.protocol.connection_lost(None)
    peer.slow.set()
    await settled()
    assert peer.transport.written == b""
    assert peer.state.connections == set()


async def test_who_reads_nothing_is_let_go(peer):
    held, other = socket.socketpair()
    with held, other:
        peer.transport._extra["socket"] = held
        peer.transport.unsent = 10
        peer.protocol.pause_writing()
        await peer.sends(GET)
        peer.transport.unsent = 9
        peer.waits(60)
        assert peer.transport.ended == []
        peer.waits(60)
    assert peer.transport.ended == ["aborted"]


# --- a peer that closes its direction only -------------------------------------------------------


async def test_who_closes_its_direction_gets_the_answers_that_it_waits_for(peer):
    await peer.sends(SLOW + GET + GET)
    await peer.closes_its_direction()
    assert peer.transport.ended == []
    peer.slow.set()
    await settled()
    assert peer.transport.statuses == [200, 200, 200]
    assert peer.transport.written.count(CLOSE) == 1
    assert peer.transport.ended == ["closed"]


@pytest.mark.parametrize("sent", [b"", GET], ids=["fresh", "idle"])
async def test_a_connection_on_which_nothing_is_asked_is_closed_at_once(peer, sent):
    await peer.sends(*([sent] if sent else []))
    await peer.closes_its_direction()
    assert peer.transport.ended == ["closed"]


@pytest.mark.parametrize(
    "part",
    [GET[:10], post(3) + b"ab", CHUNKED + b"3\r\nabc\r\n"],
    ids=["head", "body", "chunks"],
)
async def test_a_request_that_is_not_complete_by_then_is_refused(peer, part):
    await peer.sends(GET + part)
    await peer.closes_its_direction()
    assert peer.transport.statuses == [200, 400]
    assert peer.transport.ended == ["closed"]
    assert not peer.deadlines.are_any


async def test_it_is_refused_after_the_answers_to_those_before_it(peer):
    await peer.sends(SLOW + GET[:10])
    await peer.closes_its_direction()
    assert peer.transport.ended == []
    peer.slow.set()
    await settled()
    assert peer.transport.statuses == [200, 400]
    assert peer.transport.ended == ["closed"]


async def test_an_event_stream_is_not_begun_for_who_has_closed_its_direction(peer):
    """Whoever has gone closes nothing else."""
    await peer.sends(SLOW + EVENTS)
    await peer.closes_its_direction()
    peer.slow.set()
    await settled()
    assert peer.transport.is_closing()
    assert peer.taken == []


async def test_of_tls_the_end_of_one_direction_is_the_end(peer):
    peer.transport.is_tls = True
    await peer.sends(SLOW)
    await peer.closes_its_direction()
    assert peer.transport.ended == ["closed"]


async def test_who_reads_on_to_hear_a_refusal_may_close(peer):
    await peer.sends(post(10, "/refused"))
    assert peer.transport.ended == ["half"]
    await peer.closes_its_direction()
    assert peer.transport.ended == ["half", "closed"]


# --- whatever is sent ----------------------------------------------------------------------------

PARTS = [
    *(GET, SLOW, UPGRADE, CHUNKED, post(3), post(3, "/refused"), b"abc", b"junk", b"\r\n"),
    *(b"3;a=b\r\nabc\r\n", b"0\r\n", b"A: b\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"),
    *(post(3, more="Expect: 100-continue\r\n"), post(3, more="Connection: close\r\n")),
    post(3, more="Connection: Upgrade\r\nUpgrade: h2c\r\n"),
    b"GET http://h/quick?x HTTP/1.1\r\n\r\n",
]


@settings(max_examples=40, derandomize=True)
@given(
    strategies.lists(strategies.sampled_from(PARTS), max_size=6),
    strategies.data(),
    strategies.booleans(),
)
def test_whatever_is_sent_the_connection_ends_and_leaves_nothing(parts, data, has_end):
    sent = b"".join(parts)
    cut = data.draw(strategies.integers(0, len(sent)))

    async def attack() -> None:
        peer = Peer()
        peer.config.ws_protocol_class = Handshake
        for part in (sent[:cut], sent[cut:]):
            if not peer.transport.is_closing():
                await peer.sends(part)
        if has_end and not peer.transport.is_closing():
            await peer.closes_its_direction()
        peer.slow.set()
        await settled()
        for _ in range(4):
            peer.waits(IDLE_SECONDS)
        assert peer.transport.is_closing()
        peer.protocol.connection_lost(None)
        await settled()
        assert (peer.state.connections, peer.state.tasks) == (set(), set())
        assert not peer.deadlines.are_any
        assert await is_freed(peer)

    asyncio.run(attack())


# --- connections that are lent --------------------------------------------------------------------


class Borrower:
    """Has the connection, and answers when it says so."""

    def __init__(self, transport: asyncio.Transport, lender: Lender) -> None:
        self._transport, self._lender = transport, lender

    def answers(self, early: bytes = b"") -> None:
        head = self._lender.render_head(200, [(b"content-length", b"2")])
        self._lender.give_back(self._transport, (head, b"ok"), early)


async def test_a_connection_that_was_lent_comes_back_with_the_response(lending):
    peer, borrowers = lending
    await peer.sends(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
    assert (peer.transport.written, peer.state.connections) == (b"", set())
    borrowers[0].answers()
    assert peer.transport.written.endswith(b"\r\n\r\nok")
    (peer.protocol,) = peer.state.connections
    await peer.sends(b"GET /quick HTTP/1.1\r\nhost: a\r\n\r\n")
    assert peer.transport.statuses == [200, 200]


async def test_a_request_that_came_early_is_served_then(lending):
    peer, borrowers = lending
    await peer.sends(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
    borrowers[0].answers(b"GET /refused HTTP/1.1\r\nhost: a\r\n\r\n")
    await settled()
    assert peer.transport.statuses == [200, 401]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /wait HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        b"GET /wait HTTP/1.0\r\n\r\n",
        b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\nGET /quick HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\nGET /qui",
        b"GET /wait HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nab",
    ],
)
async def test_where_more_is_to_come_or_nothing_nothing_is_lent(lending, sent):
    """The response comes as any other."""
    peer, borrowers = lending
    await peer.sends(sent)
    assert borrowers == []
    assert peer.transport.statuses[:1] == [200]


async def test_a_connection_that_is_to_end_is_not_lent(lending):
    peer, borrowers = lending
    peer.protocol.receive_data(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
    peer.protocol.shutdown()
    await settled()
    assert (borrowers, peer.transport.statuses) == ([], [200])


async def test_a_connection_that_came_back_rests_as_any_other(lending):
    """It is not among the idle ones at once: thousands come back together, and ask again."""
    peer, borrowers = lending
    await peer.sends(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
    borrowers[0].answers()
    peer.waits(RETURNED_SECONDS)
    assert not peer.transport.is_closing()
    peer.waits(IDLE_SECONDS)
    assert peer.transport.is_closing()


async def test_where_there_are_too_many_a_connection_ends_with_its_response(lending):
    peer, borrowers = lending
    await peer.sends(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
    peer.connections.enter("another", "")
    borrowers[0].answers()
    assert (peer.transport.statuses, peer.transport.ended) == ([200], ["closed"])


async def test_a_connection_that_came_back_and_is_lost_leaves_nothing(lending):
    peer, borrowers = lending
    await peer.sends(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
    borrowers[0].answers()
    (peer.protocol,) = peer.state.connections
    peer.protocol.connection_lost(None)
    assert (peer.state.connections, peer.deadlines.are_any) == (set(), False)


@pytest.fixture
async def lending(peer: Peer) -> tuple[Peer, list[Borrower]]:
    """A peer whose connection is lent for `/wait`, and who has borrowed it."""
    borrowers: list[Borrower] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/wait":
            count = len(borrowers)
            take = lambda *lent: borrowers.append(Borrower(*lent))  # noqa: E731
            await send({"type": LEND, "take": take})
            if len(borrowers) > count:
                return
        await peer.app(scope, receive, send)

    peer.config.loaded_app = app
    return peer, borrowers
