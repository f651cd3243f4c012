"""A Redis that starts again with older data, as after a lossy failover: nothing is lost that a hub
remembers."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rsnotify.journal import keys
from rsnotify_client.notification import read_notification
from tests.support.faults import OwnRedis
from tests.support.lossy_failover import LOC, Reader, published
from tests.support.raw import raw_channel
from tests.support.running import RunningHub, until

BUSY_SECONDS = 5
PUBLISH = ("POST", "/api/sets/dataset1/changes")


@pytest.fixture
async def hubs(own_redis: OwnRedis, tmp_path: Path) -> AsyncIterator[list[RunningHub]]:
    """Three hubs on one Redis, which hear each other."""
    hubs = [RunningHub(tmp_path / f"data{n}", "--redis", own_redis.url) for n in range(3)]

    async def all_listen() -> bool:  # a little later than they are ready
        ((_, count),) = await own_redis.client.pubsub_numsub(keys.BELL)
        return bool(count == len(hubs))

    async with AsyncExitStack() as stack:
        started = await asyncio.gather(*map(stack.enter_async_context, hubs))
        await until(all_listen)
        yield started


async def in_the_change_list(hub: RunningHub) -> list[str]:
    _, document = await hub.ask("GET", "/dataset1/changelist.xml")
    return [loc.decode() for loc in LOC.findall(document)]


async def all_told(
    readers: list[Reader], names: set[str], reading: list[asyncio.Task[None]]
) -> None:
    async def told() -> bool:
        for task in reading:
            if task.done():
                task.result()  # why the reader ended
        return all(names <= set(reader.told) for reader in readers)

    await until(told)


@pytest.mark.parametrize("under_load", [False, True], ids=["idle", "under load"])
async def test_what_was_acknowledged_is_kept_and_told_to_every_reader(hubs, own_redis, under_load):
    acknowledged = await published(hubs[0], ["before"])
    copy = own_redis.copy_of_data()
    async with AsyncExitStack() as stack:
        raws = [await stack.enter_async_context(raw_channel(hub.channel())) for hub in hubs]
        readers = [Reader(raw) for raw in raws]
        reading = [asyncio.create_task(reader.read()) for reader in readers]
        for number in range(30):
            acknowledged |= await published(hubs[number % 3], [f"lost-{number}"])
        more = [f"while-{number}" for number in range(30 if under_load else 0)]
        going_on = [
            asyncio.create_task(published(hubs[n % 3], [name])) for n, name in enumerate(more)
        ]
        await own_redis.go_back(copy)
        acknowledged.update(*[await each for each in going_on])
        acknowledged |= await published(hubs[1], ["after"])
        await all_told(readers, acknowledged - {"before"}, reading)
        for task in reading:
            task.cancel()
    for hub in hubs:
        assert set(await in_the_change_list(hub)) == acknowledged
        assert "Traceback" not in hub.log.read_text()


async def test_a_reader_that_was_away_gets_what_was_put_back(hubs, own_redis):
    cursor = (await hubs[0].publish("http://example.com/before"))["until"]
    copy = own_redis.copy_of_data()
    lost = await hubs[0].publish("http://example.com/lost")
    await own_redis.go_back(copy)
    await published(hubs[0], ["after"])
    for hub in hubs:
        async with raw_channel(f"{hub.channel()}?from={cursor}") as raw:
            found = read_notification(await raw.text())
        assert found.changes[0].loc == "http://example.com/lost"
        assert str(found.changes[0].datetime) == lost["until"]


async def test_what_only_a_busy_process_remembers_is_waited_for(hubs, own_redis):
    """It stands still for five seconds. The others know that something was lost, but not what."""
    acknowledged = await published(hubs[0], ["before"])
    copy = own_redis.copy_of_data()
    acknowledged |= await published(hubs[0], ["lost"])
    await asyncio.sleep(BUSY_SECONDS)  # until the bell has told the others where the journal ends
    hubs[0].process.send_signal(signal.SIGSTOP)
    try:
        await own_redis.go_back(copy)
        await until(lambda: has_logged(hubs[1:], "that are not remembered here"))
        await asyncio.sleep(BUSY_SECONDS)
    finally:
        hubs[0].process.send_signal(signal.SIGCONT)
    acknowledged |= await published(hubs[1], ["after"])
    for hub in hubs:
        assert set(await in_the_change_list(hub)) == acknowledged
        assert "no hub process remembers them" not in hub.log.read_text()


@pytest.mark.parametrize("asked", ["", "?from={}", "?limit=10", "?until=2099-01-01&limit=10"])
async def test_what_only_a_poller_was_told_is_kept(hubs, own_redis, asked):
    """Whoever has published it is gone, and nobody follows the channel where it is polled."""
    before = await hubs[0].publish("http://example.com/before")
    copy = own_redis.copy_of_data()
    await hubs[0].publish("http://example.com/lost")
    path = f"/dataset1/changelist.xml{asked.format(before['until'])}"
    status, told = await hubs[1].ask("GET", path)
    assert status == 200
    assert b"lost" in told
    await hubs[0].kill()
    await own_redis.go_back(copy)
    await published(hubs[2], ["after"])

    async def is_put_back() -> bool:  # by the hub that was polled, which did not append "after"
        return all(
            [set(await in_the_change_list(hub)) == {"before", "lost", "after"} for hub in hubs[1:]]
        )

    await until(is_put_back)
    assert not any("no hub process remembers them" in hub.log.read_text() for hub in hubs[1:])


async def has_logged(hubs: list[RunningHub], words: str) -> bool:
    return all(words in hub.log.read_text() for hub in hubs)


async def test_a_token_whose_revocation_is_lost_is_accepted_by_no_hub(hubs, own_redis):
    """Every hub has heard of it, and refuses the token before Redis has lost it and afterwards."""
    _, token = await hubs[0].ask("POST", "/api/tokens", json={"sets": ["dataset1"]})
    copy = own_redis.copy_of_data()
    await hubs[0].ask("DELETE", f"/api/tokens/{token['id']}")
    bearer = {"Authorization": f"Bearer {token['token']}"}
    answers: list[int] = []

    async def publishes(hub: RunningHub) -> int:
        change = {"loc": "http://example.com/never", "change": "updated"}
        answers.append((await hub.ask(*PUBLISH, json=change, headers=bearer))[0])
        return answers[-1]

    async def is_refused() -> bool:
        return {await publishes(hub) for hub in hubs} == {401}

    await until(is_refused)
    await own_redis.go_back(copy)
    answers.clear()
    await published(hubs[1], ["after"])
    for _ in range(50):
        for hub in hubs:
            await publishes(hub)
    assert 201 not in answers
    await until(is_refused)
