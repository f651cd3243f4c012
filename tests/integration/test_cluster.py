"""What the hub keeps, kept in a real Redis Cluster."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rsnotify.coordination import keys
from rsnotify.coordination.bell import Bell, ring_at
from rsnotify.errors import InvalidSettings, NoSuchSet, PartAway, TryAgain
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.live.losses import Lineage, lineage_of
from rsnotify.operation.health import WritableParts
from rsnotify.process.engine import wait_until_usable
from rsnotify.redis_client import Client, connect
from rsnotify.redis_client.cluster import HUB_KEY, slot_of
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import SetOptions, SetRecord
from rsnotify.sets.records import Sets
from tests.integration.test_redis_access import OPERATIONS, do_everything, documented_rights
from tests.support.amount import enough
from tests.support.faults import configured, out_of_memory
from tests.support.receivers import Receiver
from tests.support.redis_cluster import SLOTS, RunningCluster, cluster, slot_of_set
from tests.support.redis_server import RedisServer, binary_with_tls, free_port
from tests.support.redis_tls import AUTHORITY, SERVER, WITH_CERTIFICATE
from tests.support.running import RunningHub, until

NAMES = ("a", "b", "c", "d", "e")
MIB = 1 << 20


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with cluster(tmp_path) as started:
        yield started


@pytest.fixture
async def client(running: RunningCluster) -> AsyncIterator[Client]:
    """Once each master serves its slots: one that waited for the processor seems to have failed."""
    async with connect(running.url) as connected:
        await until(partial(serves_all, connected))
        yield connected


async def serves_all(client: Client) -> bool:
    try:
        await asyncio.gather(*(client.hgetall(keys.load(name)) for name in NAMES))
    except TryAgain:
        return False
    return True


async def spread(running: RunningCluster) -> set[RedisServer]:
    return {await running.master_of_set(name) for name in NAMES}


async def test_commands_go_to_the_nodes_that_have_their_keys(running, client):
    assert len(await spread(running)) == 3
    pipeline = client.pipeline(transaction=False)
    for name in NAMES:
        pipeline.hset(keys.load(name), "of", name)
        pipeline.hgetall(keys.load(name))
    answers = await pipeline.execute()
    assert answers == [each for name in NAMES for each in (1, {b"of": name.encode()})]
    commands = [("HGET", keys.load(name), "of") for name in NAMES]
    *found, then = await client.once(commands, ("EXISTS", keys.load("a")))
    assert found == [name.encode() for name in NAMES]
    assert then == 1


@pytest.mark.evidence
async def test_a_set_takes_half_of_the_smallest_node_at_most_and_others_go_on(
    running, client, tmp_path
):
    masters = list(await spread(running))
    for mib, server in zip((40, 60, 80), masters, strict=True):
        await running.say(server, "CONFIG", "SET", "maxmemory", mib * MIB)
    sets = ("a", "b", "c", "d", "e")
    async with RunningHub(tmp_path / "data", "--redis", running.url, sets=sets) as hub:
        await hub.ask("GET", "/health/ready")
        status, sent = 201, 0
        while status == 201:
            locs = (f"http://example.com/{sent}/{number:a<1000}" for number in range(500))
            batch = [{"loc": loc, "change": "updated"} for loc in locs]
            status, answer = await hub.ask("POST", "/api/sets/a/changes", json=batch)
            sent += 1
        assert (status, f"may take {20 * MIB:,} bytes" in answer["detail"]) == (507, True)

        async def is_counted() -> bool:
            record = keys.record(ChannelName("a", "change"))
            return int(await client.hget(record, "counted")) > 10 * MIB

        await until(is_counted)
        for name in sets[1:]:
            await hub.publish("http://example.com/other", set_name=name)
        assert (await hub.ask("DELETE", "/api/sets/a"))[0] == 204
        assert (await hub.ask("PUT", "/api/sets/a"))[0] == 201
        assert (await hub.ask("POST", "/api/sets/a/changes", json=batch))[0] == 201


async def test_a_slot_that_is_moved_is_found_whatever_moves_it(running, client):
    """MOVED for the once and the many, ASK for one key at a time, in its order."""
    await client.set(keys.load("a"), "old")
    slot = slot_of_set("a")
    source = await running.master_of(slot)
    target = next(each for each in await spread(running) if each is not source)
    await running.begin_to_move(slot, source, target)
    pipeline = client.pipeline(transaction=False)
    pipeline.get(keys.load("a"))
    pipeline.set(keys.archive("a"), "new")  # is not there, so it is made where the slot goes
    pipeline.get(keys.load("a"))
    pipeline.get(keys.archive("a"))
    assert await pipeline.execute() == [b"old", True, b"old", b"new"]
    assert await running.keys_in(slot, target) == [keys.archive("a").encode()]
    with pytest.raises(PartAway, match="moves these keys"):
        await client.mget(keys.load("a"), keys.archive("a"))
    (answer,) = await client.once([("SET", keys.snapshot("a"), "x")])
    assert isinstance(answer, PartAway)
    await running.move_keys([keys.load("a").encode()], source, target)
    await running.end_move(slot, target)
    answers = await client.once([("GET", keys.load("a")), ("GET", keys.archive("a"))])
    assert answers == [b"old", b"new"]
    pipeline = client.pipeline(transaction=True)
    pipeline.get(keys.load("a"))
    pipeline.set(keys.load("a"), "newer")
    assert await pipeline.execute() == [b"old", True]
    await running.move(slot, target, source)
    pipeline.get(keys.load("a"))
    assert await pipeline.execute() == [b"newer"]


@pytest.mark.evidence
async def test_a_set_that_was_half_made_or_half_removed_is_made_whole_by_repeating(client):
    sets = Sets(client)
    other, _, _ = await sets.add("other", SetOptions())
    await sets.begin_lost_journals([_named(other, "a")])  # made, and broken off
    assert set(await sets.all()) == {"other"}
    made, is_new, before = await sets.add("a", SetOptions(private=True))
    assert is_new
    assert made.created == other.created  # where its journals begin
    await client.delete(keys.record(_channel("a")))  # removed, and broken off
    after = await sets.remove("a")
    assert after.follows(before)
    assert set(await sets.all()) == {"other"}
    with pytest.raises(NoSuchSet):
        await sets.remove("a")


@pytest.mark.evidence
async def test_lost_journals_of_a_set_begin_again_and_others_stay(client):
    sets = Sets(client)
    record, _, _ = await sets.add("a", SetOptions())
    key = keys.record(_channel("a"))
    await client.hset(key, "head", 7)
    await sets.begin_lost_journals([record])
    assert await client.hget(key, "head") == b"7"
    await client.delete(key)
    await sets.begin_lost_journals([record])
    assert await client.hget(key, "head") == await client.hget(key, "created")


def server_of(lineage: Lineage, name: str) -> str:
    return lineage.servers[slot_of_set(name)]


@pytest.mark.evidence
async def test_another_master_is_another_lineage_of_its_journals_and_of_no_others(running, client):
    before = await lineage_of(client)
    away = await running.master_of_set("a")
    of_others = [name for name in NAMES if await running.master_of_set(name) is not away]
    await away.kill()
    asked = next(each for each in running.servers if each is not away)

    async def is_replaced() -> bool:
        return await running.is_promoted(away, slot_of_set("a"))

    await until(is_replaced)
    assert await running.master_of_set("a", asked) is not away

    async def is_another() -> bool:
        now = await lineage_of(client)
        return server_of(now, "a") != server_of(before, "a")

    await until(is_another)
    now = await lineage_of(client)
    for name in of_others:
        assert server_of(now, name) == server_of(before, name)
    assert of_others


async def test_one_node_that_is_gone_is_no_matter_of_the_others(running, client):
    """Nothing is said about the time, but that the others answer while it does not."""
    away = await running.master_of_set("a")
    nodes = {name: await running.master_of_set(name) for name in NAMES}
    near = next(name for name, node in nodes.items() if node is not away)
    pipeline = client.pipeline(transaction=False)
    pipeline.exists(keys.load("a"))
    pipeline.exists(keys.load(near))
    assert await pipeline.execute() == [0, 0]
    for replica in running.servers[3:]:
        await replica.kill()  # so that nobody takes over
    await away.kill()
    pipeline.exists(keys.load("a"))
    pipeline.exists(keys.load(near))
    gone, there = await pipeline.execute(raise_on_error=False)
    assert isinstance(gone, PartAway)
    assert there == 0
    gone, there = await client.once([("GET", keys.load("a")), ("GET", keys.load(near))])
    assert isinstance(gone, PartAway)
    assert there is None
    await away.start()

    async def is_back() -> bool:
        pipeline.exists(keys.load("a"))
        return await pipeline.execute(raise_on_error=False) == [0]

    await until(is_back)


@pytest.mark.evidence
async def test_sets_of_a_node_that_takes_no_writes_are_named_with_the_reason(running, client):
    full = await running.master_of_set("a")
    of_it = [name for name in NAMES if await running.master_of_set(name) is full]
    parts = WritableParts(client, seconds=0)
    assert await parts.away(NAMES) == {}
    async with full.client() as direct, out_of_memory(direct):
        ((reason, names),) = (await parts.away(NAMES)).items()
    assert (names, "no memory left" in reason) == (sorted(of_it), True)
    assert set(of_it) < set(NAMES)
    assert await parts.away(NAMES) == {}


@pytest.mark.evidence
async def test_no_node_is_written_to_more_often_however_many_ask(running, client):
    async def writes(node: Any) -> int:
        async with node.client() as direct:
            stats = await direct.info("commandstats")
        return int(stats.get("cmdstat_set", {}).get("calls", 0))

    node, parts = await running.master_of_set("a"), WritableParts(client)
    await parts.away(NAMES)
    before = await writes(node)
    await asyncio.gather(*(parts.away(NAMES) for _ in range(50)))
    assert await writes(node) == before
    asked_anew = WritableParts(client, seconds=0)
    await asyncio.gather(*(asked_anew.away(NAMES) for _ in range(50)))
    assert await writes(node) == before + 1, "those who ask at the same time share one"


@pytest.mark.parametrize(
    ("left", "is_full"),
    enough([pytest.param(MIB // 4, True), pytest.param(2 * MIB, False)], 1),
)
async def test_sets_of_a_node_with_hardly_any_memory_left_are_named(running, client, left, is_full):
    node = await running.master_of_set("a")
    of_it = [name for name in NAMES if await running.master_of_set(name) is node]
    async with node.client() as direct:
        await direct.setrange(keys.stream(ChannelName("a", "change")) + ":large", 64 * MIB, b"x")
        memory = await direct.info("memory")
        used = memory["used_memory"] - memory.get("mem_not_counted_for_evict", 0)
        parts = WritableParts(client)
        async with configured(direct, "maxmemory", str(used + left)):
            found = await parts.away(NAMES)
        await direct.flushall()
    assert f":{node.port}: Redis is nearly full: less than 16 MiB" in parts.low
    assert [*found.values()] == ([sorted(of_it)] if is_full else [])


@pytest.mark.evidence
async def test_where_no_node_answers_everything_fails_as_where_one_server_does_not():
    async with connect(f"redis+cluster://127.0.0.1:{free_port()}") as client:
        pipeline = client.pipeline(transaction=False)
        for name in NAMES * 100:
            pipeline.exists(keys.load(name))
        with pytest.raises(TryAgain, match="no node of the Redis Cluster answers"):
            await pipeline.execute()
        with pytest.raises(TryAgain, match="no node of the Redis Cluster answers"):
            await client.once([("GET", keys.SETS_VERSION)])
        with pytest.raises(TryAgain, match="no node of the Redis Cluster answers"):
            await client.get(keys.SETS_VERSION)


async def test_a_server_that_is_no_cluster_is_refused(tmp_path):
    async with RedisServer(tmp_path) as server:
        url = f"redis+cluster://127.0.0.1:{server.port}"
        with pytest.raises(InvalidSettings, match="it is no Redis Cluster"):
            await wait_until_usable(url, warn=False)


@pytest.mark.evidence
async def test_scripts_that_a_node_does_not_know_are_sent_in_full(running, client):
    sets = Sets(client)
    await sets.add("a", SetOptions())
    for server in running.servers[:3]:
        await running.say(server, "SCRIPT", "FLUSH")
    await asyncio.gather(*(sets.add(name, SetOptions()) for name in NAMES))
    assert set(await sets.all()) == set(NAMES)


@pytest.mark.evidence
async def test_the_bell_is_heard_wherever_it_is_rung_and_after_its_node_is_gone(running):
    heard: set[str] = set()

    async def hears(server: RedisServer, message: str) -> bool:
        await running.say(server, "PUBLISH", keys.BELL, message)
        return message in heard

    listening = asyncio.create_task(Bell(connect(running.url)).listen(heard.add))
    for server in running.servers:
        await until(partial(hears, server, f"from {server.port}"))
    (listened_to,) = [each for each in running.servers if await listeners(running, each)]
    await listened_to.kill()
    left = next(each for each in running.servers if each is not listened_to)
    await until(partial(hears, left, "again"))
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


@pytest.mark.evidence
async def test_the_bell_of_a_journal_is_rung_where_the_journal_is(running, client):
    """Another node may be silent: whoever publishes to this one does not wait for it."""
    of_the_hub = await running.master_of(slot_of(HUB_KEY))
    nodes = {name: await running.master_of_set(name) for name in NAMES}
    name = next(name for name, node in nodes.items() if node is not of_the_hub)
    heard: set[str] = set()
    await of_the_hub.kill()
    listening = asyncio.create_task(Bell(client).listen(heard.add))

    async def hears() -> bool:
        (answer,) = await client.together([ring_at(keys.record(_channel(name)), "message")])
        assert not isinstance(answer, Exception)
        return "message" in heard

    await until(hears)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def listeners(running: RunningCluster, server: RedisServer) -> int:
    ((_, count),) = await running.say(server, "PUBSUB NUMSUB", keys.BELL)
    return int(count)


@pytest.mark.evidence
async def test_with_tls_it_is_spoken_to_the_nodes_that_are_found(tmp_path):
    port, binary = free_port(), await binary_with_tls()
    certificates = ("--tls-cert-file", SERVER, "--tls-key-file", SERVER)
    names = ("--cluster-announce-hostname", "localhost")
    options = (
        *("--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-port", port),
        *(
            *certificates,
            *names,
            "--tls-ca-cert-file",
            AUTHORITY,
            "--cluster-preferred-endpoint-type",
            "hostname",
        ),
    )
    started = RedisServer(tmp_path, *map(str, options), binary=binary)
    async with started as server, server.client() as admin:
        await admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        url = f"rediss+cluster://localhost:{port}{WITH_CERTIFICATE}"
        async with connect(url) as client:

            async def is_served() -> bool:
                with suppress(TryAgain):
                    return bool(await client.set(keys.WRITABLE, "x"))
                return False

            await until(is_served)
            assert await client.get(keys.WRITABLE) == b"x"
            (node,) = client.nodes.masters
            assert str(node) == f"localhost:{port}"


def _channel(name: str) -> ChannelName:
    return ChannelName(name, "change")


def _named(record: SetRecord, name: str) -> SetRecord:
    return msgspec.structs.replace(record, name=name)


@pytest.mark.evidence
async def test_a_user_with_the_documented_rights_is_enough_for_all_that_a_hub_does(
    running, tmp_path
):
    (more,) = re.findall(r"A user of few rights also needs\s`(.+?)`", OPERATIONS.read_text())
    rights = (*documented_rights(), *more.split())
    for server in running.servers:
        await running.say(server, "ACL", "SETUSER", "rsnotify", "on", ">x", *rights)
    url = running.url.replace("//", "//rsnotify:x@")
    settings = {"callback_private": "allow", "changelist_max": "2"}
    hub = RunningHub(tmp_path / "data", "--redis", url, **settings)
    async with Receiver() as receiver, hub:
        await do_everything(hub, receiver)
        assert await hub.stop() == 0
    for server in running.servers:
        assert await running.say(server, "ACL", "LOG") == []
    log = hub.log.read_text()
    assert "Traceback" not in log
    assert "NOPERM" not in log


@pytest.mark.evidence
async def test_tombstones_are_where_their_set_is(client):
    journal, sets = JournalStore(client, window_changes=10), Sets(client)
    for name in NAMES:
        channel = ChannelName(name, "change")
        record, _, _ = await sets.add(name, SetOptions(tombstones=True))
        assert str(await journal.keep_tombstones(channel, keep=True)) == record.created
        ended = [fragment_of(Change(f"http://example.com/{number}", "deleted")) for number in "abc"]
        at = await journal.append(channel, Submission(ended))
        kept = {}
        for shard in range(keys.STATE_SHARDS):
            kept |= await client.hgetall(keys.tombstones(name, shard))
        assert max(map(int, kept.values())) == at.until
        assert len(kept) == 3
        await sets.remove(name)
        for shard in range(keys.STATE_SHARDS):
            assert not await client.exists(keys.tombstones(name, shard))
