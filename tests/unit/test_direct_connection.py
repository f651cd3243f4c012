"""What becomes of a question to Redis: answered, cut off, too late, or answered while we slept."""

import asyncio
import gc
import socket
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvloop
from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse, ResponseError
from redis.exceptions import TimeoutError as AnswerLate

from rsnotify.errors import RedisRefuses
from rsnotify.redis_client.failures import judge_error
from rsnotify.redis_client.pool import LONGEST_SECONDS, STEADY_BYTES, DirectConnection
from tests.support.threaded_peer import ThreadedPeer

LIMIT_SECONDS = 0.05
PING = ("PING",)


class Clock:
    """What the connection takes for the time; its timers are real, but they ask this clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def raise_last(self, limits: float) -> None:
        """So many times what an answer may take; and then its timers have looked."""
        self.now += limits * LIMIT_SECONDS
        await asyncio.sleep(3 * LIMIT_SECONDS)


async def asked(direct: DirectConnection, questions: int = 1) -> asyncio.Task[list[Any]]:
    """It was written, and is waited for."""
    asking = asyncio.create_task(direct.ask([PING] * questions))
    await asyncio.sleep(0)
    return asking


async def comes(peer: ThreadedPeer, data: bytes) -> None:
    """The peer says it, and it is read."""
    peer.accepted[-1].sendall(data)
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def peer() -> Iterator[ThreadedPeer]:
    server = ThreadedPeer()
    yield server
    server.close()


@pytest.fixture
def longest_seconds() -> float:
    """What no answer may take longer than; a test may say another time."""
    return LONGEST_SECONDS


@pytest.fixture
async def direct(
    peer: ThreadedPeer, clock: Clock, longest_seconds: float
) -> AsyncIterator[DirectConnection]:
    connection = Connection(**peer.options(LIMIT_SECONDS))
    await connection.connect()
    await asyncio.to_thread(peer.newest.acquire)
    yield DirectConnection(connection, longest_seconds=longest_seconds, clock=clock)
    await connection.disconnect()


async def test_an_idle_connection_keeps_no_answer(direct, peer):
    asking = await asked(direct)
    await comes(peer, b"+a large one\r\n")
    assert await asking == [b"a large one"]
    assert direct.answers == []


async def test_what_redis_refuses_is_an_answer_among_others(direct, peer):
    peer.says(b"+a\r\n-ERR no", 0.01, b"\r\n*2\r\n$1\r", 0.01, b"\nb\r\n:3\r\n")
    first, refused, listed = await direct.ask([PING, PING, PING])
    assert (first, str(refused), listed) == (b"a", "no", [b"b", 3])
    assert isinstance(refused, ResponseError)
    peer.says(b"+again\r\n")
    assert await direct.ask([PING]) == [b"again"]
    assert direct.is_usable


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b">333333333\r\n"),
        (b"", b"+a\r\n*10000000\r\n"),
        (b"", b"*2\r\n:1\r\n~4294967295\r\n"),
        (b"$3\r\nab", b"c\r\n*333333333\r\n"),
    ],
)
async def test_an_absurd_length_is_refused_before_room_is_made_for_it(direct, peer, first, then):
    asking = await asked(direct, 2)
    await comes(peer, first)
    began = time.process_time()
    await comes(peer, then)
    with pytest.raises(InvalidResponse, match="absurd length"):
        await asking
    assert time.process_time() - began < 0.2
    assert not direct.is_usable


async def test_lists_may_be_long_and_texts_may_look_like_lengths(direct, peer):
    text = b"*333333333\r\n>333333333\r\n*333333333"
    asking = await asked(direct, 2)
    await comes(peer, b"$%d\r\n%b\r\n$%d\r\n" % (len(text), text, len(text)))
    await comes(peer, text)
    await comes(peer, b"\r\n")
    assert await asking == [text, text]
    asking = await asked(direct)
    await comes(peer, b"*9999999\r\n")
    assert direct.is_usable
    asking.cancel()


async def test_silence_is_not_waited_for(direct, clock):
    asking = await asked(direct)
    await clock.raise_last(0.99)
    assert not asking.done()
    await clock.raise_last(0.02)
    with pytest.raises(AnswerLate, match="no answer in time"):
        await asking
    assert not direct.is_usable


async def test_each_answer_may_take_so_long(direct, peer, clock):
    asking = await asked(direct, 3)
    for answer in (b"+a\r\n", b"+b\r\n", b"+c\r\n"):
        await clock.raise_last(0.9)
        await comes(peer, answer)
    assert await asking == [b"a", b"b", b"c"]


async def test_no_single_answer_may_trickle_for_longer(direct, peer, clock):
    asking = await asked(direct)
    await comes(peer, b"$8\r\n")
    for _ in range(3):
        await clock.raise_last(0.4)
        await comes(peer, b"x")
    with pytest.raises(AnswerLate):
        await asking


@pytest.mark.parametrize("missing", [0, 1])
async def test_a_large_answer_may_take_longer_if_it_comes_steadily(direct, peer, clock, missing):
    asking = await asked(direct)
    head = b"$%d\r\n" % (2 * STEADY_BYTES)
    first = b"x" * (STEADY_BYTES - len(head) - missing)
    await comes(peer, head)
    await clock.raise_last(0.6)
    await comes(peer, first)
    await clock.raise_last(0.6)
    if missing:
        with pytest.raises(AnswerLate):
            await asking
    else:
        await comes(peer, b"x" * (2 * STEADY_BYTES - len(first)) + b"\r\n")
        assert await asking == [b"x" * 2 * STEADY_BYTES]


@pytest.mark.parametrize("longest_seconds", [2.6 * LIMIT_SECONDS, 2.8 * LIMIT_SECONDS])
async def test_even_a_steady_answer_has_an_end(direct, peer, clock, longest_seconds):
    asking = await asked(direct)
    await comes(peer, b"$%d\r\n" % (3 * STEADY_BYTES))
    for _ in range(3):
        await comes(peer, b"x" * STEADY_BYTES)
        await clock.raise_last(0.9)
    if longest_seconds < 3 * 0.9 * LIMIT_SECONDS:
        with pytest.raises(AnswerLate):
            await asking
    else:
        await comes(peer, b"\r\n")
        assert await asking == [b"x" * 3 * STEADY_BYTES]


def test_an_answer_that_came_while_this_process_was_busy_is_not_late(peer):
    uvloop.run(_asked_and_busy(peer))  # which looks at its timers before its sockets


async def _asked_and_busy(peer: ThreadedPeer) -> None:
    connection = Connection(**peer.options(LIMIT_SECONDS))
    await connection.connect()
    await asyncio.to_thread(peer.newest.acquire)
    direct = DirectConnection(connection)
    for _ in range(3):
        asking = await asked(direct)
        peer.accepted[-1].sendall(b"+there\r\n")
        be_busy(3 * LIMIT_SECONDS)
        assert await asking == [b"there"]
    await connection.disconnect()


def be_busy(seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.parametrize("said", [b"", b"+first\r\n", b"+first\r\n+sec"])
async def test_what_came_before_the_end_is_known(direct, peer, said):
    asking = await asked(direct, 2)
    peer.accepted[-1].sendall(said)
    peer.accepted[-1].shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLost, match="Redis closed the connection"):
        await asking
    assert direct.answers == ([b"first"] if said else [])
    with pytest.raises(ConnectionLost):
        await direct.ask([PING])


async def test_a_refusal_by_tls_keeps_its_meaning(direct):
    asking = await asked(direct)
    direct.connection_lost(ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]"))
    with pytest.raises(ConnectionLost) as raised:
        await asking
    refusal = judge_error(raised.value)
    assert isinstance(refusal, RedisRefuses)
    assert "a certificate of the hub" in refusal.detail


async def test_what_is_no_redis_is_not_believed(direct, peer):
    peer.says(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(Exception, match="Protocol error"):
        await direct.ask([PING])
    assert not direct.is_usable


async def test_a_refusal_that_its_parser_cannot_read_ends_the_connection(direct, peer):
    peer.says(b"-MOVED 3999 nowhere\r\n")
    with pytest.raises(InvalidResponse, match="cannot be read"):
        await direct.ask([PING])
    assert not direct.is_usable


@pytest.mark.parametrize("more", [b"+b\r\n", b"$6\r\nSEC"])
async def test_more_than_was_asked_for_is_no_answer_to_the_next_question(direct, peer, more):
    peer.says(b"+a\r\n" + more)
    with suppress(InvalidResponse):  # nobody knows which of them is the answer
        assert await direct.ask([PING]) == [b"a"]
    assert not direct.is_usable
    with pytest.raises(ConnectionLost):
        await direct.ask([PING])
    assert direct.answers == []


async def test_no_question_has_no_answer(direct):
    assert await direct.ask([]) == []
    assert direct.is_usable


async def test_a_connection_that_has_ended_is_freed_without_the_garbage_collector(peer, clock):
    connection = Connection(**peer.options(LIMIT_SECONDS))
    await connection.connect()
    await asyncio.to_thread(peer.newest.acquire)
    direct = DirectConnection(connection)
    asking = await asked(direct)
    await comes(peer, b"-ERR no\r\n")
    assert isinstance((await asking)[0], ResponseError)
    ended = weakref.ref(direct)
    gc.collect()
    gc.disable()
    try:
        direct.abort()
        await connection.disconnect()
        await clock.raise_last(0)
        del direct, asking
        assert ended() is None
    finally:
        gc.enable()


async def test_a_connection_whose_question_was_cancelled_is_closed(direct, peer):
    asking = await asked(direct)
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
