"""A hub is backed up while it runs, and put back on another machine."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import aclosing
from errno import ENOSPC
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rsnotify.process.embedded_redis import backup
from rsnotify.process.embedded_redis.backup import restore
from rsnotify.process.embedded_redis.binaries import Binary
from rsnotify.redis_client import connect
from rsnotify_client import follow_async
from tests.support.lossy_failover import listed
from tests.support.needs import find
from tests.support.redis_cluster import MASTERS, cluster
from tests.support.running import RunningHub, clean_environment, rsnotify, until

LOCS = re.compile(rb"<loc>(http://example.com/[^<]+)</loc>")
BEFORE, AFTER = "http://example.com/before", "http://example.com/after"


async def next_change(hub: RunningHub, cursor: str) -> str:
    """What a reader with this cursor is told first."""
    async with aclosing(follow_async(hub.channel(), position=cursor)) as changes:
        async for change in changes:
            async with change:
                return change.loc
    raise AssertionError("the channel ended")


async def test_a_restored_hub_has_what_was_backed_up_and_its_readers_go_on(tmp_path):
    file, place = str(tmp_path / "backup.rdb"), str(tmp_path / "restored")
    async with RunningHub(tmp_path / "data") as hub:
        cursor = (await hub.publish("http://example.com/read"))["until"]
        await hub.publish(BEFORE)
        ended = await rsnotify("backup", file, "--data", str(hub.data))
        assert ended.status == 0, ended.err
        seen_since = (await hub.publish("http://example.com/lost"))["until"]
        assert not (hub.data / "dump.rdb").exists()
    ended = await rsnotify("restore", file, "--data", place)
    assert ended.status == 0, ended.err
    async with RunningHub(Path(place), sets=()) as restored:
        await restored.publish(AFTER)
        assert await next_change(restored, cursor) == BEFORE
        assert await next_change(restored, seen_since) == AFTER
        _, listed = await restored.ask("GET", "/dataset1/changelist.xml")
        assert b"http://example.com/lost" not in listed


async def test_who_follows_a_hub_that_is_restored_is_told_and_goes_on(tmp_path, caplog):
    """The positions that it has seen are no more; the hub itself cannot know."""
    file, place = str(tmp_path / "backup.rdb"), tmp_path / "restored"
    found: asyncio.Queue[str] = asyncio.Queue()

    async def read(url: str, after: str) -> None:
        async with aclosing(follow_async(url, position=after)) as changes:
            async for change in changes:
                async with change:
                    found.put_nowait(change.loc)

    async with RunningHub(tmp_path / "data") as hub:
        begin = (await hub.publish(BEFORE))["from"]
        reading = asyncio.create_task(read(hub.channel(), begin))
        assert await found.get() == BEFORE
        assert (await rsnotify("backup", file, "--data", str(hub.data))).status == 0
        await hub.publish("http://example.com/lost")
        assert await found.get() == "http://example.com/lost"
        port = hub.port
    assert (await rsnotify("restore", file, "--data", str(place))).status == 0
    async with RunningHub(place, sets=(), port=port) as restored:

        async def is_told() -> bool:
            return "was set back; what was received since then may be no more" in caplog.text

        await until(is_told)
        await restored.publish(AFTER)
        assert await found.get() == AFTER
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_what_is_no_backup_is_refused_and_so_is_a_directory_with_journals(tmp_path):
    file, place = tmp_path / "file", tmp_path / "data"
    file.write_bytes(b"REDI")
    ended = await rsnotify("restore", str(file), "--data", str(place))
    assert (ended.status, "is no backup" in ended.err) == (2, True)
    whole = b"REDIS0009\xff" + bytes(8)
    for size in (9, len(whole) - 1):
        file.write_bytes(whole[:size])
        ended = await rsnotify("restore", str(file), "--data", str(place))
        assert (ended.status, "is not whole" in ended.err) == (2, True)
        assert not place.exists()
    file.write_bytes(whole)
    (place / "appendonlydir").mkdir(parents=True)
    ended = await rsnotify("restore", str(file), "--data", str(place))
    assert (ended.status, "has journals already" in ended.err) == (2, True)


async def test_one_wrong_bit_anywhere_is_found_before_anything_is_written(tmp_path):
    file, place = tmp_path / "backup.rdb", tmp_path / "restored"
    async with RunningHub(tmp_path / "data") as hub:
        await hub.publish(*(f"http://example.com/res{number}" for number in range(100)))
        ended = await rsnotify("backup", str(file), "--data", str(hub.data))
        assert ended.status == 0, ended.err
    whole = file.read_bytes()
    for at in (0, 7, 12, 20, len(whole) // 3, len(whole) // 2, -12, -9, -1):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        file.write_bytes(damaged)
        ended = await rsnotify("restore", str(file), "--data", str(place))
        assert (ended.status, len(ended.err.splitlines())) == (2, 1), (at, ended.err)
        assert not place.exists(), at
    file.write_bytes(whole)
    assert (await rsnotify("restore", str(file), "--data", str(place))).status == 0


async def test_where_no_server_is_installed_the_file_is_laid_out_and_said_to_be_unchecked(
    tmp_path, monkeypatch
):
    async def none() -> list[Binary]:
        return []

    monkeypatch.setattr(backup, "installed_binaries", none)
    file = tmp_path / "file"
    file.write_bytes(b"REDIS0009\xff" + bytes(8))
    assert not await asyncio.to_thread(restore, file, tmp_path / "data")
    assert (tmp_path / "data/appendonlydir").exists()


def test_a_restore_that_fails_leaves_nothing_on_a_full_disk(tmp_path, monkeypatch):
    async def none() -> list[Binary]:
        return []

    def full(_: int) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr(backup, "installed_binaries", none)
    monkeypatch.setattr(os, "fsync", full)
    file = tmp_path / "file"
    file.write_bytes(b"REDIS0009\xff" + bytes(8))
    with pytest.raises(OSError, match="No space left"):
        restore(file, tmp_path / "data")
    assert [each.name for each in (tmp_path / "data").iterdir()] == ["hub.lock"]


async def test_a_file_of_a_later_version_is_refused_as_such(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"REDIS0999\xff" + bytes(8))
    ended = await rsnotify("restore", str(file), "--data", str(tmp_path / "data"))
    assert (ended.status, "or a later version" in ended.err) == (2, True)


async def test_without_a_hub_there_is_nothing_to_back_up(tmp_path):
    ended = await rsnotify("backup", str(tmp_path / "file"), "--data", str(tmp_path))
    assert ended.status == 2
    assert f"no hub with a Redis of its own runs in {tmp_path}" in ended.err
    assert not (tmp_path / "file").exists()


async def test_a_backup_that_cannot_be_written_leaves_nothing(tmp_path):
    folder = tmp_path / "none"
    async with RunningHub(tmp_path / "data") as hub:
        ended = await rsnotify("backup", str(folder / "file"), "--data", str(hub.data))
        assert ended.status == 2
        assert f"{folder} is not there: make it first" in ended.err
        assert not (hub.data / "dump.rdb").exists()


async def test_what_is_no_file_is_not_replaced_by_one(tmp_path):
    """As root, /dev/stdout would be no more, and nothing would come out of it."""
    pipe, folder, file = tmp_path / "pipe", tmp_path / "folder", tmp_path / "file"
    os.mkfifo(pipe)
    folder.mkdir()
    async with RunningHub(tmp_path / "data") as hub:
        for place, words in {
            pipe: "is no file: name a file to write to",
            folder: "is no file: name a file to write to",
            hub.data / "dump.rdb": "is where Redis itself writes: name another file",
        }.items():
            ended = await rsnotify("backup", str(place), "--data", str(hub.data))
            assert (ended.status, ended.err) == (2, f"error: {place} {words}\n")
        assert (pipe.is_fifo(), list(folder.iterdir())) == (True, [])
        (tmp_path / "link").symlink_to(file)
        ended = await rsnotify("backup", str(tmp_path / "link"), "--data", str(hub.data))
        assert (ended.status, (tmp_path / "link").is_symlink()) == (0, True), ended.err
        assert file.read_bytes().startswith(backup.MAGIC)


async def test_of_two_backups_at_the_same_time_one_is_refused(tmp_path):
    async with RunningHub(tmp_path / "data") as hub:
        await hub.publish(BEFORE)
        words = ("backup", str(tmp_path / "file"), "--data", str(hub.data))
        with backup.one_at_a_time(hub.data):
            ended = await rsnotify(*words)
        assert (ended.status, "another backup of" in ended.err) == (1, True), ended.err
        assert not (tmp_path / "file").exists()
        socket = f"unix://{hub.data / 'redis.sock'}"
        async with connect(socket) as client:
            await client.config_set("rdb-key-save-delay", 200_000)
            await client.bgsave()
            ended = await rsnotify(*words)
            await client.config_set("rdb-key-save-delay", 0)
        assert (ended.status, "for a backup that was ended or" in ended.err) == (1, True), ended.err
        assert not (tmp_path / "file").exists()


ENDED_AS_IT_COPIES = """
import os, runpy, signal, sys
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGTERM)
sys.argv[0] = "rsnotify"
runpy.run_module("rsnotify", run_name="__main__")
"""


async def test_a_backup_that_is_ended_leaves_nothing(tmp_path):
    """By SIGTERM, as `timeout` and systemd do; it holds what is private, and is large."""
    folder = tmp_path / "backups"
    folder.mkdir()
    async with RunningHub(tmp_path / "data") as hub:
        await hub.publish(BEFORE)
        program = (sys.executable, "-c", ENDED_AS_IT_COPIES)
        words = ("backup", str(folder / "file"), "--data", str(hub.data))
        process = await asyncio.create_subprocess_exec(*program, *words, env=clean_environment())
        assert await process.wait() == 130
        assert [*folder.iterdir(), *hub.data.glob("dump.rdb")] == []


def test_that_a_backup_was_made_is_kept_though_another_user_has_made_the_one_before(tmp_path):
    """Root has, once, and nobody else may write to its file: it is not written to."""
    backup.stamp(tmp_path)
    before = (tmp_path / "last-backup").stat()
    backup.stamp(tmp_path)
    after = (tmp_path / "last-backup").stat()
    assert (before.st_ino != after.st_ino, after.st_mode & 0o777) == (True, 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["last-backup"]


async def save(file: str, address: str) -> None:
    """Write what the Redis there has to a file: by its own command, or else as that does it."""
    command = find("redis-cli", "valkey-cli")
    if command is None:
        await save_as_a_replica(file, address)
        return
    url = urlsplit(address)
    where = ("-p", str(url.port)) if url.port else ("-s", url.path)
    subprocess.run([command, *where, "--rdb", file], check=True, capture_output=True)


async def save_as_a_replica(file: str, address: str) -> None:
    """Redis sends its data, with their length before, to whoever says SYNC; newlines until then."""
    url = urlsplit(address)
    reader, writer = await (
        asyncio.open_connection(url.hostname, url.port)
        if url.port
        else asyncio.open_unix_connection(url.path)
    )
    writer.write(b"SYNC\r\n")
    while not (line := (await reader.readline()).strip()):
        pass
    Path(file).write_bytes(await reader.readexactly(int(line.removeprefix(b"$"))))
    writer.close()


async def lay_out(file: str, folder: Path) -> None:
    """Put it in the place of the journals of a Redis that has ended."""
    shutil.rmtree(folder / "appendonlydir")
    place = Path(f"{file}.restored")
    assert (await rsnotify("restore", file, "--data", str(place))).status == 0
    shutil.move(place / "appendonlydir", folder)


async def test_the_redis_of_an_operator_is_backed_up_and_put_back_by_its_own_commands(
    tmp_path, own_redis
):
    """As docs/operations/backup.md says it."""
    async with RunningHub(tmp_path / "data", "--redis", own_redis.url) as hub:
        cursor = (await hub.publish("http://example.com/read"))["until"]
        await hub.publish(BEFORE)
        file = str(tmp_path / "backup.rdb")
        await save(file, own_redis.url)
    await own_redis.kill()
    await lay_out(file, own_redis.folder)
    await own_redis.start()
    async with RunningHub(tmp_path / "data", "--redis", own_redis.url, sets=()) as hub:
        assert await next_change(hub, cursor) == BEFORE


async def test_of_data_in_another_database_it_is_said_that_no_hub_with_its_own_redis_sees_them(
    tmp_path, own_redis
):
    async with RunningHub(tmp_path / "data", "--redis", f"{own_redis.url}?db=3") as hub:
        await hub.publish(BEFORE)
        await save(str(tmp_path / "backup.rdb"), own_redis.url)
    words = ("restore", str(tmp_path / "backup.rdb"), "--data")
    ended = await rsnotify(*words, str(tmp_path / "restored"))
    assert (ended.status, "start the hub with --redis redis://HOST/3" in ended.err) == (0, True)
    ended = await rsnotify(*words, str(tmp_path / "again"), "--json")
    assert json.loads(ended.out)["databases"] == [3]


async def test_what_was_revoked_after_a_backup_counts_again_after_a_restore_and_that_is_said(
    tmp_path,
):
    file, place = str(tmp_path / "backup.rdb"), tmp_path / "restored"

    async def publish(hub: RunningHub) -> int:
        headers = {"Authorization": f"Bearer {token['token']}"}
        change = [{"loc": AFTER, "change": "updated"}]
        path = "/api/sets/dataset1/changes"
        return (await hub.ask("POST", path, json=change, headers=headers))[0]

    async with RunningHub(tmp_path / "data") as hub:
        _, token = await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"]})
        assert (await rsnotify("backup", file, "--data", str(hub.data))).status == 0
        assert (await hub.ask("DELETE", f"/api/tokens/{token['id']}"))[0] == 204
        await hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
        assert await publish(hub) == 401
    ended = await rsnotify("restore", file, "--data", str(place))
    assert "revoke again what was revoked since" in ended.err
    async with RunningHub(place, sets=()) as restored:
        assert await publish(restored) == 201
        assert (await restored.ask("GET", "/api/sets"))[1][0]["private"] is False


@pytest.mark.evidence
async def test_a_cluster_is_backed_up_and_put_back_master_by_master(tmp_path):
    """As docs/operations/backup.md says it; the replicas copy their masters again."""
    sets = ("dataset1", "two", "three", "four")
    async with cluster(tmp_path) as redis:
        masters = redis.servers[:MASTERS]
        files = [str(tmp_path / f"{each.port}.rdb") for each in masters]
        async with RunningHub(tmp_path / "data", "--redis", redis.url, sets=sets) as hub:
            for name in sets:
                await hub.publish(BEFORE, set_name=name)
            for each, file in zip(masters, files, strict=True):
                await save(file, each.url)
            await hub.publish("http://example.com/after")
        for server in redis.servers:
            await server.kill()
        for each, file in zip(masters, files, strict=True):
            await lay_out(file, each.folder)
        for replica in redis.servers[MASTERS:]:
            shutil.rmtree(replica.folder / "appendonlydir")
        for server in redis.servers:
            await server.start()
        async with RunningHub(tmp_path / "data", "--redis", redis.url, sets=()) as hub:
            for name in sets:
                assert await listed(hub, name) == {BEFORE.rpartition("/")[2]}


# --- data that are older than what readers know --------------------------------------------------


async def seen_by(hub: RunningHub) -> tuple[list[dict[str, str]], str]:
    """What a Source has done while nobody could publish it, and how far readers have read since."""
    changes = []
    for number in range(5):
        at = (await hub.publish(f"http://example.com/between-{number}"))["until"]
        loc = f"http://example.com/late-{number}"
        changes.append({"loc": loc, "change": "updated", "datetime": at})
    return changes, (await hub.publish("http://example.com/read"))["until"]


async def are_told(hub: RunningHub, changes: list[dict[str, str]], cursor: str) -> None:
    """Readers that are ahead of these data are told of all of them."""
    status, answer = await hub.ask("POST", "/api/sets/dataset1/changes", json=changes)
    assert (status, answer["accepted"]) == (201, len(changes))
    _, listed = await hub.ask("GET", f"/dataset1/changelist.xml?from={cursor}")
    assert [loc.rpartition(b"/")[2] for loc in LOCS.findall(listed)] == [
        each["loc"].rpartition("/")[2].encode() for each in changes
    ]


async def test_after_a_restore_no_change_goes_below_the_cursor_of_a_reader(tmp_path):
    file, place = str(tmp_path / "backup.rdb"), str(tmp_path / "restored")
    async with RunningHub(tmp_path / "data") as hub:
        await hub.publish(BEFORE)
        ended = await rsnotify("backup", file, "--data", str(hub.data))
        assert ended.status == 0, ended.err
        changes, cursor = await seen_by(hub)
    ended = await rsnotify("restore", file, "--data", place)
    assert ended.status == 0, ended.err
    async with RunningHub(Path(place), sets=()) as restored:
        await are_told(restored, changes, cursor)


async def test_nor_does_one_where_data_were_copied_back_by_hand(tmp_path):
    data, copy = tmp_path / "data", tmp_path / "copy"
    async with RunningHub(data) as hub:
        await hub.publish(BEFORE)
    shutil.copytree(data / "appendonlydir", copy)
    async with RunningHub(data) as hub:
        changes, cursor = await seen_by(hub)
    shutil.rmtree(data / "appendonlydir")
    shutil.copytree(copy, data / "appendonlydir")
    async with RunningHub(data) as hub:
        await are_told(hub, changes, cursor)


async def test_nor_does_one_in_an_external_redis_with_older_data(own_redis, tmp_path):
    async with RunningHub(tmp_path / "one", "--redis", own_redis.url) as hub:
        await hub.publish(BEFORE)
        copy = own_redis.copy_of_data()
        changes, cursor = await seen_by(hub)
    await own_redis.go_back(copy)
    async with RunningHub(tmp_path / "other", "--redis", own_redis.url) as hub:
        await are_told(hub, changes, cursor)
