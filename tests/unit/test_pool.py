"""Which connection an exchange gets, and which the pool gets back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from rsnotify.storage.direct_connection import DirectConnection
from rsnotify.storage.exchange import exchange
from rsnotify.storage.pool import KEPT, Pool


class Echoing:
    """A server that answers every ECHO, and knows its connections."""

    def __init__(self) -> None:
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):  # the client has gone
            while await reader.readuntil(b"ECHO\r\n$2\r\n"):
                writer.write(b"$2\r\n" + await reader.readexactly(2) + b"\r\n")
        writer.close()


@pytest.fixture
async def echoing() -> AsyncIterator[Echoing]:
    echo = Echoing()
    async with await asyncio.start_server(echo.serve, "127.0.0.1", 0) as server:
        echo.port = server.sockets[0].getsockname()[1]
        yield echo


@pytest.fixture
async def pool(echoing: Echoing) -> AsyncIterator[Pool]:
    pool = Pool(host="127.0.0.1", port=echoing.port, protocol=2, driver_info=None, timeout=5)
    yield pool
    await pool.aclose()


async def echo(pool: Pool) -> None:
    assert await exchange(pool, [("ECHO", "hi")]) == [b"hi"]


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


async def test_the_next_exchange_has_the_same_connection(pool: Pool, echoing: Echoing) -> None:
    for _ in range(3):
        await echo(pool)
    assert len(echoing.writers) == 1


async def test_one_that_the_server_has_closed_is_not_written_to(
    pool: Pool, echoing: Echoing
) -> None:
    await echo(pool)
    connection = await kept(pool)
    echoing.writers[0].close()
    await hears(connection)
    await echo(pool)
    assert len(echoing.writers) == 2


async def test_one_on_which_something_came_unasked_is_not_written_to(
    pool: Pool, echoing: Echoing
) -> None:
    await echo(pool)
    connection = await kept(pool)
    echoing.writers[0].write(b"$2\r\nno\r\n")
    await hears(connection)
    await echo(pool)


async def test_one_whose_exchange_was_cancelled_is_not_kept(pool: Pool, echoing: Echoing) -> None:
    waiting = asyncio.create_task(exchange(pool, [("PING",)]))  # never answered
    async with asyncio.timeout(5):
        while not echoing.writers:
            await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await echo(pool)


async def test_no_more_are_kept_than_write_at_once(pool: Pool) -> None:
    borrowed = [await pool.borrow() for _ in range(KEPT + 1)]
    for connection in borrowed:
        await pool.give_back(connection)
    again = [await pool.borrow() for _ in range(KEPT)]
    assert {*again} == {*borrowed[:KEPT]}


async def test_whoever_waits_for_a_connection_gets_one_that_is_given_back(
    echoing: Echoing,
) -> None:
    pool = Pool(
        host="127.0.0.1", port=echoing.port, protocol=2, driver_info=None, max_connections=1
    )
    connection = await pool.borrow()
    waiting = asyncio.create_task(pool.borrow())
    await asyncio.sleep(0)
    await pool.give_back(connection)
    assert await waiting is connection
    await pool.aclose()
