"""State and tail: all resources as they are, then every change, from hubs and static Sources."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner

from rsnotify import cli
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from rsnotify_client import InvalidArgument, Publisher, follow, follow_async
from tests.support.hub_processes import HubProcess
from tests.support.running import TOKEN
from tests.support.sources import CAPABILITIES, rendered

QUICK = 0.05
RESOURCES = 100_000


def took(copy: dict[str, str | None], change: Any) -> None:
    """What whoever keeps a copy does with all that comes."""
    if change.change == "deleted":
        copy.pop(change.loc)
    else:
        copy[change.loc] = change.hash


async def some(url: str, count: int, **options: Any) -> list[tuple[str, str]]:
    found = []
    changes = follow_async(url, state=True, poll_seconds=QUICK, **options)
    async with asyncio.timeout(60), aclosing(changes):
        async for change in changes:
            async with change:
                what = "state" if change.is_state else change.change
                found.append((what, change.loc.rpartition("/")[2]))
            if len(found) == count:
                break
    return found


async def test_a_static_source_is_read_whole_and_then_followed(source, tmp_path):
    """By its Resource List and its Change List; the place is kept behind the state."""
    cursor = tmp_path / "cursor"
    source.documents[CAPABILITIES] = source.capability_list("resourcelist", "changelist")
    source.list_changes()
    reading = asyncio.create_task(some(source.url + CAPABILITIES, 5, cursor=cursor))
    async with asyncio.timeout(60):
        while not source.asked["/changelist.xml"]:
            await asyncio.sleep(0.01)
    source.change("a.txt", b"second")
    source.change("b.txt", None)
    state = [("state", f"{name}.txt") for name in "abc"]
    assert await reading == [*state, ("updated", "a.txt"), ("deleted", "b.txt")]
    source.change("d.txt", b"new")
    again = await some(
        source.url + CAPABILITIES, 2, cursor=cursor
    )  # a list says the last once more
    assert again == [("deleted", "b.txt"), ("updated", "d.txt")]


async def test_what_changes_while_the_state_is_read_comes_after_it(source):
    """In an index whose second part comes later; a page that breaks off is asked for again."""
    source.documents[CAPABILITIES] = source.capability_list("resourcelist", "changelist")
    parts = [Entry(source.loc(f"part{each}.xml")) for each in (1, 2)]
    md = Md(capability="resourcelist", at=str(source.at))
    source.documents["/resourcelist.xml"] = render_document(
        Document("sitemapindex", md, (), tuple(parts))
    )
    source.list_changes()
    asked = 0

    async def part(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked == 1:
            source.change("0", None)
        names = range(3_000) if request.path.endswith("1.xml") else ("last",)
        body = rendered("resourcelist", [Entry(source.loc(str(each))) for each in names])
        answer = web.StreamResponse(headers={"Content-Type": "application/xml"})
        answer.content_length = len(body)
        await answer.prepare(request)
        await answer.write(body[: len(body) // 2] if asked == 1 else body)
        if asked == 1:
            request.transport.abort()
        return answer

    for each in (1, 2):
        source.handlers[f"/part{each}.xml"] = part
    found = await some(source.url + CAPABILITIES, 3_002)
    assert found[:3_000] == [("state", str(each)) for each in range(3_000)]
    assert found[3_000:] == [("state", "last"), ("deleted", "0")]
    assert asked == 3


@pytest.mark.parametrize("lacks", ["list", "moment"])
async def test_a_source_whose_state_cannot_be_joined_with_its_changes_says_why(source, lacks):
    source.documents[CAPABILITIES] = source.capability_list("resourcelist", "changelist")
    source.list_changes()
    if lacks == "list":
        source.documents[CAPABILITIES] = source.capability_list("changelist")
    else:
        source.documents["/resourcelist.xml"] = rendered("resourcelist", [Entry("http://a/")])
    said = "offers no Resource List" if lacks == "list" else "does not say of when it is"
    with pytest.raises(Rejected, match=said):
        await some(source.url + CAPABILITIES, 1)


def test_a_state_of_several_sets_or_behind_a_position_is_bad_use():
    for wrong in ({"sets": ["a"]}, {"position": "2026-11-20"}):
        with pytest.raises(InvalidArgument, match="state goes with one set"):
            follow("http://127.0.0.1:9", state=True, **wrong)


def test_the_command_prints_the_state_and_then_what_changes(real_hub, set_name, tmp_path):
    run = CliRunner(env={"RSNOTIFY_URL": real_hub.url, "RSNOTIFY_TOKEN": TOKEN}).invoke
    publish(real_hub, set_name, "1", "2")
    real_hub.ask("POST", f"/api/sets/{set_name}/snapshot", b"")
    publish(real_hub, set_name, "3")
    words = ["subscribe", set_name, "--state", "--cursor", str(tmp_path / "cursor")]
    lines = run(cli.app, [*words, "--count", "3"]).stdout.splitlines()
    ends = [line.split("  ", 1)[1] for line in lines]
    assert sorted(ends[:2]) == [f"state  http://example.com/{each}" for each in "12"]
    assert ends[2:] == ["updated  http://example.com/3"]
    publish(real_hub, set_name, "4")
    again = run(cli.app, [*words, "--count", "1"]).stdout
    assert again.endswith("updated  http://example.com/4\n")
    refused = run(cli.app, ["subscribe", set_name, "--state", "--framework"])
    assert refused.exit_code != 0


def publish(hub: HubProcess, set_name: str, *names: str) -> None:
    with Publisher(hub.url, TOKEN) as publisher:
        for name in names:
            publisher.updated(set_name, f"http://example.com/{name}")


@pytest.mark.evidence
async def test_many_resources_and_the_changes_meanwhile_are_the_state_though_it_is_killed(
    real_hub, set_name, tmp_path
):
    """Killed in the middle of the state, and once more behind it. Whoever is handed a state again
    begins a new copy."""
    digest = "md5:" + "0" * 32
    states = [
        {"loc": f"http://example.com/{number}", "hash": digest} for number in range(RESOURCES)
    ]
    await asyncio.to_thread(load, real_hub, set_name, states)
    expected = {each["loc"]: digest for each in states}
    url, cursor = f"{real_hub.url}/{set_name}", tmp_path / "cursor"
    publishing = asyncio.create_task(asyncio.to_thread(change_some, real_hub, set_name, expected))
    copy = await followed(url, cursor, {}, lambda copy: len(copy) > RESOURCES // 2)
    assert not cursor.exists()
    copy = await followed(url, cursor, {}, lambda _: cursor.exists())
    await publishing
    copy = await followed(url, cursor, copy, lambda copy: "http://example.com/end" in copy)
    expected["http://example.com/end"] = None
    assert copy == expected


async def followed(url: str, cursor: Path, copy: dict[str, str | None], is_enough: Any) -> Any:
    async with (
        asyncio.timeout(120),
        aclosing(follow_async(url, cursor=cursor, state=True)) as changes,
    ):
        async for change in changes:
            async with change:
                took(copy, change)
            if is_enough(copy):
                break
    return copy


def load(hub: HubProcess, set_name: str, states: list[dict[str, str]]) -> None:
    with Publisher(hub.url, TOKEN) as publisher:
        publisher.load(set_name, states)
    hub.ask("POST", f"/api/sets/{set_name}/snapshot", b"")


def change_some(hub: HubProcess, set_name: str, expected: dict[str, str | None]) -> None:
    """Fifty changes in a second, for some seconds: updates, deletions, new ones."""
    with Publisher(hub.url, TOKEN) as publisher:
        for number in range(300):
            loc = f"http://example.com/{number * 300}"
            digest = f"md5:{number:032x}"
            change = ("updated", "deleted", "created")[number % 3]
            if change == "created":
                loc = f"http://example.com/new{number}"
            if change == "deleted":
                del expected[loc]
                publisher.publish(set_name, Change(loc, change))
            else:
                expected[loc] = digest
                publisher.publish(set_name, Change(loc, change, hash=digest))
            publisher.flush()
        publisher.updated(set_name, "http://example.com/end")
