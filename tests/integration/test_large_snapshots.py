"""A snapshot of shards that are too large to be read at once."""

from collections.abc import AsyncIterator
from itertools import chain

import pytest

from rsnotify.coordination import keys
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Change
from tests.support.pulling import SET, Pulling, loc

AT_ONCE = 20


@pytest.fixture
async def pulling(client: Client, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pulling]:
    monkeypatch.setattr(keys, "STATE_SHARDS", 1)
    async with Pulling(client, scanned_resources=AT_ONCE) as pulling:
        yield pulling


def some(first: int, count: int, change: str = "updated") -> list[Change]:
    return [Change(loc(f"{number:05}"), change) for number in range(first, first + count)]


async def read(pulling: Pulling, meanwhile: list[Change]) -> list[list[bytes]]:
    """The names of the resources as they are read; what is published after the first of them."""
    found: list[list[bytes]] = []
    async with pulling.snapshots.claim(SET) as claim:
        assert claim is not None
        async for resources in pulling.snapshots.resources(SET, claim):
            found.append([each.rpartition(b"/")[2] for each, _ in resources])
            if len(found) == 1 and meanwhile:
                await pulling.publish(*meanwhile)
    return found


async def test_a_large_shard_is_read_in_parts(pulling):
    await pulling.publish(*some(0, 1_000))
    found = await read(pulling, [])
    assert len(found) > 10
    assert max(map(len, found)) < 10 * AT_ONCE
    assert sorted(chain(*found)) == [b"%05d" % number for number in range(1_000)]


async def test_each_resource_is_read_once_while_a_shard_grows(pulling):
    """Redis moves everything to another place when it makes room."""
    await pulling.publish(*some(0, 1_000))
    names = [*chain(*await read(pulling, some(1_000, 9_000)))]
    assert len(names) == len(set(names))
    assert set(names) >= {b"%05d" % number for number in range(1_000)}


async def test_what_stays_is_read_while_a_shard_shrinks(pulling):
    await pulling.publish(*some(0, 3_000))
    names = [*chain(*await read(pulling, some(200, 2_800, "deleted")))]
    assert len(names) == len(set(names))
    assert set(names) >= {b"%05d" % number for number in range(200)}
