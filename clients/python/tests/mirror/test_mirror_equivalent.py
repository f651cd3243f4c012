"""One URI that is written in two equivalent ways is one resource of a copy, and of its audit."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from clients.python.tests.mirror.test_mirror import files, leavings, once
from rsnotify.resourcesync.change import Change, render_datetime
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.address import canonical
from rsnotify_client.resource import SourceResource
from rsnotify_client.web import SMALL_BYTES
from rsnotify_mirror.audit import audit, repair
from rsnotify_mirror.plan import newest
from rsnotify_mirror.selection import Selection
from rsnotify_mirror.state import FILE, State
from tests.support.sources import CAPABILITIES, Source, digest, rendered

BEFORE = Path(__file__).with_name("copy_before.sql")
PLAIN, OTHER = "/%C3%A9.txt", "/%c3%a9.txt"


def serve(source: Source, loc: str, content: bytes) -> None:
    """At the address as it is written, and at the one that others are written for."""
    for path in paths(loc):
        source.resources[path] = content


def paths(loc: str) -> set[str]:
    return {urlsplit(each).path or "/" for each in (loc, canonical(loc))}


def list_resources(source: Source, *locs: str, content: bytes = b"first") -> None:
    """A Resource List that names these, in these words."""
    for loc in locs:
        serve(source, loc, content)
    entries = [
        Entry(loc, str(source.at), md=Md(hash=digest(content), length=len(content))) for loc in locs
    ]
    source.documents["/resourcelist.xml"] = rendered("resourcelist", entries, at=str(source.at))
    source.list_changes()


def change(source: Source, loc: str, content: bytes | None) -> None:
    """As `Source.change`, of a resource that is written so."""
    source.now += 1_000_000
    at = render_datetime(source.now)
    if content is None:
        for path in paths(loc):
            source.resources.pop(path, None)
        source.changes.append(Change(loc, "deleted", datetime=at, lastmod=at))
    else:
        serve(source, loc, content)
        told = {"hash": digest(content), "length": len(content)}
        source.changes.append(Change(loc, "updated", datetime=at, lastmod=at, **told))
    source.list_changes()


def ways(source: Source) -> dict[str, tuple[str, str]]:
    """Two ways of writing one address, by what is different."""
    at = source.url
    return {
        "hexadecimal digits": (at + OTHER, at + PLAIN),
        "hexadecimal digits, the other way round": (at + PLAIN, at + OTHER),
        "a character that needs no escape": (f"{at}/%7Ea.txt", f"{at}/~a.txt"),
        "the host in capitals": ("http://LOCALHOST:1/a.txt", "http://localhost:1/a.txt"),
        "the scheme in capitals": (at.replace("http", "HTTP") + "/a", f"{at}/a"),
        "the default port": ("http://localhost:80/a.txt", "http://localhost/a.txt"),
        "an empty path": (at, f"{at}/"),
    }


WAYS = list(ways(Source()))
UNREACHABLE = {"the host in capitals", "the default port"}  # no server is at these in a test


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_in_another_way_is_planned_as_the_same_resource(tmp_path, way):
    source = Source()
    source.url = "http://127.0.0.1:1"
    first, last = ways(source)[way]
    with State(tmp_path) as state:
        state.plan([SourceResource(first)], 1, now=1.0)
        state.plan([SourceResource(last, lastmod="2026-11-20")], 1, now=1.0)
        (row,) = state.rows()
        assert (row.loc, row.wanted.loc, row.wanted.lastmod) == (first, last, "2026-11-20")
        assert state.row(first) == state.row(last) == row
        assert state.rows_of([first, last]) == {first: row, last: row}
        state.ask_again([last], 1.0)
        assert state.is_under_way(first)
        assert state.is_under_way(last)
        assert state.again(row).version == row.version + 1


def test_its_two_ways_are_planned_once_though_they_come_together(tmp_path):
    with State(tmp_path) as state:
        locs = ["http://a.example/%c3", "http://a.example/%C3"]
        state.plan([SourceResource(loc) for loc in locs], 1, now=1.0)
        assert [row.loc for row in state.rows()] == locs[:1]


@pytest.mark.parametrize("way", [each for each in WAYS if each not in UNREACHABLE])
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_change_that_writes_it_in_another_way_reaches_the_file(
    source, copy, way, is_deleted
):
    first, last = ways(source)[way]
    source.resources.clear()
    list_resources(source, first, f"{source.url}/other.txt")
    assert (await once(source, copy)).is_whole
    places = set(files(copy))
    change(source, last, None if is_deleted else b"second")
    ran = await once(source, copy)
    assert ran.is_whole
    left = sorted(files(copy).values())
    assert left == ([b"first"] if is_deleted else [b"first", b"second"])
    assert set(files(copy)) <= places
    assert (await audit(source.url + CAPABILITIES, copy)).is_in_sync


async def test_the_moment_of_its_deletion_is_that_of_the_last_one(source, copy):
    source.resources.clear()
    list_resources(source, source.url + OTHER)
    for loc in (source.url + PLAIN, source.url + OTHER):
        change(source, loc, b"again")
        await once(source, copy)
        change(source, loc, None)
        assert (await once(source, copy)).is_whole
    with State(copy) as state:
        assert state.gone_at(source.url + OTHER) == source.now == state.gone_at(source.url + PLAIN)


async def test_a_long_file_is_replaced_whatever_way_it_is_written(source, copy):
    """Content above a megabyte goes through a file of its own."""
    content = b"x" * (SMALL_BYTES + 1)
    source.resources.clear()
    list_resources(source, source.url + OTHER, content=content)
    await once(source, copy)
    assert files(copy) == {"é.txt": content}
    change(source, source.url + PLAIN, content + b"y")
    assert (await once(source, copy)).is_whole
    assert files(copy) == {"é.txt": content + b"y"}
    assert leavings(copy) == []


async def test_it_may_be_created_again_in_the_other_way(source, copy):
    source.resources.clear()
    list_resources(source, source.url + OTHER)
    await once(source, copy)
    change(source, source.url + PLAIN, None)
    change(source, source.url + OTHER, b"again")
    change(source, source.url + PLAIN, b"third")
    assert (await once(source, copy)).is_whole
    assert files(copy) == {"é.txt": b"third"}
    assert (await audit(source.url + CAPABILITIES, copy)).is_in_sync


async def test_a_list_that_writes_everything_in_another_way_changes_nothing(source, copy):
    """Nothing is fetched, deleted or counted by the delete guard."""
    source.resources.clear()
    source.documents[CAPABILITIES] = source.capability_list("resourcelist")
    list_resources(source, source.url + OTHER)
    await once(source, copy)
    asked = source.asked[PLAIN]
    list_resources(source, source.url + PLAIN)
    ran = await once(source, copy)
    assert (ran.is_whole, source.asked[PLAIN]) == (True, asked)
    assert files(copy) == {"é.txt": b"first"}
    assert (await audit(source.url + CAPABILITIES, copy)).is_in_sync


async def test_two_entries_of_one_list_are_one_resource_and_named(source, copy, caplog):
    source.resources.clear()
    list_resources(source, source.url + OTHER, source.url + PLAIN)
    with caplog.at_level(logging.WARNING):
        ran = await once(source, copy)
    assert (ran.is_whole, files(copy)) == (True, {"é.txt": b"first"})
    (said,) = [each.getMessage() for each in caplog.records if "equivalent" in each.getMessage()]
    assert source.url + OTHER in said
    assert source.url + PLAIN in said
    found = await audit(source.url + CAPABILITIES, copy)
    assert (found.resources, found.is_in_sync) == (1, True)


async def test_two_entries_that_are_far_from_each_other_are_named_too(source, copy, caplog):
    """Entries are read in pieces; the pages of a list are."""
    source.resources.clear()
    between = [f"{source.url}/{number}" for number in range(2_500)]
    list_resources(source, source.url + OTHER, *between, source.url + PLAIN)
    chosen = Selection(select=("*.txt",))
    with caplog.at_level(logging.WARNING):
        assert (await once(source, copy, selection=chosen)).is_whole
    assert files(copy) == {"é.txt": b"first"}
    assert len([each for each in caplog.records if "equivalent" in each.getMessage()]) == 1


async def test_the_same_words_twice_are_not_called_two_ways(source, copy, caplog):
    source.resources.clear()
    list_resources(source, source.url + OTHER, source.url + OTHER)
    with caplog.at_level(logging.WARNING):
        assert (await once(source, copy)).is_whole
        assert (await once(source, copy)).is_whole
    assert not [each for each in caplog.records if "equivalent" in each.getMessage()]


@pytest.mark.parametrize("glob", ["http://a.example/%C3%A9*", "HTTP://A.example:80/%c3%a9*"])
def test_a_selection_takes_a_resource_whatever_way_it_is_written(glob):
    loc = "HTTP://A.example:80/%c3%a9.txt"
    assert Selection(select=(glob,)).takes(loc)
    assert not Selection(exclude=(glob,)).takes(loc)


def test_of_several_changes_the_newest_counts_whatever_way_it_is_written():
    one, other = SourceResource("http://a.example"), SourceResource("http://A.example/", "deleted")
    assert newest([one, other]) == [other]


async def test_an_audit_finds_and_repairs_by_either_way(source, copy):
    source.resources.clear()
    list_resources(source, source.url + OTHER)
    await once(source, copy)
    change(source, source.url + PLAIN, b"second")
    await once(source, copy)
    (path,) = copy.rglob("é.txt")
    path.write_bytes(b"spoilt")
    url = source.url + CAPABILITIES
    found = await audit(url, copy)
    assert [each.kind for each in found.findings] == ["hash"]
    assert await repair(url, copy, found)
    assert files(copy) == {"é.txt": b"second"}
    assert (await audit(url, copy)).is_in_sync


# A copy of the version before -------------------------------------------------------------------


def copy_of_before(source: Source, copy: Path) -> None:
    """Made of the database and the files that a mirror left which knew one way only.

    The Change List has called %c3%b6 deleted, and has updated %C3%A4, which the list wrote so.
    Two files are of one resource: %c3%bc and %C3%BC.
    """
    (host,) = [urlsplit(source.url).netloc]
    folder = copy / host
    folder.mkdir(parents=True)
    for name in ("a", "é", "ä", "ü", "ü~a5b14bba"):
        (folder / f"{name}.txt").write_bytes(b"first")
    text = BEFORE.read_text(encoding="utf-8")
    with closing(sqlite3.connect(copy / FILE)) as database:
        database.executescript(text.replace("{url}", source.url).replace("{host}", host))
    source.resources.clear()
    names = ("a", "%c3%a9", "%c3%b6", "%C3%A4", "%c3%bc", "%C3%BC")
    list_resources(source, *(f"{source.url}/{name}.txt" for name in names))
    change(source, f"{source.url}/%c3%b6.txt", None)


async def test_a_copy_of_the_version_before_is_brought_to_one_file_each(source, copy):
    copy_of_before(source, copy)
    change(source, f"{source.url}/%C3%A9.txt", b"second")
    change(source, f"{source.url}/%c3%a4.txt", None)
    ran = await once(source, copy)
    assert ran.is_whole
    assert files(copy) == {"a.txt": b"first", "é.txt": b"second", "ü.txt": b"first"}
    assert source.asked["/a.txt"] == 0
    assert (await audit(source.url + CAPABILITIES, copy)).is_in_sync


async def test_a_copy_of_the_version_before_can_be_audited_before_a_mirror_ran(source, copy):
    copy_of_before(source, copy)
    before = (copy / FILE).read_bytes()
    found = await audit(source.url + CAPABILITIES, copy)
    assert [each.path for each in found.findings] == [
        f"{urlsplit(source.url).netloc}/ü~a5b14bba.txt"
    ]
    assert (copy / FILE).read_bytes() == before


def test_what_was_deleted_before_is_remembered_by_either_way(tmp_path, source):
    copy_of_before(source, tmp_path / "copy")
    with State(tmp_path / "copy") as state:
        at = state.gone_at(f"{source.url}/%C3%B6.txt")
        assert at is not None
        assert at == state.gone_at(f"{source.url}/%c3%b6.txt")


def test_a_copy_is_upgraded_once(tmp_path, source):
    copy_of_before(source, tmp_path / "copy")
    for _ in range(2):
        with State(tmp_path / "copy") as state:
            found = [tuple(each) for each in state.database.execute("SELECT * FROM resource")]
    assert len(found) == 5
