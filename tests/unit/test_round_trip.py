"""What became of commands that were sent to Redis, as far as anybody can know."""

import asyncio
import socket
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from redis.exceptions import NoScriptError, ReadOnlyError

from rsnotify.errors import RedisRefuses, TooFewReplicas, TryAgain, Unanswered
from rsnotify.redis_client.client import RedisClient, Script
from rsnotify.redis_client.pool import AskCommands, Pool, round_trip
from tests.support.threaded_peer import ThreadedPeer

LIMIT_SECONDS = 5.0
PING = ("PING",)
SET = ("SET", "a", "b")
NOSCRIPT = b"-NOSCRIPT No matching script.\r\n"
LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"
FULL = b"-ERR max number of clients reached\r\n"


@pytest.fixture
def peer() -> Iterator[ThreadedPeer]:
    server = ThreadedPeer()
    yield server
    server.close()


def pool_of(peer: ThreadedPeer) -> Pool:
    return Pool(**peer.options(LIMIT_SECONDS), max_connections=1, timeout=5)


@pytest.mark.parametrize("said", [b"+stored\r\n", b"+stored\r\n$5\r\nhal"])
async def test_commands_are_answered_if_the_connection_ends_before_what_is_read_then(peer, said):
    pool = pool_of(peer)
    asking = asyncio.create_task(round_trip(pool, [("SET", "a", "b")], [("GET", "a")]))
    await asyncio.to_thread(peer.newest.acquire)
    peer.accepted[-1].sendall(said)
    peer.accepted[-1].shutdown(socket.SHUT_WR)
    stored, then = await asking
    assert stored == b"stored"
    assert isinstance(then, TryAgain)
    asking = asyncio.create_task(round_trip(pool, [PING]))  # over a new connection
    await asyncio.to_thread(peer.newest.acquire)
    peer.says(b"+again\r\n")
    assert await asking == [b"again"]
    await pool.aclose()


async def test_a_server_that_loads_has_executed_nothing(peer):
    pool = pool_of(peer)
    asking = asyncio.create_task(round_trip(pool, [("SET", "a", "b")]))
    await asyncio.to_thread(peer.newest.acquire)
    peer.says(b"-LOADING Redis is loading the dataset in memory\r\n")
    with pytest.raises(TryAgain, match="loading its data") as raised:
        await asking
    assert not isinstance(raised.value, Unanswered)
    await pool.aclose()


@pytest.mark.parametrize(
    ("said", "is_certain"),
    [
        (LOADING * 2, True),
        (FULL, True),  # and then it closes the connection
        (b"-NOAUTH Authentication required.\r\n" * 2, True),
        (b"+OK\r\n" + LOADING, False),
        (b"+OK\r\n", False),
        (b"", False),
    ],
)
async def test_none_was_executed_only_if_the_first_was_refused(peer, said, is_certain):
    pool = pool_of(peer)
    asking = asyncio.create_task(round_trip(pool, [SET, SET]))
    await asyncio.to_thread(peer.newest.acquire)
    peer.accepted[-1].sendall(said)
    peer.accepted[-1].shutdown(socket.SHUT_WR)
    with pytest.raises(TryAgain) as raised:
        await asking
    assert isinstance(raised.value, Unanswered) is not is_certain
    await pool.aclose()


async def test_redis_that_refuses_us_is_said_to_refuse(peer):
    pool = pool_of(peer)
    asking = asyncio.create_task(round_trip(pool, [PING]))
    await asyncio.to_thread(peer.newest.acquire)
    peer.says(b"-NOAUTH Authentication required.\r\n")
    with pytest.raises(RedisRefuses, match="wants a password"):
        await asking
    await pool.aclose()


async def test_where_nothing_was_written_nothing_is_confirmed(peer):
    async def confirm(ask: AskCommands, answers: list[Any]) -> list[Any]:
        raise AssertionError(ask, answers)

    pool = pool_of(peer)
    asking = asyncio.create_task(round_trip(pool, [SET, SET], [PING], confirm=confirm))
    await asyncio.to_thread(peer.newest.acquire)
    peer.says(2 * b"-READONLY You can't write against a read only replica.\r\n" + b"+PONG\r\n")
    first, second, pong = await asking
    assert isinstance(first, ReadOnlyError)
    assert isinstance(second, ReadOnlyError)
    assert pong == b"PONG"
    await pool.aclose()


async def test_what_was_written_beside_a_script_that_is_not_known_is_confirmed(peer):
    async def confirm(_: AskCommands, answers: list[Any]) -> list[Any]:
        too_few = TooFewReplicas(TryAgain("no replica has it"))
        return [each if isinstance(each, Exception) else too_few for each in answers]

    pool = pool_of(peer)
    asking = asyncio.create_task(round_trip(pool, [SET, PING], confirm=confirm))
    await asyncio.to_thread(peer.newest.acquire)
    peer.says(b"+OK\r\n" + NOSCRIPT)
    written, unknown = await asking
    assert isinstance(written, TooFewReplicas)
    assert isinstance(unknown, NoScriptError)
    await pool.aclose()


@pytest.mark.parametrize("before", [0, 1])
async def test_a_script_that_cannot_be_sent_in_full_may_leave_others_executed(peer, before):
    client: Any = RedisClient.from_pool(pool_of(peer))
    script = Script("redis_client/piece.lua").command(["key"], 0, b"", 1)
    asking = asyncio.create_task(client.once([SET] * before + [script]))
    await asyncio.to_thread(peer.newest.acquire)
    peer.says(b"+OK\r\n" * before + NOSCRIPT, 0.1, LOADING)
    with pytest.raises(TryAgain) as raised:
        await asking
    assert isinstance(raised.value, Unanswered) == bool(before)
    await client.aclose()


async def test_a_repetition_has_only_what_is_left_of_the_time(peer):
    pool = Pool(**peer.options(seconds=60), max_connections=1, timeout=5)
    async with asyncio.timeout(30):
        with pytest.raises(TryAgain, match="no answer in time"):
            await round_trip(pool, [PING], began=monotonic() - 60, new_connection=True)
        borrowed = await pool.borrow()
        with pytest.raises(TryAgain, match="all connections to Redis are in use"):
            await round_trip(pool, [PING], began=monotonic() - 60)
        await pool.give_back(borrowed)
    await pool.aclose()


async def test_what_may_be_repeated_is_sent_again_over_another_connection(peer):
    client: Any = RedisClient.from_pool(pool_of(peer))
    asking = asyncio.create_task(client.get("a"))
    await asyncio.to_thread(peer.newest.acquire)
    peer.accepted[-1].shutdown(socket.SHUT_WR)
    await asyncio.to_thread(peer.newest.acquire)
    peer.says(b"+b\r\n")
    assert await asking == b"b"
    await client.aclose()
