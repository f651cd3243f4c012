"""Where a Source's lists are broken, cut or emptied, a mirror loses nothing and is not whole."""

import asyncio
import gzip
import io
import lzma
import os
import tarfile
from binascii import crc32
from math import ceil
from typing import Literal

import pytest

from clients.python.tests.mirror.test_mirror import files, once
from rsnotify.resourcesync.change import MICROSECONDS, Link, Position
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from rsnotify_mirror.audit import audit, repair
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.state import State
from tests.support.amount import enough
from tests.support.running import rsnotify, until
from tests.support.sources import CAPABILITIES, Source, digest, entry_of, rendered

MANY = 40


@pytest.fixture
async def many(source: Source) -> Source:
    """Forty resources in a Resource List, and nothing else."""
    source.resources.clear()
    for number in range(MANY):
        source.add(f"{number}.txt", f"first {number}".encode())
    source.list_resources()
    source.documents[CAPABILITIES] = source.capability_list("resourcelist")
    return source


def leave_out(source: Source, count: int) -> None:
    for path in list(source.resources)[:count]:
        del source.resources[path]
    source.list_resources()


def begin_again(source: Source) -> None:
    """Its Change Lists no longer reach back to any cursor."""
    source.now += 1_000_000_000
    source.at = Position(source.now)
    source.changes.clear()
    source.list_resources()


# Suddenly empty ---------------------------------------------------------------------------------


@pytest.mark.parametrize("left_out", [5, MANY // 2, MANY])
async def test_a_list_that_leaves_out_too_much_deletes_nothing_until_that_is_meant(
    many, copy, left_out
):
    await once(many, copy)
    leave_out(many, left_out)
    for _ in range(2):  # it is said again, for nothing has become better
        ran = await once(many, copy)
        assert (ran.is_whole, len(files(copy))) == (False, MANY)
        assert f"so would delete, {left_out} of 40 resources" in ran.problems()
    least = ceil(100 * left_out / MANY)
    assert f"max_delete={least} (in a command: --max-delete {least})" in ran.problems()
    assert (await once(many, copy, max_delete=least)).is_whole
    assert len(files(copy)) == MANY - left_out
    assert (await once(many, copy)).is_whole


async def test_a_tenth_may_be_left_out(many, copy):
    await once(many, copy)
    leave_out(many, MANY // 10)
    assert (await once(many, copy)).is_whole
    assert len(files(copy)) == MANY - MANY // 10


async def test_deletions_that_are_announced_one_by_one_are_obeyed(many, copy):
    many.documents[CAPABILITIES] = many.capability_list("resourcelist", "changelist")
    await once(many, copy)
    for number in range(MANY):
        many.change(f"{number}.txt", None)
    assert (await once(many, copy)).is_whole
    assert files(copy) == {}


async def test_what_changed_is_taken_though_deletions_are_held_back(many, copy):
    await once(many, copy)
    leave_out(many, MANY // 2)
    many.documents[CAPABILITIES] = many.capability_list("resourcelist", "changelist")
    begin_again(many)
    many.change("39.txt", b"second")
    many.change("new.txt", b"first")
    assert not (await once(many, copy)).is_whole
    assert (files(copy)["39.txt"], files(copy)["new.txt"]) == (b"second", b"first")
    assert len(files(copy)) == MANY + 1


async def test_a_repair_holds_back_what_a_mirror_does(many, copy):
    await once(many, copy)
    leave_out(many, MANY)
    url = many.url + CAPABILITIES
    found = await audit(url, copy)
    assert len(found.findings) == MANY
    assert not await repair(url, copy, found)
    assert len(files(copy)) == MANY
    assert await repair(url, copy, found, max_delete=100)
    assert files(copy) == {}


async def test_what_another_selection_leaves_out_is_no_deletion_by_the_source(many, copy):
    from rsnotify_mirror.selection import Selection

    await once(many, copy)
    leave_out(many, 4)
    chosen = Selection(exclude=("*/3?.txt",))
    ran = await once(many, copy, selection=chosen, max_delete=25)
    assert (ran.is_whole, len(files(copy))) == (True, 40 - 10 - 4)


@pytest.mark.parametrize("command", [("mirror", "--once"), ("audit", "--repair")])
@pytest.mark.parametrize(
    ("words", "status", "left"), [((), 1, MANY), (("--max-delete", "100"), 0, 0)]
)
async def test_the_command_ends_with_status_1_and_says_why(
    many, copy, command, words, status, left
):
    await once(many, copy)
    leave_out(many, MANY)
    ran = await rsnotify(command[0], many.url + CAPABILITIES, str(copy), command[1], *words)
    assert (ran.status, len(files(copy))) == (status, left), ran.err
    assert ("40 of 40 resources" in ran.err) == bool(status)


async def test_a_mirror_that_is_kept_asks_again_for_what_it_could_not_read(many, copy):
    await once(many, copy)
    many.documents[CAPABILITIES] = many.capability_list("resourcelist", "changelist")
    whole = dict(many.resources)
    leave_out(many, MANY)
    begin_again(many)
    options = Options(poll_seconds=0.05, relist_seconds=0.3, first_retry_seconds=0.01)
    async with AsyncMirror(many.url + CAPABILITIES, copy, options) as mirror:
        keeping = asyncio.create_task(mirror.run())
        many.change("1.txt", b"second")  # followed though the baseline is not whole

        async def is_followed() -> bool:
            return files(copy).get("1.txt") == b"second"

        await until(is_followed)
        many.resources |= whole | {"/0.txt": b"second"}
        begin_again(many)

        async def is_read_again() -> bool:
            return files(copy)["0.txt"] == b"second"

        await until(is_read_again)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    assert len(files(copy)) == MANY


# Broken Change Lists ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": 404}, "there is nothing at this address"),
        ({"status": 500}, "cannot be served now (500)"),
        ({"body": b"<html>log in</html>", "content_type": "text/html"}, "changelist.xml: "),
        ({"body": rendered("changelist", [])[:-4], "content_type": "text/xml"}, "well-formed"),
    ],
)
async def test_a_broken_change_list_does_not_end_a_baseline(many, copy, answer, said):
    many.documents[CAPABILITIES] = many.capability_list("resourcelist", "changelist")
    many.answer("/changelist.xml", **answer)
    ran = await once(many, copy)
    assert (ran.is_whole, len(files(copy))) == (False, MANY)
    assert said in ran.problems()
    many.change("1.txt", b"second")
    assert not (await once(many, copy)).is_whole
    del many.handlers["/changelist.xml"]
    assert (await once(many, copy)).is_whole
    assert files(copy)["1.txt"] == b"second"


async def test_what_a_broken_list_of_an_index_told_is_found_by_the_next_baseline(many, copy):
    """The lists after it are read; the copy counts as whole only when nothing is missing."""
    many.documents[CAPABILITIES] = many.capability_list("resourcelist", "changelist")
    await once(many, copy)
    begin, lists = str(many.at), []
    for name in "ab":
        change = many.change(f"{1 if name == 'a' else 2}.txt", b"second")
        md = {"from": begin, "until": str(change.datetime)}
        many.documents[f"/{name}.xml"] = rendered("changelist", [entry_of(change)], **md)
        lists.append(Entry(many.loc(f"{name}.xml"), md=Md(from_=begin, until=change.datetime)))
        begin = str(change.datetime)
    whole, many.documents["/a.xml"] = many.documents["/a.xml"], b"<html>"
    index = Document("sitemapindex", Md(capability="changelist"), (), tuple(lists))
    many.documents["/changelist.xml"] = render_document(index)
    ran = await once(many, copy)
    assert (ran.is_whole, files(copy)["2.txt"]) == (False, b"second")
    assert not (await once(many, copy)).is_whole
    many.documents["/a.xml"] = whole
    assert (await once(many, copy)).is_whole
    assert files(copy)["1.txt"] == b"second"


async def test_what_was_created_since_its_list_is_not_deleted_by_a_new_baseline(many, copy):
    many.documents[CAPABILITIES] = many.capability_list("resourcelist", "changelist")
    for number in range(6):
        many.change(f"new{number}.txt", b"first")
    assert (await once(many, copy)).is_whole
    with State(copy) as state:  # as a list that cannot be read leaves it
        state.set_fact("incomplete", "1")
    ran = await once(many, copy)
    assert (ran.is_whole, ran.named("deleted"), len(files(copy))) == (True, [], MANY + 6)


async def test_what_no_list_tells_between_a_baseline_and_the_change_lists_is_named(many, copy):
    many.documents[CAPABILITIES] = many.capability_list("resourcelist", "changelist")
    many.documents["/changelist.xml"] = rendered(
        "changelist", [], **{"from": "2026-11-21T00:00:00Z"}
    )
    ran = await once(many, copy)
    assert (ran.is_whole, len(files(copy))) == (False, MANY)
    assert "is in no list" in ran.problems()
    md = {"at": str(many.at), "completed": "2026-11-21T00:00:00Z"}
    entries = [
        Entry(many.url + path, md=Md(hash=digest(body))) for path, body in many.resources.items()
    ]
    many.documents["/resourcelist.xml"] = rendered("resourcelist", entries, **md)
    assert (await once(many, copy)).is_whole
    assert (await audit(many.url + CAPABILITIES, copy)).is_in_sync


# Packages ---------------------------------------------------------------------------------------


Member = tuple[tarfile.TarInfo, bytes]


def tarred(*members: Member, mode: Literal["w:xz", "w:gz"] = "w:xz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT) as packed:
        for info, content in members:
            packed.addfile(info, io.BytesIO(content))
    return file.getvalue()


def member(
    name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> Member:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(content), kind, link
    return info, content


def manifest_of(source: Source, *names: str) -> Member:
    entries = [
        Entry(source.loc(name), md=Md(hash=digest(name.encode()), path=f"/{name}"))
        for name in names
    ]
    body = rendered("resourcedump-manifest", entries, at=str(source.at))
    return member("./manifest.xml", body)


def dumped(source: Source, body: bytes) -> None:
    """The only package of a Resource Dump, whatever format it has."""
    source.documents[CAPABILITIES] = source.capability_list("resourcedump")
    entries = [Entry(source.loc("dump"), md=Md(length=len(body)))]
    source.documents["/resourcedump.xml"] = rendered("resourcedump", entries, at=str(source.at))
    source.documents["/dump"] = body


@pytest.mark.parametrize("mode", ["w:xz", "w:gz"])
async def test_a_tar_is_read_as_a_zip_is(source, copy, mode):
    names = [f"f/{number}" for number in range(300)]
    files_in = [member(f"./{name}", name.encode()) for name in names]
    long = "long/" + "n" * 200
    dumped(
        source,
        tarred(
            manifest_of(source, *names, long), *files_in, member(long, long.encode()), mode=mode
        ),
    )
    ran = await once(source, copy)
    assert ran.is_whole, ran.problems()
    assert files(copy) == {name: name.encode() for name in (*names, long)}
    assert (await audit(source.url + CAPABILITIES, copy)).is_in_sync


def with_dictionary(packed: bytes, size_code: int) -> bytes:
    """The same xz, whose header asks for a dictionary of this size; the code is of its format."""
    size = 4 * (packed[12] + 1)  # of the block's header
    header = bytearray(packed[12 : 12 + size - 4])
    assert header[2:4] == b"\x21\x01"  # LZMA2, with one byte of properties
    header[4] = size_code
    return packed[:12] + header + crc32(header).to_bytes(4, "little") + packed[12 + size :]


@pytest.mark.parametrize(("size_code", "said"), [(28, ""), (29, "Memory usage limit")])
async def test_an_xz_may_ask_for_the_dictionary_of_its_best_level_and_no_more(
    source, copy, size_code, said
):
    """64 MiB and 96; up to 4 GiB can be said in it."""
    packed = tarred(manifest_of(source, "a"), member("a", b"a"))
    dumped(source, with_dictionary(packed, size_code))
    ran = await once(source, copy)
    assert ran.is_whole is not bool(said), ran.problems()
    assert said in ran.problems()
    assert files(copy) == ({} if said else {"a": b"a"})


HOSTILE = {
    "a symlink": member("a", kind=tarfile.SYMTYPE, link="/etc/passwd"),
    "a hard link": member("a", kind=tarfile.LNKTYPE, link="/etc/passwd"),
    "a device": member("a", kind=tarfile.CHRTYPE),
    "a pipe": member("a", kind=tarfile.FIFOTYPE),
    "a folder": member("a", kind=tarfile.DIRTYPE),
    "another place": member("/tmp/../a", b"a"),
    "another content": member("a", b"b"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_of_a_tar_nothing_is_taken_but_plain_files_by_their_names(source, copy, name):
    dumped(source, tarred(manifest_of(source, "a"), HOSTILE[name]))
    ran = await once(source, copy)
    assert not ran.is_whole
    assert files(copy) == {}
    assert [each.name for each in copy.parent.iterdir()] == [copy.name]


def sparse() -> bytes:
    """A file of a terabyte that has no bytes."""
    info = tarfile.TarInfo("a")
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.size": str(2**40)}
    info.pax_headers |= {"GNU.sparse.map": f"0,0,{2**40},0", "GNU.sparse.numblocks": "2"}
    return tarred((info, b""))


def header_bomb() -> bytes:
    info = tarfile.TarInfo("a")
    info.pax_headers = {"comment": os.urandom(2**18).hex()}
    return tarred((info, b""))


def too_many() -> bytes:
    blocks = (tarfile.TarInfo(str(number)).tobuf() for number in range(1_100))
    return gzip.compress(b"".join(blocks), compresslevel=1)


REFUSED = {
    "an xz bomb": (lambda: lzma.compress(bytes(2**24)), "inflates beyond"),
    "a gzip bomb": (lambda: gzip.compress(bytes(2**24)), "inflates beyond"),
    "a sparse file": (sparse, "has no manifest.xml"),
    "a long header": (header_bomb, "a header of more than"),
    "too many": (too_many, "more than 1,000 members"),
    "cut": (lambda: tarred(member("a", b"a"))[:-20], "no ZIP package, and no tar"),
    "no manifest": (lambda: tarred(member("a", b"a")), "has no manifest.xml"),
    "no xz": (lambda: b"\xfd7zXZ\0 and nothing more", "no ZIP package, and no tar"),
    "no gzip": (lambda: b"\x1f\x8b", "no ZIP package, and no tar"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_hostile_tar_is_refused(source, copy, name, monkeypatch):
    monkeypatch.setattr("rsnotify_client.dumps.MEMBERS", 1_000)
    made, said = REFUSED[name]
    body = made()
    dumped(source, body)
    ran = await once(source, copy)
    assert not ran.is_whole
    assert said in ran.problems()
    assert files(copy) == {}


@pytest.mark.parametrize(
    ("body", "md", "said"),
    [
        (b"hello", Md(), "dump.zip is no ZIP package"),
        (b"PK", Md(hash=digest(b"other")), "its sha-256 is"),
        (b"PK", Md(length=3), "2 bytes"),
        (None, Md(), "dump.zip answers 404"),
    ],
)
@pytest.mark.parametrize("capability", enough(["resourcedump", "changedump"], 1))
async def test_a_package_that_cannot_be_read_is_named_and_the_copy_is_not_whole(
    source, copy, capability, body, md, said
):
    source.documents[CAPABILITIES] = source.capability_list(capability)
    entries = [Entry(source.loc("dump.zip"), md=md, links=(Link("other", "x"),))]
    times = {"at": str(source.at)} if capability == "resourcedump" else {"from": str(source.at)}
    source.documents[f"/{capability}.xml"] = rendered(capability, entries, **times)
    if body is not None:
        source.documents["/dump.zip"] = body
    ran = await once(source, copy)
    assert not ran.is_whole
    assert said in ran.problems()
    found = await audit(source.url + CAPABILITIES, copy)
    assert not found.is_in_sync


# Several sitemaps -------------------------------------------------------------------------------


async def test_all_sitemaps_that_a_robots_txt_names_are_one_source(source, copy):
    """Some of them an index, as large sites have them; one of them gone, and nothing is deleted."""
    source.resources.clear()
    lists = {"a": ["one", "two"], "b": ["three"], "c": ["four"]}
    for name, names in lists.items():
        for each in names:
            source.add(f"{each}.txt", each.encode())
        entries = tuple(Entry(source.loc(f"{each}.txt")) for each in names)
        source.documents[f"/{name}.xml"] = render_document(Document("urlset", None, (), entries))
    source.documents["/index.xml"] = render_document(
        Document("sitemapindex", None, (), (Entry(source.loc("b.xml")),))
    )
    source.documents.pop(CAPABILITIES, None)
    robots = "\ufeffSitemap: /a.xml\nSitemap : {0}index.xml\nSITEMAP:{0}c.xml\nSitemap: {0}c.xml\n"
    source.documents["/robots.txt"] = robots.format(source.loc("")).encode()
    async with AsyncMirror(source.url, copy, Options(first_retry_seconds=0.01)) as mirror:
        assert await mirror.once()
    assert {*files(copy)} == {"one.txt", "two.txt", "three.txt", "four.txt"}
    found = await audit(source.url, copy)
    assert (found.is_in_sync, found.resources) == (True, 4)
    del source.documents["/c.xml"]
    async with AsyncMirror(source.url, copy, Options(first_retry_seconds=0.01)) as mirror:
        assert not await mirror.once()
    assert len(files(copy)) == 4
    source.documents["/c.xml"] = render_document(Document("urlset", None, (), ()))
    del source.resources["/four.txt"]
    async with AsyncMirror(source.url, copy, Options(max_delete=30)) as mirror:
        assert await mirror.once()
    assert {*files(copy)} == {"one.txt", "two.txt", "three.txt"}


async def test_nothing_is_lost_where_a_list_has_microseconds_and_its_changes_whole_seconds(
    source, copy
):
    """What changes in the second of the list, after it, has a time that looks older than it."""
    source.add("a", b"1")
    source.add("b", b"1")
    second = source.at // MICROSECONDS * MICROSECONDS + 5 * MICROSECONDS
    source.at = Position(second + 500_000)
    source.list_resources()
    begins = str(Position(second - 60 * MICROSECONDS))
    whole = str(Position(second))[:19] + "Z"

    def list_changes(*changes: Entry) -> None:
        md = Md(capability="changelist", from_=begins)
        source.documents["/changelist.xml"] = render_document(Document("urlset", md, (), changes))

    list_changes()
    await once(source, copy)
    content = source.resources["/a"] = b"another"
    told = {"hash": digest(content), "length": len(content)}
    updated = Entry(source.loc("a"), md=Md(change="updated", datetime=whole, **told))
    del source.resources["/b"]
    deleted = Entry(source.loc("b"), md=Md(change="deleted", datetime=whole))
    list_changes(updated, deleted)
    await once(source, copy)
    assert files(copy) == {path[1:]: content for path, content in source.resources.items()}


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("seconds", [-1, 0, 1])
async def test_of_changes_in_whole_seconds_those_before_the_second_of_the_list_are_old(
    source, copy, seconds, is_closed
):
    """The Resource List is of the middle of a second; a list may be closed in the change's own."""
    second = source.at + 5 * MICROSECONDS
    source.at = Position(second + 500_000)
    source.list_resources()
    start, when = (
        str(Position(second + each * MICROSECONDS))[:19] + "Z" for each in (-60, seconds)
    )
    md, lists = {"from": start}, [Entry(source.loc("one.xml"), md=Md(from_=start))]
    source.documents["/one.xml"] = rendered("changelist", [], **md)
    index = Document("sitemapindex", Md(capability="changelist"), (), tuple(lists))
    source.documents["/changelist.xml"] = render_document(index)
    await once(source, copy)
    content = source.resources["/a.txt"] = b"another"
    told = {"hash": digest(content), "length": len(content)}
    changes = [
        Entry(source.loc("a.txt"), md=Md(change="updated", datetime=when, **told)),
        Entry(source.loc("b.txt"), md=Md(change="deleted", datetime=when)),
    ]
    if is_closed:
        md["until"] = when
        source.documents["/two.xml"] = rendered("changelist", [], **{"from": when})
        lists = [
            Entry(source.loc("one.xml"), md=Md(from_=start, until=when)),
            Entry(source.loc("two.xml"), md=Md(from_=when)),
        ]
    source.documents["/one.xml"] = rendered("changelist", changes, **md)
    index = Document("sitemapindex", Md(capability="changelist"), (), tuple(lists))
    source.documents["/changelist.xml"] = render_document(index)
    for _ in range(2):
        assert (await once(source, copy)).is_whole
        is_new = seconds >= 0
        assert (files(copy)["a.txt"] == content, "b.txt" in files(copy)) == (is_new, not is_new)
