"""What is asked of Redis and never answered: stored once, and never refused once stored."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rsnotify.coordination import keys
from rsnotify.errors import RedisRefuses, TryAgain, Unanswered
from rsnotify.journal.appends import AppendLimits
from rsnotify.journal.call import Appended
from rsnotify.journal.journal_store import JournalStore
from rsnotify.process import hub_process
from rsnotify.process.composition import Composition
from rsnotify.process.settings import Settings
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets
from tests.support.faults import (
    OwnRedis,
    SlowWay,
    a_replica,
    busy,
    failing_saves,
    out_of_memory,
    too_few_replicas,
)
from tests.support.hubs import submission
from tests.support.running import TOKEN, RunningHub, until

CHANNEL = ChannelName("a", "change")


@pytest.fixture
async def client(way: SlowWay) -> AsyncIterator[Client]:
    """Connected by the slow way; the set `a` is there."""
    connected = connect(way.url)
    await Sets(connected).add("a", SetOptions())
    yield connected
    await connected.aclose()


@pytest.fixture
def journal(client: Client) -> JournalStore:
    return JournalStore(client, window_changes=10_000)


async def stored(redis: OwnRedis) -> int:
    return int(await redis.client.xlen(keys.stream(CHANNEL)))


async def test_a_change_whose_answer_was_lost_is_stored_once_and_answered(journal, way, own_redis):
    await journal.append(CHANNEL, submission("1"))
    way.lose_next_answer("EVALSHA")
    interval = await journal.append(CHANNEL, submission("1"))
    assert way.lost == 1
    assert await stored(own_redis) == 2
    assert [interval.until] == [
        at for at, _ in await journal.read(CHANNEL, interval.from_, count=9)
    ]


async def test_of_several_sets_in_one_round_whose_answer_was_lost_none_is_stored_twice(
    client, journal, way, own_redis
):
    await Sets(client).add("b", SetOptions())
    way.lose_next_answer("EVALSHA")
    channels = [CHANNEL, ChannelName("b", "change"), CHANNEL, ChannelName("a", "framework")]
    answers = await asyncio.gather(*(journal.append(each, submission("1")) for each in channels))
    assert len(set(answers)) == 4
    assert [await own_redis.client.xlen(keys.stream(each)) for each in channels] == [2, 1, 2, 1]


async def test_without_a_key_a_silent_redis_is_asked_until_it_answers(client, way, own_redis):
    """It has long stored what it was asked; the patience of a Source with a key is over."""
    limits = AppendLimits(answer_seconds=0.2)
    journal = JournalStore(client, window_changes=10_000, append_limits=limits)
    await journal.append(CHANNEL, submission("1"))
    way.freeze()
    keyless = asyncio.create_task(journal.append(CHANNEL, submission("2")))
    await until(lambda: is_true(stored(own_redis), 2))
    with_key = journal.append(CHANNEL, submission("3", key="k"))
    with pytest.raises(Unanswered, match="repeat with the same key"):
        await with_key
    assert not keyless.done()
    way.cut()
    way.thaw()
    assert isinstance(await keyless, Appended)
    await journal.append(CHANNEL, submission("3", key="k"))
    assert await stored(own_redis) == 3


async def is_true(found: object, expected: int) -> bool:
    return await found == expected


async def killed_while_asked(
    journal: JournalStore, way: SlowWay, own_redis: OwnRedis
) -> asyncio.Task[Appended]:
    """Redis has stored a second change, told nobody, and was killed."""
    await journal.append(CHANNEL, submission("1"))
    way.freeze()  # else the second time of asking may be answered before the kill
    asking = asyncio.create_task(journal.append(CHANNEL, submission("1")))
    await until(lambda: is_true(stored(own_redis), 2))
    await own_redis.kill()
    way.cut()
    way.thaw()
    return asking


async def test_without_a_key_the_asking_ends_and_says_what_is_not_known(client, way, own_redis):
    limits = AppendLimits(certain_seconds=0.3)
    journal = JournalStore(client, window_changes=10_000, append_limits=limits)
    asking = await killed_while_asked(journal, way, own_redis)
    with pytest.raises(
        Unanswered, match=r"may have stored .* repeating the request may store them twice"
    ):
        await asking
    await own_redis.start()
    await journal.append(CHANNEL, submission("1"))


async def test_a_redis_that_was_killed_and_is_back_answers_what_it_was_asked_before(
    journal, way, own_redis
):
    asking = await killed_while_asked(journal, way, own_redis)
    await own_redis.start()
    await asking
    assert await stored(own_redis) == 2


async def test_what_a_busy_redis_refuses_is_not_stored(journal, own_redis):
    await journal.append(CHANNEL, submission("1"))
    async with busy(own_redis.client):
        with pytest.raises(TryAgain, match="a script keeps Redis busy"):
            await journal.append(CHANNEL, submission("1"))
    await journal.append(CHANNEL, submission("1"))
    assert await stored(own_redis) == 2


@pytest.mark.parametrize("key", ["record", "stream", "windows", "state"])
async def test_an_append_to_a_damaged_set_stores_nothing_at_all(journal, own_redis, key):
    await journal.append(CHANNEL, submission("1"))
    damaged = {
        "record": keys.record(CHANNEL),
        "stream": keys.stream(CHANNEL),
        "windows": keys.windows(CHANNEL),
        "state": await own_redis.client.keys(f"{keys.state('a')}*"),
    }[key]
    for each in damaged if isinstance(damaged, list) else [damaged]:
        await own_redis.client.set(each, "something else")
    before = await everything(own_redis)
    with pytest.raises(Exception, match="WRONGTYPE"):
        await journal.append(CHANNEL, submission("1"))
    assert await everything(own_redis) == before


async def everything(redis: OwnRedis) -> dict[bytes, bytes]:
    return {key: await redis.client.dump(key) for key in await redis.client.keys("*")}


async def test_a_set_whose_answer_was_lost_is_announced(client, way, own_redis):
    """Who made it, edited it and removed it is told that it was done."""
    sets = Sets(client)
    versions = []
    way.lose_next_answer("EVALSHA")
    _, made, _ = await sets.add("b", SetOptions())
    versions.append(await sets.version())
    way.lose_next_answer("EVALSHA")
    await sets.edit("b", {"private": True})
    versions.append(await sets.version())
    assert (made, way.lost) == (True, 2)
    assert (await sets.all())["b"].private
    assert versions == sorted(set(versions))
    assert not (await sets.add("b", SetOptions()))[1]
    assert await sets.version() == versions[-1]


@pytest.mark.parametrize("refusing", [too_few_replicas, out_of_memory, a_replica, failing_saves])
async def test_a_refusal_means_try_again_wherever_it_comes_from(client, own_redis, refusing):
    transaction, pipeline = (client.pipeline(transaction=each) for each in (True, False))
    for each in (transaction, pipeline):
        each.get("a").set("a", "b")
    among = client.pipeline(transaction=False).set("a", "b")
    async with refusing(own_redis if refusing is failing_saves else own_redis.client):
        for asked in (
            client.set("a", "b"),
            transaction.execute(),
            pipeline.execute(),
            client.eval("redis.call('SET', 'a', 'b')", 0),
        ):
            with pytest.raises(TryAgain):
                await asked
        (answer,) = await among.execute(raise_on_error=False)
    assert isinstance(answer, TryAgain)
    assert await client.set("a", "b")


async def test_a_start_whose_question_is_not_answered_asks_it_again(own_redis, way, tmp_path):
    hub = RunningHub(tmp_path / "data", "--redis", way.url)
    way.lose_next_answer(keys.SETS, times=2)  # the client itself repeats it once
    async with hub:
        assert way.lost == 2
        assert "cannot start yet, trying again" in hub.log.read_text()
        await hub.publish("http://example.com/1")


async def test_a_start_whose_question_is_never_answered_ends(way):
    composition = Composition(Settings(), way.url, TOKEN, "http://hub.example")
    way.freeze()
    with pytest.raises(TryAgain):
        await hub_process.open_patiently(composition, [], patience_seconds=0.1)
    await composition.close()


async def test_a_start_that_redis_refuses_ends_at_once(own_redis, way):
    await own_redis.client.config_set("requirepass", "x")
    composition = Composition(Settings(), way.url, TOKEN, "http://hub.example")
    async with asyncio.timeout(hub_process.PATIENCE_SECONDS / 2):
        with pytest.raises(RedisRefuses):
            await hub_process.open_patiently(composition, [])
    await composition.close()
