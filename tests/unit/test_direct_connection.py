"""What becomes of a question to Redis: answered, cut off, too late, or answered while we slept."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as AnswerLate

from rsnotify.errors import TryAgain, Unanswered
from rsnotify.storage.direct_connection import STEADY_BYTES, DirectConnection
from rsnotify.storage.exchange import exchange
from rsnotify.storage.pool import Pool

LIMIT_SECONDS = 0.5
PING = ("PING",)


class Peer:
    """A server with a thread of its own, so that it goes on while the event loop is busy."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.accepted: list[socket.socket] = []
        self.newest = threading.Semaphore(0)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.accepted.append(self._listening.accept()[0])
            except OSError:  # it was closed
                return
            self.newest.release()

    def says(self, *pieces: bytes | float) -> None:
        """Beside: these bytes, with these seconds between them."""
        threading.Thread(target=self._say, args=pieces, daemon=True).start()

    def _say(self, *pieces: bytes | float) -> None:
        with suppress(OSError):  # nobody listens any more
            for piece in pieces:
                if isinstance(piece, bytes):
                    self.accepted[-1].sendall(piece)
                else:
                    time.sleep(piece)

    def close(self) -> None:
        self._listening.close()
        for each in self.accepted:
            each.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    server = Peer()
    yield server
    server.close()


def options(peer: Peer) -> dict[str, object]:
    return {
        "host": "127.0.0.1",
        "port": peer.port,
        "protocol": 2,
        "driver_info": None,
        "socket_timeout": LIMIT_SECONDS,
    }


@pytest.fixture
async def direct(peer: Peer) -> AsyncIterator[DirectConnection]:
    connection = Connection(**options(peer))
    await connection.connect()
    await asyncio.to_thread(peer.newest.acquire)
    yield DirectConnection(connection)
    await connection.disconnect()


async def test_what_redis_refuses_is_an_answer_among_others(
    direct: DirectConnection, peer: Peer
) -> None:
    peer.says(b"+a\r\n-ERR no", 0.01, b"\r\n*2\r\n$1\r", 0.01, b"\nb\r\n:3\r\n")
    first, refused, listed = await direct.ask([PING, PING, PING])
    assert (first, str(refused), listed) == (b"a", "no", [b"b", 3])
    assert isinstance(refused, ResponseError)
    peer.says(b"+again\r\n")
    assert await direct.ask([PING]) == [b"again"]
    assert direct.is_usable


async def test_silence_is_not_waited_for(direct: DirectConnection) -> None:
    with pytest.raises(AnswerLate, match=r"no answer within 0\.5 s"):
        await direct.ask([PING])
    assert not direct.is_usable


async def test_each_answer_may_take_so_long(direct: DirectConnection, peer: Peer) -> None:
    peer.says(0.3, b"+a\r\n", 0.3, b"+b\r\n", 0.3, b"+c\r\n")
    assert await direct.ask([PING] * 3) == [b"a", b"b", b"c"]


async def test_no_single_answer_may_trickle_for_longer(
    direct: DirectConnection, peer: Peer
) -> None:
    peer.says(b"$8\r\n", *[0.1, b"x"] * 30)
    with pytest.raises(AnswerLate):
        await direct.ask([PING])


@pytest.mark.parametrize("missing", [0, 1])
async def test_a_large_answer_may_take_longer_if_it_comes_steadily(
    direct: DirectConnection, peer: Peer, missing: int
) -> None:
    size, head = 4 * STEADY_BYTES, b"$%d\r\n" % (4 * STEADY_BYTES)
    first = b"x" * (STEADY_BYTES - len(head) - missing)
    rest = b"x" * (size - len(first)) + b"\r\n"
    pieces = [rest[at : at + STEADY_BYTES] for at in range(0, len(rest), STEADY_BYTES)]
    peer.says(head, 0.3, first, *(each for piece in pieces for each in (0.3, piece)))
    if missing:
        with pytest.raises(AnswerLate):
            await direct.ask([PING])
    else:
        assert await direct.ask([PING]) == [b"x" * size]


async def test_an_answer_that_came_while_this_process_was_busy_is_not_late(
    direct: DirectConnection, peer: Peer
) -> None:
    asking = asyncio.create_task(direct.ask([PING]))
    await asyncio.sleep(0)
    peer.says(b"+there\r\n")
    be_busy(2 * LIMIT_SECONDS)
    assert await asking == [b"there"]


def be_busy(seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.parametrize("said", [b"", b"+first\r\n", b"+first\r\n+sec"])
async def test_what_came_before_the_end_is_known(
    direct: DirectConnection, peer: Peer, said: bytes
) -> None:
    asking = asyncio.create_task(direct.ask([PING, PING]))
    await asyncio.sleep(0)
    peer.accepted[-1].sendall(said)
    peer.accepted[-1].shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLost, match="Redis closed the connection"):
        await asking
    assert direct.answers == ([b"first"] if said else [])
    with pytest.raises(ConnectionLost):
        await direct.ask([PING])


async def test_what_is_no_redis_is_not_believed(direct: DirectConnection, peer: Peer) -> None:
    peer.says(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(Exception, match="Protocol error"):
        await direct.ask([PING])
    assert not direct.is_usable


async def test_more_answers_than_questions_make_it_unusable(
    direct: DirectConnection, peer: Peer
) -> None:
    peer.says(b"+a\r\n+b\r\n")
    assert (await direct.ask([PING]))[0] == b"a"
    assert not direct.is_usable


async def test_a_connection_whose_question_was_cancelled_is_closed(
    direct: DirectConnection, peer: Peer
) -> None:
    asking = asyncio.create_task(direct.ask([PING]))
    await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert not direct.is_usable
    assert await asyncio.to_thread(_everything, peer.accepted[-1]) == b"*1\r\n$4\r\nPING\r\n"


def _everything(connection: socket.socket) -> bytes:
    found = b""
    while piece := connection.recv(100):
        found += piece
    return found


async def test_a_connection_is_wrapped_once(direct: DirectConnection) -> None:
    assert DirectConnection.over(direct.connection) is direct


@pytest.mark.parametrize("said", [b"+stored\r\n", b"+stored\r\n$5\r\nhal"])
async def test_commands_are_answered_if_the_connection_ends_before_what_is_read_then(
    peer: Peer, said: bytes
) -> None:
    pool = Pool(**options(peer), max_connections=1, timeout=5)
    asking = asyncio.create_task(exchange(pool, [("SET", "a", "b")], [("GET", "a")]))
    await asyncio.to_thread(peer.newest.acquire)
    peer.accepted[-1].sendall(said)
    peer.accepted[-1].shutdown(socket.SHUT_WR)
    stored, then = await asking
    assert stored == b"stored"
    assert isinstance(then, TryAgain)
    asking = asyncio.create_task(exchange(pool, [PING]))  # over a new connection
    await asyncio.to_thread(peer.newest.acquire)
    peer.says(b"+again\r\n")
    assert await asking == [b"again"]
    await pool.aclose()


async def test_a_server_that_loads_has_executed_nothing(peer: Peer) -> None:
    pool = Pool(**options(peer), max_connections=1, timeout=5)
    asking = asyncio.create_task(exchange(pool, [("SET", "a", "b")]))
    await asyncio.to_thread(peer.newest.acquire)
    peer.says(b"-LOADING Redis is loading the dataset in memory\r\n")
    with pytest.raises(TryAgain, match="loading its data") as raised:
        await asking
    assert not isinstance(raised.value, Unanswered)
    await pool.aclose()
