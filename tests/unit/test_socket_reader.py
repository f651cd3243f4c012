"""An open connection by itself: what it keeps, what it writes, when it writes nothing."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.socket_reader import SocketReader
from tests.support.raw import BINARY, PING, PONG, TEXT, frame

PONG_OF_X = b"\x8a\x01x"
MEBIBYTE = 1024 * 1024


class Connection(NamedTuple):
    """A reader and its peer's end."""

    reader: SocketReader
    transport: asyncio.Transport
    peer: socket.socket

    def received(self) -> bytes:
        """What the peer can read at once."""
        with suppress(BlockingIOError):
            return self.peer.recv(64 * 1024)
        return b""

    def fill(self) -> bytes:
        """Write until the socket is full; what was written."""
        written = b""
        while not self.reader.is_paused:
            written += b"f" * MEBIBYTE
            self.reader.write(b"f" * MEBIBYTE)
        return written

    async def receive(self, size: int) -> bytes:
        """So many bytes, for which others may have to be sent first."""
        received = bytearray()
        while len(received) < size:
            received += self.received()
            await asyncio.sleep(0)
        return bytes(received)


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    ours, peer = socket.socketpair()
    peer.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    reader = SocketReader(transport, ReaderInput(), is_deflated=False)
    transport.set_protocol(reader)
    transport.set_write_buffer_limits(high=0)
    yield Connection(reader, transport, peer)
    transport.abort()
    peer.close()
    await asyncio.sleep(0)


@pytest.fixture
def reader(connection: Connection) -> SocketReader:
    return connection.reader


class FullTransport(asyncio.Transport):
    """Takes what it is given and says at once that it is full; nothing can be written past it."""

    def __init__(self) -> None:
        super().__init__({"sslcontext": "TLS"})
        self.held: list[bytes] = []
        self.reader: SocketReader

    def write(self, data: Any) -> None:
        self.held.append(bytes(data))
        self.reader.pause_writing()

    def is_closing(self) -> bool:
        return False


async def test_a_socket_that_is_full_again_after_the_answer_to_a_ping_stays_paused():
    """Otherwise the next frame would overtake what the transport holds."""
    transport = FullTransport()
    reader = transport.reader = SocketReader(transport, ReaderInput(), is_deflated=False)
    reader.pause_writing()
    reader.receive_data(frame(PING, b"x"))
    assert transport.held == []
    reader.resume_writing()
    assert (transport.held, reader.is_paused) == ([PONG_OF_X], True)


@pytest.mark.parametrize("sent", [frame(PING, b"x"), frame(PONG, b"x"), frame(PONG)])
async def test_nothing_is_kept_of_a_ping_or_a_pong(reader, sent):
    reader.receive_data(sent)
    assert reader.parser is None


@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 125])
async def test_a_ping_gets_its_payload_back(connection, payload):
    connection.reader.receive_data(frame(PING, payload))
    assert connection.received() == bytes((0x8A, len(payload))) + payload


@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 125])
async def test_a_pong_is_the_answer_to_the_hub_s_ping(reader, payload):
    reader.deadline = 20.0
    reader.receive_data(frame(PONG, payload))
    assert reader.deadline is None


async def test_a_pong_that_comes_with_something_else_counts_too(reader):
    reader.deadline = 20.0
    reader.receive_data(frame(TEXT, b"hello") + frame(PONG))
    assert reader.deadline is None


@pytest.mark.parametrize("sent", [frame(PONG, b"x" * 126), b"\x8a\x04abcd"])
async def test_a_pong_of_126_bytes_or_without_a_mask_is_a_violation(connection, sent):
    connection.reader.deadline = 20.0
    connection.reader.receive_data(sent)
    assert connection.reader.deadline is not None
    assert connection.received()[2:4] == (1002).to_bytes(2, "big")


async def test_what_looks_like_a_ping_within_a_message_is_none(connection):
    inner = frame(PING, b"x")
    message = frame(BINARY, b"y" + inner)
    connection.reader.receive_data(message[: -len(inner)])
    connection.reader.receive_data(inner)
    assert connection.received() == b""
    connection.reader.receive_data(inner)
    assert connection.received() == PONG_OF_X


async def test_the_newest_ping_of_a_paused_reader_is_answered_once_it_reads_again(connection):
    filled = connection.fill()
    connection.reader.receive_data(frame(PING, b"w"))
    connection.reader.receive_data(frame(TEXT, b"hello") + frame(PING, b"v") + frame(PING, b"x"))
    received = await connection.receive(len(filled) + len(PONG_OF_X))
    assert received == filled + PONG_OF_X
    assert not connection.reader.is_paused
    filled = connection.fill()
    assert await connection.receive(len(filled)) == filled


async def test_whoever_reads_again_lives(connection):
    filled = connection.fill()
    connection.reader.deadline = 20.0
    await connection.receive(len(filled))
    while connection.reader.is_paused:
        await asyncio.sleep(0)
    assert connection.reader.deadline is None


@pytest.mark.parametrize("seed", range(5))
async def test_bytes_arrive_in_the_order_in_which_they_were_written(connection, seed):
    chance = random.Random(seed)
    written, received = bytearray(), bytearray()
    for number in range(200):
        size = chance.choice((10, 444, 5_000, 50_000))
        data = number.to_bytes(2, "big") * (size // 2)
        connection.reader.write(data)  # while it is paused, too
        written += data
        if chance.random() < 0.5:
            received += connection.received()
            await asyncio.sleep(0)
    received += await connection.receive(len(written) - len(received))
    assert received == written


async def test_a_close_comes_after_all_that_was_written(connection):
    filled = connection.fill()
    connection.reader.close(1013, "slow")
    received = await connection.receive(len(filled) + 8)
    assert received == filled + b"\x88\x06" + (1013).to_bytes(2, "big") + b"slow"


async def test_nothing_is_written_to_a_descriptor_that_may_belong_to_somebody_else(connection):
    descriptor = connection.transport.get_extra_info("socket").fileno()
    connection.transport.abort()
    while connection.transport.get_protocol() is connection.reader and not _is_free(descriptor):
        await asyncio.sleep(0)
    ours, other = socket.socketpair()
    with ours, other:
        assert descriptor in (ours.fileno(), other.fileno())
        connection.reader.write(b"x")
        for each in (ours, other):
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)


def _is_free(descriptor: int) -> bool:
    try:
        socket.socket(fileno=socket.dup(descriptor)).close()
    except OSError:
        return True
    return False
