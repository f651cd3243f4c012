"""What the bell has missed: it is found in a bounded time, and where the bell is heard that costs
little, however many sets there are."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rsnotify.core.set_options import SetOptions
from rsnotify.core.submission import Submission, fragment_of
from rsnotify.hub import Hub
from rsnotify.hub.rounds import LEAST_CHANNELS, MOST_CHANNELS, ROUND_TICKS, UNREAD_EVERY, Rounds
from rsnotify.loops import end
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.storage import keys
from rsnotify.storage.bell import Bell
from rsnotify.storage.connection import Client, connect
from rsnotify.storage.journal import Journal
from rsnotify.storage.sets import Sets
from tests.faults import OwnRedis
from tests.running import until

AT_ONCE = 10
SETS = LEAST_CHANNELS  # two channels each: more than are compared each second


def submission(loc: str = "a") -> Submission:
    return Submission([fragment_of(Change(f"http://example.com/{loc}", "updated"))])


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
        self.bell = Bell(url)
        journal = Journal(client, window_changes=10)
        self.hub = Hub(journal, Sets(client), self.bell, base_url="http://hub")

    async def is_heard(self) -> bool:
        return self.bell.is_heard


@pytest.fixture
async def listening(client: Client, redis_url: str) -> AsyncIterator[Listening]:
    listening = Listening(client, redis_url)
    task = asyncio.create_task(listening.hub.listen())
    await until(listening.is_heard)
    yield listening
    await end([task])


async def append_unheard(
    client: Client, channel: ChannelName, monkeypatch: pytest.MonkeyPatch
) -> Position:
    """As another process appends, whose stroke of the bell is lost."""
    with monkeypatch.context() as patch:
        patch.setattr(keys, "BELL", "rsnotify:nobody")
        return (await Journal(client, window_changes=10).append(channel, submission())).until


async def ticks_until_known(hub: Hub, heads: dict[ChannelName, Position], most: int) -> int:
    """In how many seconds, one check in each, all of it was found."""
    for tick in range(1, most + 1):
        await hub.checking.check_some()
        if all(hub.feed(channel).newest_known == head for channel, head in heads.items()):
            return tick
    raise AssertionError(f"not found in {most} checks")


async def test_a_lost_stroke_is_found_within_a_round(
    client: Client, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels, hub = await make(client), listening.hub
    await hub.start()
    for _ in range(2):
        await hub.checking.check_some()  # the bell was connected: look at all
    for channel in channels[::50]:
        with hub.feed(channel).arrival_at(Position(2**52)):
            head = await append_unheard(client, channel, monkeypatch)
            assert await ticks_until_known(hub, {channel: head}, ROUND_TICKS) <= ROUND_TICKS


async def test_where_nobody_reads_it_is_found_within_ten(
    client: Client, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels, hub = await make(client, 20), listening.hub
    await hub.start()
    heads = {channel: await append_unheard(client, channel, monkeypatch) for channel in channels}
    await hub.checking.check_some()
    await ticks_until_known(hub, heads, UNREAD_EVERY)


async def test_few_channels_are_compared_every_second_many_in_turn(
    client: Client, listening: Listening
) -> None:
    feeds, rounds = listening.hub.feeds, Rounds(listening.hub.feeds, listening.bell)
    few = await make(client, LEAST_CHANNELS // 2)
    await listening.hub.start()
    watched = [each for each in few if feeds.get(each).watch(Watching()) is None]  # type: ignore[union-attr]
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

    def turn_private(self) -> None: ...

    def end(self) -> None: ...


async def test_without_the_bell_all_are_compared_as_fast_as_is_reasonable(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = await make(client)
    deaf = Listening(client, "redis://none").hub
    await deaf.start()
    watched = channels[::20]
    for channel in watched:
        deaf.feed(channel).watch(Watching())
    heads = {channel: await append_unheard(client, channel, monkeypatch) for channel in watched}
    assert 2 * SETS <= MOST_CHANNELS
    assert await ticks_until_known(deaf, heads, 1) == 1


async def test_all_are_compared_when_the_bell_is_connected_anew(
    client: Client, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_bell_that_is_doubted_is_connected_anew(
    client: Client, listening: Listening
) -> None:
    before = listening.bell.connections
    listening.bell.doubt()
    await client.publish(keys.BELL, "sets")

    async def is_connected() -> bool:
        return listening.bell.connections > before

    await until(is_connected)


async def test_sets_of_others_are_followed_at_once_however_many_there_are(
    client: Client, listening: Listening
) -> None:
    await make(client)
    await listening.hub.start()
    await Sets(client).add("new", SetOptions())
    await listening.hub.checking.check_some()
    assert listening.hub.feed(ChannelName("new", "framework")).created


async def journeys(client: Client) -> int:
    return (await client.info("commandstats")).get("cmdstat_hmget", {}).get("calls", 0)


async def test_what_is_compared_in_a_second_is_bounded(
    client: Client, listening: Listening
) -> None:
    await make(client, 3 * SETS)
    await listening.hub.start()
    for _ in range(2):
        await listening.hub.checking.check_some()
    before = await journeys(client)
    for _ in range(10):
        await listening.hub.checking.check_some()
    assert await journeys(client) - before <= 10 * LEAST_CHANNELS


# --- after Redis was started again ---------------------------------------------------------------


async def ranges(client: Client) -> int:
    return (await client.info("commandstats")).get("cmdstat_xrange", {}).get("calls", 0)


async def test_journals_that_end_where_they_did_need_no_look(own_redis: OwnRedis) -> None:
    client = connect(own_redis.url)
    await make(client, 50)
    deaf = Listening(client, "redis://none").hub
    await deaf.start()
    await own_redis.kill()
    await own_redis.start()
    await deaf.start()
    assert await ranges(client) == 0
    await deaf.publish(ChannelName("set7", "change"), submission())
    await own_redis.kill()
    await own_redis.start()
    await deaf.start()
    assert await ranges(client) == 1, "of this one something is remembered"
    await client.aclose()
