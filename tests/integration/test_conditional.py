"""What is read, decided and written while others write too, on a real Redis."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rsnotify.coordination import keys
from rsnotify.documents.snapshots import Snapshots
from rsnotify.errors import Rejected, TryAgain
from rsnotify.journal.windows import Windows
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets

RECORD = keys.record(ChannelName("a", "change"))


@pytest.fixture
async def sets(client: Client) -> Sets:
    found = Sets(client)
    await found.add("a", SetOptions())
    return found


def once_meanwhile(client: Client, act: Callable[[], Awaitable[object]]) -> None:
    """Between reading and writing, when the time is asked for, let somebody else act."""
    time, left = client.time, [act]

    async def later() -> object:
        if left:
            await left.pop()()
        return await time()

    client.time = later


async def test_of_two_edits_at_once_none_is_lost(client, sets):
    once_meanwhile(client, lambda: Sets(client).edit("a", {"private": True}))
    record, _ = await sets.edit("a", {"describedby": "http://example.com/about"})
    assert (record.private, record.describedby) == (True, "http://example.com/about")
    assert (await sets.all())["a"] == record


async def test_an_edit_brings_no_removed_set_back(client, sets):
    once_meanwhile(client, lambda: Sets(client).remove("a"))
    with pytest.raises(Rejected) as refused:
        await sets.edit("a", {"private": True})
    assert refused.value.status == 404
    assert await sets.all() == {}


async def test_the_chores_of_a_removed_set_leave_nothing(client, sets):
    windows = Windows(client)
    created = (await windows.record("a")).created
    await sets.remove("a")
    await windows.note_progress("a", created, grew_until=created)
    assert not await client.exists(RECORD)


async def test_the_chores_of_a_set_do_not_go_on_in_one_made_anew(client, sets):
    windows = Windows(client)
    before = await windows.record("a")
    await sets.remove("a")
    await sets.add("a", SetOptions())
    await windows.note_progress("a", before.created, packed_until=before.created)
    record = await windows.record("a")
    assert record.packed_until == record.created > before.created
    await windows.note_progress("a", record.created, packed_until=Position(record.created + 1))
    assert (await windows.record("a")).packed_until == record.created + 1


async def test_waiting_for_a_record_ends_when_its_reader_is_cancelled(client, sets):
    windows = Windows(client)
    first = asyncio.create_task(windows.record("a"))
    await asyncio.sleep(0)
    (reader,) = [task for task in asyncio.all_tasks() if task.get_name() == "reader of records"]
    await asyncio.sleep(0)  # it has begun to read
    second = asyncio.create_task(windows.record("a"))
    await asyncio.sleep(0)
    reader.cancel()
    async with asyncio.timeout(20):
        for waiting in (first, second):
            with pytest.raises(TryAgain, match="was not read"):
                await waiting
    assert (await windows.record("a")).created == Position.parse((await sets.all())["a"].created)


async def test_a_claim_that_another_takes_over_stays_theirs(client):
    key = keys.claim("a", "snapshot")
    async with Snapshots(client).claim("a"):
        await client.set(key, "another 0")
    assert await client.get(key) == b"another 0"
