"""A connection on which somebody waits: how it is answered."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Sequence

import pytest

from rsnotify.channels.reader_input import ReaderInput
from rsnotify.resourcesync.change import Position
from rsnotify.streams.long_polls import EARLY_BYTES, JOINED_BYTES, LentPoller, Rendered
from rsnotify.streams.replies import StreamReply, variant_of

ALIKE = variant_of((), is_shared=True)
OTHER = variant_of(((b"access-control-allow-origin", b"*"),), is_shared=True)


class OneLender:
    """Has given nothing but takes all back."""

    def __init__(self) -> None:
        self.returned: list[tuple[Sequence[bytes], bytes]] = []

    def render_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        return b"%d %r" % (status, [*headers])

    def give_back(
        self, transport: asyncio.Transport, response: Sequence[bytes], early: bytes
    ) -> None:
        transport.pause_reading()
        self.returned.append((response, early))


class Connections:
    """Makes pollers, each with a connection."""

    def __init__(self) -> None:
        self.lender = OneLender()
        self.peers: list[socket.socket] = []
        self.transports: list[asyncio.Transport] = []

    async def poller(self, asked: int | None = None, variant=ALIKE) -> LentPoller:
        ours, peer = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
        self.peers.append(peer)
        self.transports.append(transport)
        poller = LentPoller(transport, self.lender, ReaderInput(), asked, variant)
        poller.take_over()
        return poller


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    made = Connections()
    yield made
    for transport in made.transports:
        transport.abort()
    for peer in made.peers:
        peer.close()
    await asyncio.sleep(0)


def reply(size: int) -> StreamReply:
    return StreamReply(200, {}, "public, max-age=60", b"x" * size, Position(5))


@pytest.mark.parametrize("size", [1, JOINED_BYTES, JOINED_BYTES + 1])
async def test_those_who_asked_alike_get_the_same_bytes(connections, size):
    rendered, answer = Rendered(), reply(size)
    for _ in range(2):
        poller = await connections.poller()
        poller.answer(answer, 7, rendered, is_last=False)
    (one, _), (two, _) = connections.lender.returned
    assert one is two
    assert b"".join(one).endswith(b"x" * size)


async def test_a_long_body_is_shared_by_all_however_they_asked(connections):
    """Or ten thousand with cursors of their own would each hold half a megabyte."""
    rendered, answer = Rendered(), reply(JOINED_BYTES + 1)
    for cursor, variant in ((7, ALIKE), (8, ALIKE), (7, OTHER)):
        poller = await connections.poller(variant=variant)
        poller.answer(answer, cursor, rendered, is_last=False)
    heads, bodies = zip(*(parts for parts, _ in connections.lender.returned), strict=True)
    assert len({*heads}) == 3
    assert all(body is answer.body for body in bodies)


async def test_what_came_early_goes_back_with_the_connection(connections):
    poller = await connections.poller()
    poller.receive_data(b"GET / ")
    poller.receive_data(b"HTTP/1.1")
    poller.answer(reply(1), 7, {}, is_last=False)
    assert connections.lender.returned[0][1] == b"GET / HTTP/1.1"


@pytest.mark.parametrize(("size", "is_cut"), [(EARLY_BYTES, False), (EARLY_BYTES + 1, True)])
async def test_who_sends_too_much_while_it_waits_is_cut_off(connections, size, is_cut):
    poller = await connections.poller()
    poller.receive_data(b"x" * size)
    assert poller.transport.is_closing() == is_cut


async def test_the_last_answer_ends_the_connection(connections):
    poller = await connections.poller()
    poller.answer(reply(1), 7, {}, is_last=True)
    loop, peer = asyncio.get_running_loop(), connections.peers[0]
    peer.setblocking(False)
    found = b""
    while part := await loop.sock_recv(peer, 1_000):
        found += part
    assert b"close" in found
    assert connections.lender.returned == []
