"""`inspect` looks at whole Sources: it finds each fault by its name, and nothing in a right one."""

import asyncio
import gzip
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from aiohttp import web

from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, Root, render_document
from rsnotify_client.inspection.checked import Bounds
from rsnotify_client.inspection.inspection import Inspection, inspect
from tests.integration.test_cli import rsnotify
from tests.running import TOKEN, RunningHub, clean_environment
from tests.sources import Handler, Source, digest

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
        **md: str,
    ) -> None:
        links = (Link("up", self.url + up),) if up else ()
        links += (Link("index", self.url + index),) if index else ()
        document = Document(root, Md(capability=capability, **md), links, entries)
        self.documents[path] = render_document(document)

    def entry(self, path: str, *links: Link, **md: object) -> Entry:
        return Entry(self.url + path, md=Md(**md) if md else None, links=links)  # type: ignore[arg-type]

    def build(self) -> None:
        self.handlers["/"] = answering(
            '<link rel="resourcesync" href="/capabilitylist.xml">', content_type="text/html"
        )
        self.handlers["/robots.txt"] = answering(f"Sitemap: {self.url}/resourcelist.xml\n")
        self.describe("/capabilitylist.xml")
        self.offer("/resourcelist.xml", "/changelist-index.xml")
        self.index_resources("/part1.xml", "/part2.xml.gz")
        self.part("/part1.xml", "/a")
        self.part("/part2.xml.gz", "/b")
        self.documents["/part2.xml.gz"] = gzip.compress(self.documents["/part2.xml.gz"])
        self.index_changes(("/1.xml", T0, T1), ("/2.xml", T1, None))
        self.changed("/1.xml", T0, T1)
        self.changed("/2.xml", T1, None)
        links = f'<{self.url}/topic>; rel="self", <{self.url}/hub>; rel="hub"'
        self.handlers["/topic"] = answering("", headers={"Link": links})
        self.handlers["/socket"] = saying(notification(T0, T1), notification(T1, T2))

    def describe(self, path: str) -> None:
        entry = self.entry(path, capability="capabilitylist")
        self.list("/.well-known/resourcesync", "description", entry, up="")

    def offer(self, resources: str, changes: str, *more: Entry) -> None:
        socket = Link("alternate", f"{self.url.replace('http', 'ws')}/socket")
        hub = Link("hub", f"{self.url}/hub")
        self.list(
            "/capabilitylist.xml",
            "capabilitylist",
            self.entry(resources, capability="resourcelist"),
            self.entry(changes, capability="changelist"),
            self.entry("/topic", hub, socket, capability="change-notification"),
            *more,
            up="/.well-known/resourcesync",
        )

    def index_resources(self, *parts: str) -> None:
        entries = (self.entry(part, at=T0) for part in parts)
        self.list("/resourcelist.xml", "resourcelist", *entries, root="sitemapindex", at=T0)

    def part(self, path: str, *names: str, **md: str) -> None:
        for name in names:
            self.resources[name] = b"first " + name.encode()
        entries = [
            self.entry(name, hash=digest(self.resources[name]), length=len(self.resources[name]))
            for name in names
        ]
        options = {"at": T0, "index": "/resourcelist.xml"} | md
        self.list(path, "resourcelist", *entries, **options)  # type: ignore[arg-type]

    def index_changes(self, *lists: tuple[str, str, str | None]) -> None:
        entries = (self.entry(path, from_=begin, until=end) for path, begin, end in lists)
        path = "/changelist-index.xml"
        self.list(path, "changelist", *entries, root="sitemapindex", from_=T0)

    def changed(self, path: str, begin: str, end: str | None, *entries: Entry) -> None:
        times = {"from_": begin} | ({"until": end} if end else {})
        self.list(path, "changelist", *entries, index="/changelist-index.xml", **times)  # type: ignore[arg-type]

    def replace(self, path: str, old: str, new: str) -> None:
        assert old.encode() in self.documents[path]
        self.documents[path] = self.documents[path].replace(old.encode(), new.encode())


def answering(text: str, **options: object) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text, **options)  # type: ignore[arg-type]

    return answer


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


async def test_a_right_source_has_no_violation_and_all_of_it_is_looked_at(site: Site) -> None:
    found = await inspect(site.url, bounds=BOUNDS)
    assert told(site, found) == []
    kinds = sorted(each.kind for each in found.checked)
    assert kinds == [
        *("capabilitylist", "change-notification", "change-notification"),
        *("changelist", "changelist", "changelist index", "description"),
        *("discovery", "discovery", "discovery by <link>", "discovery by Link"),
        *("resource", "resource", "resourcelist", "resourcelist", "resourcelist index"),
    ]
    assert [each.error for each in found.checked if each.error] == ["not used"]  # the Link header


# Seeded faults ---------------------------------------------------------------------------------

Spoil = Callable[[Site], object]


def nothing_leads_on(site: Site) -> None:
    site.handlers.clear()
    site.handlers["/"] = answering("Welcome")
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
        lambda site: site.handlers.update(
            {"/": answering('<link rel="resourcesync" href="/x">', content_type="text/html")}
        ),
        "/x",
        "there is nothing at this address",
    ),
    "robots.txt names a list that is not there": (
        lambda site: site.handlers.update({"/robots.txt": answering("Sitemap: /y\n")}),
        "/y",
        "there is nothing at this address",
    ),
    "a Resource List does not say when it was taken": (
        lambda site: site.replace("/part1.xml", f' at="{T0}"', ""),
        "/part1.xml",
        "at is missing",
    ),
    "a part has another time than the index says": (
        lambda site: site.part("/part1.xml", "/a", at=T1),
        "/part1.xml",
        "says at 2026-11-20T00:00:00.000000Z, the document says 2026-11-20T01:00:00.000000Z",
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
    "a document is not whole": (truncated, "/part2.xml.gz", "not well-formed XML"),
    "a document is packed wrongly": (
        lambda site: site.documents.update({"/part2.xml.gz": b"\x1f\x8b no gzip"}),
        "/part2.xml.gz",
        "is no whole gzip file",
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
            site.changed("/1.xml", T0, T2),
        ),
        "/changelist-index.xml",
        "before the end of the one before",
    ),
    "a list that its index calls closed is open": (
        lambda site: site.changed("/1.xml", T0, None),
        "/1.xml",
        "says until 2026-11-20T01:00:00.000000Z, the document says nothing",
    ),
    "a change lies outside its list": (
        lambda site: site.changed(
            "/1.xml", T0, T1, site.entry("/a", change="updated", datetime=T2)
        ),
        "/1.xml",
        "lies outside the document's from and until",
    ),
    "the server fails": (
        lambda site: site.handlers.update({"/1.xml": answering("", status=503)}),
        "/1.xml",
        "cannot be served now (503)",
    ),
    "a resource has another hash": (
        lambda site: site.resources.update({"/a": b"other /a"}),
        "/a",
        "was told",
    ),
    "a resource has another length": (
        lambda site: site.changed("/2.xml", T1, None, a_change(site, "/b")),
        "/b",
        "it has 8 bytes, 3 were told",
    ),
    "a resource is not there": (
        lambda site: site.resources.pop("/a"),
        "/a",
        "the answer is 404",
    ),
    "a topic is not there": (
        lambda site: site.handlers.update({"/topic": answering("", status=404)}),
        "/topic",
        "the topic answers 404",
    ),
    "a topic does not name its hub": (
        lambda site: site.handlers.update(
            {"/topic": answering("", headers={"Link": '</topic>; rel="self"'})}
        ),
        "/topic",
        'no Link with rel="hub"',
    ),
    "a WebSocket cannot be opened": (
        lambda site: site.handlers.update({"/socket": answering("", status=404)}),
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


async def ending(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await socket.close()
    return socket


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_found_where_it_is(site: Site, name: str) -> None:
    spoil, path, message = FAULTS[name]
    spoil(site)
    found = told(site, await inspect(site.url, bounds=BOUNDS))
    assert [each for each in found if each[0] == path and message in each[1]], found


# Bounds, and a Source that changes meanwhile ----------------------------------------------------


async def test_no_more_documents_are_read_than_allowed(site: Site) -> None:
    for most in (3, 4):
        found = await inspect(site.url, bounds=Bounds(documents=most, samples=0, listen_seconds=0))
        assert sum(each.edition is not None for each in found.checked) == most
        assert found.beyond > 0


async def test_no_document_is_read_that_is_too_far_from_the_address(site: Site) -> None:
    for number in range(9):
        entry = site.entry(f"/index{number + 1}.xml")
        site.list(f"/index{number}.xml", "resourcelist", entry, root="sitemapindex", at=T0)
    site.offer("/index0.xml", "/changelist-index.xml")
    await inspect(site.url, bounds=msgspec.structs.replace(BOUNDS, depth=5))
    assert (site.asked["/index4.xml"], site.asked["/index5.xml"]) == (1, 0)


async def test_an_index_that_names_itself_is_read_once(site: Site) -> None:
    site.index_resources("/resourcelist.xml", "/part1.xml", "/part2.xml.gz")
    found = await inspect(site.url, bounds=BOUNDS)
    assert (told(site, found), site.asked["/resourcelist.xml"]) == ([], 1)


@pytest.mark.parametrize("more", [0, 1])
async def test_once_the_bytes_are_used_up_nothing_more_is_read(site: Site, more: int) -> None:
    allowed = len(site.documents["/capabilitylist.xml"]) + more
    bounds = msgspec.structs.replace(BOUNDS, total_bytes=allowed)
    found = await inspect(site.url, bounds=bounds)
    assert [each.document for each in found.checked if each.edition] == [
        site.loc("capabilitylist.xml")
    ]
    assert (told(site, found), found.beyond > 0) == ([], True)


async def test_a_part_that_was_replaced_meanwhile_is_no_violation(site: Site) -> None:
    async def gone(_: web.Request) -> web.StreamResponse:
        site.index_resources("/part2.xml.gz")
        return web.Response(status=404)

    site.handlers["/part1.xml"] = gone
    found = await inspect(site.url, bounds=BOUNDS)
    assert told(site, found) == []
    assert "it was replaced meanwhile" in [each.error for each in found.checked]


@pytest.mark.parametrize("change", ["updated", "deleted"])
async def test_a_resource_that_changed_meanwhile_is_compared_with_the_newest_change(
    site: Site, change: str
) -> None:
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


async def test_what_needs_a_token_is_named_and_no_violation(site: Site) -> None:
    for path in ("/part1.xml", "/topic", "/socket"):
        site.handlers[path] = answering("", status=401)
    found = await inspect(site.url, bounds=BOUNDS)
    assert told(site, found) == []
    refused = [each.document.rpartition("/")[2] for each in found.checked if each.error]
    assert {"part1.xml", "topic", "socket"} <= {*refused}


# Our own hub, and the command -------------------------------------------------------------------


async def test_a_hub_of_ours_under_load_has_no_violation(hub: RunningHub) -> None:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rsnotify", "demo", "--port", "0", "--rate", "100"),
        *("--resources", "50"),
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


async def test_the_command_names_each_violation_and_shows_what_was_checked(site: Site) -> None:
    site.replace("/part1.xml", f' at="{T0}"', "")
    said = await rsnotify("validate", "--site", site.url, "--listen", "0", "--samples", "1")
    assert said.status == 1
    assert f"{site.url}/part1.xml:\n  /urlset/rs:md/@at: at is missing [Core 10.1]" in said.out
    assert "changelist index" in said.err
    assert said.err.endswith("2 violation(s) in 15 checks\n")


@pytest.mark.parametrize(
    "words", [(), ("--site", "http://127.0.0.1:1", "x.xml"), ("--site", "http://127.0.0.1:1")]
)
async def test_bad_use_ends_with_2(words: tuple[str, ...]) -> None:
    assert (await rsnotify("validate", *words)).status == 2
