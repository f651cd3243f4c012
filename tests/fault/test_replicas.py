"""What is acknowledged is on so many replicas, whatever becomes of them."""

import asyncio
import shutil
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic

import pytest

from rsnotify.errors import TooFewReplicas
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission
from rsnotify.process.embedded_redis.binaries import installed_binaries
from rsnotify.publishing.bodies import read_submission
from rsnotify.redis_client import Replicas, connect
from rsnotify.resourcesync.notification import ChannelName, Interval
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets
from tests.support.lossy_failover import Book, Follower, followed, settled, until_done
from tests.support.raw import raw_channel
from tests.support.redis_replicas import knows_files, replicated
from tests.support.redis_server import RedisServer
from tests.support.running import RunningHub, until
from tests.support.stories import lost

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
    tmp_path, on_disk
):
    body = b'[{"loc": "http://example.com/1", "change": "updated"}]'
    change = read_submission("change", body, "application/json", "k")
    for number, binary in enumerate(await installed_binaries()):
        if on_disk and not knows_files(binary):
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        async with replicated(folder, binary=binary.path) as redis:
            client = connect(
                redis.primary.url, replicas=Replicas(1, on_disk=on_disk, wait_milliseconds=200)
            )
            async with connect(redis.primary.url) as impatient:
                await Sets(impatient).add("dataset1", SetOptions())
            journal = JournalStore(client, window_changes=10)
            redis.replicas[0].signal(signal.SIGSTOP)
            for _ in range(2):
                with pytest.raises(TooFewReplicas):
                    await journal.append(CHANGES, change)
            redis.replicas[0].signal(signal.SIGCONT)
            first = await until(partial(appended, journal, change))
            assert await until(partial(appended, journal, change)) == first
            await until(partial(is_at_rest, journal))
            await client.aclose()


async def is_at_rest(journal: JournalStore) -> bool:
    """The bell is rung after the answer."""
    return not journal.appends.writing


async def appended(journal: JournalStore, change: Submission) -> Interval | None:
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


@pytest.mark.parametrize(
    ("count", "away", "status"),
    [(1, 0, 201), (1, 1, 503), (2, 0, 201), (2, 1, 201), (2, 2, 503)],
    ids=["one", "one, away", "two", "two, one away", "two, both away"],
)
async def test_publishing_goes_on_while_one_replica_is_left(tmp_path, count, away, status):
    async with replicated(tmp_path, count) as redis:
        options = ("--redis", redis.primary.url)
        async with RunningHub(tmp_path / "data", *options, replicas="1") as hub:
            await hub.publish("http://example.com/before")
            for replica in redis.replicas[:away]:
                await replica.kill()
            answer = await hub.ask("POST", "/api/sets/dataset1/changes", **keyed("a"))
            assert answer[0] == status
            status_of_list, body = await hub.ask("GET", "/dataset1/changelist.xml")
            assert status_of_list == 200, body
            for replica in redis.replicas[:away]:
                await replica.start()
            await until_done(hub, "POST", "/api/sets/dataset1/changes", **keyed("a"))


async def go_back(primary: RedisServer, copy: Path | None) -> None:
    """Kill it, and start it again with older data, or with none."""
    await primary.kill()
    shutil.rmtree(primary.folder / "appendonlydir", ignore_errors=True)
    if copy is not None:
        copy.rename(primary.folder / "appendonlydir")
    await primary.start()


async def test_a_primary_that_restarts_with_an_older_file_loses_what_replicas_had_and_it_is_said(
    tmp_path,
):
    """Its replica copies the loss. Both hubs knew, so all who had begun before are told."""
    async with replicated(tmp_path) as redis:
        options = ("--redis", redis.primary.url)
        async with (
            RunningHub(tmp_path / "one", *options, replicas="1") as hub,
            RunningHub(tmp_path / "two", *options, replicas="1") as other,
        ):
            book, followers = Book(), [Follower(hub, "one"), Follower(other, "two")]
            async with followed(followers):
                await book.publish(hub, ["before"])
                copy = tmp_path / "copy"
                shutil.copytree(redis.primary.folder / "appendonlydir", copy)
                for number in range(14):
                    await book.publish(hub, [f"lost-{number}"])
                began = monotonic()
                await go_back(redis.primary, copy)
                await book.publish(other, ["after"])
                journal, gaps = await settled([hub, other], book, followers, may_lose=True)
            told = [each.when - began for follower in followers for each in follower.story.told]
            print(f"lost {len(lost(journal, book.answers))}, gaps {gaps}, told after {told} s")
            assert len(lost(journal, book.answers)) == 14
            assert gaps == 1
            assert len(told) == len(followers)


async def test_a_primary_without_a_file_is_named_at_the_start_and_its_restart_is_said(tmp_path):
    """All is lost, at its replica, too: readers are told that the set is gone. It is made again."""
    async with replicated(tmp_path, primary_keeps=False) as redis:
        options = ("--redis", redis.primary.url)
        async with RunningHub(tmp_path / "data", *options, replicas="1") as hub:
            assert "keeps no append-only file" in " ".join(hub.log.read_text().split())
            lost_ = await hub.publish("http://example.com/lost")
            async with raw_channel(hub.channel()) as reader:
                await go_back(redis.primary, None)
                assert await reader.closed_with_code() == 4404

            async def is_made_again() -> bool:  # a moment later
                return (await hub.ask("GET", "/dataset1/capabilitylist.xml"))[0] == 200

            await until(is_made_again)
            await until_done(hub, "POST", "/api/sets/dataset1/changes", **keyed("after"))
            assert "Redis has lost data" in " ".join(hub.log.read_text().split())
            path = f"/dataset1/changelist.xml?from={lost_['until']}"
            assert (await hub.ask("GET", path))[0] == 410
