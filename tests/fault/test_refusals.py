"""A Redis that refuses: the hub lives on, its readers stay, and all goes on afterwards."""

import json
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from random import randbytes

import pytest

from rsnotify.coordination import keys
from rsnotify.documents.snapshots import take_snapshot
from rsnotify.redis_client import connect
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from tests.support.amount import enough
from tests.support.faults import (
    OwnRedis,
    a_replica,
    busy,
    out_of_memory,
    too_few_replicas,
)
from tests.support.loading import Loading, ndjson
from tests.support.pulling import SET
from tests.support.raw import Raw, raw_channel
from tests.support.running import RunningHub, rsnotify, until

CHANGE = {"loc": "http://example.com/refused", "change": "updated"}
MIB = 2**20


@pytest.fixture
async def hub(own_redis: OwnRedis, tmp_path: Path) -> AsyncIterator[RunningHub]:
    """A hub on a Redis to be maltreated, with two sets."""
    sets = ("dataset1", "dataset2")
    async with RunningHub(tmp_path / "data", "--redis", own_redis.url, sets=sets) as running:
        yield running


async def said(hub: RunningHub, words: str) -> None:
    """Wait until the log says so."""

    async def found() -> bool:
        return words in " ".join(hub.log.read_text().split())  # the log wraps its lines

    await until(found)


async def tells_the_next(hub: RunningHub, reader: Raw, loc: str) -> None:
    await hub.publish(loc)
    assert loc.encode() in await reader.text()


async def status_of_a_publish(hub: RunningHub, key: str = "once") -> int:
    headers = {"Idempotency-Key": key}  # one that got no answer in time may be stored
    status, _ = await hub.ask("POST", "/api/sets/dataset1/changes", json=[CHANGE], headers=headers)
    return status


async def test_a_hub_outlives_whatever_its_redis_refuses(hub, own_redis):
    refusals = {
        "NOREPLICAS": (503, too_few_replicas),
        "READONLY": (503, a_replica),
        "BUSY": (503, busy),
        "OOM": (507, out_of_memory),
    }
    async with raw_channel(hub.channel()) as reader:
        for code, (status, refusing) in refusals.items():
            await tells_the_next(hub, reader, f"http://example.com/before-{code}")
            async with refusing(own_redis.client):
                assert await status_of_a_publish(hub, code) == status
                await said(hub, f"({code})")
            await until(lambda key=code: is_accepted(hub, key))
            assert CHANGE["loc"].encode() in await reader.text()
    assert hub.process is not None
    assert hub.process.returncode is None
    assert "Traceback" not in hub.log.read_text()


async def readiness(hub: RunningHub) -> str:
    status, answer = await hub.ask("GET", "/health/ready")
    return "ready" if status == 200 else str(answer["detail"])


async def test_a_full_redis_is_507_and_not_ready_until_it_has_room(hub, own_redis):
    assert await readiness(hub) == "ready"
    async with raw_channel(hub.channel()) as reader:
        async with out_of_memory(own_redis.client):
            status, problem = await hub.ask("POST", "/api/sets/dataset1/changes", json=[CHANGE])
            assert (status, problem["status"]) == (507, 507)
            assert "Redis has no memory left (OOM)" in problem["detail"]

            async def not_writable() -> bool:
                return (await readiness(hub)).startswith("not writable: the journal cannot be used")

            await until(not_writable)
        await tells_the_next(hub, reader, "http://example.com/after")

    async def ready() -> bool:
        return await readiness(hub) == "ready"

    await until(ready)
    assert (await hub.ask("GET", "/health/live"))[0] == 200


async def test_what_frees_room_and_what_takes_a_right_away_needs_no_room(hub, own_redis):
    _, made = await hub.ask("POST", "/api/tokens", json={"sets": ["dataset2"]})
    await hub.publish("http://example.com/a")
    async with out_of_memory(own_redis.client):
        assert await status_of_a_publish(hub) == 507
        assert (await hub.ask("DELETE", f"/api/tokens/{made['id']}"))[0] == 204
        assert (await hub.ask("DELETE", "/api/sets/dataset1"))[0] == 204
    assert (await hub.ask("GET", "/dataset1/changelist.xml"))[0] == 404
    bearer = {"Authorization": f"Bearer {made['token']}"}
    status, _ = await hub.ask("POST", "/api/sets/dataset2/changes", json=[CHANGE], headers=bearer)
    assert status == 401


async def fill(hub: RunningHub, sent: int = 0) -> list[dict[str, str]]:
    """Publish large batches to the first set until it is full; the batch that was refused."""
    status = 201
    while status == 201:
        locs = (f"http://example.com/{sent}/{number:a<1000}" for number in range(900))
        batch = [{"loc": loc, "change": "updated"} for loc in locs]
        status, answer = await hub.ask("POST", "/api/sets/dataset1/changes", json=batch)
        sent += 1
    assert (status, "the set 'dataset1' may take" in answer["detail"]) == (507, True)
    return batch


async def learns(hub: RunningHub, maxmemory: int) -> None:
    """Wait until the hub knows what Redis may use."""

    async def is_known() -> bool:
        _, metrics = await hub.ask("GET", "/metrics")
        return f"rsnotify_redis_memory_limit_bytes {maxmemory}" in str(metrics)

    await until(is_known)


@pytest.mark.parametrize("engine", enough(["redis", "valkey"], 1))
async def test_a_redis_that_is_nearly_full_is_said_to_be_beside_ready(engine, tmp_path):
    """What is small passes, what is large does not."""
    changes = [CHANGE | {"loc": f"http://example.com/{n:a<1500}"} for n in range(5_000)]
    body = BytesIO(json.dumps(changes).encode())
    large = {"data": body, "headers": {"Content-Type": "application/json"}}
    nearly = "Redis is nearly full: less than 10 % of its memory is left"
    async with (
        OwnRedis(tmp_path, engine=engine) as redis,
        RunningHub(tmp_path / "data", "--redis", redis.url) as hub,
    ):
        await redis.client.setrange("large", 200 * MIB, b"x")
        assert await beside_ready(hub) == []
        used = (await redis.client.info("memory"))["used_memory"]
        await redis.client.config_set("maxmemory", used + 4 * MIB)
        (warning,) = await until(lambda: beside_ready(hub))
        assert warning.startswith(nearly)
        assert await status_of_a_publish(hub) == 201
        assert (await hub.ask("POST", "/api/sets/dataset1/changes", **large))[0] == 507
        ended = await rsnotify("status", hub=hub)
        assert (ended.status, ended.out.splitlines()[1]) == (0, f"warning: {warning}")
        await said(hub, f"WARNING {nearly}")
        await said(
            hub, "WARNING a publish got 507: the journal cannot be used: Redis has no memory"
        )
        await redis.client.delete("large")
        await said(hub, "WARNING Redis has room again")
        assert await beside_ready(hub) == []


async def beside_ready(hub: RunningHub) -> list[str]:
    """What is refused although the hub is ready."""
    status, answer = await hub.ask("GET", "/health/ready")
    assert status == 200
    ready, *more = answer.decode().splitlines()
    assert ready == "ready"
    return more


async def test_the_log_says_once_that_a_set_is_full_however_often_it_is_published_to(hub):
    await hub.ask("PATCH", "/api/sets/dataset1", json={"max_bytes": MIB})
    batch = await fill(hub)
    for _ in range(3):
        assert (await hub.ask("POST", "/api/sets/dataset1/changes", json=batch))[0] == 507
    states = ndjson(f"{n:a<1000}" for n in range(4_000))
    loading = {"data": BytesIO(states), "headers": {"Content-Type": "application/x-ndjson"}}
    status, _ = await hub.ask("PUT", "/api/sets/dataset1/resources", **loading)
    assert status == 507
    full = "WARNING a publish got 507: the set 'dataset1' may take 1,048,576 bytes of Redis"
    assert hub.log.read_text().count(full) == 1


async def test_status_of_a_hub_that_is_not_ready_ends_with_1_and_says_why(hub, own_redis):
    assert (await rsnotify("status", hub=hub)).status == 0
    async with too_few_replicas(own_redis.client):
        await until(lambda: is_unready(hub))
        for words in (("status",), ("status", "--json")):
            ended = await rsnotify(*words, hub=hub)
            assert ended.status == 1
            assert "not writable: the journal cannot be used: too few replicas" in ended.out


async def is_unready(hub: RunningHub) -> bool:
    return "too few" in await readiness(hub)


@pytest.mark.parametrize("engine", enough(["redis", "valkey"], 1))
@pytest.mark.parametrize("mib", [60, pytest.param(150, marks=pytest.mark.evidence)])
async def test_one_set_fills_half_of_a_bounded_redis_and_no_more(mib, engine, tmp_path):
    """Others are published to, and the full one is removed."""
    options = ("--maxmemory", f"{mib}mb", "--maxmemory-policy", "noeviction")
    sets = ("dataset1", "dataset2")
    async with (
        OwnRedis(tmp_path, *options, engine=engine) as redis,
        RunningHub(tmp_path / "data", "--redis", redis.url, sets=sets) as hub,
    ):
        await hub.ask("GET", "/health/ready")
        batch = await fill(hub)
        memory = await redis.client.info("memory")
        assert mib * 2**20 / 3 < memory["used_memory"] < mib * 2**20 * 0.7
        for number in range(200):
            await hub.publish(f"http://example.com/{number}", set_name="dataset2")
        assert await readiness(hub) == "ready"
        assert (await hub.ask("DELETE", "/api/sets/dataset1"))[0] == 204
        assert (await hub.ask("PUT", "/api/sets/dataset1"))[0] == 201
        status, _ = await hub.ask("POST", "/api/sets/dataset1/changes", json=batch)
        assert status == 201


async def test_a_full_set_is_removed_from_a_full_redis(hub, own_redis):
    await hub.ask("PATCH", "/api/sets/dataset1", json={"max_bytes": 4 * 2**20})
    batch = await fill(hub)
    async with out_of_memory(own_redis.client):
        assert (await hub.ask("DELETE", "/api/sets/dataset1"))[0] == 204
    assert (await hub.ask("PUT", "/api/sets/dataset1"))[0] == 201
    assert (await hub.ask("POST", "/api/sets/dataset1/changes", json=batch))[0] == 201


async def test_a_request_for_several_sets_is_refused_by_the_full_one_alone(hub):
    await hub.ask("PATCH", "/api/sets/dataset1", json={"max_bytes": 2 * 2**20})
    await fill(hub)
    large = CHANGE | {"loc": "http://example.com/" + "a" * 2000, "sets": ["dataset1", "dataset2"]}
    batch = [large | {"loc": f"{large['loc']}{number}"} for number in range(400)]
    status, problem = await hub.ask("POST", "/api/changes", json=batch)
    assert status == 507
    assert problem["detail"].startswith("dataset1: the set 'dataset1' may take")
    assert problem["detail"].endswith("stored for dataset2: repeat only what is not stored")


async def test_lists_that_are_asked_for_end_where_the_set_is_full(hub, own_redis):
    """Each stays for an hour, for those who read it. How long one is shows when it is there: the
    last may begin with little room."""
    await hub.ask("PATCH", "/api/sets/dataset1", json={"max_bytes": 4 * 2**20})
    locs = (f"http://example.com/{randbytes(400).hex()}" for _ in range(900))
    batch = [{"loc": loc, "change": "updated"} for loc in locs]
    assert (await hub.ask("POST", "/api/sets/dataset1/changes", json=batch))[0] == 201
    status, before = 201, (await own_redis.client.info("memory"))["used_memory"]
    while status == 201:
        status, answer = await hub.ask("POST", "/api/sets/dataset1/snapshot")
    assert (status, "the set 'dataset1' may take" in answer["detail"]) == (507, True)
    assert (await own_redis.client.info("memory"))["used_memory"] < before + 5 * 2**20
    assert (await hub.ask("POST", "/api/sets/dataset2/snapshot"))[0] == 201


async def test_old_changes_and_lists_of_a_full_redis_are_let_go_and_its_sets_counted(own_redis):
    """What makes room needs none."""
    async with connect(own_redis.url) as client, Loading(client) as hub:
        await hub.update(*(f"{number}" for number in range(1_000)))
        await hub.windows.close(SET, 1)
        await hub.upkeep.windows.announce_and_pack(
            SET, (await hub.windows.record(SET)).packed_until
        )
        for name in ("a", "b"):
            await take_snapshot(hub.snapshots, hub.windows, SET, keep_old=True)
            await hub.update(name)
        before = await hub.hub.usage.count(SET)
        async with hub.under_way(ndjson(["c"])) as upload, out_of_memory(own_redis.client):
            await hub.let_go_of_all()
            windows = (await hub.windows.span(SET)).windows
            await hub.windows.forget(SET, windows)
            assert (await hub.windows.span(SET)).windows == []
            assert await hub.hub.usage.count(SET) < before
            await hub.snapshots.expire_surplus(SET, 0, Position(0))
            assert await hub.snapshots.archived(SET) == []
            upload.break_off()
            await upload.answer()
            assert await hub.leavings() == []
            await hub.hub.remove_set(SET)
        left = await client.keys(f"rsnotify:{{{SET}}}:*")
        assert [key for key in left if await client.ttl(key) < 0] == []


async def test_a_full_set_is_packed_and_listed_and_refuses_no_other(own_redis, tmp_path):
    """What the hub does for it goes on; what is counted then makes room where there is some."""
    sets = ("dataset1", "dataset2")
    async with RunningHub(
        tmp_path / "data", "--redis", own_redis.url, sets=sets, changelist_max="900"
    ) as hub:
        await hub.ask("PATCH", "/api/sets/dataset1", json={"max_bytes": 8 * 2**20})
        await fill(hub)
        assert (await hub.ask("POST", "/api/sets/dataset2/snapshot"))[0] == 201
        await hub.publish("http://example.com/other", set_name="dataset2")

        async def is_kept() -> bool:
            record = keys.record(ChannelName("dataset1", "change"))
            settled, begins = await own_redis.client.hmget(record, "settled", "window_from")
            listed = await hub.ask("GET", "/dataset1/resourcelist.xml")
            return settled == begins and listed[0] == 200

        await until(is_kept)


async def test_a_redis_that_wants_another_password_is_503_with_what_to_do(own_redis, tmp_path):
    client = own_redis.client
    url = own_redis.url.replace("unix://", "unix://:first@")
    await client.config_set("requirepass", "first")
    await client.execute_command("AUTH", "first")
    async with RunningHub(tmp_path / "data", "--redis", url) as hub:
        await client.config_set("requirepass", "second")
        await client.execute_command("AUTH", "second")
        await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        for method, path, content in (
            ("POST", "/api/sets/dataset1/changes", [CHANGE]),
            ("PUT", "/api/sets/another", {}),
            ("GET", "/dataset1/changelist.xml", None),
        ):
            status, problem = await hub.ask(method, path, json=content)
            assert (status, "check them in its address" in problem["detail"]) == (503, True)
        await client.config_set("requirepass", "first")
        await until(lambda: is_accepted(hub))
        assert "Traceback" not in hub.log.read_text()
        await client.config_set("requirepass", "")


async def is_accepted(hub: RunningHub, key: str = "once") -> bool:
    return await status_of_a_publish(hub, key) == 201


async def test_a_set_whose_keys_are_damaged_holds_up_no_other(hub, own_redis):
    damaged = ChannelName("dataset2", "change")
    await hub.publish("http://example.com/1", set_name="dataset2")  # else no chore looks at it
    async with raw_channel(hub.channel()) as reader:
        await own_redis.client.set(keys.record(damaged), "something else")
        await said(hub, "the data of dataset2/change in Redis cannot be read")
        await said(hub, "a chore for the set 'dataset2' failed")
        await tells_the_next(hub, reader, "http://example.com/meanwhile")
        assert (await hub.ask("GET", "/health/ready"))[0] == 200
        status, _ = await hub.ask("POST", "/api/sets/dataset2/changes", json=[CHANGE])
        assert status == 500
    assert "WRONGTYPE" in hub.log.read_text()
    assert "Traceback" in hub.log.read_text()


async def test_a_topic_that_may_be_old_is_not_told(hub, own_redis):
    path = "/channels/dataset1/change_notification_channel"
    await hub.publish("http://example.com/1")
    assert b"http://example.com/1" in (await hub.ask("GET", path))[1]
    await own_redis.kill()
    assert (await hub.ask("GET", path))[0] == 503
    await own_redis.start()

    async def is_told_again() -> bool:
        return (await hub.ask("GET", path))[0] == 200

    await until(is_told_again)


PULLED = (
    "/.well-known/resourcesync",
    "/dataset1/capabilitylist.xml",
    "/dataset1/changelist.xml",
    "/dataset1/changelist.xml?from={cursor}",
    "/dataset1/changelist-index.xml",
    "/dataset1/resourcelist.xml",
)


async def test_a_full_redis_is_still_pulled_from(hub, own_redis):
    cursor = (await hub.publish("http://example.com/first"))["until"]
    await hub.publish("http://example.com/second")

    async def is_listed() -> bool:
        return (await hub.ask("GET", "/dataset1/resourcelist.xml"))[0] == 200

    await until(is_listed)
    paths = [path.format(cursor=cursor) for path in PULLED]
    before = {path: await hub.ask("GET", path) for path in paths}
    async with out_of_memory(own_redis.client):
        assert await status_of_a_publish(hub) == 507
        for path in paths:
            assert await hub.ask("GET", path) == before[path], path
