"""What `redis_client` promises as redis-py does: the same cases against both, on a real Redis."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis import asyncio as library
from redis.exceptions import ExecAbortError, ResponseError

from rsnotify.redis_client import Client, connect

CONNECTIONS = 64


@pytest.fixture(params=["ours", "redis-py"])
async def either(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Client]:
    if request.param == "ours":
        found: Client = connect(redis_url)
    else:
        pool = library.BlockingConnectionPool.from_url(
            redis_url, max_connections=CONNECTIONS, protocol=2
        )
        found = library.Redis.from_pool(pool)
    async with found as client:
        await client.flushall()
        yield client


async def test_answers_have_the_types_of_the_library(either):
    assert await either.set("text", "é") is True
    assert await either.get("text") == "é".encode()
    assert await either.get("none") is None
    assert await either.incr("number") == 1
    assert await either.hset("hash", mapping={"a": 1, "b": b"\x00\r\n"}) == 2
    assert await either.hgetall("hash") == {b"a": b"1", b"b": b"\x00\r\n"}
    assert await either.zadd("sorted", {"one": 1.5}) == 1
    assert await either.zrange("sorted", 0, -1, withscores=True) == [(b"one", 1.5)]
    assert sorted([key async for key in either.scan_iter()]) == [
        b"hash",
        b"number",
        b"sorted",
        b"text",
    ]
    assert (await either.info("server"))["redis_version"]


async def test_an_error_in_a_pipeline_stands_in_its_place_and_the_others_are_done(either):
    await either.set("text", "x")
    pipeline = either.pipeline(transaction=False)
    pipeline.set("before", 1)
    pipeline.lpush("text", 1)
    pipeline.set("behind", 2)
    done, refused, done_too = await pipeline.execute(raise_on_error=False)
    assert (done, done_too) == (True, True)
    assert isinstance(refused, ResponseError)
    assert await either.mget("before", "behind") == [b"1", b"2"]
    pipeline.lpush("text", 1)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await pipeline.execute()


async def test_of_a_transaction_with_a_command_that_is_none_nothing_is_done(either):
    pipeline = either.pipeline(transaction=True)
    pipeline.set("first", 1)
    pipeline.execute_command("NONSENSE")
    with pytest.raises((ExecAbortError, ResponseError)):
        await pipeline.execute()
    assert await either.get("first") is None


async def test_nobody_reads_a_transaction_half_done(either):
    async def write() -> None:
        for count in range(50):
            pipeline = either.pipeline(transaction=True)
            pipeline.set("a", count)
            pipeline.set("b", count)
            await pipeline.execute()

    writing = asyncio.create_task(write())
    while not writing.done():
        first, second = await either.mget("a", "b")
        assert first == second
    await writing


async def test_more_callers_than_connections_each_get_their_own_answer(either):
    names = [f"key{number}" for number in range(CONNECTIONS * 4)]
    await asyncio.gather(*(either.set(name, name) for name in names))
    assert await asyncio.gather(*map(either.get, names)) == [name.encode() for name in names]


async def test_a_large_value_comes_back_whole(either):
    value = bytes(range(256)) * 20_000
    await either.set("large", value)
    assert await either.get("large") == value


async def test_who_gives_up_leaves_no_answer_to_the_next(either):
    await either.set("key", "right")
    waiting = [asyncio.create_task(either.blpop("nothing", timeout=1)) for _ in range(8)]
    await asyncio.sleep(0)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (
        await asyncio.gather(*(either.get("key") for _ in range(CONNECTIONS)))
        == [b"right"] * CONNECTIONS
    )


async def test_a_connection_that_was_closed_while_it_was_idle_is_made_anew(either, client):
    await either.set("key", 1)
    assert await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") > 0
    assert await either.get("key") == b"1"
