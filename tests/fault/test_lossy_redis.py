"""A Redis that starts again with older data, as after a lossy failover: nothing is lost that a hub
remembers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rsnotify.journal import keys
from tests.support.faults import OwnRedis
from tests.support.lossy_failover import LOC, Reader, published
from tests.support.raw import raw_channel
from tests.support.running import RunningHub, until


@pytest.fixture
async def hubs(own_redis: OwnRedis, tmp_path: Path) -> AsyncIterator[list[RunningHub]]:
    """Three hubs on one Redis, which hear each other."""
    hubs = [RunningHub(tmp_path / f"data{n}", "--redis", own_redis.url) for n in range(3)]

    async def all_listen() -> bool:  # a little later than they are ready
        ((_, count),) = await own_redis.client.pubsub_numsub(keys.BELL)
        return bool(count == len(hubs))

    async with AsyncExitStack() as stack:
        started = await asyncio.gather(*map(stack.enter_async_context, hubs))
        await until(all_listen)
        yield started


async def in_the_change_list(hub: RunningHub) -> list[str]:
    _, document = await hub.ask("GET", "/dataset1/changelist.xml")
    return [loc.decode() for loc in LOC.findall(document)]


async def all_told(
    readers: list[Reader], names: set[str], reading: list[asyncio.Task[None]]
) -> None:
    async def told() -> bool:
        for task in reading:
            if task.done():
                task.result()  # why the reader ended
        return all(names <= set(reader.told) for reader in readers)

    await until(told)


@pytest.mark.parametrize("under_load", [False, True], ids=["idle", "under load"])
async def test_what_was_acknowledged_is_kept_and_told_to_every_reader(
    hubs: list[RunningHub], own_redis: OwnRedis, under_load: bool
) -> None:
    acknowledged = await published(hubs[0], ["before"])
    copy = own_redis.copy_of_data()
    async with AsyncExitStack() as stack:
        raws = [await stack.enter_async_context(raw_channel(hub.channel())) for hub in hubs]
        readers = [Reader(raw) for raw in raws]
        reading = [asyncio.create_task(reader.read()) for reader in readers]
        for number in range(30):
            acknowledged |= await published(hubs[number % 3], [f"lost-{number}"])
        more = [f"while-{number}" for number in range(30 if under_load else 0)]
        going_on = [
            asyncio.create_task(published(hubs[n % 3], [name])) for n, name in enumerate(more)
        ]
        await own_redis.go_back(copy)
        acknowledged.update(*[await each for each in going_on])
        acknowledged |= await published(hubs[1], ["after"])
        await all_told(readers, acknowledged - {"before"}, reading)
        for task in reading:
            task.cancel()
    for hub in hubs:
        assert set(await in_the_change_list(hub)) == acknowledged
        assert "Traceback" not in hub.log.read_text()


@pytest.mark.parametrize("asked", ["", "?from={}", "?limit=10", "?until=2099-01-01&limit=10"])
async def test_what_only_a_poller_was_told_is_kept(
    hubs: list[RunningHub], own_redis: OwnRedis, asked: str
) -> None:
    """Whoever has published it is gone, and nobody follows the channel where it is polled."""
    before = await hubs[0].publish("http://example.com/before")
    copy = own_redis.copy_of_data()
    await hubs[0].publish("http://example.com/lost")
    path = f"/dataset1/changelist.xml{asked.format(before['until'])}"
    status, told = await hubs[1].ask("GET", path)
    assert status == 200
    assert b"lost" in told
    await hubs[0].kill()
    await own_redis.go_back(copy)
    await published(hubs[2], ["after"])

    async def is_put_back() -> bool:  # by the hub that was polled, which did not append "after"
        return all(
            [set(await in_the_change_list(hub)) == {"before", "lost", "after"} for hub in hubs[1:]]
        )

    await until(is_put_back)
    assert not any("no hub process remembers them" in hub.log.read_text() for hub in hubs[1:])
