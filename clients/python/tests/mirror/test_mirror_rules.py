"""What a mirror decides: what is current, where it is had, what patches and packages may do."""

import hashlib
import io
import json
import shutil
import struct
import threading
import zipfile
from collections import deque
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.tables import PATCH
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.dumps import DICTIONARY_BYTES, FREE_BYTES, MEMBERS, NAMED, Package
from rsnotify_client.resource import Check, SourceResource
from rsnotify_client.web import Unpacker, origin_of, retry_after
from rsnotify_mirror.audit import Audit, _files, judged
from rsnotify_mirror.disk import FOLDERS_OPEN, Disk
from rsnotify_mirror.fetch import LARGE_READ_BYTES, Receiving
from rsnotify_mirror.patch import NotApplicable, apply, candidates, xml_candidates
from rsnotify_mirror.plan import (
    Have,
    addresses,
    cheaper_patch,
    compared,
    is_current,
    newest,
    wanted_by,
)
from rsnotify_mirror.report import Event, percentile
from rsnotify_mirror.room import FetchPace
from rsnotify_mirror.selection import Selection
from rsnotify_mirror.state import START, State, StateRow
from rsnotify_mirror.storing import command_hook
from rsnotify_mirror.workers import ATTEMPTS, LATER_SECONDS, LATEST_SECONDS, delay
from tests.support.sources import rendered

MD5, SHA = "md5:" + "a" * 32, "sha-256:" + "b" * 64
LOC = "http://example.com/a"
EXACT = "2013-01-02T03:04:05.6Z"


@pytest.mark.parametrize(
    ("wanted", "have", "current"),
    [
        ({"hash": SHA}, {"hash": SHA, "lastmod": "2000"}, True),
        ({"hash": SHA.upper().replace("SHA", "sha")}, {"hash": SHA}, True),
        ({"hash": f"{MD5} {SHA}"}, {"hash": SHA}, True),
        ({"hash": SHA[:-1] + "c"}, {"hash": SHA}, False),
        ({"hash": MD5, "lastmod": EXACT}, {"hash": SHA, "lastmod": EXACT}, True),
        ({"lastmod": EXACT}, {"lastmod": EXACT}, True),
        ({"lastmod": "2014"}, {"lastmod": "2013"}, False),
        ({"lastmod": "2013", "length": 2}, {"lastmod": "2013", "length": 1}, False),
        ({}, {}, False),
        ({"hash": "sha-256:short"}, {"hash": "sha-256:short"}, False),
        ({"hash": "md5:a sha-1:" + "b" * 24}, {"hash": "md5:a sha-1:" + "b" * 24}, False),
    ],
)
def test_a_resource_is_current_if_what_the_source_says_of_it_is_known(wanted, have, current):
    assert is_current(SourceResource(LOC, **wanted), Have(**have)) == current


def test_rows_that_were_read_are_old_once_a_resource_that_is_known_is_planned(tmp_path):
    with State(tmp_path) as state:
        state.plan([SourceResource("a")], 1, now=1.0)
        state.plan([SourceResource("b")], 1, now=1.0)
        assert not state.replanned
        state.plan([SourceResource("c"), SourceResource("b", lastmod="2")], 1, now=1.0)
        assert state.replanned


def test_a_failure_counts_only_if_the_resource_was_not_planned_anew_meanwhile(tmp_path):
    with State(tmp_path) as state:
        state.plan([SourceResource("a")], 1, now=1.0)
        ((before,), _) = state.due(1.0, START, 10, ())
        state.plan([SourceResource("a", lastmod="2")], 1, now=1.0)
        assert not state.failed(before, "404", due=9.0)
        ((now,), _) = state.due(1.0, START, 10, ())
        assert state.failed(now, "404", due=9.0)
        assert state.due(1.0, START, 10, ()) == ([], None)


def test_what_is_due_is_read_on_from_where_it_was_read_to(tmp_path):
    with State(tmp_path) as state:
        state.plan([SourceResource(loc) for loc in "badc"], 1, now=1.0)
        state.plan([SourceResource("later")], 1, now=9.0)
        state.plan([SourceResource("aa")], 1, now=2.0)
        first, read_to = state.due(2.0, START, 3, {"b"})
        assert [row.loc for row in first] == ["a", "c"]
        assert read_to == (1.0, "c")
        state.plan([SourceResource("a", lastmod="2")], 1, now=2.0)
        rest, end = state.due(2.0, read_to, 10, {"b"})
        assert [row.loc for row in rest] == ["d", "a", "aa"]
        assert end is None


def test_parts_are_swept_but_for_those_of_resources_that_are_begun(tmp_path):
    disk = Disk(tmp_path)
    with State(tmp_path) as state:
        state.plan([SourceResource("begun"), SourceResource("other")], 1, now=1.0)
        state.keep_part("begun", Have(etag='"1"'))
        for loc in ("begun", "other", "of nobody"):
            disk.open_part(loc).close()
        disk.sweep(state.begun)
        kept = tmp_path / disk.part_name("begun")
        assert list(kept.parent.iterdir()) == [kept]
        state.keep_part("begun", None)
        disk.sweep(state.begun)
        assert not kept.parent.exists()
    disk.close()


async def test_where_deleted_files_are_kept_a_folder_may_be_removed(tmp_path):
    copy, kept = tmp_path / "copy", tmp_path / "kept"
    copy.mkdir()
    kept.mkdir()
    with closing(Disk(copy)) as disk, closing(Disk(kept)) as aside:
        for name in ("first", "second"):
            disk.put(f"folder/{name}", b"content", None)
        assert await disk.move_to(aside, "folder/first", "mark") == []
        shutil.rmtree(kept / "folder")
        assert await disk.move_to(aside, "folder/second", "mark") == ["folder"]
    assert [each.name for each in (kept / "folder").iterdir()] == ["second"]
    assert not (copy / "folder").exists()


async def test_a_long_name_is_cut_where_it_gets_a_mark(tmp_path):
    copy, kept, name = tmp_path / "copy", tmp_path / "kept", "ä" * 120
    copy.mkdir()
    kept.mkdir()
    with closing(Disk(copy)) as disk, closing(Disk(kept)) as aside:
        for _ in range(2):
            disk.put(name, b"content", None)
            await disk.move_to(aside, name, "20261201T120000.000000Z")
    found = {each.name for each in kept.iterdir()}
    assert found == {name, "ä" * 115 + "~20261201T120000.000000Z"}
    assert not (copy / name).exists()


async def test_a_file_is_moved_into_more_folders_than_are_held_open(tmp_path):
    path = "deep/" * (FOLDERS_OPEN + 10) + "file"
    with closing(Disk(tmp_path)) as disk:
        disk.put("folder/file", b"content", None)
        assert await disk.move("folder/file", path) == ["folder"]
        assert disk.status(path) is not None


def test_of_several_changes_to_one_resource_the_newest_counts():
    found = newest(
        [SourceResource("a", lastmod="1"), SourceResource("b"), SourceResource("a", lastmod="2")]
    )
    assert {each.loc: each.lastmod for each in found} == {"a": "2", "b": None}


def test_mirrors_are_asked_by_pri_first_if_what_they_send_can_be_verified():
    links = (
        Link("duplicate", "http://two/", pri=2),
        Link("duplicate", "gsiftp://never/", pri=1),
        Link("duplicate", "http://one/", pri=1),
        Link("duplicate", "http://last/"),
    )
    known = SourceResource(LOC, hash=SHA, links=links)
    assert addresses(known) == ["http://one/", "http://two/", "http://last/", LOC]
    assert addresses(SourceResource(LOC, links=links))[0] == LOC


@pytest.mark.parametrize(
    ("lastmod", "ends"),
    [
        ("2026-11-20", "2026-11-21T12:00:00Z"),  # in the last of the time zones
        ("2026-11", "2026-12-02T12:00:00Z"),
        ("2026", "2027-01-02T12:00:00Z"),
        ("2026-11-20T10:00Z", "2026-11-20T10:01:00Z"),
        ("2026-11-20T10:00+01:00", "2026-11-20T09:01:00Z"),
        ("2026-11-20T10:00:07Z", "2026-11-20T10:00:08Z"),
        ("2026-11-20T10:00:07-01:00", "2026-11-20T11:00:08Z"),
    ],
)
def test_a_time_is_a_proof_once_all_that_it_may_mean_is_over(lastmod, ends):
    wanted, over = SourceResource(LOC, lastmod=lastmod), int(Position.parse(ends)) // 1_000_000
    assert compared(wanted, Have(lastmod, asked=over)) is True
    assert compared(wanted, Have(lastmod, asked=over - 1)) is None
    assert compared(wanted, Have(lastmod)) is None
    assert compared(wanted, Have("2026-11-19", asked=over)) is False


@pytest.mark.parametrize("lastmod", ["2026-11-20T10:00:07", "yesterday", "2026-13-40", ""])
def test_a_time_that_cannot_be_read_proves_nothing(lastmod):
    assert compared(SourceResource(LOC, lastmod=lastmod), Have(lastmod, asked=2**40)) is None


@pytest.mark.parametrize(
    ("loc", "taken"),
    [("http://a/x.pdf", True), ("http://a/x.txt", False), ("http://a/old/x.pdf", False)],
)
def test_resources_are_selected_and_excluded_by_globs(loc, taken):
    assert Selection(("*.pdf",), ("*/old/*",)).takes(loc) == taken


def test_a_selection_is_spelled_as_on_the_command_line():
    assert str(Selection(("*/a b",), ("c",))) == "--select '*/a b' --exclude c"
    assert str(Selection()) == ""


@pytest.mark.parametrize(
    ("length", "known", "is_taken"), [(9, True, True), (10, True, False), (9, False, False)]
)
def test_a_patch_is_taken_if_it_is_shorter_and_can_be_checked(length, known, is_taken):
    link = Link(PATCH, "http://a/p", length=length, type="application/json-patch+json")
    wanted = SourceResource(LOC, length=10, hash=SHA if known else None, links=(link,))
    assert (cheaper_patch(wanted, Have()) is link) == is_taken
    assert cheaper_patch(wanted, None) is None


@pytest.mark.parametrize(
    ("type_", "is_taken"),
    [
        ("application/json-patch+json", True),
        ("application/json-patch", True),
        ("application/xml-patch+xml", True),
        ("application/xml-patch", True),
        ("application/patch-ops-error+xml", True),
        ("Application/Patch-Ops-Error+XML; charset=utf-8", True),
        ("application/patch-ops-error", False),
        ("application/xml", False),
        (None, False),
    ],
)
def test_a_patch_of_the_types_that_the_specification_names_is_taken(type_, is_taken):
    link = Link(PATCH, "http://a/p", length=9, type=type_)
    wanted = SourceResource(LOC, length=10, hash=SHA, links=(link,))
    assert (cheaper_patch(wanted, Have()) is link) == is_taken


# The examples of RFC 6902, appendix A
PATCHES = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/1", "value": "q"}], {"foo": ["bar", "q"]}),
    ({"baz": "q", "foo": 1}, [{"op": "remove", "path": "/baz"}], {"foo": 1}),
    ({"foo": [1, 2, 3]}, [{"op": "remove", "path": "/foo/1"}], {"foo": [1, 3]}),
    ({"baz": "q"}, [{"op": "replace", "path": "/baz", "value": "b"}], {"baz": "b"}),
    (
        {"a": {"b": 1}, "c": {}},
        [{"op": "move", "from": "/a/b", "path": "/c/d"}],
        {"a": {}, "c": {"d": 1}},
    ),
    ({"foo": [1, 2]}, [{"op": "move", "from": "/foo/0", "path": "/foo/1"}], {"foo": [2, 1]}),
    ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
    ({"a": "b"}, [{"op": "test", "path": "/a", "value": "b"}], {"a": "b"}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"foo": ["b"]}, [{"op": "add", "path": "/foo/-", "value": ["c"]}], {"foo": ["b", ["c"]]}),
    (1, [{"op": "replace", "path": "", "value": 2}], 2),
]


@pytest.mark.parametrize(("old", "patch", "new"), PATCHES)
def test_a_json_patch_gives_the_new_document(old, patch, new):
    assert apply(old, patch) == new


def test_a_json_patch_leaves_members_where_they_are():
    patch = [{"op": op, "path": "/b", "value": op} for op in ("replace", "add")]
    assert list(apply({"a": 1, "b": 2, "c": 3}, patch)) == ["a", "b", "c"]


# Most are examples of RFC 5261, appendix A, without their white space
@pytest.mark.parametrize(("count", "is_applied"), [(16, True), (17, False)])
def test_a_json_patch_copies_up_to_16_mib(count, *, is_applied):
    a_mebibyte = "x" * (1024 * 1024 - len('""'))
    patch = [{"op": "copy", "from": "/a", "path": f"/{number}"} for number in range(count)]
    with nullcontext() if is_applied else pytest.raises(NotApplicable, match="16 MiB"):
        assert len(apply({"a": a_mebibyte}, patch)) == count + 1


@pytest.mark.evidence
def test_a_json_patch_that_doubles_the_document_each_time_is_refused():
    patch = [{"op": "copy", "from": "", "path": f"/{number}"} for number in range(40)]
    with pytest.raises(NotApplicable, match="16 MiB"):
        apply({"a": 1}, patch)


XML_PATCHES = [
    ("<d><n>t</n></d>", '<add sel="d"><f id="1">x</f></add>', '<d><n>t</n><f id="1">x</f></d>'),
    ("<d><f/></d>", '<add sel="d/f" type="@user">Bob</add>', '<d><f user="Bob"/></d>'),
    ("<d>a<f/></d>", '<add sel="d/f" pos="before"><!--c-->t</add>', "<d>a<!--c-->t<f/></d>"),
    ("<d><f/>z</d>", '<add sel="*/f" pos="after">x<g/>y</add>', "<d><f/>x<g/>yz</d>"),
    ("<d>t<f/></d>", '<add sel="/d" pos="prepend">x<g/>y</add>', "<d>x<g/>yt<f/></d>"),
    ("<d><f>a</f></d>", '<replace sel="d/f[1]"><g>b</g></replace>', "<d><g>b</g></d>"),
    ("<d><f>a</f>z</d>", '<replace sel="d/f"><g/></replace>', "<d><g/>z</d>"),
    ('<d a="1"/>', '<replace sel="d/@a">2</replace>', '<d a="2"/>'),
    ("<d>a<!--b-->c</d>", '<replace sel="d/comment()[1]"><!--x--></replace>', "<d>a<!--x-->c</d>"),
    ("<d>a<f/>c</d>", '<replace sel="d/text()[2]">z</replace>', "<d>a<f/>z</d>"),
    ("<d>a<f/>c</d>", '<remove sel="d/f"/>', "<d>ac</d>"),
    ("<d>a<f/>c</d>", '<remove sel="d/text()[1]"/>', "<d><f/>c</d>"),
    ('<d a="1" b="2"/>', '<remove sel="d/@a"/>', '<d b="2"/>'),
    ("<d> <f/> </d>", '<remove sel="d/f" ws="after"/>', "<d> </d>"),
    ("<d> <f/> </d>", '<remove sel="d/f" ws="both"/>', "<d/>"),
    ("<d>old</d>", '<replace sel="d"><e>new</e></replace>', "<e>new</e>"),
    ('<d><f i="1"/><f i="2"/></d>', """<remove sel="d/f[@i='2']"/>""", '<d><f i="1"/></d>'),
    ("<d><f><n>x</n></f><f/></d>", """<remove sel="d/f[n='x']"/>""", "<d><f/></d>"),
    ('<p:d xmlns:p="u"><p:f/></p:d>', '<remove sel="q:d/q:f" xmlns:q="u"/>', '<p:d xmlns:p="u"/>'),
    ('<d xmlns="u"><f/></d>', '<remove xmlns="u" sel="d/f[1]"/>', '<d xmlns="u"/>'),
    ('<d xmlns="u"/>', '<add xmlns="u" sel="d"><f/></add>', '<d xmlns="u"><f/></d>'),
]


@pytest.mark.parametrize(("old", "patch", "new"), XML_PATCHES)
def test_an_xml_patch_gives_the_new_document(old, patch, new):
    assert new.encode() in xml_candidates(old.encode(), f"<diff>{patch}</diff>".encode())


@pytest.mark.parametrize(
    "patch",
    [
        "<diff",
        "<patch/>",
        '<diff><move sel="d"/></diff>',
        '<diff><remove sel="d"/></diff>',
        '<diff><remove sel="d/f"/></diff>',  # two
        '<diff><remove sel="//g"/></diff>',
        '<diff><remove sel="d/descendant::g"/></diff>',
        """<diff><remove sel="document('/etc/passwd')"/></diff>""",
        '<diff><remove sel="d/g | d/f[1]"/></diff>',
        '<diff><remove sel="count(d)"/></diff>',
        '<diff><remove sel="q:d/g"/></diff>',
        '<diff><remove sel="d/g" ws="after"/></diff>',
        '<diff><remove sel=""/></diff>',
        f'<diff><remove sel="d{"/*" * 500}"/></diff>',
        '<diff><replace sel="d/g"/></diff>',
        '<diff><add sel="d" pos="before"><g/></add></diff>',
        '<diff><add sel="d" type="namespace::p">u</add></diff>',
        '<diff><add sel="d/@a">u</add></diff>',
        '<!DOCTYPE diff [<!ENTITY a "b">]><diff/>',
    ],
)
def test_an_xml_patch_that_does_not_fit_is_refused(patch):
    with pytest.raises(NotApplicable):
        next(xml_candidates(b'<d a="1"><f/><f/><g/></d>', patch.encode()))


@pytest.mark.parametrize(
    "old",
    [
        b'<?xml version="1.0" encoding="UTF-8"?>\n<d><f /></d>\n',
        b"<?xml version='1.0'?><d><f/></d>",
        b"<d>\n  <f/>\n</d>",
        '<?xml version="1.0"?>\n<!-- é --><d><f/><![CDATA[<a>]]></d>'.encode(),
    ],
)
def test_an_xml_document_is_spelt_as_it_was(old):
    patch = b'<diff><add sel="d/f" type="@a">1</add></diff>'
    assert old.replace(b"<f", b'<f a="1"') in xml_candidates(old, patch)


@pytest.mark.parametrize(
    "patch",
    [
        {"op": "add"},
        [{"op": "add", "path": "/a/b", "value": 1}],
        [{"op": "test", "path": "/n", "value": True}],
        [{"op": "remove", "path": "/none"}],
        [{"op": "add", "path": "/list/01", "value": 1}],
        [{"op": "add", "path": "/list/2", "value": 1}],
        [{"op": "move", "from": "/list", "path": "/list/0"}],
        [{"op": "execute", "path": "/n"}],
        [{"op": "replace", "path": "n", "value": 1}],
    ],
)
def test_a_patch_that_does_not_fit_is_refused(patch):
    with pytest.raises(NotApplicable):
        apply({"n": 1, "list": [1]}, patch)


def test_the_usual_spellings_of_json_are_tried():
    patch = json.dumps([{"op": "add", "path": "/b", "value": "é"}]).encode()
    found = list(candidates(b'{"a": 1}', patch))
    for text in ('{"a":1,"b":"é"}', '{"a": 1, "b": "\\u00e9"}\n', '{\n  "a": 1,\n  "b": "é"\n}'):
        assert text.encode() in found


# Packages


def package(
    members: dict[str, bytes], entries: list[Entry], compression: int = zipfile.ZIP_DEFLATED
) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as packed:
        packed.writestr("manifest.xml", rendered("resourcedump-manifest", entries, at="2026-01-01"))
        for name, content in members.items():
            packed.writestr(name, content)
    return file


def entry(path: str | None, **md: object) -> Entry:
    return Entry(LOC, md=Md(path=path, **md))


def test_a_package_gives_what_its_manifest_describes():
    opened = Package(package({"res/a": b"abc"}, [entry("/res/a", length=3)]), "a.zip")
    (found,) = opened.resources()
    assert b"".join(opened.content(found)) == b"abc"


@pytest.mark.parametrize("path", ["/../a", "/res/../../a", "..\\a", "/a\\..\\..\\b"])
def test_a_path_that_leads_out_of_a_package_is_refused_and_named(path):
    opened = Package(package({path.lstrip("/"): b"abc"}, [entry(path)]), "a.zip")
    assert list(opened.resources()) == []
    assert "leads out of the package" in opened.refused[0]


def test_what_a_package_does_not_hold_is_named():
    opened = Package(package({}, [entry("/a")]), "a.zip")
    assert list(opened.resources()) == []
    assert opened.refused == ["a.zip does not hold '/a'"]


@pytest.mark.parametrize("more", [0, 1, 7])
def test_so_many_refusals_are_named_and_the_others_counted(more):
    opened = Package(package({}, [entry("/a")] * (NAMED + more)), "a.zip")
    assert list(opened.resources()) == []
    assert opened.refused[:NAMED] == ["a.zip does not hold '/a'"] * NAMED
    assert opened.refused[NAMED:] == ([f"a.zip: {more} more are refused"] if more else [])


@pytest.mark.parametrize(("length", "is_refused"), [(3, False), (2, True)])
def test_a_member_that_inflates_beyond_its_length_is_refused(length, is_refused):
    opened = Package(package({"a": b"abc"}, [entry("/a", length=length)]), "a.zip")
    (found,) = opened.resources()
    if is_refused:
        with pytest.raises(Rejected, match="inflates beyond 2 bytes"):
            b"".join(opened.content(found))
    else:
        assert b"".join(opened.content(found)) == b"abc"


def test_a_bomb_without_a_length_is_refused_before_it_is_inflated():
    opened = Package(package({"a": b"\0" * (40 * FREE_BYTES)}, [entry("/a")]), "a.zip")
    (found,) = opened.resources()
    pieces: list[bytes] = []
    with pytest.raises(Rejected, match="inflates beyond"):
        pieces.extend(opened.content(found))
    total = sum(map(len, pieces))
    assert total < 12 * FREE_BYTES


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_that_cannot_be_inflated_is_refused(compression):
    content = package({"a": b"abc"}, [entry("/a")], compression)
    with zipfile.ZipFile(content) as file:
        member = file.getinfo("a")
    begins = 9  # bytes that say how it was compressed
    content.seek(member.header_offset + 31 + begins)  # 30 of the header, one of the name
    content.write(b"\xff" * (member.compress_size - begins))
    opened = Package(content, "a.zip")
    (found,) = opened.resources()
    with pytest.raises(Rejected, match="cannot read 'a'"):
        b"".join(opened.content(found))


@pytest.mark.parametrize(("more", "is_refused"), [(0, False), (1, True)])
def test_a_member_remembers_64_mib_at_most(*, more, is_refused):
    content = package({"a": b"abc"}, [entry("/a")], zipfile.ZIP_LZMA)
    with zipfile.ZipFile(content) as file:
        member = file.getinfo("a")
    content.seek(member.header_offset + 36)  # 30 of the header, one of the name, 5 before it
    content.write((DICTIONARY_BYTES + more).to_bytes(4, "little"))
    opened = Package(content, "a.zip")
    (found,) = opened.resources()
    if is_refused:
        with pytest.raises(Rejected, match="'a' wants more than"):
            b"".join(opened.content(found))
    else:
        assert b"".join(opened.content(found)) == b"abc"


def test_a_member_whose_name_cannot_be_read_is_refused():
    content = package({"é": b"abc"}, [entry("/é")])
    with zipfile.ZipFile(content) as file:
        start = file.getinfo("é").header_offset + 30
    content.seek(start)
    content.write(b"\xff")
    opened = Package(content, "a.zip")
    (found,) = opened.resources()
    with pytest.raises(Rejected, match="cannot read 'é'"):
        b"".join(opened.content(found))


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"PK\x05\x06" + b"\0" * 18, b"PK\x05\x06" + b"\xff" * 18]
)
def test_what_is_no_package_is_refused(content):
    with pytest.raises(Rejected):
        list(Package(io.BytesIO(content), "a.zip").resources())


def directory(members: int, *, claimed: int, zip64: bool) -> io.BytesIO:
    """A package of nothing but its directory, which claims to have other members than it has."""
    content = (struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 9, 1, *[0] * 6) + b"a") * members
    size = len(content)
    if not zip64:
        return io.BytesIO(content + _end(claimed, size))
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, claimed, claimed, size, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, size, 1)
    return io.BytesIO(content + record + locator + _end(0, 0))


def _end(members: int, size: int) -> bytes:
    return struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, members, members, size, 0, 0)


@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("claimed", [1, MEMBERS])
def test_members_are_counted_in_the_directory_that_is_read_whatever_is_claimed(*, claimed, zip64):
    Package(directory(MEMBERS, claimed=claimed, zip64=zip64), "a.zip")
    with pytest.raises(Rejected, match=f"more than {MEMBERS:,} members"):
        Package(directory(MEMBERS + 1, claimed=claimed, zip64=zip64), "a.zip")


@pytest.mark.parametrize("zip64", [False, True])
def test_a_directory_is_read_up_to_its_limit_in_bytes(*, zip64):
    Package(directory(3, claimed=1, zip64=zip64), "a.zip", 3 * 47)
    with pytest.raises(Rejected, match="a directory of 141 bytes"):
        Package(directory(3, claimed=1, zip64=zip64), "a.zip", 3 * 47 - 1)


def test_a_manifest_that_is_hostile_is_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("manifest.xml", '<!DOCTYPE a [<!ENTITY x "y">]><urlset>&x;</urlset>')
    with pytest.raises(Rejected):
        list(Package(file, "a.zip").resources())


# Commands


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'touch {path}'",
        "sh -c 'touch \"$1\"' sh {path}",
        "python3 -c 'print(\"{loc}\")'",
        "awk 'BEGIN{system(\"touch {path}\")}'",
        "env -S 'touch {loc}'",
        "git -c alias.x='!touch {path}' x",
        "sed '1e touch {path}' /dev/null",
        "tar --checkpoint-action=exec='touch {loc}'",
        "sqlite3 db \"insert into a values ('{loc}')\"",
        "make V={path}",
        "touch {path}",
        "echo {{loc}}",
        "{path}",
    ],
)
def test_nothing_that_a_source_writes_becomes_a_word_of_a_command(command):
    with pytest.raises(InvalidSettings) as refused:
        command_hook(command, Path("/copy"))
    (problem,) = refused.value.problems
    assert f"$RSNOTIFY_{'LOC' if 'loc' in command else 'PATH'}" in problem


async def test_a_script_reads_from_the_environment_what_a_source_writes(tmp_path):
    out = tmp_path / "out"
    hook = command_hook(f"""sh -c 'printf %s "$RSNOTIFY_LOC" > {out}'""", tmp_path)
    await hook(Event("stored", "http://a/$(touch x);`id`", "a"), None)
    assert out.read_text() == "http://a/$(touch x);`id`"


# The rest


def test_gzip_is_unpacked_piece_by_piece_twice_at_most_and_only_where_it_is():
    import gzip

    packed = gzip.compress(gzip.compress(b"<urlset/>"))
    for data in (packed, b"<urlset/>", gzip.compress(b"<urlset/>")):
        unpacker = Unpacker()
        found = b"".join(piece for byte in data for piece in unpacker.feed(bytes([byte])))
        assert found == b"<urlset/>"


def test_no_piece_of_a_bomb_is_large():
    import gzip

    pieces = Unpacker().feed(gzip.compress(b"\0" * 50_000_000))
    assert max(map(len, pieces)) <= 256 * 1024


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("3600", 3_600), ("3601", 3_600), ("soon", 0), (None, 0)]
)
def test_a_source_is_left_alone_for_an_hour_at_most(text, seconds):
    assert retry_after(text) == seconds


def test_failures_are_tried_again_soon_a_few_times_and_then_rarely():
    assert delay(ATTEMPTS - 1, 0.99) < 5
    assert delay(ATTEMPTS, 0) >= LATER_SECONDS / 2
    assert delay(1_000, 1) <= LATEST_SECONDS


@pytest.mark.parametrize("url", ["http://[::1", "http://a.example:65536", "ws://a.example:x"])
def test_an_address_that_cannot_be_read_is_refused(url):
    with pytest.raises(Rejected, match="is no address that can be fetched: "):
        origin_of(url)


def test_a_channel_has_the_origin_of_its_http_twin():
    assert origin_of("ws://A.example/b") == origin_of("http://a.example:80/c")
    assert origin_of("https://a.example") != origin_of("http://a.example")


def test_percentiles():
    assert percentile([], 0.5) is None
    assert percentile(list(range(100)), 0.99) == 99


def row(have: Have | None, path: str | None = "a") -> StateRow:
    return StateRow(LOC, path, SourceResource(LOC), have, None, 1, 0, None)


@pytest.mark.parametrize(
    ("wanted", "have", "length", "kind"),
    [
        ({}, None, None, "missing"),
        ({"length": 3}, {"length": 3}, 3, None),
        ({"length": 3}, {"length": 3}, 2, "length"),
        ({}, {"length": 3}, 2, "length"),
        ({"lastmod": "2014"}, {"lastmod": "2013"}, 1, "older"),
        ({"lastmod": "2013"}, {"lastmod": "2013"}, 1, None),
        ({"lastmod": "2014", "hash": SHA}, {"lastmod": "2013"}, 1, None),
    ],
)
def test_an_audit_sees_by_length_and_time_what_is_wrong(wanted, have, length, kind):
    found = judged(SourceResource(LOC, **wanted), row(Have(**have)) if have else None, length)
    assert (found and found.kind) == kind


def test_a_folder_that_goes_while_an_audit_looks_for_files_is_not_named(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    found = Audit()
    for _ in _files(found, tmp_path):
        (tmp_path / "folder").rmdir()
    assert found.skipped == []


def test_a_change_says_what_is_wanted():
    change = Change(LOC, "deleted", links=(Link("canonical", "http://c/"),))
    assert wanted_by(change).is_deleted


class Body:
    """An answer's long body."""

    status = 200

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = deque(pieces)

    def readinto(self, view: memoryview) -> int:
        piece = self._pieces.popleft() if self._pieces else b""
        view[: len(piece)] = piece
        return len(piece)


def test_a_long_body_goes_into_the_file_and_its_digest_whole():
    pieces = [bytes([each]) * (LARGE_READ_BYTES - each) for each in range(5)]
    content, file, told = b"".join(pieces), io.BytesIO(), list[int]()
    check = Check(len(content), f"sha-256:{hashlib.sha256(content).hexdigest()}")
    lengths, no_limit = list[int](), FetchPace(None)
    receiving = Receiving(
        *(LOC, SourceResource(LOC), False, check, told.append, lengths.append),
        *(no_limit, threading.Event()),
    )
    receiving.receive(cast("Any", Body(pieces)), file)
    assert lengths[-1] == len(content)
    assert (file.getvalue(), sum(told), check.problem()) == (content, len(content), None)
