"""Which connection an exchange gets, and which the pool gets back."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rsnotify.errors import TryAgain
from rsnotify.redis_client.client import round_trip
from rsnotify.redis_client.pool import DirectConnection, Pool
from tests.support.redis_server import free_port
from tests.support.stream_server import StreamServer


class Echoing:
    """A server that answers every ECHO, and knows its connections."""

    def __init__(self) -> None:
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while await reader.readuntil(b"ECHO\r\n$2\r\n"):
            writer.write(b"$2\r\n" + await reader.readexactly(2) + b"\r\n")


@pytest.fixture
async def echoing() -> AsyncIterator[Echoing]:
    echo = Echoing()
    async with StreamServer(echo.serve) as server:
        echo.port = server.port
        yield echo


def pool_of(echoing: Echoing, connections: int, *, seconds: float = 5) -> Pool:
    return Pool(
        host="127.0.0.1",
        port=echoing.port,
        protocol=2,
        driver_info=None,
        max_connections=connections,
        timeout=seconds,
    )


@pytest.fixture
async def pool(echoing: Echoing) -> AsyncIterator[Pool]:
    pool = pool_of(echoing, 64)
    yield pool
    await pool.aclose()


async def echo(pool: Pool) -> None:
    assert await round_trip(pool, [("ECHO", "hi")]) == [b"hi"]


async def kept(pool: Pool) -> DirectConnection:
    """The connection that the next exchange will have, if nothing happens to it."""
    connection = await pool.borrow()
    await pool.give_back(connection)
    return connection


async def hears(connection: DirectConnection) -> None:
    """Wait until something came on it: bytes, or its end."""
    async with asyncio.timeout(5):
        while connection.is_usable:
            await asyncio.sleep(0)


async def test_the_next_exchange_has_the_same_connection(pool, echoing):
    for _ in range(3):
        await echo(pool)
    assert len(echoing.writers) == 1


async def test_one_that_the_server_has_closed_is_not_written_to(pool, echoing):
    await echo(pool)
    connection = await kept(pool)
    echoing.writers[0].close()
    await hears(connection)
    await echo(pool)
    assert len(echoing.writers) == 2


async def test_one_on_which_something_came_unasked_is_not_written_to(pool, echoing):
    await echo(pool)
    connection = await kept(pool)
    echoing.writers[0].write(b"$2\r\nno\r\n")
    await hears(connection)
    await echo(pool)


async def test_one_whose_exchange_was_cancelled_is_not_kept(pool, echoing):
    waiting = asyncio.create_task(round_trip(pool, [("PING",)]))  # never answered
    async with asyncio.timeout(5):
        while not echoing.writers:
            await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await echo(pool)


async def test_turns_are_taken_in_the_order_of_asking_also_by_who_has_just_given_back(echoing):
    pool = pool_of(echoing, 2)
    served: list[str] = []

    async def ask_again_and_again(name: str) -> None:
        for _ in range(10):
            await echo(pool)
            served.append(name)

    await asyncio.gather(*map(ask_again_and_again, "abcdef"))
    for turn in range(10):
        assert sorted(served[6 * turn : 6 * (turn + 1)]) == [*"abcdef"]
    assert len(echoing.writers) == 2
    await pool.aclose()


async def test_a_turn_is_waited_for_as_long_as_was_chosen(echoing):
    pool = pool_of(echoing, 1, seconds=0.05)
    borrowed = await pool.borrow()
    with pytest.raises(TryAgain, match="all connections to Redis are in use"):
        await echo(pool)
    await pool.give_back(borrowed)
    await echo(pool)
    assert len(echoing.writers) == 1
    await pool.aclose()


@pytest.mark.parametrize("has_come", [False, True])
async def test_a_turn_is_not_lost_with_who_gives_up(echoing, has_come):
    pool = pool_of(echoing, 1)
    borrowed = await pool.borrow()
    waiting = asyncio.create_task(pool.borrow())
    await asyncio.sleep(0)
    if has_come:  # but is not taken yet
        await pool.give_back(borrowed)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    if not has_come:
        borrowed.abort()
        await pool.give_back(borrowed)
    async with asyncio.timeout(5):
        await echo(pool)
    await pool.aclose()


async def test_a_turn_is_not_lost_with_who_cannot_connect(echoing):
    echoing.port = free_port()
    pool = pool_of(echoing, 1)
    for _ in range(3):
        with pytest.raises(TryAgain, match="Connect"):
            await echo(pool)
    await pool.aclose()


async def test_a_repetition_has_a_new_connection_and_leaves_the_others(pool, echoing):
    borrowed = [await pool.borrow() for _ in range(3)]
    for direct in borrowed:
        await pool.give_back(direct)
    made = await pool.borrow(new=True)
    assert made not in borrowed
    assert [direct.is_usable for direct in borrowed] == [True] * 3
    await pool.give_back(made)
    assert len(echoing.writers) == 4


async def test_a_repetition_takes_the_place_of_an_idle_connection_if_there_may_be_no_more(echoing):
    pool = pool_of(echoing, 1)
    await echo(pool)
    made = await pool.borrow(new=True)
    await pool.give_back(made)
    assert await kept(pool) is made
    await pool.aclose()


async def test_the_end_of_a_pool_waits_for_nobody(pool, echoing):
    waiting = asyncio.create_task(round_trip(pool, [("PING",)]))  # never answered
    async with asyncio.timeout(5):
        while not echoing.writers:
            await asyncio.sleep(0)
    await pool.aclose()
    with pytest.raises(TryAgain):
        await waiting
