"""A frame written to many sockets: each reader gets all of it, whatever its socket takes."""

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rsnotify.channels.channel import write_to_all
from rsnotify.channels.frames import TEXT
from rsnotify.channels.reader import NOWHERE, Reader

FRAME = b"0123456789" * 100_000  # more than a socket takes at once
SHORT = b"0123456789"


class Peer(Reader):
    """Keeps what its socket did not take."""

    is_open = True

    def __init__(self, descriptor: int) -> None:
        super().__init__(TEXT)
        self.descriptor = descriptor
        self.left: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.left.append(data)

    def ping(self) -> bool:
        return True

    def backlog(self) -> int:
        return 0

    def close(self, code: int, reason: str) -> None: ...


Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    found = [socket.socketpair() for _ in range(6)]
    for ours, theirs in found:
        ours.setblocking(False)
        theirs.setblocking(False)
    yield found
    for ours, theirs in found:
        ours.close()
        theirs.close()


def received(end: socket.socket) -> bytes:
    parts = []
    with suppress(BlockingIOError):
        while part := end.recv(1_000_000):
            parts.append(part)
    return b"".join(parts)


def fill(end: socket.socket) -> int:
    sent = 0
    with suppress(BlockingIOError):
        while True:
            sent += end.send(b"x" * 1_000)
    with suppress(BlockingIOError):
        while True:
            sent += end.send(b"x")
    return sent


def test_sockets_with_room_take_all_and_their_readers_are_left_alone(pairs):
    peers = [Peer(ours.fileno()) for ours, _ in pairs]
    write_to_all(peers, SHORT)
    assert [received(theirs) for _, theirs in pairs] == [SHORT] * len(pairs)
    assert [peer.left for peer in peers] == [[]] * len(peers)


@pytest.mark.parametrize("full", [{0}, {5}, {2, 3}, {0, 1, 2, 3, 4, 5}])
def test_a_reader_whose_socket_is_full_gets_the_frame_itself(pairs, full):
    before = {number: fill(pairs[number][0]) for number in full}
    peers = [Peer(ours.fileno()) for ours, _ in pairs]
    write_to_all(peers, SHORT)
    for number, peer in enumerate(peers):
        expected = b"x" * before.get(number, 0) + (b"" if number in full else SHORT)
        assert received(pairs[number][1]) == expected
        assert peer.left == ([SHORT] if number in full else [])


@pytest.mark.parametrize("nowhere", [{0}, {5}, {1, 4}, {0, 1, 2, 3, 4, 5}])
def test_a_reader_without_a_socket_of_its_own_gets_the_frame_itself(pairs, nowhere):
    peers = [
        Peer(NOWHERE if number in nowhere else ours.fileno())
        for number, (ours, _) in enumerate(pairs)
    ]
    write_to_all(peers, SHORT)
    for number, peer in enumerate(peers):
        assert received(pairs[number][1]) == (b"" if number in nowhere else SHORT)
        assert peer.left == ([SHORT] if number in nowhere else [])


def test_a_reader_gets_what_its_socket_did_not_take(pairs):
    pairs[2][1].close()  # an error between those that take a part
    peers = [Peer(ours.fileno()) for ours, _ in pairs]
    write_to_all(peers, FRAME)
    assert peers[2].left == [FRAME]
    for number in (0, 1, 3, 4, 5):
        taken = received(pairs[number][1])
        assert 0 < len(taken) < len(FRAME)
        assert peers[number].left == [FRAME[len(taken) :]]


def test_nobody_is_written_to_where_there_is_nobody():
    write_to_all([], SHORT)
