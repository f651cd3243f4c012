"""A Redis or Valkey that hangs, restarts and loads, or is full: nothing is lost, nothing doubled.

Its readers stay connected, and nobody restarts anything.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.amount import enough
from tests.support.faults import OwnRedis, failing_saves
from tests.support.lossy_failover import published
from tests.support.raw import Raw, raw_channel
from tests.support.running import RunningHub, until

ADDRESS = "/api/sets/dataset1/changes"
LOC = "http://example.com/once"
KEYED = {"json": [{"loc": LOC, "change": "updated"}], "headers": {"Idempotency-Key": "k"}}


@pytest.fixture(params=enough(["redis", "valkey"], 1))
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OwnRedis]:
    """Of this engine, if there is one."""
    async with OwnRedis(tmp_path, engine=request.param) as started:
        yield started


@pytest.fixture
async def hub(server: OwnRedis, tmp_path: Path) -> AsyncIterator[RunningHub]:
    async with RunningHub(tmp_path / "data", "--redis", server.url) as running:
        yield running


async def is_stored_once(hub: RunningHub, reader: Raw) -> None:
    """Repeated until it is acknowledged, and told once to a reader that was there all the time."""

    async def is_taken() -> bool:
        return bool((await hub.ask("POST", ADDRESS, **KEYED))[0] == 201)

    await until(is_taken)
    await hub.publish("http://example.com/next")
    told = b""
    while b"http://example.com/next" not in told:
        told += await reader.text()
    _, listed = await hub.ask("GET", "/dataset1/changelist.xml")
    assert told.count(LOC.encode()) == listed.count(LOC.encode()) == 1
    assert "Traceback" not in hub.log.read_text()


async def test_a_hanging_redis_is_answered_503_to_everybody_and_gone_on_with(hub, server):
    _, token = await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"]})
    bearer = {"Authorization": f"Bearer {token['token']}", "Idempotency-Key": "k"}
    async with raw_channel(hub.channel()) as reader:
        server.freeze()
        try:
            async with asyncio.timeout(8):
                answers = await asyncio.gather(
                    hub.ask("POST", ADDRESS, **KEYED),
                    hub.ask("POST", ADDRESS, json=KEYED["json"], headers=bearer),
                    hub.ask("PUT", "/api/sets/dataset2", json={}),
                )
        finally:
            server.thaw()
        assert [status for status, _ in answers] == [503, 503, 503]
        await is_stored_once(hub, reader)


async def test_a_redis_that_loads_after_a_crash_is_answered_503_and_gone_on_with(hub, server):
    await published(hub, [str(number) for number in range(10_000)])
    async with raw_channel(hub.channel()) as reader:
        await server.kill()
        await server.launch("--key-load-delay", "300")

        async def is_loading() -> bool:
            status, problem = await hub.ask("POST", ADDRESS, **KEYED)
            assert status == 503
            return "(LOADING)" in problem["detail"]

        await until(is_loading)
        await is_stored_once(hub, reader)


async def test_a_redis_that_cannot_save_is_answered_507_and_gone_on_with(hub, server):
    async with raw_channel(hub.channel()) as reader:
        async with failing_saves(server):
            status, problem = await hub.ask("POST", ADDRESS, **KEYED)
            assert (status, "(MISCONF)" in problem["detail"]) == (507, True)
        await is_stored_once(hub, reader)
