"""How connections are accepted, and what becomes of them when their socket is to be closed."""

import asyncio
import resource
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rsnotify.process.listening import (
    ACCEPTED_A_TURN,
    LATE,
    PASSED_OVER_A_TURN,
    Acceptor,
    accept_the_last,
)

RESET = struct.pack("ii", 1, 0)  # at a close, instead of an orderly end
SO_DETACH_FILTER = 27  # of Linux; there is none if it fails
SECONDS = 20


class Accepted(asyncio.Protocol):
    """Keeps its connection with others."""

    def __init__(self, others: list[Any]) -> None:
        self._others = others

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._others.append(transport)


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


async def test_all_that_have_connected_are_accepted(bound):
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
def test_a_hub_that_was_busy_for_all_that_moment_accepts_them_too(bound, loop):
    accepted: list[Any] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(partial(Accepted, accepted), sock=bound)
        clients = [socket.create_connection(bound.getsockname()) for _ in range(50)]
        await accept_the_last(bound, handshake_seconds=0)
        in_time = len(accepted)
        server.close()
        for each in (*accepted, *clients):
            each.close()
        assert in_time == 50

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def test_a_parent_waits_until_a_worker_that_is_busy_has_accepted_them(bound):
    clients = [await connecting(bound) for _ in range(3)]
    waiting = asyncio.create_task(accept_the_last(bound, handshake_seconds=0))
    done, _ = await asyncio.wait([waiting], timeout=1)
    assert not done
    loop = asyncio.get_running_loop()
    accepted = [(await loop.sock_accept(bound))[0] for _ in clients]
    async with asyncio.timeout(SECONDS):
        await waiting
    for each in (*clients, *accepted):
        each.close()


async def test_a_parent_does_not_wait_for_workers_that_are_frozen(bound):
    client = await connecting(bound)
    async with asyncio.timeout(SECONDS):
        await accept_the_last(bound, most_seconds=0.1)
    client.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes programs for sockets")
async def test_who_comes_meanwhile_is_refused_and_has_handed_over_nothing(bound):
    await served(bound)
    try:
        bound.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    except OSError:
        pytest.skip("this user cannot give a program to a socket")
    await served(bound)
    late = connecting(bound)
    done, _ = await asyncio.wait([late], timeout=0.2)
    assert not done
    bound.close()
    with pytest.raises(ConnectionRefusedError):
        await late


# --- turns ---------------------------------------------------------------------------------------


class Turns:
    """How many connections were made in each turn of the event loop."""

    def __init__(self, bound: socket.socket, **given: float) -> None:
        self.made: list[Any] = []
        self.each = [0]
        self.acceptor = Acceptor(bound, self._protocol, **given)

    def _protocol(self) -> asyncio.Protocol:
        self.each[-1] += 1
        return Accepted(self.made)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(SECONDS):
            while len(self.made) < count:
                self.each.append(0)
                await asyncio.sleep(0)

    async def end(self) -> None:
        self.acceptor.close()
        await self.acceptor.wait_closed()
        for each in self.made:
            each.close()


def opened(bound: socket.socket, count: int) -> list[socket.socket]:
    made = [socket.socket(bound.family) for _ in range(count)]
    for each in made:
        each.connect(bound.getsockname())
    return made


def reset(peers: list[socket.socket]) -> None:
    for peer in peers:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        peer.close()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as made:
        yield made


@pytest.fixture
def private(tmp_path: Path) -> Iterator[socket.socket]:
    """To which nobody else connects, as to a port that was free a moment ago, and where whoever has
    connected waits to be accepted already."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen()
        yield made


@pytest.mark.parametrize("over", [0, 1])
def test_64_connections_are_accepted_in_a_turn(private, runner, over):
    async def run() -> None:
        turns = Turns(private)
        peers = opened(private, ACCEPTED_A_TURN + over)
        await turns.until(len(peers))
        reset(peers)
        await turns.end()
        assert [each for each in turns.each if each] == [ACCEPTED_A_TURN] + [1] * over

    runner.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="no TCP_INFO: only Linux tells of it")
@pytest.mark.parametrize("over", [-1, 0])
def test_256_connections_whose_peers_have_left_are_passed_over_in_a_turn_before_one_who_waits(
    bound, runner, over
):
    """Else that one would wait as many turns."""

    async def run() -> None:
        turns = Turns(bound)
        reset(opened(bound, PASSED_OVER_A_TURN + over))
        peers = opened(bound, 1)
        accepts = 0

        def accept() -> None:
            nonlocal accepts
            accepts += 1
            turns.acceptor.accept()

        asyncio.get_running_loop().add_reader(bound, accept)
        await turns.until(1)
        reset(peers)
        await turns.end()
        assert sum(turns.each) == 1
        assert accepts == 2 + over

    runner.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="no TCP_INFO: only Linux tells of it")
@pytest.mark.parametrize("over", [0, 1])
def test_100_that_have_closed_their_direction_are_taken_one_in_a_turn_after_the_others(
    bound, runner, over
):
    async def run() -> None:
        turns = Turns(bound)
        late = opened(bound, LATE + over)
        for peer in late:
            peer.settimeout(SECONDS)
            peer.shutdown(socket.SHUT_WR)
        peers = opened(bound, 1)
        await turns.until(1 + LATE)
        first = turns.made[0].get_extra_info("peername")
        assert first == peers[0].getsockname()
        assert max(turns.each) <= 2
        reset(peers)
        await turns.end()
        assert sum(turns.each) == 1 + LATE
        left = [peer.recv(1) for peer in late[LATE:]]
        assert left == [b""] * over  # closed without an answer
        reset(late)

    runner.run(run())


def test_a_process_that_can_open_no_more_files_accepts_again_when_it_can(bound, runner, caplog):
    async def run() -> None:
        turns = Turns(bound, no_files_seconds=0.01)
        peers = opened(bound, 1)
        held = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (peers[0].fileno() + 20, hard))
        try:
            with suppress(OSError):
                while True:
                    held.append(socket.socket())
            async with asyncio.timeout(SECONDS):
                while "cannot accept connections: Too many open files" not in caplog.text:
                    await asyncio.sleep(0)
            assert not turns.made
        finally:
            for each in held:
                each.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await turns.until(1)
        reset(peers)
        await turns.end()

    runner.run(run())


def test_who_was_accepted_before_the_end_has_a_protocol(bound, runner):
    async def run() -> None:
        turns = Turns(bound)
        peers = opened(bound, ACCEPTED_A_TURN)
        turns.acceptor.accept()
        assert not turns.made
        turns.acceptor.close()
        await turns.acceptor.wait_closed()
        assert len(turns.made) == ACCEPTED_A_TURN
        reset(peers)
        await turns.end()

    runner.run(run())
