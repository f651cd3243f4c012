"""Journals repaired while Redis fails again, lists are closed, and snapshots are taken."""

from collections.abc import AsyncIterator

import pytest

from rsnotify.errors import HistoryDeleted, TryAgain
from rsnotify.journal import repairing
from rsnotify.journal.journal import Journal
from rsnotify.journal.journals import Journals
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.resourcesync.xml_reader import parse_document
from tests.support.faults import Losing, OwnRedis, SlowWay
from tests.support.hubs import hub_on, submission
from tests.support.pulling import CHANGES, SET, Pulling
from tests.support.running import until

OPEN, INDEX = f"/{SET}/changelist.xml", f"/{SET}/changelist-index.xml"


async def names(client: Client) -> list[str]:
    journal = Journal(client, window_changes=0)
    rows, _ = await journal.read_back(CHANGES, Position(2**53 - 1), count=1000)
    return [xml.split(b"</loc>")[0].rpartition(b"/")[2].decode() for _, xml in reversed(rows)]


# --- Redis fails again ----------------------------------------------------------------------------


@pytest.fixture
async def hub(way: SlowWay) -> AsyncIterator[Journals]:
    client = connect(way.url)
    hub = hub_on(client)
    await hub.add_set(SET)
    await hub.start()
    yield hub
    await client.aclose()


@pytest.fixture
async def direct(own_redis: OwnRedis) -> AsyncIterator[Client]:
    """A client that nothing stands in the way of."""
    client = connect(own_redis.url)
    yield client
    await client.aclose()


@pytest.mark.parametrize("command", ["INFO", "XRANGE", "SET", "GET", "EVALSHA", "HMGET"])
async def test_an_answer_that_is_lost_during_a_repair_loses_and_doubles_nothing(
    direct, way, hub, command
):
    await hub.publish(CHANGES, submission("kept"))
    async with Losing(direct, f"rsnotify:{{{SET}}}*"):
        for name in ("lost-1", "lost-2"):
            await hub.publish(CHANGES, submission(name))
    way.lose_next_answer(command)

    async def is_repaired() -> bool:
        try:
            await hub.start()
        except TryAgain:
            return False
        return way.lost == 1 and len(await names(direct)) > 1

    await until(is_repaired)
    await hub.publish(CHANGES, submission("next"))
    assert await names(direct) == ["kept", "lost-1", "lost-2", "next"]


# --- lists and snapshots --------------------------------------------------------------------------


async def looking_when_asked(client: Client, changes: int = 10_000) -> Pulling:
    """It sees what Redis has lost when it is started again; one that follows looks now and then."""
    pulling = Pulling(client, changes=changes)
    await pulling.hub.add_set(SET)
    return pulling


@pytest.fixture
async def pulling(client: Client) -> Pulling:
    return await looking_when_asked(client, changes=2)


@pytest.fixture
def losing(client: Client) -> Losing:
    return Losing(client, f"rsnotify:{{{SET}}}*")


async def listed(pulling: Pulling) -> list[str]:
    """The resources of all Change Lists, in their order."""
    found = []
    for entry in (await pulling.document(INDEX)).entries:
        assert entry.loc is not None
        found += await of_list(pulling, entry.loc)
    return found


async def of_list(pulling: Pulling, path: str) -> list[str]:
    entries = parse_document((await pulling.get(path)).body).entries
    return [(each.loc or "").rpartition("/")[2] for each in entries]


async def test_an_open_list_in_memory_forgets_what_was_lost_and_published_again(client, losing):
    pulling = await looking_when_asked(client)
    await pulling.update("kept")
    async with losing:
        await pulling.update("lost")
        assert await of_list(pulling, OPEN) == ["kept", "lost"]
    stranger = Pulling(client)
    await stranger.hub.start()
    await stranger.update("new")
    await pulling.hub.start()
    assert await names(client) == ["kept", "new", "lost"]
    for each in (pulling, stranger):
        assert await of_list(each, OPEN) == ["kept", "new", "lost"]


async def test_lists_that_were_closed_above_a_loss_stay_and_all_of_it_is_listed_once(
    pulling, client, losing
):
    await pulling.update("kept")
    async with losing:
        for name in ("lost-1", "lost-2", "lost-3"):
            await pulling.update(name)
        assert await listed(pulling) == ["kept", "lost-1", "lost-2", "lost-3"]
    stranger = Pulling(client, changes=2)
    await stranger.hub.start()
    for name in ("new-1", "new-2", "new-3"):
        await stranger.update(name)
    await stranger.keep_windows()
    await pulling.hub.start()
    await pulling.update("next")
    journal = ["kept", "new-1", "new-2", "new-3", "lost-1", "lost-2", "lost-3", "next"]
    assert await names(client) == journal
    for each in (pulling, stranger):
        await each.hub.start()
        assert await listed(each) == journal


async def test_what_was_lost_before_a_snapshot_stands_behind_it(pulling, client, losing):
    await pulling.update("kept")
    async with losing:
        await pulling.update("lost")
    stranger = Pulling(client)
    await stranger.hub.start()
    snapshot = await stranger.upkeep.snapshot(SET)
    assert snapshot is not None
    await pulling.hub.start()
    assert await names(client) == ["kept", "lost"]
    assert await of_list(stranger, f"{OPEN}?from={snapshot.at}") == ["lost"]


# --- the framework channel ------------------------------------------------------------------------


async def test_a_gap_of_the_framework_channel_is_told_too(client, losing, monkeypatch):
    monkeypatch.setattr(repairing, "ORDER_SECONDS", 0)
    monkeypatch.setattr(repairing, "OTHERS_SECONDS", 0)
    channel = ChannelName(SET, "framework")
    hub = hub_on(client)
    await hub.add_set(SET)
    await hub.start()
    kept = await hub.publish(channel, submission("kept"))
    async with losing:
        await hub.publish(channel, submission("lost"))
        hub.feed(channel).memory.release()
    after = await hub.publish(channel, submission("after"))
    await hub.start()
    with pytest.raises(HistoryDeleted) as told:
        await hub.reading.after(hub.feed(channel), kept.until)
    assert told.value.begins == after.from_ > kept.until
    found = await hub.reading.after(hub.feed(channel), after.from_)
    assert found is not None
    assert found.count == 1
