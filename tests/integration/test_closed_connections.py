"""Connections to Redis that close in the moment in which they are written to."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from rsnotify.errors import TryAgain
from rsnotify.storage.connection import Client, connect


async def get(client: Client) -> Any:
    return await client.get("rsnotify:nothing")


async def in_a_pipeline(client: Client) -> Any:
    return await client.pipeline(transaction=False).get("rsnotify:nothing").execute()


async def once(client: Client) -> Any:
    return await client.once([("GET", "rsnotify:nothing")])


@pytest.mark.parametrize("ask", [get, in_a_pipeline, once])
def test_whoever_asks_is_told_to_try_again(
    redis_url: str, ask: Callable[[Client], Awaitable[Any]]
) -> None:
    uvloop.run(_ask_as_it_closes(redis_url, ask))


async def _ask_as_it_closes(redis_url: str, ask: Callable[[Client], Awaitable[Any]]) -> None:
    async with connect(redis_url) as client:
        pool = client.connection_pool
        open_one = pool.get_connection

        async def closing(*asked: Any, **options: Any) -> Any:
            connection = await open_one(*asked, **options)
            connection._writer.transport.abort()
            for _ in range(3):  # turns of the event loop, until nothing of it is left
                await asyncio.sleep(0)
            return connection

        pool.get_connection = closing
        with pytest.raises(TryAgain):
            await ask(client)
        pool.get_connection = open_one
        await ask(client)
