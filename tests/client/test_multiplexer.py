"""Small answers of many requests at once, against a peer that sends what a test says."""

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rsnotify_client import multiplexer
from rsnotify_client.http1.answer import Answer
from rsnotify_client.http1.pool import ConnectionPool
from rsnotify_client.http1.target import host_of
from rsnotify_client.multiplexer import PIPELINED, BusyConnection, Multiplexer

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"
SMALL = 100
REQUEST_END = b"\r\n\r\n"


class Peer:
    """Answers the first request of a connection; what is asked behind it, by a script."""

    def __init__(self, script: list[bytes]) -> None:
        self.script = script
        self.asked: list[str] = []
        self.is_closed = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/"

    def serve(self) -> None:
        with self.listener.accept()[0] as peer:
            self._answer_all(peer)
        self.is_closed.set()

    def _answer_all(self, peer: socket.socket) -> None:
        unread = b""
        while piece := peer.recv(65_536):
            unread += piece
            *requests, unread = unread.split(REQUEST_END)
            for request in requests:
                self.asked.append(request.split()[1].decode())
                answer = self.script.pop(0)
                if not answer:
                    return
                peer.sendall(answer)


@contextmanager
def idle_peer(connections: ConnectionPool, *script: bytes) -> Iterator[Peer]:
    """A peer to which one connection is idle."""
    peer = Peer([OK + b"0", *script])
    thread = threading.Thread(target=peer.serve)
    thread.start()
    answer = connections.ask("GET", peer.url, {})
    answer.read(1)
    answer.close()
    try:
        yield peer
    finally:
        thread.join(10)
        peer.listener.close()


@contextmanager
def asking(*script: bytes) -> Iterator[tuple[Peer, Multiplexer]]:
    """A multiplexer with one connection that is idle."""
    connections = ConnectionPool()
    many = Multiplexer(connections, SMALL)
    with idle_peer(connections, *script) as peer:
        try:
            yield peer, many
        finally:
            many.close()
            connections.close()


class Heard:
    """What came, in its order."""

    def __init__(self, count: int) -> None:
        self.bodies: list[bytes | None] = []
        self._left = count
        self._all = asyncio.Event()

    def __call__(self, answer: Answer | None) -> None:
        self.bodies.append(None if answer is None else answer.read(SMALL))
        self._left -= 1
        if not self._left:
            self._all.set()

    async def all(self) -> list[bytes | None]:
        async with asyncio.timeout(20):
            await self._all.wait()
        return self.bodies


def ask_behind(peer: Peer, many: Multiplexer, heard: Heard, path: str = "") -> bool:
    behind = many.with_room(host_of(peer.url))
    return behind is not None and many.ask(f"{peer.url}{path}", "", heard, behind)


def ask(peer: Peer, many: Multiplexer, heard: Heard, count: int) -> list[bool]:
    first = many.ask(f"{peer.url}0", "", heard)
    return [
        first,
        *(ask_behind(peer, many, heard, f"{number}") for number in range(1, count)),
    ]


async def test_nothing_is_kept_of_connections_that_have_answered() -> None:
    with asking(*[OK + b"x"] * 50) as (peer, many):
        for _ in range(50):
            heard = Heard(1)
            assert many.ask(peer.url, "", heard)
            assert await heard.all() == [b"x"]
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, BusyConnection)]


async def test_nothing_is_kept_of_hosts_that_have_answered() -> None:
    with asking(OK + b"x") as (peer, many):
        heard = Heard(1)
        assert many.ask(peer.url, "", heard)
        assert await heard.all() == [b"x"]
        assert not [each for each in vars(many).values() if isinstance(each, dict) and each]


async def test_of_hosts_that_are_asked_one_by_one_the_latest_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multiplexer, "ONE_BY_ONE_KNOWN", 1)
    connections, hosts = ConnectionPool(), []
    many = Multiplexer(connections, SMALL)
    for _ in range(2):
        with idle_peer(connections, OK + b"a", b"") as peer:
            heard = Heard(3)
            ask(peer, many, heard, 3)
            assert await heard.all() == [b"a", None, None]
            hosts.append(host_of(peer.url))
    many.close()
    assert [many.asks_one_by_one(host) for host in hosts] == [False, True]


async def test_requests_behind_each_other_are_answered_in_their_order() -> None:
    with asking(*(OK + b"%d" % number for number in range(3))) as (peer, many):
        heard = Heard(3)
        assert ask(peer, many, heard, 3) == [True] * 3
        assert many.busy == 1
        assert await heard.all() == [b"0", b"1", b"2"]
        assert (many.busy, peer.asked) == (0, ["/", "/0", "/1", "/2"])


async def test_so_many_requests_wait_behind_each_other_and_no_more() -> None:
    with asking(*([OK + b"a"] * PIPELINED)) as (peer, many):
        heard = Heard(PIPELINED)
        assert ask(peer, many, heard, PIPELINED + 1) == [True] * PIPELINED + [False]
        assert await heard.all() == [b"a"] * PIPELINED


async def test_a_connection_has_room_again_for_each_answer_that_came() -> None:
    with asking(*([OK + b"a"] * 3 * PIPELINED)) as (peer, many):
        heard = Heard(3 * PIPELINED)
        ask(peer, many, heard, PIPELINED)
        left = [2 * PIPELINED]

        def fill() -> None:
            while left[0] and ask_behind(peer, many, heard):
                left[0] -= 1

        many.when_told = fill
        assert await heard.all() == [b"a"] * 3 * PIPELINED
        assert many.busy == 0
        assert many.with_room(host_of(peer.url)) is None


async def test_what_follows_is_begun_once_for_answers_that_came_together() -> None:
    with asking((OK + b"a") * 3, b"") as (peer, many):
        heard, told = Heard(3), []
        many.when_told = lambda: told.append(len(heard.bodies))
        ask(peer, many, heard, 3)
        assert await heard.all() == [b"a"] * 3
        assert told == [3]


async def test_a_peer_that_drops_what_is_pipelined_is_not_asked_so_again() -> None:
    with asking(OK + b"a", b"") as (peer, many):
        heard = Heard(3)
        ask(peer, many, heard, 3)
        assert await heard.all() == [b"a", None, None]
        assert many.asks_one_by_one(host_of(peer.url))


async def test_a_peer_that_says_when_it_closes_may_be_asked_so_again() -> None:
    last = OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n") + b"a"
    with asking(last, b"") as (peer, many):
        heard = Heard(2)
        ask(peer, many, heard, 2)
        assert await heard.all() == [b"a", None]
        assert not many.asks_one_by_one(host_of(peer.url))


@pytest.mark.parametrize(("excess", "body"), [(0, b"a" * SMALL), (1, b"")])
async def test_a_small_body_comes_whole_and_a_large_one_is_left_to_who_asked(
    excess: int, body: bytes
) -> None:
    length = SMALL + excess
    sent = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length
    with asking(sent, OK + b"b") as (peer, many):
        there: list[int] = []
        heard = asyncio.Event()

        def told(answer: Answer | None) -> None:
            assert answer is not None
            there.append(len(answer.connection.early))
            answer.close()
            heard.set()

        peer.script[0] = sent + body
        assert many.ask(f"{peer.url}0", "", told)
        async with asyncio.timeout(20):
            await heard.wait()
        assert there == [len(body)]
        assert many.busy == 0


async def test_a_peer_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplexer, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(multiplexer, "LOOK_SECONDS", 0.02)
    with asking(b"HTTP/1.1 200 OK\r\nA: ") as (peer, many):
        heard = Heard(1)
        ask(peer, many, heard, 1)
        assert await heard.all() == [None]
        assert peer.is_closed.wait(10)
