"""Resource Lists that were replaced: how many are kept, for how long, where they are named."""

from collections.abc import AsyncIterator

import pytest

from rsnotify.documents.documents import Snapshot
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Position
from tests.support.pulling import BASE, FRAMEWORK, SET, Pulling, names

ARCHIVE = f"/{SET}/resourcelist-archive.xml"


@pytest.fixture
async def pulling(client: Client, request: pytest.FixtureRequest) -> AsyncIterator[Pulling]:
    """A hub that keeps two replaced Resource Lists."""
    async with Pulling(client, archived_lists=2, **getattr(request, "param", {})) as found:
        yield found


async def taken(pulling: Pulling, *changed: str) -> Snapshot:
    await pulling.update(*changed)
    found = await pulling.upkeep.snapshots.take(SET)
    assert found is not None
    return found


async def archived(pulling: Pulling) -> list[str]:
    """The names of the snapshots that the archive lists."""
    document = await pulling.document(ARCHIVE)
    assert document.md is not None
    assert document.md.capability == "resourcelist-archive"
    return [entry.loc.rpartition("/")[2].removesuffix(".xml") for entry in document.entries]


async def test_a_replaced_list_is_archived_named_and_pulled(pulling):
    first = await taken(pulling, "a")
    assert (await pulling.get(ARCHIVE)).status == 404
    assert "resourcelist-archive" not in await capabilities(pulling)
    await taken(pulling, "b")
    (entry,) = (await pulling.document(ARCHIVE)).entries
    assert entry.loc == f"{BASE}/{SET}/resourcelist/{first.name}.xml"
    assert entry.md is not None
    assert (entry.md.at, entry.md.completed) == (str(first.at), str(first.completed))
    assert names(await pulling.document(entry.loc)) == ["a"]
    assert "resourcelist-archive" in await capabilities(pulling)


async def capabilities(pulling: Pulling) -> list[str | None]:
    document = await pulling.document(f"/{SET}/capabilitylist.xml")
    return [entry.md and entry.md.capability for entry in document.entries]


@pytest.mark.parametrize("pulling", [{"part_resources": 1}], indirect=True, ids=[""])
async def test_a_list_of_several_parts_is_archived_as_an_index(pulling):
    await taken(pulling, "a", "b")
    await taken(pulling, "c")
    (entry,) = (await pulling.document(ARCHIVE)).entries
    index = await pulling.document(entry.loc)
    parts = [names(await pulling.document(part.loc)) for part in index.entries]
    assert sorted(parts) == [["a"], ["b"]]


async def test_so_many_are_kept_and_no_more(pulling):
    snapshots = [await taken(pulling, name) for name in "abcd"]
    await pulling.upkeep.old.delete()
    assert await archived(pulling) == [each.name for each in snapshots[1:3]]
    key = f"rsnotify:{{{SET}}}:snapshot:{snapshots[0].name}"
    assert await pulling.client.ttl(key) > 0  # somebody may still be reading it
    assert await pulling.client.ttl(f"{key}:1") > 0


async def test_what_is_too_old_is_let_go(pulling):
    first, second = [await taken(pulling, name) for name in "abc"][:2]
    await pulling.snapshots.expire_surplus(SET, 2, Position(first.begun - 1))
    assert await archived(pulling) == [first.name, second.name]
    await pulling.snapshots.expire_surplus(SET, 2, first.begun)
    assert await archived(pulling) == [second.name]


async def test_one_that_is_read_stays_in_the_archive_for_good(pulling):
    first = await taken(pulling, "a")
    await taken(pulling, "b")
    await pulling.document(f"/{SET}/resourcelist/{first.name}.xml")
    assert await pulling.client.ttl(f"rsnotify:{{{SET}}}:snapshot:{first.name}:1") == -1


async def test_the_archive_is_announced(pulling):
    for name in "abc":
        await taken(pulling, name)
    begin = (await pulling.hub.reading.standing(FRAMEWORK)).first
    rows = await pulling.journal.read(FRAMEWORK, begin, count=10)
    told = [fragment for _, fragment in rows if b'"resourcelist-archive"' in fragment]
    assert [b'change="created"' in told[0], b'change="updated"' in told[1]] == [True, True]
    assert len(told) == 2


async def test_a_set_that_is_removed_takes_its_archive_with_it(pulling):
    for name in "abc":
        await taken(pulling, name)
    await pulling.hub.remove_set(SET)
    left = [key async for key in pulling.client.scan_iter(f"rsnotify:{{{SET}}}:*")]
    assert [key for key in left if b":key:" not in key] == []


async def test_a_hub_that_keeps_none_has_no_archive(client):
    async with Pulling(client) as pulling:
        await taken(pulling, "a")
        await taken(pulling, "b")
        assert (await pulling.get(ARCHIVE)).status == 404
