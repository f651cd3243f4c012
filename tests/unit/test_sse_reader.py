"""An open event stream by itself: what it writes, and how it ends."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

import pytest

from rsnotify.channels import event_stream, transport_reader
from rsnotify.channels.event_stream import IGNORED_BYTES, SseReader
from rsnotify.channels.frames import DATA, EVENT, GZIP_DATA, GZIP_EVENT, in_chunks
from rsnotify.channels.reader_input import ReaderInput

MEBIBYTE = 1024 * 1024
LARGE = b"x" * (16 * MEBIBYTE)  # more than a socket takes
SECONDS = 20


class Stream(NamedTuple):
    """A reader and its peer's end."""

    is_chunked: bool
    reader: SseReader
    transport: asyncio.Transport
    peer: socket.socket

    def write(self, event: bytes) -> None:
        """As the channel does, with an event that is framed for all readers."""
        chunk = b"%x\r\n%b\r\n" % (len(event), event)
        self.reader.write(chunk if self.is_chunked else event)

    async def received(self) -> bytes:
        """All that comes until the connection ends."""
        found = b""
        async with asyncio.timeout(SECONDS):
            while part := await asyncio.get_running_loop().sock_recv(self.peer, MEBIBYTE):
                found += part
        return found


@pytest.fixture(params=[True, False], ids=["in chunks", "until the end"])
async def stream(request: pytest.FixtureRequest) -> AsyncIterator[Stream]:
    ours, peer = socket.socketpair()
    peer.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    reader = SseReader(EVENT, transport, ReaderInput(), is_chunked=request.param)
    reader.take_over()
    yield Stream(request.param, reader, transport, peer)
    if not transport.is_closing():
        transport.abort()
    peer.close()
    await asyncio.sleep(0)


def body_of(answer: bytes, *, is_chunked: bool) -> bytes:
    """What was written; the last chunk must be there, and nothing behind it."""
    if not is_chunked:
        return answer
    body = b""
    while True:
        size, _, answer = answer.partition(b"\r\n")
        part, end, answer = (
            answer[: int(size, 16)],
            answer[int(size, 16) :][:2],
            answer[int(size, 16) + 2 :],
        )
        assert end == b"\r\n"
        if not part:
            assert answer == b""
            return body
        body += part


@pytest.mark.parametrize("events", [[b"id: 1\n\n"], [b"id: 1\n\n", LARGE, b"id: 2\n\n"]])
async def test_what_is_written_comes_whole_before_the_end(stream, events, monkeypatch):
    monkeypatch.setattr(event_stream, "CLOSE_SECONDS", SECONDS)  # it is read for as long
    for event in events:
        stream.write(event)
    assert stream.reader.is_paused is (LARGE in events)
    stream.reader.close(1001, "the hub ends")
    assert not stream.reader.is_open
    body = body_of(await stream.received(), is_chunked=stream.is_chunked)
    assert body == b"".join(events)


async def test_who_does_not_read_the_end_is_cut_off(stream, monkeypatch):
    monkeypatch.setattr(event_stream, "CLOSE_SECONDS", 0.01)
    stream.reader.write(LARGE)
    stream.reader.close(1013, "nothing was read")
    stream.reader.close(1013, "again")
    await asyncio.sleep(0.1)
    received = b""
    with suppress(ConnectionResetError):
        received = await stream.received()
    assert len(received) < len(LARGE)


@pytest.mark.parametrize("over", [0, 1])
async def test_what_a_peer_still_sends_is_ignored_up_to_64_kilobytes(stream, over):
    stream.reader.receive_data(b"x" * (IGNORED_BYTES - 1))
    stream.reader.receive_data(b"x" * (1 + over))
    assert stream.reader.is_open is not bool(over)


def test_what_is_framed_for_chunks_is_counted_under_the_same_name():
    for plain in (EVENT, GZIP_EVENT, DATA, GZIP_DATA):
        framed = in_chunks(plain)
        assert framed is in_chunks(plain)
        assert framed.name == plain.name
        assert framed.idle == b"%x\r\n%b\r\n" % (len(plain.idle), plain.idle)
        assert (framed.write_cursors is None) is (plain.write_cursors is None)


async def test_a_peer_that_has_gone_and_reads_nothing_is_cut_off(stream, monkeypatch):
    monkeypatch.setattr(transport_reader, "CLOSE_SECONDS", 0.01)
    lost = asyncio.Event()
    monkeypatch.setattr(SseReader, "connection_lost", lambda *_: lost.set())
    stream.write(LARGE)
    stream.peer.shutdown(socket.SHUT_WR)
    async with asyncio.timeout(SECONDS):
        await lost.wait()


async def test_a_peer_that_closes_its_direction_has_gone(stream):
    stream.peer.shutdown(socket.SHUT_WR)
    async with asyncio.timeout(SECONDS):
        while not stream.transport.is_closing():
            await asyncio.sleep(0)
