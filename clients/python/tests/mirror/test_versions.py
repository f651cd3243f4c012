"""What a mirror keeps of earlier versions, how much of it, and the copy as it was."""

import asyncio
import io
import json
import os
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from clients.python.tests.mirror.test_moved import mirrored
from clients.python.tests.mirror.test_republishing import contents
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.resource import SourceResource
from rsnotify_mirror.commands.versions import shown
from rsnotify_mirror.disk import Disk
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.selection import Selection
from rsnotify_mirror.state import State
from rsnotify_mirror.versions import Versions
from tests.support.children import in_child
from tests.support.forks import Ended
from tests.support.running import rsnotify
from tests.support.sources import CAPABILITIES, Source, digest, rendered


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "versions"


async def once(source: Source, copy: Path, kept: Path, **options: object) -> None:
    assert await mirrored(source.url + CAPABILITIES, copy, keep_versions=kept, **options)


def listed(kept: Path, loc: str) -> list[tuple[str | None, str | None, str]]:
    with Versions(kept) as versions:
        found = [shown(each) for each in versions.of(loc)]
    return [(each["from"], each["until"], str(each["hash"])) for each in found]


async def test_each_version_is_kept_with_its_time_and_digest(source, copy, kept):
    await once(source, copy, kept)
    second = source.change("a.txt", b"second")
    await once(source, copy, kept)
    third = source.change("a.txt", b"third")
    await once(source, copy, kept)
    gone = source.change("a.txt", None)
    await once(source, copy, kept)
    assert listed(kept, source.loc("a.txt")) == [
        (str(source.at), second.datetime, digest(b"first a")),
        (second.datetime, third.datetime, digest(b"second")),
        (third.datetime, gone.datetime, digest(b"third")),
    ]
    assert listed(kept, source.loc("b.txt")) == [(str(source.at), None, digest(b"first b"))]


async def test_the_copy_is_written_as_it_was(source, copy, kept, tmp_path):
    await once(source, copy, kept)
    at = [source.at]
    worlds = [dict(source.resources)]
    for name, content in (("a.txt", b"second"), ("b.txt", None), ("d.txt", b"d"), ("b.txt", b"x")):
        source.change(name, content)
        await once(source, copy, kept)
        at.append(Position.parse(source.changes[-1].datetime or ""))
        worlds.append(dict(source.resources))
    for number, (moment, world) in enumerate(zip(at, worlds, strict=True)):
        out = tmp_path / f"out{number}"
        out.mkdir()
        with Versions(kept) as versions:
            disk = Disk(out)
            assert all(versions.write(each, disk) for each in versions.at(moment))
            disk.close()
        assert contents(out) == sorted(world.values())
        for each in out.rglob("*.txt"):
            each.write_bytes(b"what somebody has made of it")
    assert b"what" not in b"".join([*contents(copy), *contents(kept)])


@pytest.mark.parametrize("where", ["copy", "versions"])
async def test_a_pipe_in_the_place_of_a_file_is_no_version(source, copy, kept, tmp_path, where):
    await once(source, copy, kept)
    source.change("a.txt", b"second")
    await once(source, copy, kept)
    (file,) = copy.rglob("b.txt") if where == "copy" else kept.glob("??/*")
    file.unlink()
    os.mkfifo(file)
    out = tmp_path / "out"
    status, _, said = await command(str(kept), "--at", str(source.at), "--out", str(out))
    assert (status, "is not there, or another has its place" in said) == (1, True)
    assert contents(out) == [b"first b" if where == "versions" else b"first a", b"first c"]


async def test_a_version_is_a_link_and_takes_no_room(source, copy, kept):
    await once(source, copy, kept)
    file = next(copy.rglob("a.txt"))
    number = file.stat().st_ino
    source.change("a.txt", b"second")
    await once(source, copy, kept)
    assert number in {each.stat().st_ino for each in kept.rglob("*")}


async def test_where_no_link_can_be_made_a_version_is_copied(source, copy, kept, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "EXDEV")

    await once(source, copy, kept)
    monkeypatch.setattr(os, "link", refuse)
    source.change("a.txt", b"second")
    await once(source, copy, kept)
    assert b"first a" in contents(kept)


@pytest.mark.parametrize(("room", "left"), [(14, 2), (13, 1), (0, 0)])
async def test_what_the_budget_has_no_room_for_goes_the_oldest_first(
    source, copy, kept, room, left
):
    await once(source, copy, kept, versions_bytes=room)
    source.change("a.txt", b"second")  # 7 bytes are replaced
    await once(source, copy, kept, versions_bytes=room)
    source.change("b.txt", None)  # and 7 again
    await once(source, copy, kept, versions_bytes=room)
    assert contents(kept) == sorted([b"first a", b"first b"][2 - left :])
    assert len(listed(kept, source.loc("b.txt"))) == min(left, 1)


async def test_what_is_too_old_goes(source, copy, kept):
    await once(source, copy, kept)
    source.change("a.txt", b"second")
    await once(source, copy, kept, versions_seconds=3_650 * 86_400.0)
    assert contents(kept) == [b"first a"]
    source.change("c.txt", b"another")
    await once(source, copy, kept, versions_seconds=1.0)  # these changes are of a week ago
    assert contents(kept) == []


async def test_a_killed_mirror_keeps_nothing_twice(source, copy, kept):
    """As it was when it had noted the new version and not yet put it in its place."""
    await once(source, copy, kept)
    with State(copy) as state:
        row = state.row(source.loc("a.txt"))
    second = source.change("a.txt", b"second")
    await once(source, copy, kept)
    file = next(copy.rglob("a.txt"))
    file.write_bytes(b"first a")
    assert row is not None
    encoded = msgspec.json.encode(row.have).decode()
    with closing(sqlite3.connect(copy / ".rsnotify.sqlite")) as state, state:
        state.execute("UPDATE resource SET have = ?, due = 0 WHERE loc = ?", (encoded, row.loc))
    await once(source, copy, kept)
    third = source.change("a.txt", b"third")
    await once(source, copy, kept)
    assert listed(kept, source.loc("a.txt")) == [
        (str(source.at), second.datetime, digest(b"first a")),
        (second.datetime, third.datetime, digest(b"second")),
        (third.datetime, None, digest(b"third")),
    ]


async def test_a_file_that_is_not_what_was_fetched_is_not_kept(source, copy, kept):
    await once(source, copy, kept)
    next(copy.rglob("a.txt")).write_bytes(b"altered")
    source.change("a.txt", b"second")
    await once(source, copy, kept)
    assert contents(kept) == []


@pytest.mark.parametrize("where", ["copy", "copy/inside", "."])
async def test_versions_are_kept_apart_from_the_copy(source, tmp_path, where):
    with pytest.raises(InvalidSettings, match="--keep-versions"):
        await once(source, tmp_path / "copy", tmp_path / where)


async def test_the_versions_of_one_copy_are_not_those_of_another(source, tmp_path, kept):
    await once(source, tmp_path / "copy", kept)
    with pytest.raises(InvalidSettings, match="has the versions of"):
        AsyncMirror(source.url, tmp_path / "other", Options(keep_versions=kept))


async def test_a_change_dump_brings_versions_that_the_copy_never_had(source, copy, kept):
    source.documents[CAPABILITIES] = source.capability_list("resourcelist", "changedump")
    source.documents["/changedump.xml"] = rendered("changedump", [], **{"from": str(source.at)})
    await once(source, copy, kept)
    contents_ = [b"second", b"third", b"fourth"]
    changes = [source.change("a.txt", each) for each in contents_]
    brief = source.change("brief.txt", b"brief")
    gone = source.change("brief.txt", None)
    offer(source, dict(enumerate([*contents_, b"brief"])), [*changes, brief, gone])
    source.resources.clear()  # all of it comes out of the package
    source.resources |= {"/b.txt": b"first b", "/c.txt": b"first c"}
    await once(source, copy, kept)
    times = [str(source.at), *(each.datetime for each in changes), None]
    hashes = [digest(each) for each in (b"first a", *contents_)]
    assert listed(kept, source.loc("a.txt")) == list(zip(times, times[1:], hashes, strict=False))
    assert listed(kept, source.loc("brief.txt")) == [
        (brief.datetime, gone.datetime, digest(b"brief"))
    ]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_of_a_version_that_could_not_be_read_to_its_end_nothing_is_left(
    source, copy, kept, is_killed
):
    def pieces() -> Iterator[bytes]:
        yield b"half"
        if is_killed:
            os._exit(9)
        raise Rejected("the package ends here")

    async def add() -> None:
        wanted = SourceResource(source.loc("a.txt"), position=source.at, length=9)
        with Versions(kept, copy=copy) as versions:
            await versions.add(wanted, "a.txt", source.at + 1, pieces())

    await once(source, copy, kept)
    if is_killed:
        assert in_child(lambda: asyncio.run(add())) == 9
        await once(source, copy, kept)
    else:
        with pytest.raises(Rejected):
            await add()
    assert contents(kept) == []


async def test_of_what_is_no_part_of_the_copy_no_version_is_kept(source, copy, kept):
    source.documents[CAPABILITIES] = source.capability_list("resourcelist", "changedump")
    source.documents["/changedump.xml"] = rendered("changedump", [], **{"from": str(source.at)})
    part = Selection(prefix=(source.loc("in/"),))
    await once(source, copy, kept, selection=part)
    changes = []
    for name in ("in/a", "b"):
        changes += [source.change(name, b"came"), source.change(name, None)]
    offer(source, {0: b"came", 2: b"came"}, changes)
    await once(source, copy, kept, selection=part)
    assert len(listed(kept, source.loc("in/a"))) == 1
    assert listed(kept, source.loc("b")) == []


def offer(source: Source, members: dict[int, bytes], changes: list[Change]) -> None:
    """A Change Dump of one package, with these members and changes in their order."""
    entries = [
        Entry(
            each.loc,
            each.lastmod,
            md=Md(
                change=each.change,
                datetime=each.datetime,
                hash=each.hash,
                length=each.length,
                path=f"/{number}" if number in members else None,
            ),
        )
        for number, each in enumerate(changes)
    ]
    times = {"from": str(source.at), "until": str(changes[-1].datetime)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as package:
        package.writestr("manifest.xml", rendered("changedump-manifest", entries, **times))
        for number, content in members.items():
            package.writestr(str(number), content)
    source.documents["/1.zip"] = file.getvalue()
    md = Md(from_=times["from"], until=times["until"], type="application/zip")
    named = [Entry(source.loc("1.zip"), md=md)]
    listed_ = rendered("changedump", named, **{"from": str(source.at)})
    source.documents["/changedump.xml"] = listed_


async def command(*words: str) -> Ended:
    return await rsnotify("versions", *words)


async def test_the_command_lists_versions_and_writes_the_copy_as_it_was(
    source, copy, kept, tmp_path
):
    await once(source, copy, kept)
    second = source.change("a.txt", b"second")
    await once(source, copy, kept)
    status, said, _ = await command(str(kept), source.loc("a.txt"))
    assert (status, [line.split()[:3] for line in said.splitlines()]) == (
        0,
        [[str(source.at), second.datetime, "7"], [second.datetime, "now", "6"]],
    )
    status, said, _ = await command(str(kept), source.loc("a.txt"), "--json")
    assert (status, len(json.loads(said))) == (0, 2)
    assert (await command(str(kept), "http://other.example/")).status == 1
    out = tmp_path / "out"
    status, _, said = await command(str(kept), "--at", str(source.at), "--out", str(out))
    assert (status, "3 resources" in said) == (0, True)
    assert contents(out) == [b"first a", b"first b", b"first c"]
    assert [each.name for each in out.iterdir()] == [source.url.removeprefix("http://")]
    for words, problem in (
        (("--at", str(source.at), "--out", str(out)), "it holds files"),
        ((), "give a LOC"),
        (("--at", "yesterday", "--out", str(tmp_path / "x")), "--at"),
        ((source.loc("a.txt"), "--at", str(source.at), "--out", "x"), "give a LOC"),
    ):
        status, _, said = await command(str(kept), *words)
        assert (status, problem in said) == (2, True), said
    status, _, said = await command(str(tmp_path), source.loc("a.txt"))
    assert (status, "has no versions" in said) == (2, True)
