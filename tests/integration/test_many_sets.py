"""Many sets: one costs what it costs, however many there are, and they are told of together."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from rsnotify.coordination import keys
from rsnotify.documents.announcements import GATHER_SECONDS, AnnouncedNotes, Announcements
from rsnotify.documents.discovery import Offers, PublicSets
from rsnotify.documents.snapshots import Snapshots
from rsnotify.errors import NoSuchSet, TryAgain
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.window import DocumentSchedule
from rsnotify.journal.windows import Windows
from rsnotify.live.journals import Journals
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import HOUR, Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets, Version
from tests.support.hubs import hub_on, started, submission
from tests.support.running import until

PRIVATE = SetOptions(private=True)


@pytest.fixture
async def hub(client: Client) -> Journals:
    return await started(client)


# --- making them ---------------------------------------------------------------------------------


async def commands(client: Client) -> int:
    return (await client.info("stats"))["total_commands_processed"]


async def test_sets_that_are_made_at_the_same_moment_are_not_all_read_again(client, hub):
    """Their versions arrive in any order."""

    async def reads() -> int:
        return (await client.info("commandstats")).get("cmdstat_hgetall", {"calls": 0})["calls"]

    before = await reads()
    for start in range(0, 100, 20):
        await asyncio.gather(*(hub.add_set(f"set{start + number}") for number in range(20)))
    await hub.checking.check_sets()
    assert len(hub.sets) == 100
    assert await reads() == before


async def test_a_set_takes_as_many_commands_however_many_there_are(client, hub):
    async def cost_of(name: str) -> int:
        before = await commands(client)
        await hub.add_set(name)
        return await commands(client) - before

    await cost_of("first")  # loads the script
    costs = {await cost_of(f"set{number}") for number in range(30)}
    assert len(costs) == 1


async def test_own_sets_are_served_at_once_and_those_of_others_after_a_look(client, hub):
    other = hub_on(client)
    await other.start()
    await hub.add_set("mine")
    await other.add_set("theirs")
    await hub.add_set("mine2")
    assert sorted(hub.sets) == ["mine", "mine2"]
    assert sorted(other.sets) == ["theirs"]
    await hub.start()
    await other.start()
    assert list(hub.sets) == list(other.sets) == ["mine", "mine2", "theirs"]
    await other.remove_set("mine")
    assert list(other.sets) == ["mine2", "theirs"]
    await hub.edit_set("theirs", {"private": True})
    assert hub.sets["theirs"].private
    await hub.start()
    await other.start()
    assert list(hub.sets.values()) == list(other.sets.values())


async def test_a_set_that_is_made_anew_begins_anew(client, hub):
    await hub.add_set("a")
    first = hub.feed(ChannelName("a", "change"))
    await hub.remove_set("a")
    await hub.add_set("a")
    assert hub.feed(ChannelName("a", "change")).created > first.created


async def lose(client: Client, channel: ChannelName) -> None:
    await client.delete(keys.record(channel))


async def damage(client: Client, channel: ChannelName) -> None:
    await client.set(keys.record(channel), "something else")


@pytest.mark.parametrize("how", [lose, damage])
async def test_a_set_whose_journal_cannot_be_read_is_removed_and_the_others_are_followed(
    client, hub, how
):
    other, good, bad = hub_on(client), ChannelName("good", "change"), ChannelName("bad", "change")
    for channel in (good, bad):
        await hub.add_set(channel.set_name)
    await how(client, bad)
    await other.start()
    with pytest.raises(TryAgain, match="cannot be read"):
        other.feed(bad)
    await other.remove_set("bad")
    head = (await hub.publish(good, submission("a"))).until
    await other.start()
    assert other.feed(good).known_head == head
    with pytest.raises(NoSuchSet):
        other.feed(bad)


@asynccontextmanager
async def seen_after_a_look(
    client: Client, hub: Journals, act: Awaitable[object]
) -> AsyncIterator[Journals]:
    """What `hub` does is done in Redis, but `hub` looks around before it sees that itself; in
    between, another hub process may do what it likes."""
    other, before = hub_on(client), await Sets(client).version()
    async with hub.checking.lock:
        tasks = [asyncio.ensure_future(each) for each in (hub.start(), act)]
        await until(partial(has_moved, client, before))
        await other.start()
        yield other
    await asyncio.gather(*tasks)


async def has_moved(client: Client, before: Version) -> bool:
    return await Sets(client).version() != before


async def test_an_edit_that_is_seen_late_does_not_undo_a_newer_one(client, hub):
    await hub.add_set("a")
    async with seen_after_a_look(client, hub, hub.edit_set("a", {"describedby": "u:a"})) as other:
        await other.edit_set("a", {"private": True})
    assert hub.sets == other.sets
    assert hub.sets["a"].private


async def test_a_removal_that_is_seen_late_does_not_hide_a_set_made_anew(client, hub):
    await hub.add_set("a")
    async with seen_after_a_look(client, hub, hub.remove_set("a")) as other:
        await other.add_set("a")
    assert hub.sets == other.sets
    assert hub.feed(ChannelName("a", "change")).created == other.sets["a"].created


# --- what nobody reads ---------------------------------------------------------------------------


async def reads(client: Client) -> int:
    return (await client.info("commandstats")).get("cmdstat_xrange", {}).get("calls", 0)


async def test_a_channel_that_nobody_reads_is_not_read_and_loses_nothing_by_that(client, hub):
    await hub.add_set("a")
    channel = ChannelName("a", "change")
    feed, before = hub.feed(channel), await reads(client)
    begin = feed.tail.head
    for name in "abc":
        head = (await hub.publish(channel, submission(name))).until
        await hub.start()
    assert (await reads(client) - before, feed.tail.head, feed.size) == (0, head, 0)
    found = await hub.reading.after(feed, begin)
    assert found is not None
    assert (found.from_, found.until, found.count) == (begin, head, 3)
    await hub.publish(channel, submission("d"))
    await hub.start()
    assert feed.tail.newest is not None, "it is read now"
    assert feed.tail.newest.from_ == head


# --- telling of them -----------------------------------------------------------------------------


class Teller:
    """What one hub process says of the Source Description, with a clock of its own."""

    def __init__(self, client: Client) -> None:
        self.hub = hub_on(client)
        self.now = 0.0
        self.look_seconds = 0.0  # pass with each look at the clock
        windows = Windows(client)
        schedule = DocumentSchedule(HOUR, 30, 365, 60)
        offers, notes = Offers(windows, Snapshots(client), 30), AnnouncedNotes(client)
        sets = PublicSets(self.hub)
        self._say = Announcements(
            self.hub, windows, offers, sets, notes, schedule, clock=self._clock
        )

    def _clock(self) -> float:
        self.now += self.look_seconds
        return self.now

    async def round(self, now: float) -> None:
        self.now = now
        await self.hub.start()
        await self._say.keep_description_announced()


async def told(hub: Journals, client: Client, set_name: str) -> int:
    """How often this set's channel was told that the Source Description has changed."""
    channel = ChannelName(set_name, "framework")
    begin = Position.parse(hub.sets[set_name].created)
    rows = await JournalStore(client, window_changes=10).read(channel, begin, count=1_000)
    return sum(b'capability="description"' in fragment for _, fragment in rows)


async def test_what_changes_within_some_seconds_is_one_notification_on_every_set(client):
    teller = Teller(client)
    for number in range(5):
        await teller.hub.add_set(f"set{number}")
        await teller.round(number * GATHER_SECONDS / 5)
    assert await told(teller.hub, client, "set0") == 0
    await teller.round(GATHER_SECONDS)
    await teller.round(GATHER_SECONDS + 1)
    assert [await told(teller.hub, client, f"set{number}") for number in range(5)] == [1] * 5


@pytest.mark.parametrize("over", [-0.01, 0])
async def test_to_tell_it_takes_a_tenth_of_the_time_at_most(client, over):
    teller = Teller(client)
    await teller.hub.add_set("a")
    await teller.round(0)
    teller.look_seconds = 1.0
    await teller.round(GATHER_SECONDS)
    teller.look_seconds = 0.0
    await client.delete("rsnotify:sets:told:claim")  # as after some seconds
    await teller.hub.add_set("b")
    before = await told(teller.hub, client, "a")
    await teller.round(100)
    await teller.round(100 + 9 + over)
    assert before == 1
    assert await told(teller.hub, client, "a") == before + (over == 0)


async def test_it_is_told_though_the_process_that_changed_it_has_died(client):
    died, other = Teller(client), Teller(client)
    await died.hub.start()
    await died.hub.add_set("a")
    await other.round(0)
    await other.round(GATHER_SECONDS)
    assert await told(other.hub, client, "a") == 1


async def test_several_processes_tell_it_once(client):
    tellers = [Teller(client) for _ in range(3)]
    await tellers[0].hub.add_set("a")
    for now in (0.0, GATHER_SECONDS, 2 * GATHER_SECONDS, 3 * GATHER_SECONDS):
        for teller in tellers:
            await teller.round(now)
    assert await told(tellers[0].hub, client, "a") == 1


@pytest.mark.parametrize(
    ("chosen", "times"),
    [
        ({"private": True}, 1),
        ({"describedby": "http://example.com/about"}, 1),
        ({"resourcelist": "http://example.com/list.xml"}, 0),  # stands in its Capability List
    ],
)
async def test_only_what_the_source_description_says_is_a_change_of_it(client, chosen, times):
    teller = Teller(client)
    await teller.hub.add_set("a")
    await teller.round(0)
    await teller.round(GATHER_SECONDS)
    await client.delete("rsnotify:sets:told:claim")  # as after some seconds
    before = await told(teller.hub, client, "a")
    await teller.hub.add_set("b", PRIVATE)
    await teller.hub.edit_set("a", chosen)
    for now in (10 * GATHER_SECONDS, 11 * GATHER_SECONDS):
        await teller.round(now)
    assert await told(teller.hub, client, "a") - before == times


async def test_a_set_that_is_gone_is_told_to_those_that_stay(client):
    teller = Teller(client)
    await teller.hub.add_set("a")
    await teller.hub.add_set("b")
    await teller.round(0)
    await teller.round(GATHER_SECONDS)
    await client.delete("rsnotify:sets:told:claim")
    await teller.hub.remove_set("b")
    for now in (10 * GATHER_SECONDS, 11 * GATHER_SECONDS):
        await teller.round(now)
    assert await told(teller.hub, client, "a") == 2
