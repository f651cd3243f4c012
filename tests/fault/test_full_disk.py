"""A disk that is really full: nothing is acknowledged that is not stored, and all goes on then."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.disks import Disk
from tests.faults import OwnRedis
from tests.lossy_failover import listed, published
from tests.raw import raw_channel
from tests.running import RunningHub, until

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


async def is_answered(hub: RunningHub, status: int) -> bool:
    return bool((await hub.ask("POST", ADDRESS, json=CHANGE))[0] == status)


@pytest.mark.parametrize("redis", ["everysec"], indirect=True)
async def test_a_redis_that_cannot_write_is_full_until_there_is_room(
    redis: OwnRedis, disk: Disk, tmp_path: Path
) -> None:
    async with (
        RunningHub(tmp_path / "data", "--redis", redis.url) as hub,
        raw_channel(hub.channel()) as reader,
    ):
        acknowledged = await published(hub, ["before"])
        assert b"before" in await reader.text()
        disk.fill(redis.pid)

        await until(lambda: is_answered(hub, 507))

        async def says_why() -> bool:
            status, said = await hub.ask("GET", "/health/ready")
            return status == 503 and "cannot write its data to disk" in said["detail"]

        await until(says_why)
        disk.make_room(redis.pid)
        await until(lambda: is_answered(hub, 201))
        acknowledged |= await published(hub, ["after"])
        told = b""
        while b"after" not in told:
            told += await reader.text()
        await redis.kill()
        await redis.start()
        assert acknowledged <= await listed(hub, "dataset1")
    assert "Traceback" not in hub.log.read_text()


@pytest.mark.parametrize("redis", ["always"], indirect=True)
async def test_a_redis_that_ends_because_it_cannot_write_has_what_was_acknowledged(
    redis: OwnRedis, disk: Disk, tmp_path: Path
) -> None:
    async with (
        RunningHub(tmp_path / "data", "--redis", redis.url) as hub,
        raw_channel(hub.channel()) as reader,
    ):
        acknowledged = await published(hub, ["before"])
        assert b"before" in await reader.text()
        disk.fill(redis.pid)
        await until(lambda: is_answered(hub, 503))  # there may be room behind the end of a file
        await until(redis.has_ended)
        disk.make_room(redis.pid)
        await redis.start()
        acknowledged |= await published(hub, ["after"])
        told = b""
        while b"after" not in told:
            told += await reader.text()
        assert acknowledged <= await listed(hub, "dataset1")
    assert "Traceback" not in hub.log.read_text()
