"""The bell of the hub processes, at a Redis that is replaced."""

import asyncio
from contextlib import aclosing

from redis import asyncio as redis

from rsnotify.storage import keys
from rsnotify.storage.bell import Bell
from tests.running import until


async def test_what_is_rung_at_a_former_primary_is_not_heard(redis_url: str) -> None:
    """Nothing tells this listener that another has taken over: its connection lives on."""
    bell = Bell(redis_url)

    async def is_connected(times: int) -> bool:
        return bell.connections == times

    async with redis.Redis.from_url(redis_url) as client, aclosing(bell.strokes()) as strokes:
        heard = asyncio.create_task(anext(strokes))
        await until(lambda: is_connected(1))
        await client.publish(keys.BELL, "before")
        assert await heard == "before"
        heard = asyncio.create_task(anext(strokes))
        await asyncio.sleep(0)  # so that it listens
        bell.doubt()
        await client.publish(keys.BELL, "of the former")
        await until(lambda: is_connected(2))
        await client.publish(keys.BELL, "after")
        assert await heard == "after"
