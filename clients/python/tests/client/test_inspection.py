"""`inspect` looks at whole Sources: it finds each fault by its name, and nothing in a right one."""

import asyncio
import gzip
import io
import json
import sys
import zipfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable
from hashlib import md5

import msgspec
import pytest
from aiohttp import web

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, Root, render_document
from rsnotify_mirror.inspection.inspection import Inspection, inspect
from rsnotify_mirror.inspection.samples import SILENT, Bounds
from tests.support.running import TOKEN, clean_environment, rsnotify
from tests.support.sources import Handler, Source, digest
from tests.support.stream_server import StreamServer

BEFORE, BETWEEN = "2026-11-19T00:00:00Z", "2026-11-19T12:00:00Z"
WITHIN = "2026-11-20T00:30:00Z"  # T0 and T1
DUMPS = ("resourcedump", "changedump")
T0, T1, T2 = "2026-11-20T00:00:00Z", "2026-11-20T01:00:00Z", "2026-11-20T02:00:00Z"
BOUNDS = Bounds(listen_seconds=0.05, pause_seconds=0)


class Site(Source):
    """A Source that does everything right, until a test spoils it."""

    def list(
        self,
        path: str,
        capability: str,
        *entries: Entry,
        root: Root = "urlset",
        up: str = "/capabilitylist.xml",
        index: str | None = None,
        after: str | None = None,
        **md: str,
    ) -> None:
        links = (Link("up", self.url + up),) if up else ()
        links += (Link("index", self.url + index),) if index else ()
        links += (Link("next", self.url + after),) if after else ()
        document = Document(root, Md(capability=capability, **md), links, entries)
        self.documents[path] = render_document(document)

    def entry(self, name: str, /, *links: Link, **md: object) -> Entry:
        return Entry(self.url + name, md=Md(**md) if md else None, links=links)

    def build(self) -> None:
        self.resources |= {f"/{name}": b"first /" + name.encode() for name in "ab"}
        self.resources |= {"/copy": b"first /a", "/about": b"<html>"}
        self.answer(
            "/", '<link rel="resourcesync" href="/capabilitylist.xml">', content_type="text/html"
        )
        self.answer("/robots.txt", f"Sitemap: {self.url}/resourcelist.xml\n")
        self.describe("/capabilitylist.xml")
        self.offer("/resourcelist.xml", "/changelist-index.xml")
        self.index_resources("/part1.xml", "/part2.xml.gz")
        self.part("/part1.xml", "/a", links=(Link("duplicate", self.url + "/copy"),))
        self.part("/part2.xml.gz", "/b")
        self.documents["/part2.xml.gz"] = gzip.compress(self.documents["/part2.xml.gz"])
        self.archive(("/0.xml", BEFORE, T0))
        self.changed("/0.xml", BEFORE, T0, index=None)
        self.index_changes(("/1.xml", T0, T1), ("/2.xml", T1, None))
        self.changed("/1.xml", T0, T1, *self.changes_within())
        self.changed("/2.xml", T1, None)
        self.dump()
        self.dump_changes()
        link(self, "/topic", "/hub")
        self.handlers["/socket"] = saying(notification(T0, T1), notification(T1, T2))

    def describe(self, *paths: str) -> None:
        entries = [self.entry(path, capability="capabilitylist") for path in paths]
        links = (Link("describedby", self.url + "/about"),)
        path, md = "/.well-known/resourcesync", Md(capability="description")
        self.documents[path] = render_document(Document("urlset", md, links, tuple(entries)))

    def offer_no_dumps(self) -> None:
        self.offer("/resourcelist.xml", "/changelist-index.xml", dumps=False)

    def offer(self, resources: str, changes: str, *more: Entry, dumps: bool = True) -> None:
        socket = Link("alternate", f"{self.url.replace('http', 'ws')}/socket")
        hub = Link("hub", f"{self.url}/hub")
        self.list(
            "/capabilitylist.xml",
            "capabilitylist",
            self.entry(resources, capability="resourcelist"),
            self.entry(changes, capability="changelist"),
            self.entry("/archive.xml", capability="changelist-archive"),
            *(self.entry(f"/{each}.xml", capability=each) for each in DUMPS if dumps),
            self.entry("/topic", hub, socket, capability="change-notification"),
            *more,
            up="/.well-known/resourcesync",
        )

    def index_resources(self, *parts: str, path: str = "/resourcelist.xml", at: str = T1) -> None:
        entries = (self.entry(part) for part in parts)
        self.list(path, "resourcelist", *entries, root="sitemapindex", at=at)

    def resource(self, name: str, /, *links: Link, **md: object) -> Entry:
        content = self.resources[name]
        told = {"hash": digest(content), "length": len(content)}
        return self.entry(name, *links, **(told | md))

    def part(self, path: str, *names: str, links: tuple[Link, ...] = (), **md: str) -> None:
        entries = [self.resource(name, *links) for name in names]
        options = {"at": T1, "index": "/resourcelist.xml"} | md
        self.list(path, "resourcelist", *entries, **options)

    def changes_within(self) -> tuple[Entry, ...]:
        """Those before the Resource List was taken."""
        return (
            self.resource("/b", change="created", datetime=WITHIN),
            self.entry("/d", change="deleted", datetime=WITHIN),
        )

    def archive(self, *lists: tuple[str, str, str]) -> None:
        entries = (self.entry(path, from_=begin, until=end) for path, begin, end in lists)
        self.list("/archive.xml", "changelist-archive", *entries)

    def dump(self, *names: str, copy: bytes | None = None, **of_package: object) -> None:
        """A package of these resources, and a copy of its manifest beside it."""
        entries = [self.resource(name, path=name) for name in names or ("/a", "/b")]
        self.list("/manifest.xml", "resourcedump-manifest", *entries, at=T1)
        inside = {"/manifest.xml": copy or self.documents["/manifest.xml"]}
        contents = {name: self.resources[name] for name in names or ("/a", "/b")}
        self.pack("/dump.zip", inside | contents)
        self.offer_dump(**of_package)

    def pack(self, path: str, members: dict[str, bytes]) -> None:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as package:
            for name, content in members.items():
                package.writestr(name.lstrip("/"), content)
        self.resources[path] = packed.getvalue()

    def offer_dump(self, **of_package: object) -> None:
        contents = Link("contents", self.url + "/manifest.xml")
        told = {"hash": digest(self.resources["/dump.zip"])} | of_package
        told = {"length": len(self.resources["/dump.zip"])} | told
        package = self.entry("/dump.zip", contents, **told)
        self.list("/resourcedump.xml", "resourcedump", package, at=T1)

    def dump_changes(self, *changes: Entry) -> None:
        """A package of changes, whose manifest is in it alone."""
        b = self.resource("/b", change="created", datetime=WITHIN, path="/1/b")
        found = changes or (b, self.entry("/d", change="deleted", datetime=WITHIN))
        self.list("/inside.xml", "changedump-manifest", *found, from_=T0, until=T1)
        members = {"/manifest.xml": self.documents.pop("/inside.xml")}
        paths = {each.md.path for each in found if each.md and each.md.path}
        contents = {path: self.resources.get(path.removeprefix("/1"), b"") for path in paths}
        self.pack("/changes.zip", members | {"/1/b": self.resources["/b"]} | contents)
        package = self.entry("/changes.zip", from_=T0, until=T1)
        self.list("/changedump.xml", "changedump", package, from_=T0, until=T1)

    def index_changes(self, *lists: tuple[str, str, str | None], begin: str = T0) -> None:
        entries = (self.entry(path, from_=since, until=end) for path, since, end in lists)
        path = "/changelist-index.xml"
        self.list(path, "changelist", *entries, root="sitemapindex", from_=begin)

    def changed(
        self,
        path: str,
        begin: str,
        end: str | None,
        *entries: Entry,
        index: str | None = "/changelist-index.xml",
    ) -> None:
        times = {"from_": begin} | ({"until": end} if end else {})
        self.list(path, "changelist", *entries, index=index, **times)

    def replace(self, path: str, old: str, new: str) -> None:
        assert old.encode() in self.documents[path]
        self.documents[path] = self.documents[path].replace(old.encode(), new.encode())


def saying(*payloads: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for payload in payloads:
            await socket.send_str(payload)
        await socket.receive()
        return socket

    return answer


def notification(begin: str, end: str) -> str:
    change = Entry("http://example.com/a", md=Md(change="updated", datetime=end))
    md = Md(capability="change-notification", from_=begin, until=end)
    return render_document(Document("urlset", md, (), (change,))).decode()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as running:
        running.documents.clear()
        running.build()
        yield running


def told(site: Site, found: Inspection) -> list[tuple[str, str]]:
    """The path and the message of every violation."""
    return [
        (each.document.replace("ws://", "http://").removeprefix(site.url), violation.message)
        for each in found.checked
        for violation in each.violations
    ]


async def test_a_right_source_has_no_violation_and_all_of_it_is_looked_at(site):
    found = await inspect(site.url, bounds=BOUNDS)
    assert told(site, found) == []
    kinds = sorted(each.kind for each in found.checked)
    assert kinds == [
        *("capabilitylist", "change-notification", "change-notification", "changedump"),
        *("changelist", "changelist", "changelist", "changelist index", "changelist-archive"),
        *("description", "discovery", "discovery", "discovery by <link>", "discovery by Link"),
        *("linked", "linked", "package", "package", "resource", "resource"),
        *("resourcedump", "resourcedump-manifest"),
        *("resourcelist", "resourcelist", "resourcelist index"),
    ]
    assert [each.note for each in found.checked if each.note] == ["not used"]  # the Link header
    assert found.is_right


# Seeded faults ---------------------------------------------------------------------------------


def divide(site: Site, *names: str) -> None:
    """Two Source Descriptions under an index, the second of which names these."""
    index = "/.well-known/resourcesync"
    for path, named in (("/d1.xml", ["/capabilitylist.xml"]), ("/d2.xml", names)):
        entries = [site.entry(each, capability="capabilitylist") for each in named]
        site.list(path, "description", *entries, up="", index=index)
    parts = (site.entry("/d1.xml"), site.entry("/d2.xml"))
    site.list(index, "description", *parts, root="sitemapindex", up="")


async def test_each_source_description_of_an_index_is_looked_at(site):
    divide(site, "/other.xml")
    site.list("/other.xml", "capabilitylist", up="/d2.xml")
    found = await inspect(site.url, bounds=BOUNDS)
    assert told(site, found) == []
    looked_at = {each.document.removeprefix(site.url) for each in found.checked}
    assert {"/d1.xml", "/d2.xml", "/capabilitylist.xml", "/other.xml", "/1.xml"} <= looked_at
    divide(site, "/1.xml")
    assert [path for path, _ in told(site, await inspect(site.url, bounds=BOUNDS))] == ["/1.xml"]


Spoil = Callable[[Site], object]


def nothing_leads_on(site: Site) -> None:
    site.handlers.clear()
    site.answer("/", "Welcome")
    del site.documents["/.well-known/resourcesync"]


def another_set_above(site: Site) -> None:
    site.part("/part1.xml", "/a", up="/other.xml")
    site.list("/other.xml", "capabilitylist", up="/.well-known/resourcesync")


def truncated(site: Site) -> None:
    packed = site.documents["/part2.xml.gz"]
    site.documents["/part2.xml.gz"] = packed[: len(packed) // 2]


def a_change(site: Site, path: str) -> Entry:
    return site.entry(path, change="updated", datetime=T2, length=3)


FAULTS: dict[str, tuple[Spoil, str, str]] = {
    "nothing leads to the Source": (nothing_leads_on, "", "lead anywhere"),
    "the well-known document is no Source Description": (
        lambda site: site.list(
            "/.well-known/resourcesync", "changelist", from_=T0, up="/capabilitylist.xml"
        ),
        "/.well-known/resourcesync",
        "to a description, but this is a changelist",
    ),
    "the Source Description names a Capability List that is not there": (
        lambda site: site.describe("/nothing.xml"),
        "/nothing.xml",
        "there is nothing at this address",
    ),
    "the Source Description names a list that is no Capability List": (
        lambda site: site.describe("/1.xml"),
        "/1.xml",
        "to a capabilitylist, but this is a changelist",
    ),
    "the HTML link leads to nothing": (
        lambda site: site.answer(
            "/", '<link rel="resourcesync" href="/x">', content_type="text/html"
        ),
        "/x",
        "there is nothing at this address",
    ),
    "robots.txt names a list that is not there": (
        lambda site: site.answer("/robots.txt", "Sitemap: /y\n"),
        "/y",
        "there is nothing at this address",
    ),
    "a Resource List does not say when it was taken": (
        lambda site: site.replace("/part1.xml", f' at="{T1}"', ""),
        "/part1.xml",
        "at is missing",
    ),
    "a part has another time than the index says": (
        lambda site: site.list(
            "/resourcelist.xml",
            "resourcelist",
            *(site.entry("/part1.xml", at=T2), site.entry("/part2.xml.gz")),
            root="sitemapindex",
            at=T1,
        ),
        "/part1.xml",
        "says at 2026-11-20T02:00:00.000000Z, the document says 2026-11-20T01:00:00.000000Z",
    ),
    "a part of an index is not there": (
        lambda site: site.index_resources("/part1.xml", "/part2.xml.gz", "/part3.xml"),
        "/part3.xml",
        "there is nothing at this address",
    ),
    "a part of an index is another document": (
        lambda site: site.index_resources("/part1.xml", "/part2.xml.gz", "/1.xml"),
        "/1.xml",
        "leads here to a resourcelist, but this is a changelist",
    ),
    "a list goes up to the Capability List of another set": (
        another_set_above,
        "/part1.xml",
        "a Capability List that does not name it",
    ),
    "a list goes up to a list": (
        lambda site: site.part("/part1.xml", "/a", up="/1.xml"),
        "/part1.xml",
        "which is no Capability List",
    ),
    "the index of a list is no index": (
        lambda site: site.part("/part1.xml", "/a", index="/part2.xml.gz"),
        "/part2.xml.gz",
        "calls this its index",
    ),
    "a document is not XML": (
        lambda site: site.documents.update({"/part1.xml": b"<urlset"}),
        "/part1.xml",
        "not well-formed XML",
    ),
    "a document is not whole": (truncated, "/part2.xml.gz", "it is no whole gzip"),
    "a document is packed wrongly": (
        lambda site: site.documents.update({"/part2.xml.gz": b"\x1f\x8b no gzip"}),
        "/part2.xml.gz",
        "it is no whole gzip",
    ),
    "a document is a bomb": (
        lambda site: site.documents.update({"/part2.xml.gz": gzip.compress(bytes(60 * 2**20))}),
        "/part2.xml.gz",
        "has more than 52428800 bytes when it is unpacked",
    ),
    "closed lists leave a gap": (
        lambda site: (
            site.index_changes(("/1.xml", T0, T1), ("/2.xml", T2, None)),
            site.changed("/2.xml", T2, None),
        ),
        "/changelist-index.xml",
        "a gap",
    ),
    "closed lists overlap": (
        lambda site: (
            site.index_changes(("/1.xml", T0, T2), ("/2.xml", T1, None)),
            site.changed("/1.xml", T0, T2, *site.changes_within()),
        ),
        "/changelist-index.xml",
        "before the end of the one before",
    ),
    "a list that its index calls closed is open": (
        lambda site: site.changed("/1.xml", T0, None, *site.changes_within()),
        "/1.xml",
        "says until 2026-11-20T01:00:00.000000Z, the document says nothing",
    ),
    "a change lies outside its list": (
        lambda site: site.changed(
            *("/1.xml", T0, T1, *site.changes_within()),
            site.entry("/a", change="updated", datetime=T2),
        ),
        "/1.xml",
        "lies outside the document's from and until",
    ),
    "the server fails": (
        lambda site: site.answer("/1.xml", status=503),
        "/1.xml",
        "cannot be served now (503)",
    ),
    "a resource has another hash": (
        lambda site: site.resources.update({"/a": b"other /a"}),
        "/a",
        "was stated",
    ),
    "a resource has another length": (
        lambda site: site.changed("/2.xml", T1, None, a_change(site, "/b")),
        "/b",
        "it has 8 bytes, 3 were stated",
    ),
    "a resource is not there": (
        lambda site: site.resources.pop("/a"),
        "/a",
        "the answer is 404",
    ),
    "a topic is not there": (
        lambda site: site.answer("/topic", status=404),
        "/topic",
        "the topic answers 404",
    ),
    "a topic does not name its hub": (
        lambda site: site.answer("/topic", headers={"Link": '</topic>; rel="self"'}),
        "/topic",
        'no Link with rel="hub"',
    ),
    "a WebSocket cannot be opened": (
        lambda site: site.answer("/socket", status=404),
        "/socket",
        "the answer was 404",
    ),
    "a channel ends at once": (
        lambda site: site.handlers.update({"/socket": ending}),
        "/socket",
        "the connection ended",
    ),
    "a channel leaves a notification out": (
        lambda site: site.handlers.update(
            {"/socket": saying(notification(T0, T0), notification(T1, T2))}
        ),
        "/socket",
        "nothing covers what lies between",
    ),
    "a channel repeats itself": (
        lambda site: site.handlers.update({"/socket": saying(*[notification(T0, T1)] * 2)}),
        "/socket",
        "they overlap",
    ),
    "a channel sends another document": (
        lambda site: site.handlers.update(
            {"/socket": saying(notification(T0, T1).replace("change-n", "framework-n"))}
        ),
        "/socket",
        "sends a framework-notification",
    ),
}


MORE_FAULTS: dict[str, tuple[Spoil, str, str]] = {
    "an index names itself": (
        lambda site: site.index_resources("/resourcelist.xml", "/part1.xml", "/part2.xml.gz"),
        "/resourcelist.xml",
        "the index names itself",
    ),
    "two indexes name each other": (
        lambda site: (
            site.index_resources("/more.xml", "/part1.xml", "/part2.xml.gz"),
            site.index_resources("/resourcelist.xml", path="/more.xml"),
        ),
        "/more.xml",
        "a circle",
    ),
    "an index names an index": (
        lambda site: (
            site.index_resources("/part1.xml", "/more.xml"),
            site.index_resources("/part2.xml.gz", path="/more.xml"),
            site.part("/part2.xml.gz", "/b", index="/more.xml"),
        ),
        "/resourcelist.xml",
        "which is an index, too",
    ),
    "a next page is not there": (
        lambda site: site.part("/part1.xml", "/a", after="/page2.xml"),
        "/page2.xml",
        "there is nothing at this address",
    ),
    "a next page is another document": (
        lambda site: site.part("/part1.xml", "/a", after="/1.xml"),
        "/1.xml",
        "leads here to a resourcelist, but this is a changelist",
    ),
    "a next page is wrong": (
        lambda site: (
            site.part("/part1.xml", "/a", after="/page2.xml"),
            site.part("/page2.xml"),
            site.replace("/page2.xml", f' at="{T1}"', ""),
        ),
        "/page2.xml",
        "at is missing",
    ),
    "a next page is at another host": (
        lambda site: site.part("/part1.xml", "/a", after="@127.0.0.2/page2.xml"),
        "/part1.xml",
        "names a next page at another host",
    ),
    "a next page that the header names is not there": (
        lambda site: site.answer(
            "/part1.xml",
            site.documents["/part1.xml"].decode(),
            headers={"Link": '</page2.xml>; rel="next"'},
        ),
        "/page2.xml",
        "there is nothing at this address",
    ),
    "pages go round in a circle": (
        lambda site: (
            site.part("/part1.xml", "/a", after="/page2.xml"),
            site.part("/page2.xml", after="/part1.xml"),
        ),
        "/page2.xml",
        "the pages have no end",
    ),
    "an index does not name the list that links to it": (
        lambda site: (
            site.changed("/1.xml", T0, T1, *site.changes_within(), index="/other.xml"),
            site.list(
                *("/other.xml", "changelist", site.entry("/2.xml")), root="sitemapindex", from_=T1
            ),
        ),
        "/1.xml",
        "does not name it",
    ),
    "an index begins after its first list": (
        lambda site: site.index_changes(("/1.xml", T0, T1), ("/2.xml", T1, None), begin=WITHIN),
        "/changelist-index.xml",
        "is later than that of its first list",
    ),
    "an index begins before its first list": (
        lambda site: site.index_changes(("/1.xml", T0, T1), ("/2.xml", T1, None), begin=BEFORE),
        "/changelist-index.xml",
        "is earlier than that of its first list",
    ),
    "the archive ends before the lists begin": (
        lambda site: (
            site.archive(("/0.xml", BEFORE, BETWEEN)),
            site.changed("/0.xml", BEFORE, BETWEEN, index=None),
        ),
        "/changelist-index.xml",
        "their archive ends at 2026-11-19T12:00:00.000000Z: a gap",
    ),
    "the Source Description names no Capability List": (
        lambda site: site.describe(),
        "/.well-known/resourcesync",
        "names no Capability List",
    ),
    "a resource is listed that was deleted before": (
        lambda site: (
            site.offer_no_dumps(),
            site.resources.update({"/d": b"first /d"}),
            site.part("/part2.xml.gz", "/b", "/d"),
        ),
        "/part2.xml.gz",
        "but is still listed",
    ),
    "a resource is not listed that was created before": (
        lambda site: (site.offer_no_dumps(), site.part("/part2.xml.gz")),
        "/resourcelist.xml",
        "/b was created at 2026-11-20T00:30:00.000000Z, before",
    ),
    "a resource is listed as it was before a change": (
        lambda site: (
            site.offer_no_dumps(),
            site.part("/part2.xml.gz", "/b"),
            site.resources.update({"/b": b"FIRST /b"}),
            site.changed("/1.xml", T0, T1, *site.changes_within()),
        ),
        "/part2.xml.gz",
        "is listed with another hash",
    ),
    "a resource stands in two parts": (
        lambda site: site.part("/part2.xml.gz", "/b", "/a"),
        "/part2.xml.gz",
        "stands in",
    ),
    "a part was taken before its index": (
        lambda site: (site.part("/part1.xml", "/a", at=T0),),
        "/part1.xml",
        "at 2026-11-20T00:00:00.000000Z is before that of its index",
    ),
    "a manifest holds what no list has": (
        lambda site: site.dump("/a", "/b", "/about"),
        "/manifest.xml",
        "/about is here, but not in",
    ),
    "a manifest leaves out what a list has": (
        lambda site: site.dump("/b"),
        "/part1.xml",
        "/a is here, but not in",
    ),
    "a manifest tells another hash than the list": (
        lambda site: (
            site.resources.update({"/a": b"Other /a"}),
            site.dump(),
            site.resources.update({"/a": b"first /a"}),
        ),
        "/manifest.xml",
        "/a has another hash than in",
    ),
    "a Change Dump tells a change that no Change List does": (
        lambda site: site.dump_changes(
            site.resource("/b", change="created", datetime=WITHIN, path="/1/b"),
            site.entry("/d", change="deleted", datetime=WITHIN),
            site.entry("/f", change="deleted", datetime=WITHIN),
        ),
        "/changes.zip",
        "/f was deleted",
    ),
    "a Change Dump leaves out a change": (
        lambda site: site.dump_changes(
            site.resource("/b", change="created", datetime=WITHIN, path="/1/b")
        ),
        "/changedump.xml",
        "/d changed at 2026-11-20T00:30:00.000000Z, but in no manifest",
    ),
    "a package is not there": (
        lambda site: site.resources.pop("/dump.zip"),
        "/dump.zip",
        "there is nothing at this address",
    ),
    "a package has another length": (
        lambda site: site.offer_dump(length=7),
        "/dump.zip",
        "7 were stated",
    ),
    "a package has another hash": (
        lambda site: site.offer_dump(hash="md5:" + 32 * "0"),
        "/dump.zip",
        "its md5 is",
    ),
    "a package is no ZIP": (
        lambda site: (site.resources.update({"/dump.zip": b"a tar perhaps"}), site.offer_dump()),
        "/dump.zip",
        "is no ZIP package",
    ),
    "a package has no manifest.xml": (
        lambda site: (site.pack("/dump.zip", {"/a": b"first /a"}), site.offer_dump()),
        "/dump.zip",
        "has no manifest.xml",
    ),
    "a package has another manifest than the one beside it": (
        lambda site: site.dump(
            copy=site.documents["/manifest.xml"].replace(
                digest(b"first /b").encode(), b"md5:" + md5(b"first /b").hexdigest().encode()
            )
        ),
        "/dump.zip",
        "does not say the same of",
    ),
    "a package does not hold what its manifest names": (
        lambda site: (
            site.pack(
                "/dump.zip",
                {"/manifest.xml": site.documents["/manifest.xml"], "/a": b"first /a"},
            ),
            site.offer_dump(),
        ),
        "/dump.zip",
        "does not hold '/b'",
    ),
    "a package holds what its manifest does not name": (
        lambda site: (
            site.pack(
                "/dump.zip",
                {"/manifest.xml": site.documents["/manifest.xml"]}
                | {"/a": b"first /a", "/b": b"first /b", "/left/": b"", "/left/over": b""},
            ),
            site.offer_dump(),
        ),
        "/dump.zip",
        "it holds 'left/over', which manifest.xml does not name",
    ),
    "a package holds another content": (
        lambda site: (
            site.pack(
                "/dump.zip",
                {"/manifest.xml": site.documents["/manifest.xml"]}
                | {"/a": b"first /a", "/b": b"other /b"},
            ),
            site.offer_dump(),
        ),
        "/dump.zip",
        "/b: its sha-256 is",
    ),
    "a topic names another hub": (
        lambda site: link(site, "/topic", "/hub2"),
        "/topic",
        "/hub2, the Capability List says",
    ),
    "a topic names another topic": (
        lambda site: link(site, "/other", "/hub"),
        "/topic",
        "/other, the Capability List says",
    ),
    "a description is not there": (
        lambda site: site.resources.pop("/about"),
        "/about",
        "links to it as describedby, but the answer is 404",
    ),
    "a duplicate is not there": (
        lambda site: site.resources.pop("/copy"),
        "/copy",
        "links to it as duplicate, but the answer is 404",
    ),
    "a document is served as HTML": (
        lambda site: site.answer(
            "/1.xml", site.documents["/1.xml"].decode(), content_type="text/html"
        ),
        "/1.xml",
        "it is served as text/html",
    ),
}
FAULTS |= MORE_FAULTS


def link(site: Site, topic: str, hub: str) -> None:
    """The topic names this topic, and this hub."""
    links = f'<{site.url}{topic}>; rel="self", <{site.url}{hub}>; rel="hub"'
    site.answer("/topic", headers={"Link": links})


async def ending(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await socket.close()
    return socket


OTHERS = {
    "a channel sends another document": 1,  # it is not a right one of its kind either
}
"""How many violations a fault brings besides."""
SENT = {"a channel sends another document": 1}
"""How many notifications a spoilt channel sends, if not two: it is listened to until they came."""


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_found_where_it_is(site, name):
    spoil, path, message = FAULTS[name]
    spoil(site)
    bounds = BOUNDS
    if path == "/socket":
        bounds = msgspec.structs.replace(BOUNDS, listen_seconds=60, payloads=SENT.get(name, 2))
    found = told(site, await inspect(site.url, bounds=bounds))
    assert [(where, message) for where, what in found if message in what] == [(path, message)], (
        found
    )
    assert len(found) == 1 + OTHERS.get(name, 0), found


# Bounds, and a Source that changes meanwhile ----------------------------------------------------


async def test_no_more_documents_are_read_than_allowed(site):
    for most in (3, 4):
        found = await inspect(site.url, bounds=Bounds(documents=most, samples=0, listen_seconds=0))
        assert sum(each.edition is not None for each in found.checked) == most
        assert found.beyond > 0


async def test_no_document_is_read_that_is_too_far_from_the_address(site):
    for number in range(9):
        entry = site.entry(f"/index{number + 1}.xml")
        site.list(f"/index{number}.xml", "resourcelist", entry, root="sitemapindex", at=T0)
    site.offer("/index0.xml", "/changelist-index.xml")
    await inspect(site.url, bounds=msgspec.structs.replace(BOUNDS, depth=5))
    assert site.asked["/index4.xml"] > 0
    assert site.asked["/index5.xml"] == 0


def name_documents(site: Site, addresses: list[str]) -> None:
    md = Md(capability="capabilitylist")
    lists = (Entry(each, md=md) for each in addresses)
    site.list("/.well-known/resourcesync", "description", *lists, up="")


def name_resources(site: Site, addresses: list[str]) -> None:
    entries = (Entry(each, md=Md(length=1)) for each in addresses)
    site.list("/part1.xml", "resourcelist", *entries, index="/resourcelist.xml", at=T0)


def name_descriptions(site: Site, addresses: list[str]) -> None:
    site.part("/part1.xml", "/a", links=tuple(Link("describedby", each) for each in addresses))


@pytest.mark.parametrize("name", [name_documents, name_resources, name_descriptions])
async def test_a_host_that_does_not_answer_is_not_asked_for_each_address(site, name):
    """What it did not answer is wrong, and the rest was not checked."""
    asked: list[str] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode().split()[1])

    site.offer_no_dumps()
    async with StreamServer(hang_up) as server:
        host = f"http://127.0.0.1:{server.port}"
        addresses = [f"{host}/{number}" for number in range(SILENT + 2)]
        name(site, addresses)
        found = await inspect(site.url, bounds=BOUNDS)
    there = [each for each in found.checked if each.document in addresses]
    assert len(asked) == SILENT
    assert {each.document for each in there if each.violations} == {host + each for each in asked}
    assert [bool(each.error) for each in there] == [not each.violations for each in there]


@pytest.mark.parametrize("more", [0, 1])
async def test_once_the_bytes_are_used_up_nothing_more_is_read(site, more):
    allowed = len(site.documents["/capabilitylist.xml"]) + more
    bounds = msgspec.structs.replace(BOUNDS, total_bytes=allowed)
    found = await inspect(site.url, bounds=bounds)
    assert [each.document for each in found.checked if each.edition] == [
        site.loc("capabilitylist.xml")
    ]
    assert (told(site, found), found.beyond > 0) == ([], True)


def bytes_of_packages(site: Site) -> int:
    return len(site.resources["/dump.zip"]) + len(site.resources["/changes.zip"])


LIMITS: dict[str, tuple[Callable[[Site], dict[str, int]], str]] = {
    "packages": (lambda _: {"packages": 2}, "1 package not opened"),
    "bytes of packages": (
        lambda site: {"package_bytes": bytes_of_packages(site)},
        "the packages are too long together",
    ),
    "unpacked bytes": (lambda _: {"unpacked_bytes": 3 * len(b"first /a")}, "not all that is in it"),
    "entries": (lambda _: {"entries": 14}, "its entries were not followed"),
    "bytes of a resource": (lambda _: {"sample_bytes": len(b"first /a")}, "it has more than"),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_what_a_limit_leaves_unchecked_is_named_and_no_success(site, name):
    limit_of, words = LIMITS[name]
    limit = limit_of(site)
    enough = await inspect(site.url, bounds=msgspec.structs.replace(BOUNDS, **limit))
    assert (told(site, enough), enough.is_right) == ([], True)
    less = {field: most - 1 for field, most in limit.items()}
    found = await inspect(site.url, bounds=msgspec.structs.replace(BOUNDS, **less))
    assert (told(site, found), found.is_right) == ([], False)
    assert [each for each in found.unchecked if words in each], found.unchecked


async def test_of_the_same_fault_in_many_resources_ten_are_named(site):
    for count, said in ((10, 10), (11, 11), (30, 11)):
        names = [f"/n{number}" for number in range(count)]
        site.resources |= dict.fromkeys(names, b"x")
        site.offer_no_dumps()
        site.part("/part1.xml", "/a", *names)
        site.part("/part2.xml.gz", "/b", *names)
        found = told(site, await inspect(site.url, bounds=BOUNDS))
        assert len(found) == said
        assert (f"the same of {count - 10} more resources" in found[-1][1]) == (count > 10)


async def test_what_does_not_fit_only_once_was_changed_meanwhile(site):
    site.part("/part2.xml.gz", "/b", "/a")
    site.handlers["/part2.xml.gz"] = lambda _: answer_once(site)
    found = await inspect(site.url, bounds=BOUNDS)
    assert (told(site, found), site.asked["/part2.xml.gz"]) == ([], 2)


async def answer_once(site: Site) -> web.StreamResponse:
    """The list as it is; from then on without what another part has."""
    body = site.documents["/part2.xml.gz"]
    site.part("/part2.xml.gz", "/b")
    return web.Response(body=body, content_type="application/xml")


async def test_a_part_that_was_replaced_meanwhile_is_no_violation(site):
    async def gone(_: web.Request) -> web.StreamResponse:
        site.index_resources("/part2.xml.gz")
        return web.Response(status=404)

    site.handlers["/part1.xml"] = gone
    found = await inspect(site.url, bounds=BOUNDS)
    assert told(site, found) == []
    assert "it was replaced meanwhile" in [each.note for each in found.checked]


@pytest.mark.parametrize("change", ["updated", "deleted"])
async def test_a_resource_that_changed_meanwhile_is_compared_with_the_newest_change(site, change):
    async def changed(_: web.Request) -> web.StreamResponse:
        del site.handlers["/a"]
        entry = site.entry(
            "/a", change=change, datetime=T2, length=3 if change == "updated" else None
        )
        site.changed("/2.xml", T1, None, entry)
        site.resources["/a"] = b"new"
        return web.Response(body=b"other")

    site.handlers["/a"] = changed
    assert told(site, await inspect(site.url, bounds=BOUNDS)) == []


def twice_within_a_second(site: Site) -> None:
    """A Source counts whole seconds, in which a resource may change more than once."""
    b, d = site.changes_within()
    gone = site.entry("/e", change="deleted", datetime=WITHIN)
    site.changed("/1.xml", T0, T1, b, d, site.entry("/e", change="created", datetime=WITHIN), gone)
    packed_b = site.resource("/b", change="created", datetime=WITHIN, path="/1/b")
    made = site.entry("/e", change="created", datetime=WITHIN, path="/1/e")
    site.dump_changes(packed_b, d, made, gone)


def after_the_moment_of_its_second(site: Site) -> None:
    """The list has what there was in the midst of a second; what changed, changed after that."""
    moment = "2026-11-20T02:30:00.500000Z"
    site.index_resources("/part1.xml", "/part2.xml.gz", at=moment)
    site.part("/part1.xml", "/a", at=moment)
    site.list(
        "/part2.xml.gz", "resourcelist", site.resource("/b"), index="/resourcelist.xml", at=moment
    )
    second = moment[:19] + "Z"
    site.changed("/2.xml", T1, None, site.entry("/c", change="created", datetime=second))
    site.resources["/c"] = b"new"


@pytest.mark.parametrize("change", [twice_within_a_second, after_the_moment_of_its_second])
async def test_changes_within_one_second_contradict_nothing(site, change):
    change(site)
    assert told(site, await inspect(site.url, bounds=BOUNDS)) == []


async def test_a_deletion_is_found_though_a_fault_of_another_set_is_older_than_its_lists(site):
    site.resources["/a"] = b"other /a"
    site.describe("/capabilitylist.xml", "/other.xml")
    offered = (
        site.entry(f"/{name}2.xml", capability=name) for name in ("resourcelist", "changelist")
    )
    site.list("/other.xml", "capabilitylist", *offered, up="/.well-known/resourcesync")
    site.list(
        "/resourcelist2.xml", "resourcelist", site.entry("/d", length=3), up="/other.xml", at=T2
    )
    gone = site.entry("/d", change="deleted", datetime="2026-11-20T02:30:00Z")
    site.list("/changelist2.xml", "changelist", gone, up="/other.xml", from_=T2)
    found = await inspect(site.url, bounds=BOUNDS)
    assert [path for path, _ in told(site, found)] == ["/a"]


async def test_what_needs_a_token_is_named_and_no_violation(site):
    for path in ("/part1.xml", "/topic", "/socket"):
        site.answer(path, status=401)
    found = await inspect(site.url, bounds=BOUNDS)
    assert told(site, found) == []
    assert not found.is_right
    refused = [each.document.rpartition("/")[2] for each in found.checked if each.error]
    assert {"part1.xml", "topic", "socket"} <= {*refused}


@pytest.mark.parametrize(
    ("status", "said"), [(401, "a token is needed"), (407, "the proxy refuses")]
)
async def test_a_site_that_refuses_all_that_may_lead_on_is_not_judged(site, status, said):
    for path in ("/", "/.well-known/resourcesync", "/robots.txt"):
        site.answer(path, status=status)
    with pytest.raises(Rejected, match=said):
        await inspect(site.url, bounds=BOUNDS)


async def test_a_document_that_is_not_there_is_not_judged_by_what_else_the_site_has(site):
    with pytest.raises(Rejected, match=r"/none.xml: there is nothing at this address"):
        await inspect(f"{site.url}/none.xml", bounds=BOUNDS)


async def test_where_a_site_has_no_front_page_what_is_wrong_further_on_is_still_named(site):
    site.answer("/", status=403)
    site.documents["/.well-known/resourcesync"] = b"<urlset"
    found = await inspect(site.url, bounds=BOUNDS)
    assert [path for path, _ in told(site, found)] == ["/.well-known/resourcesync"]


async def test_a_missing_page_leads_to_what_its_site_offers(site):
    found = await inspect(f"{site.url}/none", bounds=BOUNDS)
    assert found.is_right
    assert f"{site.url}/capabilitylist.xml" in [each.document for each in found.checked]


# Our own hub, and the command -------------------------------------------------------------------


async def test_a_private_set_by_its_address_is_judged_with_a_token_and_refused_without(hub):
    await hub.ask("PUT", "/api/sets/secret", json={"private": True})
    found = await inspect(f"{hub.url}/secret", token=TOKEN, bounds=BOUNDS)
    assert f"{hub.url}/secret/capabilitylist.xml" in [each.document for each in found.checked]
    with pytest.raises(Rejected, match="no set 'secret' that can be read without a token"):
        await inspect(f"{hub.url}/secret", bounds=BOUNDS)


@pytest.mark.evidence
async def test_a_hub_of_ours_under_load_has_no_violation(hub):
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rsnotify", "demo", "--port", "0", "--rate", "100"),
        *("--resources", "1000"),
        stdout=PIPE,
        stderr=DEVNULL,
        env=clean_environment() | {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN},
    )
    address = (await demo.stdout.readline()).decode().split()[-1]
    said = await rsnotify(
        "validate", "--site", address, "--json", "--listen", "1", "--samples", "10"
    )
    demo.terminate()
    await demo.wait()
    found = json.loads(said.out)
    assert [each for each in found["checked"] if each["violations"]] == []
    assert said.status == 0
    kinds = {each["kind"] for each in found["checked"]}
    assert {"description", "capabilitylist", "resourcelist", "changelist index"} <= kinds
    assert {"change-notification", "framework-notification", "resource"} <= kinds


async def test_the_command_names_each_violation_and_shows_what_was_checked(site):
    site.replace("/part1.xml", f' at="{T1}"', "")
    said = await rsnotify("validate", "--site", site.url, "--listen", "0", "--samples", "1")
    assert said.status == 1
    assert f"{site.url}/part1.xml:\n  /urlset/rs:md/@at: at is missing [Core 10.1]" in said.out
    assert "changelist index" in said.err
    assert said.err.endswith("1 violation in 24 checks\n")


@pytest.mark.parametrize(
    "words", [(), ("--site", "http://127.0.0.1:1", "x.xml"), ("--site", "http://127.0.0.1:1")]
)
async def test_bad_use_ends_with_2(words):
    assert (await rsnotify("validate", *words)).status == 2
