"""A copy that is a Source in its turn: its set has what the copy has, whatever is killed."""

import asyncio
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pytest
from aiohttp import web

from clients.python.tests.mirror.serving import serving
from rsnotify.cli.target import asked, hub_at
from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client import Publisher
from rsnotify_client.hub import HubClient
from rsnotify_client.loading import NDJSON, LoadBody, LoadRequest, load
from rsnotify_client.outbox import INSERT
from rsnotify_client.queue import ChangeStore, Refusal
from rsnotify_client.web import Refused
from rsnotify_mirror import Event, Republication
from rsnotify_mirror.audit import audit
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import status_of
from rsnotify_mirror.republishing import CopyOutbox
from rsnotify_mirror.state import LOADED, PLACE, State
from tests.support.forks import Ended
from tests.support.hub_processes import HubProcess
from tests.support.running import TOKEN, rsnotify
from tests.support.sources import CAPABILITIES, Source, digest

BASE = "https://copy.example/"


@pytest.fixture
def to(real_hub: HubProcess, set_name: str) -> Republication:
    return Republication(real_hub.url, set_name, BASE, TOKEN)


async def republished(source: Source, copy: Path, to: Republication, **options: object) -> bool:
    chosen = Options(**options)
    async with AsyncMirror(source.url + CAPABILITIES, copy, chosen, republish=to) as mirror:
        return await mirror.once()


def address(source: Source, name: str, base: str = BASE) -> str:
    """Where the copy of a resource is served."""
    return f"{base}{quote(source.url.removeprefix('http://'))}/{quote(unquote(name))}"


def known(hub: HubProcess, set_name: str, loc: str) -> dict[str, object]:
    with hub_at(hub.url, TOKEN) as client:
        found: dict[str, object] = asked(
            client, "GET", f"/api/sets/{set_name}/resources?loc={quote(loc, safe='')}"
        ).content
    return found


def count(hub: HubProcess, set_name: str) -> int:
    with hub_at(hub.url, TOKEN) as client:
        found: int = asked(client, "GET", f"/api/sets/{set_name}/resources").content["resources"]
    return found


async def test_a_set_has_what_the_copy_has_with_the_copy_s_addresses(
    source, copy, real_hub, set_name, to
):
    assert await republished(source, copy, to)
    assert count(real_hub, set_name) == 3
    content = b"first a"
    found = known(real_hub, set_name, address(source, "a.txt"))
    told = {"hash": digest(content), "length": len(content)}
    assert {name: found[name] for name in (*told, "lastmod")} == told | {"lastmod": str(source.at)}
    assert found["links"] == [
        {"rel": "via", "href": source.loc("a.txt"), "modified": str(source.at)} | told
    ]


async def test_each_change_is_published_once_it_is_stored(source, copy, real_hub, set_name, to):
    assert await republished(source, copy, to)
    begun = len(real_hub.journal(set_name))
    changes = [
        source.change("a.txt", b"second"),
        source.change("a%20new%2525.txt", b"new"),
        source.change("b.txt", None),
    ]
    assert await republished(source, copy, to)
    told = {change.loc: change for change in real_hub.journal(set_name)[begun:]}
    names = ("a.txt", "a%20new%2525.txt", "b.txt")
    assert told.keys() == {address(source, name) for name in names}
    kinds = [told[address(source, name)].change for name in names]
    assert kinds == ["updated", "created", "deleted"]
    for name, change in zip(names, changes, strict=True):
        found = told[address(source, name)]
        assert (found.hash, found.length) == (change.hash, change.length)
        assert found.lastmod == change.lastmod
        assert [link.rel for link in found.links] == ["via"]


async def test_what_a_hook_fails_for_is_published_once(source, copy, real_hub, set_name, to):
    async def fail(event: Event, _: bytes | None) -> None:
        raise Refused(f"no {event.loc}")

    async def work(*_: object) -> None:
        pass

    assert await republished(source, copy, to)
    begun = len(real_hub.journal(set_name))
    change = source.change("a.txt", b"second")
    for hook in (fail, None, work):
        async with AsyncMirror(source.url + CAPABILITIES, copy, republish=to, hook=hook) as mirror:
            await mirror.once()
        assert [each.hash for each in real_hub.journal(set_name)[begun:]] == [change.hash]


async def test_a_chain_keeps_the_link_to_its_origin(source, copy, real_hub, set_name, to):
    via = Link("via", "http://origin.example/a")
    source.change("a.txt", b"second", links=(via,))
    assert await republished(source, copy, to)
    assert known(real_hub, set_name, address(source, "a.txt"))["links"] == [
        {"rel": "via", "href": via.href}
    ]


async def test_what_the_source_gives_no_digest_of_gets_one(source, copy, real_hub, set_name, to):
    async with AsyncMirror(source.url + CAPABILITIES, copy) as mirror:
        source.change("a.txt", b"second", hash=None)
        assert await mirror.once()
    source.change("b.txt", b"third", hash=None)
    assert await republished(source, copy, to)
    source.change("c.txt", b"fourth", hash=None)
    assert await republished(source, copy, to)
    for name, content in (("a.txt", b"second"), ("b.txt", b"third"), ("c.txt", b"fourth")):
        assert known(real_hub, set_name, address(source, name))["hash"] == digest(content)


async def test_a_copy_that_was_changed_without_its_set_is_loaded_again(
    source, copy, real_hub, set_name, to
):
    assert await republished(source, copy, to)
    source.change("a.txt", b"second")
    source.change("b.txt", None)
    async with AsyncMirror(source.url + CAPABILITIES, copy) as mirror:
        assert await mirror.once()
    source.change("c.txt", b"third")
    assert await republished(source, copy, to, max_delete=50)
    assert count(real_hub, set_name) == 2
    assert known(real_hub, set_name, address(source, "a.txt"))["hash"] == digest(b"second")
    assert known(real_hub, set_name, address(source, "c.txt"))["hash"] == digest(b"third")


async def test_a_copy_that_was_interrupted_is_loaded_once_it_is_filled(
    source, copy, real_hub, set_name, to
):
    asked = asyncio.Event()

    async def slowly(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(2)  # long enough for a load that does not wait
        return web.Response(body=b"first c")

    source.handlers["/c.txt"] = slowly
    async with AsyncMirror(source.url + CAPABILITIES, copy, republish=to) as mirror:
        begun = asyncio.create_task(mirror.once())
        await asked.wait()
        begun.cancel()
        await asyncio.gather(begun, return_exceptions=True)
    assert await republished(source, copy, to)
    with hub_at(real_hub.url, TOKEN) as client:
        found = asked_of(client, set_name)
    assert (found["last_load"]["resources"], found["resources"]) == (3, 3)


def asked_of(hub: HubClient, set_name: str) -> dict[str, Any]:
    content: dict[str, Any] = asked(hub, "GET", f"/api/sets/{set_name}/resources").content
    return content


async def test_a_set_that_has_lost_something_is_loaded_again(source, copy, real_hub, set_name, to):
    assert await republished(source, copy, to)
    with Publisher(real_hub.url, TOKEN) as publisher:
        publisher.deleted(set_name, address(source, "a.txt"))
    assert count(real_hub, set_name) == 2
    assert await republished(source, copy, to)
    assert count(real_hub, set_name) == 3


async def test_a_set_that_has_something_else_keeps_it(source, copy, real_hub, set_name, to):
    events: list[Event] = []
    with Publisher(real_hub.url, TOKEN) as publisher:
        for number in range(50):
            publisher.created(set_name, f"https://other.example/{number}")
    url = source.url + CAPABILITIES
    async with AsyncMirror(url, copy, republish=to, report=events.append) as mirror:
        assert not await mirror.once()
    assert count(real_hub, set_name) == 50
    assert "would delete" in str([each.problem for each in events if each.problem])
    assert await republished(source, copy, to, max_delete=100)
    assert count(real_hub, set_name) == 3


async def test_a_load_that_is_under_way_is_waited_for(source, copy, real_hub, set_name, to):
    """One of a mirror that was killed, for instance."""
    asked, goes_on = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b'{"loc": "https://other.example/1"}\n'
        asked.set()
        goes_on.wait(60)

    body = LoadBody({"Content-Type": NDJSON}, pieces)
    request = LoadRequest(overwrite=True)
    loading = asyncio.create_task(
        asyncio.to_thread(load, real_hub.url, TOKEN, set_name, body, request)
    )
    await asyncio.to_thread(asked.wait, 60)
    events: list[Event] = []

    def report(event: Event) -> None:
        events.append(event)
        if "under way" in (event.problem or ""):
            goes_on.set()

    chosen = Options(max_delete=100)
    url = source.url + CAPABILITIES
    async with AsyncMirror(url, copy, chosen, republish=to, report=report) as mirror:
        assert await mirror.once()
    await loading
    assert goes_on.is_set()
    assert count(real_hub, set_name) == 3


@pytest.mark.parametrize("is_loaded", [False, True])
async def test_a_hub_that_is_away_holds_up_no_copy_and_gets_all_later(
    source, copy, tmp_path, is_loaded
):
    with HubProcess(tmp_path / "hub", "copied") as hub:
        to = Republication(hub.url, "copied", BASE, TOKEN, patience_seconds=0.5)
        if is_loaded:
            assert await republished(source, copy, to)
        hub.kill()
        source.change("a.txt", b"second")
        source.change("b.txt", None)
        events: list[Event] = []
        url = source.url + CAPABILITIES
        async with AsyncMirror(url, copy, republish=to, report=events.append) as mirror:
            assert not await mirror.once()
        assert "not published" in str([each.problem for each in events])
        assert contents(copy) == sorted(source.resources.values())
        hub.start()
        assert await republished(source, copy, msgspec.structs.replace(to, patience_seconds=60))
        assert count(hub, "copied") == 2
        assert known(hub, "copied", address(source, "a.txt"))["hash"] == digest(b"second")


async def test_a_password_in_the_address_of_the_hub_is_not_kept(source, copy, real_hub, to):
    hub = to.hub.replace("://", "://user:secret@")
    assert await republished(source, copy, Republication(hub, to.set_name, BASE, TOKEN))
    with State(copy, is_writer=False) as state:
        assert state.fact(PLACE) == f"{to.hub} {to.set_name} {BASE}"


async def test_a_set_is_not_published_to_itself(copy, real_hub, to):
    url = f"{real_hub.url}/{to.set_name}"
    with pytest.raises(InvalidSettings, match="is what is copied"):
        async with AsyncMirror(url, copy, republish=to) as mirror:
            await mirror.once()


async def test_a_published_copy_of_a_source_that_moves_keeps_its_addresses(
    source, copy, real_hub, set_name, to
):
    assert await republished(source, copy, to)
    async with Source() as new:
        new.resources |= source.resources
        new.list_resources()
        chosen = Options(moved_from=source.url + CAPABILITIES)
        async with AsyncMirror(new.url + CAPABILITIES, copy, chosen, republish=to) as mirror:
            assert await mirror.once()
        assert count(real_hub, set_name) == 3
        (via,) = known(real_hub, set_name, address(source, "a.txt"))["links"]
        assert via["href"] == new.loc("a.txt")
        assert not {path for path in new.asked if path in new.resources}


async def test_a_copy_without_files_is_not_published(source, copy, to):
    with pytest.raises(InvalidSettings, match="without files"):
        await republished(source, copy, to, has_files=False)


@pytest.mark.parametrize("base", ["copy.example", "https://copy.example/?a", "ftp://c.example/"])
async def test_the_base_is_an_address(source, copy, to, base):
    with pytest.raises(InvalidSettings, match="--base"):
        await republished(source, copy, Republication(to.hub, to.set_name, base, TOKEN))
    assert await republished(source, copy, to, max_delete=100)  # the directory is let go of


async def test_a_chain_of_copies_is_the_origin(source, tmp_path, real_hub, set_name):
    first, last = tmp_path / "first", tmp_path / "last"
    with serving(first) as base:
        to = Republication(real_hub.url, set_name, base, TOKEN)
        assert await republished(source, first, to)
        source.change("a.txt", b"second")
        source.change("b.txt", None)
        assert await republished(source, first, to)
        url = f"{real_hub.url}/{set_name}"
        async with AsyncMirror(url, last) as mirror:
            assert await mirror.once()
        assert (await audit(url, last)).is_in_sync
    assert contents(last) == contents(first)


async def dumped(copy: Path, out: Path, base: str, hub: HubProcess, set_name: str) -> Ended:
    words = ("dump", str(copy), str(out), "--base", base, "--changes", "--announce", set_name)
    return await rsnotify(*words, RSNOTIFY_TOKEN=TOKEN, RSNOTIFY_URL=hub.url)


async def test_the_dumps_of_a_copy_go_with_it(source, tmp_path, real_hub, set_name):
    first, last, out, asked_for = tmp_path / "first", tmp_path / "last", tmp_path / "out", set()
    with serving(first, asked_for) as base, serving(out) as out_base:
        to = Republication(real_hub.url, set_name, base, TOKEN)

        async def dump() -> None:
            assert await republished(source, first, to)
            ended = await dumped(first, out, out_base, real_hub, set_name)
            assert not ended.status, ended.err

        await dump()
        url = f"{real_hub.url}/{set_name}"
        async with AsyncMirror(url, last) as mirror:
            assert await mirror.once()
        assert (await audit(url, last)).is_in_sync
        assert contents(last) == contents(first)
        assert asked_for == set()  # all came out of the dump
        source.change("a.txt", b"second")
        source.change("b.txt", None)
        await dump()
        (package,) = zips(out, out_base, "changedump.xml")
        told = [(each.loc, each.md.change) for each in manifest(package)]
        assert told == [
            (address(source, "a.txt", base), "updated"),
            (address(source, "b.txt", base), "deleted"),
        ]
        (package,) = zips(out, out_base, "resourcedump.xml")
        for each in manifest(package):
            (via,) = each.links
            assert (via.rel, via.href.rpartition("/")[0]) == ("via", source.url)
        async with AsyncMirror(url, last) as mirror:
            assert await mirror.once()
        assert contents(last) == contents(first)


def zips(out: Path, base: str, name: str) -> list[Path]:
    entries = parse_document((out / name).read_bytes()).entries
    return [out / entry.loc.removeprefix(base) for entry in entries]


def manifest(package: Path) -> list[Entry]:
    with zipfile.ZipFile(package) as file:
        return list(parse_document(file.read("manifest.xml")).entries)


def contents(copy: Path) -> list[bytes]:
    """Of all its files, whatever their names."""
    files = (each for each in copy.rglob("*") if each.is_file())
    return sorted(each.read_bytes() for each in files if not each.name.startswith(".rsnotify"))


async def test_what_waits_is_told_by_the_status(source, copy, real_hub, set_name, to):
    assert await republished(source, copy, to)
    with State(copy, is_writer=False) as state:
        assert status_of(state).to_publish == 0
    source.change("a.txt", b"second")
    with State(copy) as state:  # as if it had been killed before it was told that it is loaded
        state.set_fact(LOADED, None)
    with State(copy, is_writer=False) as state:
        assert status_of(state).to_publish == 3
    async with AsyncMirror(source.url + CAPABILITIES, copy) as mirror:
        assert await mirror.once()
    with State(copy, is_writer=False) as state:
        assert status_of(state).to_publish is None


async def command(
    source: Source, copy: Path, hub: HubProcess, *words: str, token: str = TOKEN
) -> Ended:
    line = ("mirror", source.url + CAPABILITIES, str(copy), "--once", *words)
    return await rsnotify(*line, RSNOTIFY_TOKEN=token, RSNOTIFY_URL=hub.url)


@pytest.mark.parametrize(
    ("words", "token", "status", "said"),
    [
        (("--base", BASE), TOKEN, 0, ""),
        ((), TOKEN, 2, "--republish goes with --base"),
        (("--base", BASE, "--dry-run"), TOKEN, 2, "without --dry-run"),
        (("--base", BASE, "--all-sets"), TOKEN, 2, "goes with one set"),
        (("--base", "copy.example"), TOKEN, 2, "--base copy.example"),
        (("--base", BASE), "wrong", 2, "the token"),
    ],
)
async def test_the_command_says_what_is_wrong(
    source, copy, real_hub, set_name, words, token, status, said
):
    words = ("--republish", set_name, *words)
    ended = await command(source, copy, real_hub, *words, token=token)
    assert ended.status == status, ended.err
    assert said in ended.err
    if not status:
        assert count(real_hub, set_name) == 3


async def test_what_the_hub_refuses_of_a_copy_is_counted_in_its_file(tmp_path):
    """By the sender, whose thread is not that of the file."""
    with State(tmp_path) as state:
        state.keep_outbox()
        for number in range(2):
            state.database.execute(INSERT, ("papers", "change", f'{{"loc":"{number}"}}'))
        state.commit()
        outbox = CopyOutbox(state)
        batch = await asyncio.to_thread(outbox.take, (), 10)
        refusal = Refusal("why", batch.changes[-1])
        assert await asyncio.to_thread(outbox.remove, batch, batch.ids, refusal) == 2
        (found,) = outbox.refused_by_channel()
        assert (found.set_name, found.changes, found.reason) == ("papers", 2, "why")
        assert outbox.waiting_by_channel() == []


def test_all_that_a_sender_asks_of_the_outbox_of_a_copy_is_done_in_the_thread_of_its_file():
    asked = {name for name in vars(ChangeStore) if not name.startswith("_")}
    assert asked - vars(CopyOutbox).keys() == {"rest", "close"}  # which do not use it
