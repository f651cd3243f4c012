"""What the bell has missed: it is found in a bounded time, and where the bell is heard that costs
little, however many sets there are."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from rsnotify.coordination import keys
from rsnotify.coordination.bell import Bell
from rsnotify.errors import PartAway, TryAgain
from rsnotify.journal.journal_store import JournalStore, Standing
from rsnotify.journal.witness import KnownChange
from rsnotify.live.checking import (
    CYCLE_SECONDS,
    LEAST_CHANNELS,
    MOST_CHANNELS,
    UNREAD_EVERY,
    CompareSchedule,
)
from rsnotify.live.journals import Journals
from rsnotify.loops import end
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import NOTIFICATION_CHANGES, ChannelName
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets
from tests.support.faults import OwnRedis
from tests.support.hubs import hub_on, submission
from tests.support.running import until

AT_ONCE = 10
SETS = LEAST_CHANNELS  # two channels each: more than are compared each second


async def make(client: Client, count: int = SETS) -> list[ChannelName]:
    sets = Sets(client)
    names = [f"set{number}" for number in range(count)]
    for start in range(0, count, AT_ONCE):
        some = names[start : start + AT_ONCE]
        await asyncio.gather(*(sets.add(name, SetOptions()) for name in some))
    return [ChannelName(name, "change") for name in names]


class Listening:
    """A hub that hears the bell."""

    def __init__(self, client: Client, url: str) -> None:
        self.bell = Bell(connect(url))
        self.journal = JournalStore(client, window_changes=10)
        self.hub = Journals(self.journal, Sets(client), self.bell, base_url="http://hub")

    async def is_heard(self) -> bool:
        return self.bell.is_heard


@pytest.fixture
async def listening(client: Client, redis_url: str) -> AsyncIterator[Listening]:
    listening = Listening(client, redis_url)
    task = asyncio.create_task(listening.hub.following.listen())
    await until(listening.is_heard)
    yield listening
    await end([task])


async def append_unheard(
    client: Client, channel: ChannelName, monkeypatch: pytest.MonkeyPatch
) -> Position:
    """As another process appends, whose message of the bell is lost."""
    with monkeypatch.context() as patch:
        patch.setattr(keys, "BELL", "rsnotify:nobody")
        return (
            await JournalStore(client, window_changes=10).append(channel, submission("a"))
        ).until


async def ticks_until_known(hub: Journals, heads: dict[ChannelName, Position], most: int) -> int:
    """In how many seconds, one check in each, all of it was found."""
    for tick in range(1, most + 1):
        await hub.checking.check_some()
        if all(hub.feed(channel).known_head == head for channel, head in heads.items()):
            return tick
    raise AssertionError(f"not found in {most} checks")


async def test_a_lost_message_is_found_within_a_round(client, listening, monkeypatch):
    channels, hub = await make(client), listening.hub
    await hub.start()
    for _ in range(2):
        await hub.checking.check_some()  # the bell was connected: look at all
    for channel in channels[::50]:
        hub.feed(channel).watch(reader := Watching())
        head = await append_unheard(client, channel, monkeypatch)
        assert await ticks_until_known(hub, {channel: head}, CYCLE_SECONDS) <= CYCLE_SECONDS
        hub.feed(channel).unwatch(reader)


async def test_where_nobody_reads_it_is_found_within_ten(client, listening, monkeypatch):
    channels, hub = await make(client, 20), listening.hub
    await hub.start()
    heads = {channel: await append_unheard(client, channel, monkeypatch) for channel in channels}
    await hub.checking.check_some()
    await ticks_until_known(hub, heads, UNREAD_EVERY)


async def test_few_channels_are_compared_every_second_many_in_turn(client, listening):
    feeds, rounds = listening.hub.feeds, CompareSchedule(listening.hub.feeds, listening.bell)
    few = await make(client, LEAST_CHANNELS // 2)
    await listening.hub.start()
    watched = [each for each in few if feeds.get(each).watch(Watching()) is None]
    rounds.next()  # all, as the bell was connected
    for _ in range(3):
        assert set(watched) <= set(rounds.next())
    await make(client, SETS)
    await listening.hub.start()
    for _ in range(3):
        assert len(rounds.next()) <= LEAST_CHANNELS


class Watching:
    """A reader."""

    writes = 1

    def push(self, _: object) -> None: ...

    def fall_behind(self, _: Position) -> None: ...

    def turn_private(self) -> None: ...

    def end(self) -> None: ...


async def test_what_cannot_be_rendered_is_tried_again_in_a_later_check_and_not_at_once(client):
    """Damaged data: positions after the year 9999, and more of them than one reading takes."""
    await make(client, 1)
    channel, hub = ChannelName("set0", "change"), hub_on(client)
    await hub.start()
    hub.feed(channel).watch(Watching())
    xml = submission("a").fragments[0].short
    late = [Position(300_000_000_000_000_000 + at) for at in range(NOTIFICATION_CHANGES)]
    pipeline = client.pipeline(transaction=False)
    for position in late:
        pipeline.xadd(keys.stream(channel), {"marked": xml}, position.stream_id)
    await pipeline.execute()
    hub.feeds.note_unread(channel, KnownChange(late[-1], "marked"))
    await hub.following.read_new()
    assert not hub.feeds.have_unread
    await hub.checking.check_some()
    await hub.following.read_new()
    assert not hub.feeds.have_unread


async def test_without_the_bell_all_are_compared_as_fast_as_is_reasonable(client, monkeypatch):
    channels = await make(client)
    deaf = Listening(client, "redis://none").hub
    await deaf.start()
    watched = channels[::20]
    for channel in watched:
        deaf.feed(channel).watch(Watching())
    heads = {channel: await append_unheard(client, channel, monkeypatch) for channel in watched}
    assert 2 * SETS <= MOST_CHANNELS
    assert await ticks_until_known(deaf, heads, 1) == 1


async def test_all_are_compared_when_the_bell_is_connected_anew(client, listening, monkeypatch):
    channels, hub = await make(client), listening.hub
    await hub.start()
    for _ in range(3):
        await hub.checking.check_some()
    heads = {channel: await append_unheard(client, channel, monkeypatch) for channel in channels}
    before = listening.bell.connections
    await client.client_kill_filter(_type="pubsub")

    async def is_connected() -> bool:
        return listening.bell.connections > before

    await until(is_connected)
    assert await ticks_until_known(hub, heads, 1) == 1


async def test_a_bell_that_is_doubted_is_connected_anew(client, listening):
    before = listening.bell.connections
    listening.bell.doubt()
    await client.publish(keys.BELL, "sets")

    async def is_connected() -> bool:
        return listening.bell.connections > before

    await until(is_connected)


async def test_sets_of_others_are_followed_at_once_however_many_there_are(client, listening):
    await make(client)
    await listening.hub.start()
    await Sets(client).add("new", SetOptions())
    await listening.hub.checking.check_some()
    assert listening.hub.feed(ChannelName("new", "framework")).created


async def journeys(client: Client) -> int:
    return (await client.info("commandstats")).get("cmdstat_hmget", {}).get("calls", 0)


async def test_what_is_compared_in_a_second_is_bounded(client, listening):
    await make(client, 3 * SETS)
    await listening.hub.start()
    for _ in range(2):
        await listening.hub.checking.check_some()
    before = await journeys(client)
    for _ in range(10):
        await listening.hub.checking.check_some()
    assert await journeys(client) - before <= 10 * LEAST_CHANNELS


# --- what went wrong at first is made good in the next check, whosever turn it is -----------------


@asynccontextmanager
async def refused(redis: Client, command: str) -> AsyncIterator[None]:
    """Redis refuses it to everybody, for as long as the block lasts."""
    await redis.acl_setuser("default", enabled=True, nopass=True, commands=[f"-{command}"])
    try:
        yield
    finally:
        await redis.acl_setuser("default", enabled=True, nopass=True, commands=[f"+{command}"])


Passed = tuple[Listening, ChannelName]


@pytest.fixture
async def passed(own_redis: OwnRedis) -> AsyncIterator[Passed]:
    """A hub that hears the bell, and a channel with a reader that was compared in this second: it
    has its next turn in some seconds."""
    client = connect(own_redis.url)
    (channel, *_) = await make(client, 2 * SETS)
    listening = Listening(client, own_redis.url)
    task = asyncio.create_task(listening.hub.following.listen())
    await until(listening.is_heard)
    await listening.hub.start()
    listening.hub.feed(channel).watch(Watching())
    for _ in range(2):
        await listening.hub.checking.check_some()  # the first looks at all
    yield listening, channel
    await end([task])
    await client.aclose()


@pytest.mark.parametrize("command", ["get", "mget"])
async def test_a_message_is_not_forgotten_where_looking_or_reading_fails(
    own_redis, passed, command
):
    """`get` is of reading on, `mget` of the check before it."""
    (listening, channel), other = passed, connect(own_redis.url)
    hub = listening.hub

    async def has_rung() -> bool:
        return hub.feeds.have_unread

    async def is_due() -> bool:
        return monotonic() >= hub.checking.next_at

    head = (await JournalStore(other, window_changes=10).append(channel, submission("a"))).until
    await until(has_rung)
    if command == "mget":
        await until(is_due)
    else:
        hub.checking.postpone()
    async with refused(other, command):
        await hub.following.go_on()
    assert hub.feed(channel).tail.head < head
    assert not hub.feeds.have_unread, "otherwise it would be tried again and again"
    await hub.checking.check_some()
    await hub.following.read_new()
    assert hub.feed(channel).tail.head == head
    await other.aclose()


async def test_a_message_of_a_part_that_is_away_is_not_forgotten(passed, monkeypatch):
    """As where a node of a Cluster cannot be reached for some seconds."""
    (listening, channel), away = passed, PartAway("a node is away")
    hub = listening.hub

    async def unread(
        cursors: Mapping[ChannelName, Position], **_: int
    ) -> tuple[dict[ChannelName, Exception], int]:
        return dict.fromkeys(cursors, away), hub.known.number

    async def unseen(channels: Sequence[ChannelName]) -> list[Exception]:
        return [away] * len(channels)

    head = await append_unheard(listening.journal.client, channel, monkeypatch)
    hub.feeds.note_unread(channel, KnownChange(head, ""))
    with monkeypatch.context() as patch:
        patch.setattr(listening.journal, "read_from", unread)
        patch.setattr(listening.journal, "standings", unseen)
        await hub.following.read_new()
        await hub.checking.check_some()
    await hub.checking.check_some()
    await hub.following.read_new()
    assert hub.feed(channel).tail.head == head


async def test_what_a_check_that_failed_should_have_compared_the_next_one_compares(
    passed, monkeypatch
):
    """The bell was made anew: all are to be compared as fast as is reasonable."""
    listening, before = passed[0], passed[0].bell.connections
    client = listening.journal.client
    *_, channel = listening.hub.feeds  # the last of the next round
    head = await append_unheard(client, channel, monkeypatch)
    await client.client_kill_filter(_type="pubsub")

    async def is_connected() -> bool:
        return listening.bell.connections > before

    await until(is_connected)
    async with refused(client, "mget"):
        with pytest.raises(TryAgain):
            await listening.hub.checking.check_some()
    assert await ticks_until_known(listening.hub, {channel: head}, 1) == 1


async def test_what_comes_to_be_compared_during_a_check_is_compared_in_the_next(
    passed, monkeypatch
):
    (listening, channel), standings = passed, passed[0].journal.standings
    checking = listening.hub.checking

    async def meanwhile(channels: Sequence[ChannelName]) -> list[Standing | Exception | None]:
        found = await standings(channels)
        checking.look_at([channel])
        return found

    head = await append_unheard(listening.journal.client, channel, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(listening.journal, "standings", meanwhile)
        await checking.check_some()
    assert await ticks_until_known(listening.hub, {channel: head}, 1) == 1


async def test_a_message_of_a_set_of_others_that_comes_before_its_feed_is_made_good(
    passed, monkeypatch
):
    listening, new = passed[0], ChannelName("new", "change")
    hub, client, look = listening.hub, listening.journal.client, listening.journal.standings
    heads = {}

    async def look_and_hear(
        channels: Sequence[ChannelName],
    ) -> list[Standing | Exception | None]:
        found = await look(channels)
        heads[new] = await append_unheard(client, new, monkeypatch)
        hub.following.hear(f"{new} another {int(heads[new])}")
        return found

    await Sets(client).add(new.set_name, SetOptions())
    with monkeypatch.context() as patch:
        patch.setattr(listening.journal, "standings", look_and_hear)
        await hub.checking.check_some()
    assert hub.feed(new).known_head < heads[new]
    assert await ticks_until_known(hub, heads, 1) == 1


async def test_a_message_of_a_set_made_here_that_comes_before_its_feed_is_made_good(
    passed, monkeypatch
):
    listening, new = passed[0], ChannelName("new", "change")
    hub, client = listening.hub, listening.journal.client

    async def is_made() -> bool:
        return bool(await client.exists(keys.record(new)))

    async with hub.checking.lock:
        making = asyncio.create_task(hub.add_set(new.set_name))
        await until(is_made)
        head = await append_unheard(client, new, monkeypatch)
        hub.following.hear(f"{new} another {int(head)}")
    await making
    assert hub.feed(new).known_head < head
    assert await ticks_until_known(hub, {new: head}, 1) == 1


# --- after Redis was started again ---------------------------------------------------------------


async def ranges(client: Client) -> int:
    return (await client.info("commandstats")).get("cmdstat_xrange", {}).get("calls", 0)


async def test_journals_that_end_where_they_did_need_no_look(own_redis):
    client = connect(own_redis.url)
    await make(client, 50)
    deaf = Listening(client, "redis://none").hub
    await deaf.start()
    await own_redis.kill()
    await own_redis.start()
    await deaf.start()
    assert await ranges(client) == 0
    channel = ChannelName("set7", "change")
    await deaf.publish(channel, submission("a"))
    await own_redis.kill()
    await own_redis.start()
    await deaf.start()
    assert await ranges(client) == 0, "it ends with the change that is known"
    await JournalStore(client, window_changes=10).append(channel, submission("by another"))
    await own_redis.kill()
    await own_redis.start()
    await deaf.start()
    assert await ranges(client) == 1, "whether the one that is known is before it"
    (standing,) = await JournalStore(client, window_changes=10).standings([channel])
    assert isinstance(standing, Standing)
    assert standing.gap == 0
    await client.aclose()
