"""What a peer may send in a channel, and what becomes of one that sends without end."""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from unittest.mock import Mock

import pytest
import uvloop

from rsnotify.channels import transport_reader
from rsnotify.channels.event_stream import IGNORED_BYTES, SseReader
from rsnotify.channels.frames import EVENT
from rsnotify.channels.reader_input import (
    BYTES_PER_SECOND,
    FRAMES_PER_SECOND,
    READ_TURN_BYTES,
    SECOND,
    ReaderInput,
)
from rsnotify.channels.socket_reader import PARSED_BYTES, SocketReader
from rsnotify.channels.transport_reader import TransportReader
from rsnotify.http.input_turns import EVENT_STREAM, WEBSOCKET
from tests.support.raw import BINARY, CLOSE, PING, PONG, TEXT, frame

CONTINUATION = 0
SHORTEST = 6
LARGE = 4096 - 8  # of a message, whose frame is 4 KiB then
SECONDS = 20

FLOODS = {  # what comes first, and then without end
    "pongs": (b"", frame(PONG)),
    "pings": (b"", frame(PING)),
    "pings with a payload": (b"", frame(PING, b"x" * 125)),
    "empty fragments": (frame(TEXT, fin=False), frame(CONTINUATION, fin=False)),
    "empty texts": (b"", frame(TEXT)),
    "texts": (b"", frame(TEXT, b"x" * 1_000)),
    "close frames": (b"", frame(CLOSE, b"\x03\xe8")),
    "half a frame": (frame(BINARY, bytes(4096))[:100], bytes(1000)),
    "masked garbage": (b"", b"\xff\xff\xff\xff\xff\xff"),
    "bytes after a close": (frame(CLOSE, b"\x03\xe8"), bytes(1000)),
}
ANSWERED = {
    "close frames": 1000,
    "masked garbage": 1002,
    "half a frame": 1002,
    "bytes after a close": 1000,
}  # with this code, before they are too many

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
Loop = Callable[[], asyncio.AbstractEventLoop]


class Connected:
    """A reader, and its peer: a socket."""

    def __init__(self, peer: socket.socket) -> None:
        self.now = 0.0
        self.peer = peer
        self.input = ReaderInput(clock=lambda: self.now)
        self.lost = asyncio.Event()
        self.reader: TransportReader

    def takes_over(self, reader: type[TransportReader], transport: asyncio.Transport) -> None:
        """From here on the connection is this reader's."""
        connected = self

        class Watched(reader):
            __slots__ = ()

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                connected.lost.set()

        options = {"is_deflated": False} if reader is SocketReader else {"is_chunked": True}
        formats = () if reader is SocketReader else (EVENT,)
        self.reader = Watched(*formats, transport, self.input, **options)
        self.reader.take_over()

    async def sends(self, data: bytes) -> None:
        """All of it, and the reader has read it."""
        wanted = sum(self.input.received.bytes.values()) + len(data)
        await asyncio.get_running_loop().sock_sendall(self.peer, data)
        async with asyncio.timeout(SECONDS):
            while sum(self.input.received.bytes.values()) < wanted:
                await asyncio.sleep(0)

    async def floods(self, first: bytes, then: bytes) -> None:
        """Send until the connection is cut."""
        data = first
        with suppress(ConnectionError):
            async with asyncio.timeout(SECONDS):
                while not self.lost.is_set():
                    data += then * (2**18 // len(then))
                    with suppress(BlockingIOError):
                        while data:
                            data = data[self.peer.send(data) :]
                    await asyncio.sleep(0)

    def received(self) -> bytes:
        with suppress(BlockingIOError, ConnectionError):
            return self.peer.recv(2**16)
        return b""

    def close_code(self) -> int | None:
        """Of the close frame that has come; None if there is none."""
        _, found, rest = self.received().partition(bytes((0x80 | CLOSE,)))
        return struct.unpack("!H", rest[1:3])[0] if found else None


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    with ours, peer:
        peer.setblocking(False)
        yield ours, peer


def run(loop: Loop, reader: type[TransportReader], act: Callable[[Connected], object]) -> Connected:
    """Act as the peer of such a reader."""

    async def acted() -> Connected:
        with pair() as (ours, peer):
            connected = Connected(peer)
            running = asyncio.get_running_loop()
            transport, _ = await running.connect_accepted_socket(asyncio.Protocol, ours)
            connected.takes_over(reader, transport)
            await act(connected)
            if not transport.is_closing():
                transport.abort()
            await asyncio.wait_for(connected.lost.wait(), SECONDS)
            return connected

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(acted())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_reader, "FLOOD_CLOSE_SECONDS", 0.05)


# --- at the limit, and beyond -------------------------------------------------------------------


@LOOPS
@pytest.mark.parametrize(("over", "code"), [(0, None), (1, 1008)])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_reader_may_send_so_many_frames_in_a_second(loop, over, code, at_once):
    async def act(connected: Connected) -> None:
        frames = [frame(PONG)] * (FRAMES_PER_SECOND + over)
        for part in [b"".join(frames)] if at_once else frames:
            await connected.sends(part)
        assert connected.reader.is_open is (code is None)
        assert connected.close_code() == code

    run(loop, SocketReader, act)


@LOOPS
@pytest.mark.parametrize(("over", "code"), [(0, None), (1, 1008)])
def test_a_reader_may_send_so_many_bytes_in_a_second(loop, over, code):
    async def act(connected: Connected) -> None:
        message = frame(BINARY, bytes(LARGE))
        await connected.sends(message * (BYTES_PER_SECOND // len(message)))
        await connected.sends(frame(PONG)[:over])
        assert connected.reader.is_open is (code is None)
        assert connected.close_code() == code

    run(loop, SocketReader, act)


@LOOPS
def test_in_the_next_second_it_may_send_as_much_again(loop):
    async def act(connected: Connected) -> None:
        for _ in range(3):
            await connected.sends(frame(PONG) * FRAMES_PER_SECOND)
            connected.now += SECOND
        assert connected.reader.is_open

    run(loop, SocketReader, act)


def test_the_limit_is_each_readers_own():
    many, one = object(), object()
    counted = ReaderInput(clock=lambda: 0.0)
    assert counted.takes_frames(many, FRAMES_PER_SECOND)
    assert counted.takes_frames(one, FRAMES_PER_SECOND)
    assert not counted.takes_frames(many, 1)


async def test_who_always_has_more_to_say_is_cut_off_however_slowly_it_is_read():
    """Among hundreds of floods each may be read less than once in a second."""
    now = 0.0
    counted = ReaderInput(clock=lambda: now)
    flooding, pausing = Mock(), Mock()

    def is_taken() -> bool:
        counted.take(flooding, READ_TURN_BYTES)
        return counted.takes_bytes(flooding, READ_TURN_BYTES)

    for _ in range(BYTES_PER_SECOND // READ_TURN_BYTES):
        assert is_taken()
        assert counted.takes_bytes(pausing, BYTES_PER_SECOND)
        now += SECOND
        await asyncio.sleep(0)  # its turn comes
    assert not is_taken()


# --- floods -------------------------------------------------------------------------------------


@LOOPS
@pytest.mark.parametrize("flood", FLOODS)
def test_a_reader_that_sends_without_end_is_cut_off_after_a_bounded_number_of_bytes_and_frames(
    loop, flood, caplog
):
    caplog.set_level(logging.WARNING)
    codes = []

    async def act(connected: Connected) -> None:
        await connected.floods(*FLOODS[flood])
        codes.append(connected.close_code())

    received = run(loop, SocketReader, act).input.received
    assert codes == [ANSWERED.get(flood, 1008)]
    assert received.bytes[WEBSOCKET] <= BYTES_PER_SECOND + READ_TURN_BYTES
    assert received.frames <= FRAMES_PER_SECOND + PARSED_BYTES // SHORTEST
    assert received.floods == {"http": 0, WEBSOCKET: 1, EVENT_STREAM: 0}
    assert [each.getMessage() for each in caplog.records] == [
        "closing a connection (websocket) of 127.0.0.1: it sends too much"
    ]


@LOOPS
def test_an_event_stream_whose_peer_sends_without_end_is_cut_off(loop, caplog):
    caplog.set_level(logging.WARNING)

    async def act(connected: Connected) -> None:
        await connected.floods(b"", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")

    received = run(loop, SseReader, act).input.received
    assert IGNORED_BYTES < received.bytes[EVENT_STREAM] <= IGNORED_BYTES + READ_TURN_BYTES
    assert received.floods == {"http": 0, WEBSOCKET: 0, EVENT_STREAM: 1}
    assert len(caplog.records) == 1
