"""Mirrors of a Source in this process, over real HTTP: made, kept in step, interrupted, audited."""

import asyncio
import gzip
import io
import json
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import aclosing, closing
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from aiohttp import web

from rsnotify.coordination import keys
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.process.embedded_redis.directory import HUB_LOCK
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.resourcesync.tables import PATCH
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from rsnotify_client import HistoryGone, follow_async
from rsnotify_client.web import SMALL_BYTES
from rsnotify_mirror.audit import audit, repair
from rsnotify_mirror.mirror import ROUNDS, AsyncMirror
from rsnotify_mirror.paths import OURS, PATH_FOLDERS
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import Event
from rsnotify_mirror.selection import Selection
from rsnotify_mirror.state import State
from rsnotify_mirror.storing import command_hook
from rsnotify_mirror.workers import ATTEMPTS, PULLED
from tests.support.packing import bomb
from tests.support.running import RunningHub, until
from tests.support.sources import CAPABILITIES, Source, digest, rendered, sitemap_index

SECOND = "Fri, 20 Nov 2026 12:00:00 GMT"
LARGE = b"0123456789abcdef" * (SMALL_BYTES // 16 + 1_000)


class Once:
    """What one run said."""

    def __init__(self, is_whole: bool, events: list[Event]) -> None:
        self.is_whole = is_whole
        self.events = events

    def named(self, kind: str) -> list[str]:
        return [event.loc.rpartition("/")[2] for event in self.events if event.event == kind]

    def problems(self) -> str:
        return "\n".join(event.problem or "" for event in self.events)


async def once(source: Source, copy: Path, **options: object) -> Once:
    events: list[Event] = []
    hook = options.pop("hook", None)
    chosen = Options(**({"first_retry_seconds": 0.01} | options))
    url = source.url + CAPABILITIES
    async with AsyncMirror(url, copy, chosen, report=events.append, hook=hook) as mirror:
        return Once(await mirror.once(), events)


def files(copy: Path) -> dict[str, bytes]:
    """What a visitor of the copy sees, whatever host it is of."""
    return {
        "/".join(path.relative_to(copy).parts[1:]): path.read_bytes()
        for path in copy.rglob("*")
        if path.is_file() and not path.name.startswith(OURS)
    }


def leavings(copy: Path) -> list[str]:
    """Files of ours besides the state."""
    return [each.name for each in copy.iterdir() if each.name.startswith(OURS)][1:]


async def test_a_copy_is_made_and_then_brought_up_to_date_by_changes(source, copy):
    assert (await once(source, copy)).is_whole
    assert files(copy) == {f"{name}.txt": f"first {name}".encode() for name in "abc"}
    source.change("a.txt", b"second a")
    source.change("b.txt", None)
    source.change("new/d.txt", b"first d")
    source.change("a.txt", b"third a")
    ran = await once(source, copy)
    assert files(copy) == {"a.txt": b"third a", "c.txt": b"first c", "new/d.txt": b"first d"}
    assert sorted(ran.named("stored")) == ["a.txt", "d.txt"]
    assert source.asked["/a.txt"] == 2  # the second version was never fetched
    assert source.asked["/resourcelist.xml"] == 1
    assert leavings(copy) == []


async def test_a_copy_that_is_up_to_date_fetches_nothing(source, copy):
    await once(source, copy)
    source.asked.clear()
    assert (await once(source, copy)).is_whole
    assert not [path for path in source.asked if path.endswith(".txt")]


@pytest.mark.parametrize(
    ("told", "words"),
    [({"hash": digest(b"other")}, "its sha-256 is"), ({"length": 3}, "3 were stated")],
)
async def test_what_is_not_as_the_source_says_is_never_stored(source, copy, told, words):
    await once(source, copy)
    source.change("a.txt", b"wrong", **told)
    ran = await once(source, copy)
    assert (ran.is_whole, files(copy)["a.txt"]) == (False, b"first a")
    assert words in ran.problems()
    source.change("a.txt", b"right")
    assert (await once(source, copy)).is_whole


async def test_a_resource_that_is_gone_is_removed_and_one_that_is_not_found_is_told(source, copy):
    await once(source, copy)

    source.answer("/a.txt", status=410)
    source.change("a.txt", b"second")
    source.change("b.txt", b"second")
    del source.resources["/b.txt"]
    ran = await once(source, copy)
    assert files(copy) == {"b.txt": b"first b", "c.txt": b"first c"}
    assert (ran.named("deleted"), ran.named("failed")) == (["a.txt"], ["b.txt"])
    assert source.asked["/b.txt"] == 1 + ATTEMPTS  # what the list tells again begins nothing anew


@pytest.mark.parametrize(("new", "stored"), [("d.txt", "d.txt"), ("A.txt", "A~*.txt")])
async def test_what_was_renamed_is_removed_and_fetched_anew(source, copy, new, stored):
    await once(source, copy)
    for _ in range(2):
        source.change("a.txt", None)
        source.change(new, b"first a")
        assert (await once(source, copy)).is_whole
    (path,) = [name for name, content in files(copy).items() if content == b"first a"]
    assert fnmatchcase(path, stored)
    assert source.asked[f"/{new}"] == 1


@pytest.mark.parametrize(("status", "text"), [(304, None), (206, "a par")])
async def test_an_answer_to_what_was_not_asked_is_no_content(source, copy, status, text):
    source.change("a.txt", b"a part", hash=None, length=None)
    source.list_resources()
    source.answer("/a.txt", text, status=status)
    ran = await once(source, copy)
    assert (ran.is_whole, ran.named("failed")) == (False, ["a.txt"])
    assert f"{status}, which was not asked for" in ran.problems()
    assert "a.txt" not in files(copy)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (206, {}),
        (206, {"Content-Range": "bytes 0-9/10"}),
        (206, {"Content-Range": "bytes {begin}-{last}/{total}"}),
        (304, {}),
    ],
    ids=["of-nothing", "of-the-beginning", "not-to-the-end", "unchanged"],
)
async def test_a_part_is_continued_only_where_it_ended_and_to_the_end(
    source, copy, status, headers
):
    """Nothing but the head of the answer says that these are not the bytes that were missing."""
    source.change("large", LARGE, hash=None, length=None)
    asked: list[str | None] = []

    async def breaks(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("Range"))
        if asked[-1] is not None:
            begin = int(asked[-1].removeprefix("bytes=").removesuffix("-"))
            span = {"begin": begin, "last": begin + 9, "total": len(LARGE)}
            said = {name: value.format(**span) for name, value in headers.items()}
            body = LARGE[begin : begin + 10] if status == 206 else None
            return web.Response(status=status, body=body, headers={"ETag": '"one"', **said})
        answer = web.StreamResponse(headers={"ETag": '"one"', "Content-Length": str(len(LARGE))})
        await answer.prepare(request)
        await answer.write(LARGE if len(asked) > 2 else LARGE[: len(LARGE) // 2])
        if len(asked) <= 2:
            request.transport.close()
        return answer

    source.handlers["/large"] = breaks
    assert (await once(source, copy)).is_whole
    assert files(copy)["large"] == LARGE
    assert asked[0] is None
    assert asked[1].startswith("bytes=")
    assert asked[2] is None


DATE = "Sat, 21 Nov 2026 20:00:00 GMT"
STRONG = {"ETag": '"one"'}
OF_A_MINUTE = {"Date": DATE, "Last-Modified": "Sat, 21 Nov 2026 19:59:00 GMT"}
OF_59_SECONDS = {"Date": DATE, "Last-Modified": "Sat, 21 Nov 2026 19:59:01 GMT"}
JOINED = [
    ("the same tag", STRONG, STRONG, True),
    ("another tag", STRONG, {"ETag": '"two"'}, False),
    ("the tag has become weak", STRONG, {"ETag": 'W/"one"'}, False),
    ("no tag any more", STRONG, {}, False),
    ("a time instead", STRONG, OF_A_MINUTE, False),
    ("a weak tag", {"ETag": 'W/"one"'}, {"ETag": 'W/"one"'}, False),
    ("the same time", OF_A_MINUTE, OF_A_MINUTE, True),
    ("another time", OF_A_MINUTE, OF_A_MINUTE | {"Last-Modified": DATE}, False),
    ("a time of the minute before", OF_59_SECONDS, OF_59_SECONDS, False),
    ("nothing", {}, {}, False),
]


@pytest.mark.parametrize(
    ("first", "then", "joined"), [row[1:] for row in JOINED], ids=[row[0] for row in JOINED]
)
async def test_parts_are_joined_only_if_both_show_that_they_are_of_one_file(
    source, copy, first, then, joined
):
    """The server ignores `If-Range`, and nothing else would show two versions in one file."""
    source.change("large", LARGE, hash=None, length=None)
    later = bytes(reversed(LARGE))

    async def breaks(request: web.Request) -> web.StreamResponse:
        is_first, asked = not source.asked_large, request.headers.get("Range")
        source.asked_large.append(asked)
        said = first if is_first else then
        content = LARGE if is_first or joined else later
        if asked is not None:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            span = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            return web.Response(
                status=206, body=content[begin:], headers={"Content-Range": span, **said}
            )
        answer = web.StreamResponse(headers={"Content-Length": str(len(content)), **said})
        await answer.prepare(request)
        await answer.write(content[: len(content) // 2] if is_first else content)
        if is_first:
            request.transport.close()
        return answer

    source.asked_large = []
    source.handlers["/large"] = breaks
    assert (await once(source, copy)).is_whole
    assert files(copy)["large"] == (LARGE if joined else later)
    assert len(source.asked_large) > 1
    assert (source.asked_large[-1] is not None) == joined


@pytest.fixture(params=[{}, {"ETag": '"by second and length"'}], ids=["date", "etag"])
def _within_a_second(source: Source, request: pytest.FixtureRequest) -> None:
    """All of a.txt is sent and changed within one, and its validators say no more; as of nginx."""
    moment = {"Date": SECOND, "Last-Modified": SECOND} | request.param

    async def answers(request: web.Request) -> web.Response:
        if request.headers.keys() & {"If-None-Match", "If-Modified-Since"}:
            return web.Response(status=304, headers=moment)
        return web.Response(body=source.resources["/a.txt"], headers=moment)

    source.handlers["/a.txt"] = answers


@pytest.mark.usefixtures("_within_a_second")
async def test_a_file_that_changed_in_the_second_in_which_it_was_sent_is_not_taken_for_the_same(
    source, copy
):
    for content in (b"first", b"later"):
        source.change("a.txt", content, hash=None, length=None)
        assert (await once(source, copy)).is_whole
        assert files(copy)["a.txt"] == content


async def test_a_part_of_a_file_that_may_have_changed_since_is_not_continued(source, copy):
    source.change("large", LARGE, hash=None, length=None)
    asked: list[str | None] = []

    async def breaks(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("Range"))
        said = {"Date": SECOND, "Last-Modified": SECOND, "Content-Length": str(len(LARGE))}
        answer = web.StreamResponse(headers=said)
        await answer.prepare(request)
        await answer.write(LARGE if len(asked) > 1 else LARGE[: len(LARGE) // 2])
        if len(asked) == 1:
            request.transport.close()
        return answer

    source.handlers["/large"] = breaks
    assert (await once(source, copy)).is_whole
    assert asked == [None, None]


async def test_deleted_files_are_kept_aside_each_under_its_name(source, copy, tmp_path):
    aside = tmp_path / "aside"
    await once(source, copy)
    for content in (b"second", None, b"third", None):
        source.change("a.txt", content)
        await once(source, copy, keep_deleted=aside)
    kept = sorted(path.name for path in aside.rglob("a.txt*"))
    assert (len(kept), kept[0]) == (2, "a.txt")


async def test_a_folder_keeps_its_name_while_a_resource_is_to_come_into_it(source, copy):
    source.add("folder/y", b"first y")
    source.list_resources()
    await once(source, copy)
    source.change("folder/y", None)
    source.change("folder/x", b"first x")
    assert (await once(source, copy)).is_whole
    source.change("folder", b"a file")
    assert (await once(source, copy)).is_whole
    assert b"a file" in files(copy).values()


@pytest.mark.parametrize("fails_first", [False, True])
async def test_a_folder_that_was_left_empty_gives_its_name_back(source, copy, fails_first):
    failures = [TryAgain("not yet", retry_after_seconds=0)] if fails_first else []

    async def hook(event: Event, _: bytes | None) -> None:
        if event.event == "deleted" and failures:
            raise failures.pop()

    source.add("folder/inner/y", b"first y")
    source.list_resources()
    await once(source, copy)
    source.change("folder/inner/y", None)
    assert (await once(source, copy, hook=hook)).is_whole
    source.change("folder", b"a file")
    assert (await once(source, copy)).is_whole
    assert files(copy)["folder"] == b"a file"


async def test_a_host_that_asks_for_time_gets_it(source, copy):
    answers = iter([503, 200])

    async def busy(_: web.Request) -> web.Response:
        if next(answers) == 503:
            return web.Response(status=503, headers={"Retry-After": "1"})
        return web.Response(body=source.resources["/a.txt"])

    source.handlers["/a.txt"] = busy
    assert (await once(source, copy)).is_whole


async def test_a_source_that_tells_nothing_of_a_resource_is_asked_with_a_condition(source, copy):
    source.documents["/resourcelist.xml"] = rendered(
        "resourcelist", [Entry(source.loc("a.txt"))], at=str(source.at)
    )
    source.documents[CAPABILITIES] = source.capability_list("resourcelist")
    await once(source, copy)
    ran = await once(source, copy)
    assert (ran.named("unchanged"), source.asked["/a.txt"]) == (["a.txt"], 2)
    assert "If-None-Match" in source.requests[-1][1]


async def test_a_large_file_goes_on_where_it_broke_off(source, copy):
    source.add("large", LARGE)
    source.list_resources()
    half = len(LARGE) // 2

    async def breaks(request: web.Request) -> web.StreamResponse:
        headers = {"ETag": '"one"', "Content-Length": str(len(LARGE))}
        if (asked := request.headers.get("Range")) is None:
            answer = web.StreamResponse(headers=headers)
            await answer.prepare(request)
            await answer.write(LARGE[:half])
            request.transport.close()
            return answer
        assert request.headers["If-Range"] == '"one"'
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        assert 0 < start <= half
        source.resumed = start
        ranged = {"ETag": '"one"', "Content-Range": f"bytes {start}-{len(LARGE) - 1}/{len(LARGE)}"}
        return web.Response(status=206, body=LARGE[start:], headers=ranged)

    source.handlers["/large"] = breaks
    assert (await once(source, copy)).is_whole
    assert files(copy)["large"] == LARGE
    assert source.resumed > 0
    assert leavings(copy) == []


async def test_mirrors_of_a_resource_are_asked_first_and_checked(source, copy):
    await once(source, copy)
    source.resources |= {"/stale": b"old", "/good": b"second"}
    links = (
        Link("duplicate", source.loc("stale"), pri=1),
        Link("duplicate", source.loc("good"), pri=2),
    )
    source.change("a.txt", b"second", links=links)
    source.asked.clear()
    assert (await once(source, copy)).is_whole
    assert files(copy)["a.txt"] == b"second"
    assert (source.asked["/stale"], source.asked["/good"], source.asked["/a.txt"]) == (1, 1, 0)


JSON = json.dumps({"a": 1, "text": "x" * 500}).encode()
XML = b'<?xml version="1.0"?>\n<r xmlns="urn:x"><a>1</a><t>%b</t></r>\n' % (b"x" * 500)
PATCHES = {
    "json": (JSON, JSON.replace(b"1", b"2"), '[{"op": "replace", "path": "/a", "value": %d}]'),
    "xml": (
        *(XML, XML.replace(b"<a>1", b"<a>2")),
        '<diff xmlns="urn:x"><replace sel="r/a/text()">%d</replace></diff>',
    ),
}


@pytest.mark.parametrize("kind", PATCHES)
@pytest.mark.parametrize("is_right", [True, False])
async def test_a_patch_is_used_if_it_leads_to_what_the_source_says(source, copy, kind, is_right):
    old, new, patch = PATCHES[kind]
    source.add("d", old)
    source.list_resources()
    await once(source, copy)
    source.resources["/patch"] = (patch % (2 if is_right else 3)).encode()
    length = len(source.resources["/patch"])
    link = Link(PATCH, source.loc("patch"), length=length, type=f"application/{kind}-patch+{kind}")
    source.change("d", new, links=(link,))
    source.asked.clear()
    assert (await once(source, copy)).is_whole
    assert source.asked["/d"] == (0 if is_right else 1)
    assert files(copy)["d"] == new


async def test_an_xml_patch_of_the_type_that_the_specification_names_is_applied(source, copy):
    old, new, patch = PATCHES["xml"]
    source.add("d", old)
    source.list_resources()
    await once(source, copy)
    source.resources["/patch"] = (patch % 2).encode()
    length, type_ = len(source.resources["/patch"]), "application/patch-ops-error+xml"
    link = Link(PATCH, source.loc("patch"), length=length, type=type_)
    source.change("d", new, links=(link,))
    source.asked.clear()
    assert (await once(source, copy)).is_whole
    assert (source.asked["/d"], files(copy)["d"]) == (0, new)


async def test_an_index_of_compressed_lists_is_read(source, copy):
    whole = source.documents["/resourcelist.xml"]
    index = sitemap_index(source, "part.xml.gz")
    source.documents |= {"/resourcelist.xml": index, "/part.xml.gz": gzip.compress(whole)}
    assert (await once(source, copy)).is_whole
    assert len(files(copy)) == 3


HOSTILE = {
    "truncated": b"<urlset",
    "an entity": b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><urlset>&x;</urlset>',
    "not gzip": b"\x1f\x8b\x08\x00broken",
    "a bomb": bomb(60_000_000, b"<urlset>"),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_list_that_cannot_be_read_is_skipped_by_name_and_nothing_is_taken_for_deleted(
    source, copy, content
):
    await once(source, copy)
    index = sitemap_index(source, "bad.xml", "good.xml")
    source.add("d.txt", b"first d")
    source.list_resources()
    source.documents["/good.xml"] = source.documents["/resourcelist.xml"]
    source.documents |= {"/resourcelist.xml": index, "/bad.xml": content}
    source.documents[CAPABILITIES] = source.capability_list("resourcelist")
    ran = await once(source, copy)
    assert not ran.is_whole
    assert f"{source.url}/bad.xml" in ran.problems()
    assert len(files(copy)) == 4


async def test_what_is_no_address_in_an_index_is_skipped_by_name(source, copy):
    source.documents["/good.xml"] = source.documents["/resourcelist.xml"]
    index = sitemap_index(source, "bad.xml", "good.xml")
    bad = source.loc("bad.xml").encode()
    source.documents["/resourcelist.xml"] = index.replace(bad, b"http://[x")
    source.documents["/resourcedump.xml"] = source.documents["/resourcelist.xml"]
    source.documents[CAPABILITIES] = source.capability_list("resourcelist", "resourcedump")
    ran = await once(source, copy)
    assert not ran.is_whole
    assert "names 'http://[x', which is no address" in ran.problems()
    assert len(files(copy)) == 3


@pytest.mark.parametrize(
    ("place", "root", "capability"),
    [
        ("/changelist.xml", "sitemapindex", "changelist"),
        (CAPABILITIES, "urlset", "description"),
    ],
)
async def test_what_is_no_address_where_nothing_can_take_its_place_is_named(
    source, copy, place, root, capability
):
    document = Document(root, Md(capability=capability), (), (Entry("http://[x"),))
    source.documents[place] = render_document(document)
    try:
        ran = await once(source, copy)
    except Rejected as error:
        said = error.detail
    else:
        assert not ran.is_whole
        said = ran.problems()
    assert "http://[x is no address that can be fetched" in said


async def test_packages_fill_an_empty_copy_and_what_is_wrong_in_them_is_fetched(source, copy):
    packed = io.BytesIO()
    entries = [
        Entry(source.loc(f"{name}.txt"), md=Md(hash=digest(content), path=f"/{name}"))
        for name, content in (("a", b"first a"), ("b", b"first b"))
    ]
    entries.append(Entry(source.loc("c.txt"), md=Md(path="/../../c")))
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("manifest.xml", rendered("resourcedump-manifest", entries, at=str(source.at)))
        file.writestr("a", b"first a")
        file.writestr("b", b"not b")
        file.writestr("../../c", b"outside")
    source.documents["/dump.zip"] = packed.getvalue()
    source.documents["/resourcedump.xml"] = rendered(
        "resourcedump", [Entry(source.loc("dump.zip"))], at=str(source.at)
    )
    source.documents[CAPABILITIES] = source.capability_list(
        "resourcelist", "resourcedump", "changelist"
    )
    ran = await once(source, copy)
    assert ran.is_whole
    assert files(copy) == {f"{name}.txt": f"first {name}".encode() for name in "abc"}
    assert (source.asked["/a.txt"], source.asked["/b.txt"], source.asked["/c.txt"]) == (0, 1, 1)
    assert "leads out of the package" in ran.problems()
    assert leavings(copy) == []


async def test_no_resource_is_written_outside_and_no_symlink_is_followed(source, copy, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    await once(source, copy)
    (host,) = [each for each in copy.iterdir() if each.is_dir()]
    (host / "linked").symlink_to(outside)
    (host / "file").symlink_to(outside / "file")
    for name in ("linked/a", "file", "..%2f..%2fb", "%2e%2e/%2e%2e/c"):
        source.change(name, b"content")
    ran = await once(source, copy)
    assert list(outside.iterdir()) == []
    assert not (host / "file").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"copy", "outside"}
    assert "is a file or a symlink" in ran.problems()


async def test_an_address_of_very_many_folders_ends_neither_a_mirror_nor_an_audit(source, copy):
    for count in (PATH_FOLDERS - 1, 2 * PATH_FOLDERS - 10):  # the first is stored as it is
        source.change("a/" * count + "b", b"content")
    assert (await once(source, copy)).is_whole
    assert (await audit(source.url + CAPABILITIES, copy)).findings == []


async def test_what_is_no_address_is_one_failure_and_the_rest_goes_on(source, copy):
    locs = ["http://[", "ftp://example.com/a", "nothing", source.loc("a.txt")]
    entries = [Entry(loc) for loc in locs]
    source.documents["/resourcelist.xml"] = rendered("resourcelist", entries, at=str(source.at))
    ran = await once(source, copy)
    assert (ran.is_whole, len(ran.named("failed"))) == (False, 3)
    assert files(copy) == {"a.txt": b"first a"}


async def test_a_selection_holds_for_lists_and_changes(source, copy):
    selection = Selection(("*/a.txt", "*/d.txt"), ())
    (baseline, *_) = (await once(source, copy, selection=selection)).events
    has_read = (baseline.resources, baseline.to_do, baseline.listed, baseline.selection)
    assert has_read == (1, 1, 3, str(selection))
    source.change("b.txt", b"second b")
    source.change("d.txt", b"first d")
    await once(source, copy, selection=selection)
    assert sorted(files(copy)) == ["a.txt", "d.txt"]
    await once(source, copy, selection=Selection((), ("*/b.txt",)))
    assert sorted(files(copy)) == ["a.txt", "c.txt", "d.txt"]


async def test_a_prefix_holds_for_lists_and_changes(source, copy):
    selection = Selection(prefix=(source.loc("a"), source.loc("d")))
    assert str(selection) == f"--prefix {source.loc('a')} --prefix {source.loc('d')}"
    (baseline, *_) = (await once(source, copy, selection=selection)).events
    has_read = (baseline.resources, baseline.to_do, baseline.listed, baseline.selection)
    assert has_read == (1, 1, 3, str(selection))
    for name in "abd":
        source.change(f"{name}.txt", b"second")
    await once(source, copy, selection=selection)
    assert sorted(files(copy)) == ["a.txt", "d.txt"]
    source.change("a.txt", None)
    await once(source, copy, selection=selection)
    assert sorted(files(copy)) == ["d.txt"]


removing = pytest.mark.parametrize(
    ("selection", "gone", "percent"),
    [(Selection(("*.jsn",)), 3, 100), (Selection((), ("*/a.txt", "*/b.txt")), 2, 67)],
)
"""Selections that would remove so many of three resources; the least that has to be allowed."""


@removing
async def test_another_selection_that_would_remove_much_is_refused_and_changes_nothing(
    source, copy, selection, gone, percent
):
    await once(source, copy)
    before = files(copy)
    with pytest.raises(InvalidSettings) as raised:
        await once(source, copy, selection=selection)
    assert raised.value.problems == (
        f"{selection} would remove {gone} of 3 resources of {copy}, which is more than 10 %; "
        f"if that is meant, say so with max_delete={percent} (in a command: --max-delete "
        f"{percent})",
    )
    assert files(copy) == before
    source.change("c.txt", b"second c")
    assert (await once(source, copy)).named("stored") == ["c.txt"]  # with the selection of before


@removing
async def test_another_selection_that_would_remove_much_is_taken_with_max_delete(
    source, copy, selection, gone, percent
):
    await once(source, copy)
    with pytest.raises(InvalidSettings):
        await once(source, copy, selection=selection, max_delete=percent - 1)
    assert (await once(source, copy, selection=selection, max_delete=percent)).is_whole
    assert len(files(copy)) == 3 - gone


@removing
async def test_the_selection_of_before_is_never_refused(source, copy, selection, gone, percent):
    async def fails_at_removals(event: Event, _: bytes | None) -> None:
        if event.event == "deleted":
            raise TryAgain("not yet", retry_after_seconds=0)

    await once(source, copy)
    ran = await once(source, copy, selection=selection, max_delete=percent, hook=fails_at_removals)
    assert len(ran.named("failed")) == gone
    assert (await once(source, copy, selection=selection, max_delete=0)).is_whole
    assert len(files(copy)) == 3 - gone


async def test_a_selection_is_not_refused_for_what_the_source_deletes(source, copy):
    selection = Selection(("*.txt",))
    await once(source, copy)
    source.change("a.txt", None)
    source.change("b.txt", None)
    assert (await once(source, copy, selection=selection)).is_whole
    assert files(copy) == {"c.txt": b"first c"}
    source.change("c.txt", None)
    assert (await once(source, copy, selection=selection)).is_whole
    assert files(copy) == {}


async def test_a_command_is_run_after_each_change_and_repeated_alone_if_it_fails(
    source, copy, tmp_path
):
    log = tmp_path / "log"
    script = tmp_path / "script"
    script.write_text(
        f'#!/bin/sh\necho "$RSNOTIFY_EVENT $RSNOTIFY_LOC" >> {log}\n[ -e {tmp_path}/fine ]\n'
    )
    script.chmod(0o755)
    hook = command_hook(str(script), copy)
    source.documents[CAPABILITIES] = source.capability_list("changelist")
    source.change("a.txt", b"second a")
    ran = await once(source, copy, hook=hook)
    assert not ran.is_whole
    assert "ended with 1" in ran.problems()
    (tmp_path / "fine").touch()
    assert (await once(source, copy, hook=hook)).is_whole
    assert log.read_text().splitlines()[-1] == f"stored {source.loc('a.txt')}"
    assert source.asked["/a.txt"] == 1


class Told:
    """A hook that fails for some resources until it may not any more."""

    def __init__(self, *locs: str) -> None:
        self.failing = locs
        self.events: list[tuple[str, str]] = []

    async def __call__(self, event: Event, _: bytes | None) -> None:
        assert event.loc is not None
        self.events.append((event.event, event.loc))
        if event.loc in self.failing:
            raise TryAgain("not yet", retry_after_seconds=0)


@pytest.mark.parametrize("is_listed_anew", [False, True])
async def test_what_a_hook_failed_for_is_told_later_and_not_fetched_again(
    source, copy, is_listed_anew
):
    hook = Told(source.loc("a.txt"))
    assert not (await once(source, copy, hook=hook)).is_whole
    hook.failing, hook.events[:] = (), []
    selection = Selection(("*.txt",)) if is_listed_anew else Selection()
    assert (await once(source, copy, hook=hook, selection=selection)).is_whole
    assert hook.events == [("stored", source.loc("a.txt"))]
    assert [source.asked[f"/{name}.txt"] for name in "abc"] == [1, 1, 1]
    assert (await once(source, copy, hook=hook)).is_whole
    assert len(hook.events) == 1


@pytest.mark.parametrize("content", [b"FIRST a, and longer", None])
async def test_what_a_hook_failed_for_is_fetched_again_if_its_file_is_not_right(
    source, copy, content
):
    hook = Told(source.loc("a.txt"))
    await once(source, copy, hook=hook)
    (file,) = copy.rglob("a.txt")
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    hook.failing = ()
    assert (await once(source, copy, hook=hook)).is_whole
    assert (files(copy)["a.txt"], source.asked["/a.txt"]) == (b"first a", 2)


async def repaired(source: Source, copy: Path) -> None:
    url = source.url + CAPABILITIES
    (copy / "stray").touch()
    assert await repair(url, copy, await audit(url, copy))
    assert (await audit(url, copy)).is_in_sync


async def run_without_the_hook(source: Source, copy: Path) -> None:
    one_by_one = {"jobs": 1, "per_host": 1}  # but for the first by a connection that is there
    assert (await once(source, copy, **one_by_one)).is_whole


between = pytest.mark.parametrize("between", [repaired, run_without_the_hook])
"""What calls no hook, and brings the copy up to date."""


@between
@pytest.mark.parametrize("is_missing", [False, True])
async def test_what_a_hook_failed_for_is_told_later_whatever_was_run_without_it(
    source, copy, between, is_missing
):
    locs = [source.loc(name) for name in ("a.txt", "b.txt", "c.txt")]
    hook = Told(*locs)
    await once(source, copy, hook=hook)
    before = files(copy)
    if is_missing:
        for each in copy.rglob("*.txt"):
            each.unlink()
    await between(source, copy)
    assert files(copy) == before
    hook.failing, hook.events[:] = (), []
    for _ in range(2):
        assert (await once(source, copy, hook=hook)).is_whole
        assert sorted(hook.events) == [("stored", loc) for loc in locs]
    assert source.asked["/a.txt"] == 1 + is_missing


@between
@pytest.mark.parametrize("is_back", [False, True])
async def test_a_deletion_that_a_hook_failed_for_is_told_later_whatever_was_run_without_it(
    source, copy, between, is_back
):
    await once(source, copy)
    hook = Told(source.loc("a.txt"))
    source.change("a.txt", None)
    await once(source, copy, hook=hook)
    assert "a.txt" not in files(copy)
    await between(source, copy)
    if is_back:
        source.change("a.txt", b"second a")
        await between(source, copy)
    hook.failing, hook.events[:] = (), []
    for _ in range(2):
        assert (await once(source, copy, hook=hook)).is_whole
        assert hook.events == [("stored" if is_back else "deleted", source.loc("a.txt"))]
    assert ("a.txt" in files(copy)) == is_back


async def test_other_braces_in_a_command_are_its_own(tmp_path):
    out = tmp_path / "out"
    command = """sh -c 'printf "%s " "$@" > OUT; : ${HOME} ${path}' sh {} {file} {Path}"""
    hook = command_hook(command.replace("OUT", str(out)), tmp_path)
    await hook(Event("stored", "http://a/{path}", "a"), None)
    assert out.read_text() == "{} {file} {Path} "


@pytest.mark.parametrize(("excess", "is_printed"), [(0, True), (1, False)])
async def test_without_files_whoever_is_told_gets_the_content(
    source, copy, monkeypatch, excess, is_printed
):
    monkeypatch.setattr("rsnotify_mirror.storing.IN_MEMORY_BYTES", len(LARGE) - excess)
    source.add("large", LARGE)
    source.list_resources()
    told: dict[str | None, bytes | None] = {}

    async def hook(event: Event, content: bytes | None) -> None:
        told[event.loc] = content

    ran = await once(source, copy, hook=hook, has_files=False)
    assert (ran.is_whole, told.get(source.loc("large")) == LARGE) == (is_printed, is_printed)
    assert told[source.loc("a.txt")] == b"first a"
    assert files(copy) == {}
    assert leavings(copy) == []


async def test_a_copy_that_is_too_old_for_the_change_lists_is_made_anew(source, copy):
    await once(source, copy)
    source.change("a.txt", b"second a")
    source.change("b.txt", None)
    source.changes.clear()
    source.at = type(source.at)(source.now)
    source.list_resources()
    assert (await once(source, copy, max_delete=50)).is_whole
    assert files(copy) == {"a.txt": b"second a", "c.txt": b"first c"}


async def test_a_source_without_a_resource_list_is_copied_by_its_changes(source, copy):
    source.documents[CAPABILITIES] = source.capability_list("changelist")
    source.change("d.txt", b"first d")
    assert (await once(source, copy)).is_whole
    assert files(copy) == {"d.txt": b"first d"}


async def test_a_copy_is_kept_by_polling_where_there_is_no_channel(source, copy):
    async with AsyncMirror(source.url + CAPABILITIES, copy, Options(poll_seconds=0.05)) as mirror:
        keeping = asyncio.create_task(mirror.run())
        source.change("a.txt", b"second a")

        async def is_there() -> bool:
            if keeping.done():
                await keeping
            return copy.exists() and files(copy).get("a.txt") == b"second a"

        assert await until(is_there)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (CAPABILITIES, 200),
        (CAPABILITIES, 404),
        ("/changelist.xml", 200),
        pytest.param("/changelist.xml", 404, marks=pytest.mark.evidence),  # asked again after 10 s
    ],
)
async def test_a_page_in_the_place_of_a_polled_list_is_waited_out(source, copy, path, status):
    asked: list[str] = []

    async def back_soon(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=status, text="<html>Back soon", content_type="text/html")

    async def is_shown() -> bool:
        return bool(asked) or keeping.done()

    async def is_followed() -> bool:
        return copy.exists() and files(copy).get("a.txt") == content

    options = Options(poll_seconds=0.05, relist_seconds=0.3, first_retry_seconds=0.01)
    async with AsyncMirror(source.url + CAPABILITIES, copy, options) as mirror:
        keeping = asyncio.create_task(mirror.run())
        source.change("a.txt", content := b"second a")
        await until(is_followed)
        before = files(copy)
        source.handlers[path] = back_soon
        await until(is_shown)
        assert files(copy) == before
        del source.handlers[path]
        source.change("a.txt", content := b"third a")
        await until(is_followed)
        assert not keeping.done()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_what_changes_while_it_is_fetched_is_read_about_again(source, copy):
    contents = iter([b"second a", b"third a"])

    async def changes(_: web.Request) -> web.Response:
        if (content := next(contents, None)) is not None:
            source.change("a.txt", content)
        return web.Response(body=source.resources["/a.txt"])

    source.handlers["/a.txt"] = changes
    ran = await once(source, copy)
    assert (ran.is_whole, ran.named("failed")) == (True, [])
    assert files(copy)["a.txt"] == b"third a"


async def test_a_source_that_never_rests_ends_a_single_run(source, copy):
    async def changes(_: web.Request) -> web.Response:
        source.change("a.txt", b"%d" % source.asked["/a.txt"])
        return web.Response(body=source.resources["/a.txt"])

    source.handlers["/a.txt"] = changes
    ran = await once(source, copy)
    assert (ran.is_whole, files(copy).keys()) == (False, {"b.txt", "c.txt"})
    assert ROUNDS <= source.asked["/changelist.xml"] <= ROUNDS + 2


async def test_of_a_resource_that_was_never_held_no_deletion_is_told(source, copy):
    await once(source, copy)
    source.change("a.txt", None)
    source.change("d.txt", b"first d")
    source.change("d.txt", None)
    source.change("e.txt", None)
    assert (await once(source, copy)).named("deleted") == ["a.txt"]


@pytest.mark.parametrize("per_host", [1, 3])
async def test_one_host_gets_no_more_connections_than_are_wanted(source, copy, per_host):
    """Its lists count, too, which are read while resources are fetched."""
    for number in range(60):
        source.add(f"more/{number}", b"%d" % number)
    source.list_resources()
    peers: set[object] = set()

    async def noted(request: web.Request) -> web.Response:
        peers.add(request.transport)
        found = {**source.documents, **source.resources}
        return web.Response(body=found[request.path])

    source.handlers |= dict.fromkeys([*source.documents, *source.resources], noted)
    assert (await once(source, copy, per_host=per_host)).is_whole
    assert 1 <= len(peers) <= per_host


@pytest.mark.parametrize("name", ["small", "large"])
async def test_a_mirror_that_is_interrupted_in_the_middle_of_a_body_ends_and_goes_on_later(
    source, copy, name
):
    content = LARGE if name == "large" else b"small"
    source.add(name, content)
    source.list_resources()
    begun, never = asyncio.Event(), asyncio.Event()

    async def hangs(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": str(len(content)), "ETag": '"one"'})
        await answer.prepare(request)
        await answer.write(content[: len(content) // 2])
        begun.set()
        await never.wait()
        return answer

    source.handlers[f"/{name}"] = hangs
    running = asyncio.create_task(once(source, copy))
    async with asyncio.timeout(20):
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    del source.handlers[f"/{name}"]
    assert (await once(source, copy)).is_whole
    assert files(copy)[name] == content
    assert leavings(copy) == []


# Audit ------------------------------------------------------------------------------------------


async def test_an_audit_finds_what_differs_and_repairs_it(source, copy):
    await once(source, copy)
    url = source.url + CAPABILITIES
    assert (await audit(url, copy)).is_in_sync
    (host,) = [each for each in copy.iterdir() if each.is_dir()]
    (host / "a.txt").write_bytes(b"FIRST a")
    (host / "b.txt").unlink()
    (host / "stray").write_bytes(b"")
    source.change("c.txt", b"another length")
    found = await audit(url, copy)
    kinds = sorted((finding.kind, (finding.path or "")[-5:]) for finding in found.findings)
    assert kinds == [
        ("extra", "stray"),
        ("hash", "a.txt"),
        ("length", "c.txt"),
        ("missing", "b.txt"),
    ]
    (detail,) = [each.detail for each in found.findings if each.kind == "hash"]
    is_, wanted = (digest(each).removeprefix("sha-256:") for each in (b"FIRST a", b"first a"))
    assert detail == f"sha-256 is {is_}, not {wanted}"
    assert [(await audit(url, copy, sample=most)).checked for most in (1, 10**30)] == [1, 3]
    assert await repair(url, copy, found)
    assert (await audit(url, copy)).is_in_sync
    assert files(copy)["a.txt"] == b"first a"


@pytest.mark.usefixtures("_within_a_second")
async def test_an_audit_finds_a_file_that_changed_in_the_second_in_which_it_was_sent(source, copy):
    url, md = source.url + CAPABILITIES, Md(capability="resourcelist", at=str(source.at))
    document = Document("urlset", md, (Link("up", url),), (Entry(source.loc("a.txt")),))
    source.documents["/resourcelist.xml"] = render_document(document)
    assert (await once(source, copy)).is_whole
    source.resources["/a.txt"] = b"later a"
    assert [each.kind for each in (await audit(url, copy)).findings] == ["hash"]


async def test_another_mirror_in_a_copy_is_named_and_no_repair_removes_it(source, copy):
    await once(source, copy)
    await once(source, copy.with_name("other"))
    other = copy.with_name("other").rename(copy / "other")
    (copy / "stray").touch()
    before, url = set(other.rglob("*")), source.url + CAPABILITIES
    found = await audit(url, copy)
    assert [finding.path for finding in found.findings] == ["stray"]
    named = [f"the folder {other} is another mirror: move it out of {copy}"]
    assert found.skipped == named
    assert await repair(url, copy, found)
    assert set(other.rglob("*")) == before
    mended = await audit(url, copy)
    assert (mended.findings, mended.skipped) == ([], named)


# Killed -----------------------------------------------------------------------------------------


@pytest.mark.evidence
def test_a_mirror_that_is_killed_20_times_is_in_sync_after_the_next_run():
    """In a process without threads, so that it may fork; `make soak` kills it 100 times."""
    code = "from tests.evidence.soak.mirror_killed import proven; print(proven(20, 50, 0.1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("killed 20 times"), done.stderr


# Bad use ----------------------------------------------------------------------------------------


async def test_a_directory_that_is_anothers_is_refused(source, copy):
    await once(source, copy)
    async with Source() as other:
        other.list_resources()
        with pytest.raises(InvalidSettings) as raised:
            await once(other, copy)
        ours, theirs = (each.url + CAPABILITIES for each in (source, other))
        assert raised.value.problems == (
            f"{copy} is the mirror of {ours}: give that address, or take another directory for "
            f"a copy of {theirs}; or, if the Source has moved there, run once: "
            f"rsnotify mirror --moved {ours} {theirs} {copy}",
        )
        with pytest.raises(InvalidSettings, match="give its address"):
            await audit(other.url + CAPABILITIES, copy)


async def test_two_mirrors_on_one_directory_are_refused(source, copy):
    async with AsyncMirror(source.url + CAPABILITIES, copy):
        with pytest.raises(InvalidSettings, match="in use by another mirror"):
            AsyncMirror(source.url + CAPABILITIES, copy)


def test_a_directory_with_files_that_is_no_mirror_is_refused(copy):
    copy.mkdir()
    (copy / "file").touch()
    with pytest.raises(InvalidSettings, match="holds files, but no mirror"):
        AsyncMirror("http://example.com/", copy)


@pytest.mark.parametrize(
    "done",
    ["", "PRAGMA journal_mode=WAL", "CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT)"],
)
async def test_a_mirror_that_was_killed_before_its_state_was_made_is_told(source, copy, done):
    copy.mkdir()
    with closing(sqlite3.connect(copy / f"{OURS}.sqlite")) as database:
        database.execute(done)
    (copy / f"{OURS}.sqlite").touch()
    with pytest.raises(InvalidSettings) as raised:
        await audit(source.url + CAPABILITIES, copy)
    assert raised.value.problems == (f"{copy} holds no copy yet: run rsnotify mirror again",)
    assert (await once(source, copy)).is_whole


async def test_the_place_of_a_file_is_recorded_before_the_file_is_there(source, copy):
    """A mirror that is killed leaves no file that it does not know, and would never remove."""
    unrecorded = []

    async def look(request: web.Request) -> web.Response:
        with closing(sqlite3.connect(copy / f"{OURS}.sqlite")) as database:
            query = "SELECT path FROM resource WHERE loc = ?"
            if database.execute(query, (source.url + request.path,)).fetchone()[0] is None:
                unrecorded.append(request.path)
        return web.Response(body=source.resources[request.path])

    for number in range(4 * PULLED):
        source.add(f"more/{number}", b"%d" % number)
    source.list_resources()
    source.handlers |= dict.fromkeys(source.resources, look)
    assert (await once(source, copy)).is_whole
    assert unrecorded == []


@pytest.mark.parametrize("place", ["copy/inside", "copy/inside/deep", "link/inside"])
def test_a_mirror_in_another_is_refused(tmp_path, copy, place):
    (tmp_path / "link").symlink_to(copy)
    State(copy).close()
    with pytest.raises(InvalidSettings) as raised:
        AsyncMirror("http://example.com/", tmp_path / place)
    (problem,) = raised.value.problems
    outside = f"is in the mirror {copy.resolve()}: name a directory outside it"
    assert problem == f"{tmp_path / place} {outside}"
    assert not (copy / "inside").exists()


@pytest.mark.parametrize(
    ("mirror", "kept"),
    [
        ("copy", "copy/kept"),
        ("copy", "copy"),
        ("copy/inside", "copy"),
        ("copy", "link/kept"),
        ("link", "copy/kept"),
        ("link/inside", "copy"),
    ],
)
def test_a_place_for_deleted_files_that_is_in_the_mirror_or_around_it_is_refused(
    tmp_path, mirror, kept
):
    (tmp_path / "link").symlink_to(tmp_path / "copy")
    options = Options(keep_deleted=tmp_path / kept)
    with pytest.raises(InvalidSettings, match="and not around it"):
        AsyncMirror("http://example.com/", tmp_path / mirror, options)
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("place", ["other", "other/inside", "link/inside"])
def test_a_place_for_deleted_files_that_is_in_another_mirror_is_refused(tmp_path, copy, place):
    other = tmp_path / "other"
    (tmp_path / "link").symlink_to(other)
    State(other).close()
    with pytest.raises(InvalidSettings) as raised:
        AsyncMirror("http://example.com/", copy, Options(keep_deleted=tmp_path / place))
    (problem,) = raised.value.problems
    outside = f"is in the mirror {other.resolve()}: name a directory outside it"
    assert problem == f"--keep-deleted {tmp_path / place} {outside}"
    assert not copy.exists()
    assert not (other / "inside").exists()


def test_a_place_for_deleted_files_that_is_the_data_directory_of_a_hub_is_refused(tmp_path, copy):
    data = tmp_path / "data"
    data.mkdir()
    (data / HUB_LOCK).touch()
    with pytest.raises(InvalidSettings) as raised:
        AsyncMirror("http://example.com/", copy, Options(keep_deleted=data))
    (problem,) = raised.value.problems
    assert problem == f"--keep-deleted {data}: a hub has its data there: name another directory"
    assert not copy.exists()


async def test_another_map_for_the_same_directory_is_refused(source, tmp_path):
    copy = tmp_path / "a {name}"
    mapped = (source.url + "/", "data")
    await once(source, copy, maps=(mapped,))
    assert (copy / "data/a.txt").read_bytes() == b"first a"
    with pytest.raises(InvalidSettings, match=f"another --map: give --map {source.url}/=data, or"):
        await once(source, copy)
    await once(source, tmp_path / "plain")
    with pytest.raises(InvalidSettings, match="another --map: give none, or"):
        await once(source, tmp_path / "plain", maps=(mapped,))


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "a token is needed"), (403, "may not be read"), (404, "nothing at this")],
)
async def test_a_source_that_refuses_says_how_to_mend_it(source, copy, status, words):
    source.answer(CAPABILITIES, status=status)
    with pytest.raises(Rejected, match=words):
        await once(source, copy)


async def test_a_site_whose_description_is_not_for_everybody_says_so(source, copy):
    source.answer(
        "/.well-known/resourcesync", status=401, headers={"WWW-Authenticate": "Basic realm=papers"}
    )
    async with AsyncMirror(source.url, copy) as mirror:
        with pytest.raises(Rejected, match="well-known/resourcesync: a user and a password"):
            await mirror.once()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_site_without_a_front_page_is_found_by_its_description(source, copy, status):
    source.answer("/", status=status)
    async with AsyncMirror(source.url + "/", copy) as mirror:
        with pytest.raises(Rejected, match=r"\d/: (a token is needed|it may not be read)"):
            await mirror.once()
        listed = Entry(source.url + CAPABILITIES, md=Md(capability="capabilitylist"))
        source.documents["/.well-known/resourcesync"] = rendered("description", [listed])
        assert await mirror.once()
    assert files(copy).keys() == {"a.txt", "b.txt", "c.txt"}


# A real hub -------------------------------------------------------------------------------------


async def test_a_mirror_whose_channel_was_trimmed_while_it_was_away_copies_anew(
    tmp_path, copy, redis_url, client, source
):
    async def copied() -> bool:
        return files(copy).keys() == {"a.txt", "b.txt"}

    async with RunningHub(tmp_path / "data", "--redis", redis_url) as hub:
        address = f"{hub.url}/dataset1/capabilitylist.xml"
        known = await hub.publish(source.loc("a.txt"), change="created")
        await hub.ask("POST", "/api/sets/dataset1/snapshot")
        async with AsyncMirror(address, copy) as mirror:
            assert await mirror.once()
        await hub.publish(source.loc("b.txt"), change="created")
        await hub.stop()
        await trim(client, ChannelName("dataset1", "change"))
        await hub.start()
        await hub.ask("POST", "/api/sets/dataset1/snapshot")
        with pytest.raises(HistoryGone, match="copy the Resource List again"):
            async with aclosing(follow_async(hub.channel(), position=known["until"])) as changes:
                await anext(changes)
        async with AsyncMirror(address, copy) as mirror:
            keeping = asyncio.create_task(mirror.run())
            await until(copied)
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


async def trim(client: Client, channel: ChannelName) -> None:
    """As if all that the journal holds lay behind retention."""
    record = keys.record(channel)
    head = await client.hget(record, "head")
    await client.hset(record, mapping={"first": head, "window_from": head})
    await client.xtrim(keys.stream(channel), maxlen=0, approximate=False)
