"""A disk that is really full: nothing is acknowledged that is not stored, and all goes on then."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.disks import Disk
from tests.support.faults import OwnRedis
from tests.support.lossy_failover import listed, published
from tests.support.raw import Raw, raw_channel
from tests.support.running import RunningHub, until

ADDRESS = "/api/sets/dataset1/changes"
CHANGE = {"loc": "http://example.com/while-it-is-full", "change": "updated"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Where the Redis of this test writes."""
    with Disk(tmp_path / "own-redis") as mounted:
        yield mounted


@pytest.fixture
async def redis(
    request: pytest.FixtureRequest, disk: Disk, tmp_path: Path
) -> AsyncIterator[OwnRedis]:
    assert disk
    async with OwnRedis(tmp_path, "--appendfsync", request.param) as started:
        yield started


@asynccontextmanager
async def hub_that_published(folder: Path, *options: str) -> AsyncIterator[tuple[RunningHub, Raw]]:
    """A hub whose journal has one change, `before`, and a reader that was told of it."""
    async with (
        RunningHub(folder / "data", *options) as hub,
        raw_channel(hub.channel()) as reader,
    ):
        await published(hub, ["before"])
        assert b"before" in await reader.text()
        yield hub, reader
    assert "Traceback" not in hub.log.read_text()


async def goes_on(hub: RunningHub, reader: Raw) -> None:
    """It takes another change, and tells the reader of it."""
    await published(hub, ["after"])
    await hears(reader, b"after")


async def has_all(hub: RunningHub) -> None:
    assert {"before", "after"} <= await listed(hub, "dataset1")


async def has_written(redis: OwnRedis) -> bool:
    """All that it answered: with `everysec` it keeps writes back while the disk is at an fsync."""
    return bool((await redis.client.info("persistence"))["aof_buffer_length"] == 0)


async def hears(reader: Raw, word: bytes) -> None:
    while word not in await reader.text():
        pass


async def is_answered(hub: RunningHub, status: int) -> bool:
    return bool((await hub.ask("POST", ADDRESS, json=CHANGE))[0] == status)


@pytest.mark.parametrize("redis", ["everysec"], indirect=True)
async def test_a_redis_that_cannot_write_is_full_until_there_is_room(redis, disk, tmp_path):
    async with hub_that_published(tmp_path, "--redis", redis.url) as (hub, reader):
        disk.fill(redis.pid)
        await until(lambda: is_answered(hub, 507))
        await until(lambda: is_not_ready(hub, "cannot write its data to disk"))
        disk.make_room(redis.pid)
        await until(lambda: is_answered(hub, 201))
        await goes_on(hub, reader)
        await until(lambda: has_written(redis))
        await redis.kill()
        await redis.start()
        await has_all(hub)


@pytest.mark.parametrize("redis", ["always"], indirect=True)
async def test_a_redis_that_ends_because_it_cannot_write_has_what_was_acknowledged(
    redis, disk, tmp_path
):
    async with hub_that_published(tmp_path, "--redis", redis.url) as (hub, reader):
        disk.fill(redis.pid)
        await until(lambda: is_answered(hub, 503))  # there may be room behind the end of a file
        await until(redis.has_ended)
        disk.make_room(redis.pid)
        await redis.start()
        await goes_on(hub, reader)
        await has_all(hub)


async def test_a_hub_with_a_redis_of_its_own_goes_on_by_itself_when_there_is_room(tmp_path):
    with Disk(tmp_path / "data") as disk:
        if not disk.is_mounted:
            pytest.skip("this user cannot mount a disk: a full one below a hub is not tried")
        async with hub_that_published(tmp_path) as (hub, reader):
            disk.fill(hub.process.pid)
            await until(lambda: is_answered(hub, 507))
            _, refusal = await hub.ask("POST", ADDRESS, json=CHANGE)
            assert "nothing was stored: less than 64 MiB are left" in refusal["detail"]
            assert "Error 111" not in str(refusal)
            state = json.dumps({"loc": "http://example.com/a"})
            loading = {"data": state, "headers": {"Content-Type": "application/x-ndjson"}}
            load, refusal = await hub.ask("PUT", "/api/sets/dataset1/resources", **loading)
            assert (load, "less than 64 MiB are left" in refusal["detail"]) == (507, True)
            await until(lambda: is_not_ready(hub, "less than 64 MiB are left on the disk of"))
            disk.make_room(hub.process.pid)
            await goes_on(hub, reader)
            await has_all(hub)
            await until(lambda: is_ready(hub))


async def is_not_ready(hub: RunningHub, reason: str) -> bool:
    status, said = await hub.ask("GET", "/health/ready")
    return status == 503 and reason in said["detail"]


async def is_ready(hub: RunningHub) -> bool:
    return bool((await hub.ask("GET", "/health/ready"))[0] == 200)
