"""What this process has appended is told from memory, and is what the journal would tell."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rsnotify.coordination import keys
from rsnotify.coordination.bell import Bell
from rsnotify.errors import Unanswered
from rsnotify.journal.appends import APPEND_LIMITS, AppendLimits
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission
from rsnotify.live.feed import Feed
from rsnotify.live.following import FEW_READERS
from rsnotify.live.journals import Journals
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Notification
from rsnotify.sets.records import Sets
from tests.support.hubs import hub_on, submission

CHANNEL = ChannelName("dataset1", "change")


class Reader:
    """Keeps what it is told."""

    def __init__(self, feed: Feed, writes: int = 1) -> None:
        self.told: list[Notification] = []
        self.writes = writes
        feed.watch(self)

    def push(self, notification: Notification) -> None:
        self.told.append(notification)

    def fall_behind(self, head: Position) -> None: ...

    def turn_private(self) -> None: ...

    def end(self) -> None: ...

    @property
    def payloads(self) -> list[bytes]:
        return [each.payload for each in self.told]

    @property
    def intervals(self) -> list[tuple[int, int]]:
        return [(each.from_, each.until) for each in self.told]


async def hubs_on(client: Client) -> tuple[Journals, Journals]:
    """Two processes that know the same sets."""
    await client.flushall()
    one, other = hub_on(client), hub_on(client)
    await one.add_set(CHANNEL.set_name)
    await other.start()
    return one, other


def message(caller: str, head: Position, channel: ChannelName = CHANNEL) -> str:
    """How the bell tells it."""
    return f"{channel} {caller} {int(head)}"


async def read_on(hub: Journals) -> None:
    """What the follow loop does next."""
    hub.following.hear(message("another", (await hub.reading.standing(CHANNEL)).head))
    await hub.following.read_new()


async def publish(hub: Journals, *submissions: Submission) -> None:
    """Publish them in one round, and let the shortcut have its turn."""
    await asyncio.gather(*(hub.publish(CHANNEL, each) for each in submissions))
    await asyncio.sleep(0)


SUBMISSIONS = st.builds(
    lambda locs, fields: submission(*locs, **fields),
    st.lists(st.text("abc&<é", min_size=1, max_size=5), min_size=1, max_size=3),
    st.fixed_dictionaries({}, optional={"datetime": st.just("2026-11-20T00:00:00.5Z")}),
)


@given(rounds=st.lists(st.lists(SUBMISSIONS, min_size=1, max_size=3), min_size=1, max_size=4))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_what_is_told_from_memory_is_byte_for_byte_what_the_journal_tells(client, rounds):
    hub, other = await hubs_on(client)
    from_memory, from_journal = Reader(hub.feed(CHANNEL)), Reader(other.feed(CHANNEL))
    for submissions in rounds:
        await publish(hub, *submissions)
        await read_on(other)
    assert from_memory.payloads == from_journal.payloads
    assert from_memory.intervals == from_journal.intervals
    assert hub.feed(CHANNEL).mark == other.feed(CHANNEL).mark != ""


@pytest.mark.parametrize(
    ("writes", "are_first"),
    [
        ([1] * FEW_READERS, True),
        ([1] * (FEW_READERS + 1), False),
        ([FEW_READERS], True),
        ([FEW_READERS + 1], False),
        ([1, FEW_READERS - 1], True),
        ([1, FEW_READERS], False),
        ([0] * FEW_READERS, True),
        ([0] * (FEW_READERS + 1), False),
    ],
)
async def test_few_readers_are_told_of_a_single_change_before_its_source(client, writes, are_first):
    hub, _ = await hubs_on(client)
    told = [Reader(hub.feed(CHANNEL), each) for each in writes]
    await hub.publish(CHANNEL, submission("1"))
    assert [bool(each.told) for each in told] == [are_first] * len(writes)
    await asyncio.sleep(0)
    assert [each.told[0].count for each in told] == [1] * len(writes)
    assert not hub.feeds.have_unread


async def test_what_was_published_in_one_round_is_one_notification(client):
    hub, _ = await hubs_on(client)
    reader = Reader(hub.feed(CHANNEL))
    await publish(hub, submission("1"), submission("2"), submission("3"))
    assert [each.count for each in reader.told] == [3]
    assert not hub.feeds.have_unread


async def test_more_than_a_notification_carries_is_told_in_several_that_join(client):
    hub, _ = await hubs_on(client)
    reader = Reader(hub.feed(CHANNEL))
    await publish(hub, submission(*(str(number) for number in range(1_001))))
    first, second = reader.told
    assert (first.count, second.count) == (1_000, 1)
    assert first.until == second.from_


async def test_while_more_is_on_its_way_all_of_it_is_left_to_the_follow_loop(client):
    hub, _ = await hubs_on(client)
    reader = Reader(hub.feed(CHANNEL))
    more = asyncio.create_task(publish(hub, submission("1")))
    await publish(hub, submission("2"))
    await more
    await hub.following.read_new()
    assert sum(each.count for each in reader.told) == 2
    assert joins(reader)


async def test_what_another_process_has_appended_before_is_told_first(client):
    hub, other = await hubs_on(client)
    reader = Reader(hub.feed(CHANNEL))
    await other.publish(CHANNEL, submission("before"))
    await publish(hub, submission("after"))
    assert reader.told == []
    await hub.following.read_new()
    (told,) = reader.told
    assert told.payload.index(b"before") < told.payload.index(b"after")


async def test_while_the_follow_loop_reads_nothing_passes_it(client):
    hub, _ = await hubs_on(client)
    reader = Reader(hub.feed(CHANNEL))
    async with hub.checking.lock:
        await publish(hub, submission("1"))
        assert reader.told == []
    await hub.following.read_new()
    assert [each.count for each in reader.told] == [1]


async def test_a_set_that_another_process_has_made_private_is_known_to_be_first(client):
    hub, other = await hubs_on(client)
    reader = Reader(hub.feed(CHANNEL))
    await other.edit_set(CHANNEL.set_name, {"private": True})
    await publish(hub, submission("secret"))
    assert reader.told == []
    assert not hub.record(CHANNEL.set_name).private
    await hub.following.read_new()
    assert hub.record(CHANNEL.set_name).private
    assert len(reader.told) == 1


async def test_a_redis_that_has_forgotten_its_scripts_does_not_hide_that_a_set_became_private(
    client,
):
    hub, other = await hubs_on(client)
    reader = Reader(hub.feed(CHANNEL))
    await other.edit_set(CHANNEL.set_name, {"private": True})
    await client.script_flush()
    await publish(hub, submission("secret"))
    assert reader.told == []


async def test_a_version_of_the_sets_that_cannot_be_read_means_the_long_way(client):
    hub, _ = await hubs_on(client)
    reader = Reader(hub.feed(CHANNEL))
    await client.delete(keys.SETS_VERSION)
    await client.rpush(keys.SETS_VERSION, "damaged")
    await publish(hub, submission("1"))
    assert reader.told == []
    assert hub.feeds.have_unread


async def test_what_is_repeated_under_its_key_is_told_once(client):
    hub, _ = await hubs_on(client)
    reader = Reader(hub.feed(CHANNEL))
    for _ in range(2):
        await publish(hub, submission("1", key="key"))
    assert [each.count for each in reader.told] == [1]


async def test_what_nobody_reads_is_not_made(client):
    hub, _ = await hubs_on(client)
    await publish(hub, submission("1"))
    assert hub.feed(CHANNEL).tail.newest is None
    assert hub.feeds.have_unread


async def test_our_own_message_of_the_bell_wakes_nobody(client):
    hub, other = await hubs_on(client)
    Reader(hub.feed(CHANNEL))
    head = (await other.publish(CHANNEL, submission("1"))).until
    hub.following.hear(message(hub.following.process, head))
    assert not hub.feeds.have_unread
    hub.following.hear(message(other.following.process, head))
    assert hub.feeds.have_unread


@pytest.mark.parametrize("patience", [0.0, APPEND_LIMITS.answer_seconds])
async def test_what_is_stored_is_told_though_its_source_does_not_wait_for_it(client, patience):
    """It was answered 503, or has gone. No bell is heard here."""
    await client.flushall()
    limits = AppendLimits(answer_seconds=patience)
    journal = JournalStore(client, window_changes=10, append_limits=limits)
    hub = Journals(journal, Sets(client), Bell(client), base_url="http://hub")
    await hub.add_set(CHANNEL.set_name)
    await hub.start()
    reader = Reader(hub.feed(CHANNEL))
    publishing = asyncio.ensure_future(hub.publish(CHANNEL, submission("1", key="k")))
    while not sum(journal.appends.round_changes.counts):  # it is on its way
        await asyncio.sleep(0)
    if patience:
        publishing.cancel()
    with pytest.raises(asyncio.CancelledError if patience else Unanswered):
        await publishing
    assert reader.told == []
    while journal.appends.writing:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [each.count for each in reader.told] == [1]


def joins(reader: Reader) -> bool:
    return all(one.until == two.from_ for one, two in pairwise(reader.told))
