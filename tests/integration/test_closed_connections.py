"""Connections to Redis that close in the moment in which they are written to."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from rsnotify.errors import TryAgain
from rsnotify.redis_client import Client, connect


async def get(client: Client) -> Any:
    return await client.get("rsnotify:nothing")


async def in_a_pipeline(client: Client) -> Any:
    return await client.pipeline(transaction=False).get("rsnotify:nothing").execute()


async def once(client: Client) -> Any:
    return await client.once([("GET", "rsnotify:nothing")])


@pytest.mark.parametrize("turns", [0, 1, 3])
@pytest.mark.parametrize("ask", [get, in_a_pipeline, once])
def test_whoever_asks_is_told_to_try_again(redis_url, ask, turns):
    uvloop.run(_ask_as_it_closes(redis_url, ask, turns))


async def _ask_as_it_closes(
    redis_url: str, ask: Callable[[Client], Awaitable[Any]], turns: int
) -> None:
    async with connect(redis_url) as client:
        await ask(client)  # so that there is an answer that could be taken for another's
        pool = client.connection_pool
        borrow = pool.borrow

        async def closing(**options: Any) -> Any:
            direct = await borrow(**options)
            direct.library_connection._writer.transport.abort()
            for _ in range(turns):  # of the event loop, until nothing of it is left
                await asyncio.sleep(0)
            return direct

        pool.borrow = closing
        with pytest.raises(TryAgain):
            await ask(client)
        pool.borrow = borrow
        await ask(client)


@pytest.mark.parametrize("ask", [get, in_a_pipeline, once])
def test_whoever_comes_next_is_answered_over_another_connection(redis_url, ask):
    uvloop.run(_ask_after_it_closed(redis_url, ask))


async def _ask_after_it_closed(redis_url: str, ask: Callable[[Client], Awaitable[Any]]) -> None:
    async with connect(redis_url) as client:
        pool = client.connection_pool
        borrowed = [await pool.borrow() for _ in range(10)]
        for direct in borrowed:
            await pool.give_back(direct)
        for direct in borrowed:
            direct.library_connection._writer.transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)
        for _ in borrowed:
            await ask(client)
