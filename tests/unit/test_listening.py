"""What becomes of connections when their listening socket is to be closed."""

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator

import pytest
import uvloop

from rsnotify.process import listening
from rsnotify.process.listening import accept_the_last


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


def connecting(bound: socket.socket) -> asyncio.Task[socket.socket]:
    made = socket.socket()
    made.setblocking(False)
    loop = asyncio.get_running_loop()

    async def connect() -> socket.socket:
        try:
            await loop.sock_connect(made, bound.getsockname())
        except BaseException:
            made.close()
            raise
        return made

    return asyncio.create_task(connect())


async def served(bound: socket.socket) -> list[socket.socket]:
    """Accepts all that comes, for as long as the sockets are let be."""
    accepted: list[socket.socket] = []

    async def accept() -> None:
        while True:
            one, _ = await asyncio.get_running_loop().sock_accept(bound)
            accepted.append(one)

    accepting = asyncio.create_task(accept())
    await accept_the_last(bound)
    accepting.cancel()
    return accepted


async def test_all_that_have_connected_are_accepted(bound: socket.socket) -> None:
    clients = [await connecting(bound) for _ in range(50)]
    accepted = await served(bound)
    bound.close()
    assert len(accepted) == 50
    for client, peer in zip(clients, accepted, strict=True):
        await asyncio.get_running_loop().sock_sendall(client, b"asked")
        assert peer.recv(5) == b"asked"
        client.close()
        peer.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_hub_that_was_busy_for_all_that_moment_accepts_them_too(
    bound: socket.socket,
    loop: Callable[[], asyncio.AbstractEventLoop],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "ACCEPT_SECONDS", 0)
    accepted: list[asyncio.BaseTransport] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Accepted, sock=bound)
        clients = [socket.create_connection(bound.getsockname()) for _ in range(50)]
        await accept_the_last(bound)
        in_time = len(accepted)
        server.close()
        for each in (*accepted, *clients):
            each.close()
        assert in_time == 50

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes programs for sockets")
async def test_who_comes_meanwhile_is_refused_and_has_handed_over_nothing(
    bound: socket.socket,
) -> None:
    await served(bound)
    late = connecting(bound)
    done, _ = await asyncio.wait([late], timeout=0.2)
    assert not done
    bound.close()
    with pytest.raises(ConnectionRefusedError):
        await late
