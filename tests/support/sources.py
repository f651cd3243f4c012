"""A Source in the test's own process: real HTTP, whose documents and resources a test decides."""

import hashlib
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Self

from aiohttp import web

from rsnotify.resourcesync.change import Change, Link, Position, render_datetime
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from tests.support.stream_server import WebServer, one_answer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CAPABILITIES = "/capabilitylist.xml"


def digest(content: bytes) -> str:
    return f"sha-256:{hashlib.sha256(content).hexdigest()}"


class Source:
    """Resources in memory; a Resource List of the beginning and one open Change List."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = WebServer(one_answer(self._serve), tls=tls)
        self.documents: dict[str, bytes] = {}
        self.resources: dict[str, bytes] = {}
        self.handlers: dict[str, Handler] = {}
        self.resumed = 0
        self.asked: Counter[str] = Counter()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.changes: list[Change] = []
        self.url = ""
        self.at = Position(int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()) * 1_000_000)
        self.now = int(self.at)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        self.url = self._server.url
        self.documents[CAPABILITIES] = self.capability_list("resourcelist", "changelist")
        return self

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._server.connections

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    def capability_list(self, *capabilities: str) -> bytes:
        entries = [
            Entry(f"{self.url}/{capability}.xml", md=Md(capability=capability))
            for capability in capabilities
        ]
        up = Link("up", f"{self.url}/.well-known/resourcesync")
        return rendered("capabilitylist", entries, links=(up,))

    # What it has --------------------------------------------------------------------------------

    def loc(self, name: str) -> str:
        return f"{self.url}/{name}"

    def add(self, name: str, content: bytes) -> None:
        """There from the beginning, listed."""
        self.resources[f"/{name}"] = content

    def list_resources(self) -> None:
        entries = [
            Entry(
                self.url + path,
                lastmod=str(self.at),
                md=Md(hash=digest(content), length=len(content)),
            )
            for path, content in self.resources.items()
        ]
        md = Md(capability="resourcelist", at=str(self.at))
        self.documents["/resourcelist.xml"] = render_document(
            Document("urlset", md, (Link("up", self.url + CAPABILITIES),), tuple(entries))
        )
        self.list_changes()

    def list_changes(self) -> None:
        md = Md(capability="changelist", from_=str(self.at))
        entries = tuple(map(entry_of, self.changes))
        self.documents["/changelist.xml"] = render_document(
            Document("urlset", md, (Link("up", self.url + CAPABILITIES),), entries)
        )

    def change(self, name: str, content: bytes | None, **fields: object) -> Change:
        """A resource has new content, or none; the Change List says so."""
        self.now += 1_000_000
        at = render_datetime(self.now)
        if content is None:
            self.resources.pop(f"/{name}", None)
            change = Change(self.loc(name), "deleted", datetime=at, lastmod=at)
        else:
            self.resources[f"/{name}"] = content
            told = {"hash": digest(content), "length": len(content)} | fields
            change = Change(self.loc(name), "updated", datetime=at, lastmod=at, **told)
        self.changes.append(change)
        self.list_changes()
        return change

    # How it answers -----------------------------------------------------------------------------

    def answer(self, path: str, text: str | None = None, **response: Any) -> None:
        """With this from now on, whatever it has there."""

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(text=text, **response)

        self.handlers[path] = answer

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        self.asked[path] += 1
        self.requests.append((path, dict(request.headers)))
        if (handler := self.handlers.get(path)) is not None:
            return await handler(request)
        if path in self.documents:
            return web.Response(body=self.documents[path], content_type="application/xml")
        if path in self.resources:
            headers = {"ETag": f'"{digest(self.resources[path])[8:24]}"'}
            if request.headers.get("If-None-Match") == headers["ETag"]:
                return web.Response(status=304, headers=headers)
            return web.Response(body=self.resources[path], headers=headers)
        return web.Response(status=404)


def entry_of(change: Change) -> Entry:
    md = Md(
        change=change.change,
        datetime=change.datetime,
        hash=change.hash,
        length=change.length,
        type=change.type,
    )
    return Entry(change.loc, change.lastmod, md=md, links=change.links)


def rendered(
    capability: str, entries: list[Entry], *, links: tuple[Link, ...] = (), **md: str
) -> bytes:
    fields = {("from_" if name == "from" else name): value for name, value in md.items()}
    return render_document(
        Document("urlset", Md(capability=capability, **fields), links, tuple(entries))
    )


def sitemap_index(source: Source, *names: str) -> bytes:
    """A Resource List Index that names these lists."""
    entries = tuple(Entry(source.loc(name)) for name in names)
    md = Md(capability="resourcelist", at=str(source.at))
    return render_document(Document("sitemapindex", md, (), entries))
