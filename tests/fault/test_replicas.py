"""What is acknowledged is on so many replicas, whatever becomes of them."""

import asyncio
import signal
from contextlib import suppress
from functools import partial

import pytest

from rsnotify.errors import TooFewReplicas
from rsnotify.journal.journal import Journal
from rsnotify.journal.set_options import SetOptions
from rsnotify.journal.sets import Sets
from rsnotify.journal.submission import Submission
from rsnotify.process.embedded_redis.binaries import installed_binaries
from rsnotify.publishing.bodies import read_submission
from rsnotify.redis_client import Replicas, connect
from rsnotify.resourcesync.notification import ChannelName, Interval
from tests.support.redis_replicas import knows_files, replicated
from tests.support.running import RunningHub, until

CHANGES = ChannelName("dataset1", "change")
CHANGE = [{"loc": "http://example.com/1", "change": "updated"}]


def keyed(key: str) -> dict[str, object]:
    return {"json": CHANGE, "headers": {"Idempotency-Key": key}}


async def test_a_publish_that_a_replica_does_not_confirm_is_answered_503_and_stored_once(tmp_path):
    async with replicated(tmp_path) as redis:
        (replica,) = redis.replicas
        address = "/api/sets/dataset1/changes"
        options = ("--redis", redis.primary.url)
        async with RunningHub(tmp_path / "data", *options, replicas="1") as hub:
            await hub.publish("http://example.com/before")
            replica.signal(signal.SIGSTOP)
            async with asyncio.timeout(8):  # not the 10 s that an unknown outcome is asked about
                *answers, (status_of_a_set, _) = await asyncio.gather(
                    hub.ask("POST", address, **keyed("a")),
                    hub.ask("POST", address, **keyed("a")),
                    hub.ask("POST", address, json=CHANGE),
                    hub.ask("PUT", "/api/sets/dataset2", json={}),
                )
            for status, problem in answers:
                assert status == 503
                assert "it may be stored, but 0 of 1 replicas" in problem["detail"]
            assert status_of_a_set == 503
            replica.signal(signal.SIGCONT)

            async def is_taken() -> bool:
                return bool((await hub.ask("POST", address, **keyed("a")))[0] == 201)

            await until(is_taken)
            _, listed = await hub.ask("GET", "/dataset1/changelist.xml")
            assert listed.count(b"<loc>http://example.com/1<") == 2  # with the key, and without


async def test_a_publish_after_which_nobody_may_ask_for_replicas_may_be_stored(tmp_path):
    binary, *_ = await installed_binaries()
    async with (
        replicated(tmp_path, binary=binary.path) as redis,
        redis.primary.client() as admin,
    ):
        everything = {"categories": ["+@all"], "keys": ["*"], "channels": ["*"]}
        await admin.acl_setuser("hub", enabled=True, passwords=["+x"], **everything)
        url = redis.primary.url.replace("//", "//hub:x@")
        address, publish = "/api/sets/dataset1/changes", keyed("a")
        async with RunningHub(tmp_path / "data", "--redis", url, replicas="1") as hub:
            await admin.acl_setuser("hub", enabled=True, commands=["-wait"])
            status, problem = await hub.ask("POST", address, **publish)
            assert status == 503
            assert "it may be stored, but Redis does not let the hub's user" in problem["detail"]
            log = " ".join(hub.log.read_text().split())
            assert "publishing is answered 503: Redis does not let the hub's user" in log
            await admin.acl_setuser("hub", enabled=True, commands=["+wait"])
            assert (await hub.ask("POST", address, **publish))[0] == 201
            _, listed = await hub.ask("GET", "/dataset1/changelist.xml")
            assert listed.count(b"<loc>http://example.com/1<") == 1


@pytest.mark.parametrize("on_disk", [False, True])
async def test_no_server_says_that_replicas_have_a_repeated_change_which_they_have_not(
    tmp_path, monkeypatch, on_disk
):
    monkeypatch.setattr("rsnotify.redis_client.client.WAIT_MILLISECONDS", 200)
    body = b'[{"loc": "http://example.com/1", "change": "updated"}]'
    change = read_submission("change", body, "application/json", "k")
    for number, binary in enumerate(await installed_binaries()):
        if on_disk and not knows_files(binary):
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        async with replicated(folder, binary=binary.path) as redis:
            client = connect(redis.primary.url, replicas=Replicas(1, on_disk=on_disk))
            async with connect(redis.primary.url) as impatient:
                await Sets(impatient).add("dataset1", SetOptions())
            journal = Journal(client, window_changes=10)
            redis.replicas[0].signal(signal.SIGSTOP)
            for _ in range(2):
                with pytest.raises(TooFewReplicas):
                    await journal.append(CHANGES, change)
            redis.replicas[0].signal(signal.SIGCONT)
            first = await until(partial(appended, journal, change))
            assert await until(partial(appended, journal, change)) == first
            await client.aclose()


async def appended(journal: Journal, change: Submission) -> Interval | None:
    with suppress(TooFewReplicas):
        return await journal.append(CHANGES, change)
    return None


async def test_a_hub_starts_and_serves_while_the_replica_is_away(tmp_path):
    async with replicated(tmp_path) as redis:
        options = ("--redis", redis.primary.url)
        async with RunningHub(tmp_path / "data", *options, replicas="1") as hub:
            await hub.publish("http://example.com/1")
        (replica,) = redis.replicas
        await replica.kill()
        async with RunningHub(tmp_path / "data", *options, replicas="1") as hub:
            status, listed = await hub.ask("GET", "/dataset1/changelist.xml")
            assert (status, listed.count(b"<loc>http://example.com/1<")) == (200, 1)
            assert (await hub.ask("POST", "/api/sets/dataset1/changes", **keyed("a")))[0] == 503
            log = " ".join(hub.log.read_text().split())
            assert "Redis has 0 of the 1 replicas that must confirm each publish" in log
            await replica.start()

            async def is_taken() -> bool:
                answer = await hub.ask("POST", "/api/sets/dataset1/changes", **keyed("a"))
                return bool(answer[0] == 201)

            await until(is_taken)
