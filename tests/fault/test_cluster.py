"""A Redis Cluster whose slots move and whose masters fail: the hub follows, and loses nothing."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from rsnotify.redis_client.cluster import HUB_KEY, slot_of
from tests.fault.test_sentinel import Publisher, following, name_of
from tests.support.lossy_failover import (
    LOC,
    Book,
    Follower,
    all_in,
    followed,
    listed,
    published,
    settled,
    until_done,
)
from tests.support.receivers import Receiver, subscribe
from tests.support.redis_cluster import RunningCluster, cluster, slot_of_set
from tests.support.redis_server import RedisServer, binary_of
from tests.support.running import RunningHub, until
from tests.support.stories import lost

SETS = ("dataset1", "two", "three", "four")


@asynccontextmanager
async def hubs_on(
    redis: RunningCluster, folder: Path, count: int, **settings: str
) -> AsyncIterator[list[RunningHub]]:
    async with AsyncExitStack() as stack:
        hubs = [
            RunningHub(folder / f"data{number}", "--redis", redis.url, sets=SETS, **settings)
            for number in range(count)
        ]
        for hub in hubs:
            await stack.enter_async_context(hub)
        yield hubs
    for hub in hubs:
        assert "Traceback" not in hub.log.read_text()


async def another_is_master(redis: RunningCluster, away: RedisServer, slot: int) -> None:
    """Wait until a replica has taken over from it."""

    async def is_promoted() -> bool:
        return await redis.is_promoted(away, slot)

    await until(is_promoted)


async def is_ready(hub: RunningHub, *, but_for: Sequence[str] = ()) -> bool:
    """Whether it can be sent requests, and which sets it says cannot be published to."""
    status, said = await hub.ask("GET", "/health/ready")
    if status != 200:
        return False
    told = re.findall(rb"publishing to (\d+) sets \((.*?)\) is refused", said)
    names = [name for _, each in told for name in each.decode().split(", ")]
    return names == sorted(but_for)


async def locs_listed(hub: RunningHub) -> list[str]:
    listed_ = await until_done(hub, "GET", "/dataset1/changelist.xml")
    return re.findall(r"<loc>(.*?)</loc>", listed_.decode())


async def another(redis: RunningCluster, *those: RedisServer) -> RedisServer:
    masters = [await redis.master_of_set(name) for name in SETS]
    masters.append(await redis.master_of(slot_of(HUB_KEY)))
    return next(each for each in masters if each not in those)


async def has_heard(receiver: Receiver, locs: Iterable[str]) -> None:
    async def is_delivered() -> bool:
        return set(locs) <= set(receiver.locs)

    await until(is_delivered)


@pytest.mark.evidence
@pytest.mark.parametrize(("engine", "replicas"), [("redis", "1"), ("valkey", "0")])
async def test_slots_that_move_while_publishing_lose_and_double_nothing(tmp_path, engine, replicas):
    binary = await binary_of(engine)
    settings = {"replicas": replicas, "callback_private": "allow"}
    async with (
        cluster(tmp_path, binary=binary) as redis,
        hubs_on(redis, tmp_path, 2, **settings) as (hub, other),
        following(other) as reader,
        Receiver() as receiver,
    ):
        await subscribe(hub, receiver)
        publisher = Publisher(hub)
        await publisher.goes_on()
        for slot in (slot_of_set("dataset1"), slot_of(HUB_KEY)):
            source = await redis.master_of(slot)
            target = await another(redis, source)
            await redis.move(slot, source, target)
            await publisher.goes_on()
            await redis.move(slot, target, source)
            await publisher.goes_on()
        await publisher.stop()
        assert publisher.statuses <= {201, 503}
        acknowledged = publisher.acknowledged
        in_list = await locs_listed(hub)
        assert in_list[: len(acknowledged)] == acknowledged
        assert len(in_list) == len(set(in_list)) <= len(acknowledged) + 1
        await all_in([reader], {name_of(loc) for loc in in_list})
        in_list = await locs_listed(hub)  # what had no answer yet may have been stored since
        assert reader.told == [name_of(loc) for loc in in_list]
        await has_heard(receiver, in_list)
        assert len(receiver.locs) == len(set(receiver.locs))


@pytest.mark.evidence
async def test_a_slot_half_moved_is_read_whole_and_written_when_all_is_there(tmp_path):
    async with cluster(tmp_path) as redis, hubs_on(redis, tmp_path, 1) as (hub,):
        await published(hub, ["a", "b"])
        slot = slot_of_set("dataset1")
        source = await redis.master_of(slot)
        target = await another(redis, source)
        await redis.begin_to_move(slot, source, target)
        names = await redis.keys_in(slot, source)
        stream = next(name for name in names if name.endswith(b":change"))
        await redis.move_keys([stream], source, target)
        assert await listed(hub, "dataset1") == {"a", "b"}
        body = [{"loc": "http://example.com/c", "change": "created"}]
        status, said = await hub.ask("POST", "/api/sets/dataset1/changes", json=body)
        assert status == 503
        assert "moves these keys" in said["detail"]
        assert not await hub_has_stored(hub, "c")
        waiting = asyncio.create_task(published(hub, ["d"]))
        await redis.move_keys([name for name in names if name != stream], source, target)
        await redis.move_keys(await redis.keys_in(slot, source), source, target)
        await redis.end_move(slot, target)
        await waiting
        await published(hub, ["c"])
        assert await locs_listed(hub) == [f"http://example.com/{name}" for name in "abdc"]


async def hub_has_stored(hub: RunningHub, name: str) -> bool:
    return f"http://example.com/{name}" in await locs_listed(hub)


@pytest.mark.evidence
async def test_a_master_that_fails_is_followed_by_its_replica_and_the_others_go_on(tmp_path):
    settings = {"callback_private": "allow", "replicas": "0"}  # a master has one, which takes over
    async with (
        cluster(tmp_path) as redis,
        hubs_on(redis, tmp_path, 2, **settings) as (hub, other),
        Receiver() as receiver,
        followed([follower := Follower(other, "reader")]),
    ):
        await subscribe(hub, receiver)
        publisher = Publisher(hub)
        await publisher.goes_on()
        slot = slot_of_set("dataset1")
        away = await redis.master_of(slot)
        nodes = {name: await redis.master_of_set(name) for name in SETS}
        far = [name for name, node in nodes.items() if node is not away]
        (replica,) = await replicas_of(redis, away)
        await let_take_over(redis, replica, is_let=False)
        away.signal(signal.SIGSTOP)
        for name in far:
            body = [{"loc": f"http://example.com/{name}", "change": "created"}]
            status, said = await hub.ask("POST", f"/api/sets/{name}/changes", json=body)
            assert status == 201, said
        assert far
        await until(lambda: is_ready(hub, but_for=[name for name in SETS if name not in far]))
        await let_take_over(redis, replica, is_let=True)
        await another_is_master(redis, away, slot)
        await publisher.goes_on()
        away.signal(signal.SIGCONT)
        await publisher.goes_on()
        await until(lambda: is_ready(hub))
        await publisher.stop()
        assert publisher.statuses <= {201, 503}
        journal, _ = await settled([hub, other], publisher.book, [follower], may_lose=True)
        await has_heard(receiver, [loc for _, loc in journal])


@pytest.mark.evidence
async def test_when_the_master_of_the_sets_records_fails_everything_goes_on(tmp_path):
    async with (
        cluster(tmp_path) as redis,
        hubs_on(redis, tmp_path, 2, replicas="0") as (hub, other),
        following(other) as reader,
    ):
        away = await redis.master_of(slot_of(HUB_KEY))
        assert away is not await redis.master_of_set("dataset1")
        await away.kill()
        acknowledged = await published(hub, ["while-it-is-away"])
        await another_is_master(redis, away, slot_of(HUB_KEY))
        await until_done(hub, "PUT", "/api/sets/new", json={"private": True})
        await until_done(hub, "POST", "/api/tokens", json={"sets": ["new"], "rights": ["read"]})

        async def is_known() -> bool:
            return (await other.ask("GET", "/new/capabilitylist.xml"))[0] == 200

        await until(is_known)
        acknowledged |= await published(other, ["after"])
        await all_in([reader], acknowledged)
        assert await listed(hub, "dataset1") == acknowledged
        await until(lambda: is_ready(hub))


@pytest.mark.evidence
async def test_what_a_replica_had_not_got_is_said_and_other_sets_go_on(tmp_path):
    """Its master alone had acknowledged changes of one set."""
    book, far_book = Book(), Book()
    async with (
        cluster(tmp_path) as redis,
        hubs_on(redis, tmp_path, 2, replicas="0") as (hub, other),
    ):
        slot = slot_of_set("dataset1")
        away = await redis.master_of(slot)
        (far, *_) = [name for name in SETS if await redis.master_of_set(name) is not away]
        followers = [Follower(each, f"reader at {each.port}") for each in (hub, other)]
        async with followed(followers), following(other, far) as reader_of_another_set:
            await until(lambda: have_begun(followers))
            await book.publish(hub, ["before"])
            await until(lambda: have_heard(followers, "before"))
            await stop_replication(redis, away)
            for number in range(5):
                await book.publish(hub, [f"lost-{number}"])
            await until(lambda: have_heard(followers, "lost-4"))
            began = monotonic()
            await away.kill()
            await far_book.publish(hub, ["far"], far)
            await another_is_master(redis, away, slot)
            await book.publish(other, ["after"])
            journal, gaps = await settled([hub, other], book, followers, may_lose=True)
            await all_in([reader_of_another_set], {"far"})
        told = [[told.when - began for told in each.story.told] for each in followers]
        missing = {name_of(loc) for loc, _ in lost(journal, book.answers)}
        print(f"lost {len(missing)}, gaps {gaps}, readers told after {told} s")
        assert missing == {f"lost-{number}" for number in range(5)}
        assert gaps == 1
        assert [len(each) for each in told] == [1, 1]


async def have_begun(followers: Iterable[Follower]) -> bool:
    return all(each.story.began for each in followers)


async def have_heard(followers: Iterable[Follower], name: str) -> bool:
    return all(each.story.has(f"http://example.com/{name}") for each in followers)


async def replicas_of(redis: RunningCluster, master: RedisServer) -> list[RedisServer]:
    roles = {each: await redis.say(each, "ROLE") for each in redis.servers}
    return [each for each, role in roles.items() if role[0] == b"slave" and role[2] == master.port]


async def let_take_over(redis: RunningCluster, replica: RedisServer, *, is_let: bool) -> None:
    """Whether it may take the place of its master by itself."""
    option = ("cluster-replica-no-failover", "no" if is_let else "yes")
    await redis.say(replica, "CONFIG", "SET", *option)


async def stop_replication(redis: RunningCluster, master: RedisServer) -> None:
    """Its replica cannot come back to it, but would take its place."""
    for replica in await replicas_of(redis, master):
        async with replica.client() as client:
            await client.config_set("masterauth", "wrong")
            await client.config_set("masteruser", "nobody")
    await redis.say(master, "CLIENT", "KILL", "TYPE", "replica")

    async def is_alone() -> bool:
        async with master.client() as client:
            return not (await client.info("replication"))["connected_slaves"]

    await until(is_alone)


@pytest.mark.evidence
async def test_a_set_is_loaded_listed_and_removed_without_a_trace(tmp_path):
    async with cluster(tmp_path) as redis, hubs_on(redis, tmp_path, 1) as (hub,):
        await published(hub, ["a", "b"])
        whole = b'{"loc":"http://example.com/b"}\n{"loc":"http://example.com/c"}\n'
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": "whole"}
        path = "/api/sets/dataset1/resources?max_delete=100&overwrite=yes"

        async def is_published() -> bool:
            status, said = await hub.ask("PUT", path, data=whole, headers=headers)
            assert status in (200, 202), said  # 202: it takes long on a busy machine, and goes on
            return status == 200

        await until(is_published)
        status, said = await hub.ask("POST", "/api/sets/dataset1/snapshot")
        assert status in (200, 201), said
        _, resources = await hub.ask("GET", "/dataset1/resourcelist.xml")
        assert set(LOC.findall(resources)) == {b"b", b"c"}
        assert await keys_of(redis, "dataset1")
        status, _ = await hub.ask("DELETE", "/api/sets/dataset1")
        assert status == 204
        there = await redis.master_of_set("dataset1")
        for left in await keys_of(redis, "dataset1"):  # what is remembered of requests expires
            assert await redis.say(there, "TTL", left) > 0, left
        status, _ = await hub.ask("GET", "/dataset1/changelist.xml")
        assert status == 404


async def keys_of(redis: RunningCluster, name: str) -> list[bytes]:
    slot = slot_of_set(name)
    return await redis.keys_in(slot, await redis.master_of(slot))
