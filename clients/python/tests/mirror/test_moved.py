"""A Source that moves: within its site its copy follows, to another host when it is told so."""

import asyncio
import random
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clients.python.tests.mirror.serving import serving
from clients.python.tests.mirror.test_republishing import contents
from rsnotify.errors import InvalidSettings
from rsnotify_client import Publisher
from rsnotify_mirror.audit import audit
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.versions import Versions
from tests.support.amount import amount
from tests.support.forks import Ended, Spawned
from tests.support.running import TOKEN, clean_environment, rsnotify
from tests.support.sources import CAPABILITIES, Source, digest


@pytest.fixture
async def new() -> AsyncIterator[Source]:
    """The same resources at another host."""
    async with Source() as running:
        yield running


def moves(old: Source, new: Source) -> None:
    """The Source is at the other host now, with all that it has."""
    new.resources |= old.resources
    new.list_resources()
    old.documents.clear()
    old.resources.clear()


async def mirrored(url: str, copy: Path, **options: object) -> bool:
    async with AsyncMirror(url, copy, Options(**options)) as mirror:
        return await mirror.once()


def redirect(source: Source, path: str, to: str, status: int = 301) -> None:
    source.documents.pop(path, None)
    source.answer(path, status=status, headers={"Location": to})


def fetched(source: Source) -> set[str]:
    return {path for path in source.asked if path in source.resources}


@pytest.mark.parametrize("status", [301, 308])
async def test_a_copy_follows_a_permanent_redirect_within_its_site(source, copy, status):
    assert await mirrored(source.url + CAPABILITIES, copy)
    source.documents["/new/list.xml"] = source.documents[CAPABILITIES]
    redirect(source, CAPABILITIES, "/new/list.xml", status)
    source.change("a.txt", b"second")
    source.asked.clear()
    assert await mirrored(source.url + CAPABILITIES, copy)
    assert fetched(source) == {"/a.txt"}
    assert await mirrored(f"{source.url}/new/list.xml", copy)


async def test_a_redirect_to_another_document_of_the_site_is_no_move_to_this_one(source, copy):
    """A site has several sets: the copy goes where its own Capability List leads."""
    assert await mirrored(source.url + CAPABILITIES, copy)
    for name in ("/new/list.xml", "/other/list.xml"):
        source.documents[name] = source.documents[CAPABILITIES]
    redirect(source, CAPABILITIES, "/new/list.xml")
    with pytest.raises(InvalidSettings, match="is the mirror of"):
        await mirrored(f"{source.url}/other/list.xml", copy)
    assert await mirrored(f"{source.url}/new/list.xml", copy)


@pytest.mark.parametrize("status", [302, 303, 307])
async def test_a_redirect_for_a_time_is_no_move(source, copy, status):
    assert await mirrored(source.url + CAPABILITIES, copy)
    source.documents["/new/list.xml"] = source.documents[CAPABILITIES]
    redirect(source, CAPABILITIES, "/new/list.xml", status)
    with pytest.raises(InvalidSettings, match="is the mirror of"):
        await mirrored(source.url + CAPABILITIES, copy)


async def test_a_redirect_to_another_host_names_the_command(source, copy, new):
    assert await mirrored(source.url + CAPABILITIES, copy)
    before = contents(copy)
    moves(source, new)
    new.change("a.txt", b"of somebody else")
    redirect(source, CAPABILITIES, new.url + CAPABILITIES)
    old_list, new_list = source.url + CAPABILITIES, new.url + CAPABILITIES
    command = f"rsnotify mirror --moved {old_list} {new_list} {copy}"
    with pytest.raises(InvalidSettings, match="at another host") as refused:
        await mirrored(source.url + CAPABILITIES, copy)
    assert command in str(refused.value)
    assert contents(copy) == before
    with pytest.raises(InvalidSettings) as refused:
        await mirrored(new_list, copy)
    assert command in str(refused.value)


@pytest.mark.parametrize("is_in_trouble", [False, True])
async def test_a_mirror_that_follows_names_the_command(source, copy, new, is_in_trouble):
    chosen = Options(poll_seconds=0.02, relist_seconds=3_600 if is_in_trouble else 0.1)
    async with AsyncMirror(source.url + CAPABILITIES, copy, chosen) as mirror:
        running = asyncio.create_task(mirror.run())
        while not mirror.has_caught_up:
            await asyncio.sleep(0.01)
        new.documents[CAPABILITIES] = new.capability_list("resourcelist")
        redirect(source, CAPABILITIES, new.url + CAPABILITIES)
        if is_in_trouble:
            source.answer("/changelist.xml", status=503)
        with pytest.raises(InvalidSettings, match="rsnotify mirror --moved"):
            async with asyncio.timeout(60):
                await running
    assert len(contents(copy)) == 3


@pytest.mark.parametrize("is_prefix", [False, True])
async def test_what_a_digest_proves_is_not_fetched_from_the_new_host(source, copy, new, is_prefix):
    source.add("folder/d.txt", b"first d")
    source.list_resources()
    assert await mirrored(source.url + CAPABILITIES, copy)
    old = source.url + ("/" if is_prefix else CAPABILITIES)
    moves(source, new)
    new.change("a.txt", b"second")
    new.change("e.txt", b"new")
    source.asked.clear()
    assert await mirrored(new.url + CAPABILITIES, copy, moved_from=old)
    assert fetched(new) == {"/a.txt", "/e.txt"}
    assert not source.asked
    at = copy / new.url.removeprefix("http://")
    assert (at / "folder/d.txt").read_bytes() == b"first d"
    assert [each.name for each in copy.iterdir() if not each.name.startswith(".")] == [at.name]
    assert contents(copy) == sorted(new.resources.values())
    assert (await audit(new.url + CAPABILITIES, copy)).is_in_sync
    assert await mirrored(new.url + CAPABILITIES, copy, moved_from=old)  # said again


async def test_resources_that_stay_where_they_were_keep_their_addresses(source, copy, new):
    """The lists alone have moved, to a hub for instance."""
    assert await mirrored(source.url + CAPABILITIES, copy)
    new.documents |= {
        CAPABILITIES: new.capability_list("resourcelist", "changelist"),
        "/resourcelist.xml": source.documents["/resourcelist.xml"],
    }
    source.change("a.txt", b"second")
    new.documents["/changelist.xml"] = source.documents["/changelist.xml"]
    source.documents.clear()
    source.asked.clear()
    assert await mirrored(new.url + CAPABILITIES, copy, moved_from=source.url + CAPABILITIES)
    assert source.asked == {"/a.txt": 1}
    assert contents(copy) == sorted(source.resources.values())


@pytest.mark.parametrize("is_late", [False, True])
async def test_versions_that_were_kept_are_of_the_new_address(source, copy, new, tmp_path, is_late):
    kept = tmp_path / "versions"
    old = source.url + CAPABILITIES
    assert await mirrored(old, copy, keep_versions=kept)
    source.change("a.txt", b"second")
    assert await mirrored(old, copy, keep_versions=kept)
    moves(source, new)
    url = new.url + CAPABILITIES
    if is_late:
        assert await mirrored(url, copy, moved_from=old)
    assert await mirrored(url, copy, moved_from=old, keep_versions=kept)
    with Versions(kept) as versions:
        found = [each.length for each in versions.of(new.loc("a.txt"))]
    assert found == [len(b"first a"), len(b"second")]


KILLS = amount(4, evidence=40)
RESOURCES = amount(500, evidence=5_000)


@pytest.mark.evidence
async def test_a_copy_that_moves_is_whole_whenever_it_is_killed(source, copy, new, tmp_path):
    for number in range(RESOURCES):
        source.add(f"{number % 50}/r{number}", b"%d" % number)
    source.list_resources()
    old, url = source.url + CAPABILITIES, new.url + CAPABILITIES
    assert await mirrored(old, copy)
    moves(source, new)
    words = ["mirror", "--moved", old, url, str(copy), "--once"]
    chance, killed = random.Random(3), 0
    with (tmp_path / "log").open("ab") as log:
        while killed < KILLS:
            running = Spawned(words, clean_environment(), log.fileno())
            with running.stdout:
                await asyncio.sleep(chance.random())
                running.send_signal(signal.SIGKILL)
                await asyncio.to_thread(running.wait)
            killed += 1
    assert await mirrored(url, copy, moved_from=old)
    assert fetched(new) == set()
    assert contents(copy) == sorted(new.resources.values())
    assert [each.name for each in copy.iterdir() if not each.name.startswith(".")] == [
        new.url.removeprefix("http://")
    ]


async def test_what_nothing_proves_is_fetched_again(source, copy, new):
    source.change("a.txt", b"second", hash=None)
    assert await mirrored(source.url + CAPABILITIES, copy)
    moves(source, new)
    new.changes, new.now = [], source.now - 1_000_000
    new.change("a.txt", b"other!", hash=None)  # as long, and of the same time
    assert await mirrored(new.url + CAPABILITIES, copy, moved_from=source.url + CAPABILITIES)
    assert "/a.txt" in fetched(new)
    assert contents(copy) == sorted(new.resources.values())


async def test_a_set_that_ends_says_so_and_nothing_of_its_copy_is_deleted(tmp_path, real_hub):
    """To a mirror by its end, to whoever follows the framework channel as a change."""
    real_hub.add_set("ends")
    (tmp_path / "files").mkdir()
    (tmp_path / "files/a.txt").write_bytes(b"content")
    log, told_log = tmp_path / "mirror.log", tmp_path / "told.log"
    with told_log.open("wb") as said:
        words = ["subscribe", "ends", "--framework", "--url", real_hub.url]
        told = Spawned(words, clean_environment(), said.fileno())
    with serving(tmp_path / "files") as base, Publisher(real_hub.url, TOKEN) as publisher:
        publisher.created("ends", f"{base}a.txt", hash=digest(b"content"), length=7)
        publisher.flush(20)
        with log.open("wb") as said:
            words = ["mirror", f"{real_hub.url}/ends", str(tmp_path / "copy")]
            mirror = Spawned(words, clean_environment(), said.fileno())
        while not all("following" in each.read_text() for each in (log, told_log)):
            await asyncio.sleep(0.05)
        real_hub.ask("DELETE", "/api/sets/ends")
        assert (mirror.wait(), told.wait()) == (2, 2)
    assert "no set 'ends'; it may have been removed. The copy stays as it is" in log.read_text()
    assert contents(tmp_path / "copy") == [b"content"]
    with told.stdout, mirror.stdout:
        assert [line.split()[1:3] for line in told.stdout][-1] == ["deleted", "capabilitylist"]


async def test_a_copy_of_another_source_does_not_move(source, copy, new):
    assert await mirrored(source.url + CAPABILITIES, copy)
    moves(source, new)
    with pytest.raises(InvalidSettings, match="not of http://other"):
        await mirrored(new.url + CAPABILITIES, copy, moved_from="http://other.example/list.xml")


async def test_files_that_a_killed_run_has_left_follow(source, copy, new):
    assert await mirrored(source.url + CAPABILITIES, copy)
    before = contents(copy)
    at, old = (copy / each.url.removeprefix("http://") for each in (new, source))
    moves(source, new)
    assert await mirrored(new.url + CAPABILITIES, copy, moved_from=source.url + CAPABILITIES)
    old.mkdir()
    with sqlite3.connect(copy / ".rsnotify.sqlite") as state:  # as it was before they were moved
        for name in ("a.txt", "b.txt"):
            (at / name).rename(old / name)
            state.execute(
                "INSERT INTO moved VALUES (?, ?)", (f"{old.name}/{name}", f"{at.name}/{name}")
            )
    state.close()
    new.asked.clear()
    assert await mirrored(new.url + CAPABILITIES, copy)
    assert fetched(new) == set()
    assert contents(copy) == before
    assert not old.exists()


async def run(hub_url: str, *words: str) -> Ended:
    return await rsnotify(*words, "--url", hub_url, RSNOTIFY_TOKEN=TOKEN)


async def test_the_cursor_of_a_command_goes_to_the_new_address_of_its_hub(
    real_hub, set_name, tmp_path
):
    cursor, elsewhere = tmp_path / "cursor", real_hub.url.replace("127.0.0.1", "localhost")
    words = ["subscribe", set_name, "--cursor", str(cursor), "--count", "1"]
    with Publisher(real_hub.url, TOKEN) as publisher:
        for number in (1, 2):
            publisher.created(set_name, f"http://a.example/{number}")
    first = await run(real_hub.url, *words, "--position", "1970-01-01")
    assert first.out.endswith("http://a.example/1\n"), first.err
    refused = await run(elsewhere, *words)
    assert (refused.status, "--moved" in refused.err) == (2, True)
    second = await run(elsewhere, *words, "--moved", real_hub.url)
    assert second.out.endswith("http://a.example/2\n"), second.err


async def test_the_bridge_of_a_command_goes_to_the_new_address_of_its_source(
    source, real_hub, set_name, tmp_path
):
    words = ["--once", "--no-robots", "--state", str(tmp_path / "bridge.db")]
    old = source.url + CAPABILITIES
    new = old.replace("127.0.0.1", "localhost")
    first = await run(real_hub.url, "bridge", old, set_name, *words)
    assert first.status == 0, first.err
    source.change("a.txt", b"second")
    moved = (*words, "--moved", old)
    second = await run(real_hub.url, "bridge", new, set_name, *moved)
    assert "1 published" in second.out, second.err
    assert real_hub.told(set_name)[-1] == ("updated", "a.txt")
    wrong = await run(real_hub.url, "bridge", old, set_name, *words, "--moved", "http://x/")
    assert (wrong.status, "none is from http://x/" in wrong.err) == (2, True)
