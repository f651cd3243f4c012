"""The site of `rsnotify demo`: resources that change by chance, and their addresses."""

import hashlib
import json
import random
import re
from collections.abc import Iterator
from email.utils import formatdate
from time import time
from typing import NamedTuple

from aiohttp import web

from rsnotify.resourcesync.change import Change, render_datetime
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document

TYPES = {"txt": "text/plain", "html": "text/html", "json": "application/json"}
WORDS = (
    "archive",
    "catalogue",
    "copy",
    "dataset",
    "edition",
    "folio",
    "journal",
    "leaf",
    "letter",
    "manuscript",
    "map",
    "note",
    "page",
    "print",
    "record",
    "report",
    "review",
    "scroll",
    "series",
    "table",
    "thesis",
    "title",
    "volume",
)
OURS = re.compile(rf".+/({'|'.join(WORDS)})/res\d{{6,}}\.({'|'.join(TYPES)})")
SHARES = {"created": 1, "deleted": 1, "updated": 8}


class Resource(NamedTuple):
    """One resource as it is now."""

    content: bytes
    type: str
    modified: float
    digest: str


class Collection:
    """The resources, and chance that changes them."""

    def __init__(self, base: str, count: int, seed: int | None) -> None:
        self.base = base
        self.resources: dict[str, Resource] = {}
        self._chance = random.Random(seed)  # noqa: S311
        self._number = 0
        for _ in range(count):
            self.create()

    def create(self) -> Change:
        self._number += 1
        suffix = self._chance.choice(sorted(TYPES))
        name = f"{self._chance.choice(WORDS)}/res{self._number:06d}.{suffix}"
        return self._write(name, "created")

    def change(self) -> Change:
        """Something happens to some resource."""
        what = self._chance.choices([*SHARES], [*SHARES.values()])[0]
        if what == "created" or len(self.resources) < 2:
            return self.create()
        name = self._chance.choice(list(self.resources))
        if what == "updated":
            return self._write(name, "updated")
        del self.resources[name]
        return Change(self.loc(name), "deleted")

    def told(self) -> Iterator[Change]:
        """All that there is, as changes."""
        for name, resource in self.resources.items():
            yield self._change(name, resource, "created")

    def loc(self, name: str) -> str:
        return f"{self.base}/{name}"

    def _write(self, name: str, what: str) -> Change:
        content = self._content(name)
        digest = hashlib.sha256(content).hexdigest()
        media_type = TYPES[name.rpartition(".")[2]]
        resource = self.resources[name] = Resource(content, media_type, time(), digest)
        return self._change(name, resource, what)

    def _change(self, name: str, resource: Resource, what: str) -> Change:
        return Change(
            self.loc(name),
            what,
            lastmod=render_datetime(int(resource.modified * 1_000_000)),
            hash=f"sha-256:{resource.digest}",
            length=len(resource.content),
            type=resource.type,
        )

    def _content(self, name: str) -> bytes:
        count = self._chance.randint(20, 2_000)
        text = " ".join(self._chance.choices(WORDS, k=count))
        if name.endswith(".json"):
            return json.dumps({"name": name, "text": text, "words": count}).encode()
        if name.endswith(".html"):
            return f"<!doctype html><title>{name}</title><p>{text}</p>\n".encode()
        return f"{text}\n".encode()


class Site:
    """The collection over HTTP, and the ways from it to the hub."""

    def __init__(self, collection: Collection, hub: str, set_name: str) -> None:
        self._collection = collection
        self._hub = hub
        self._set_name = set_name

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/", self._front)
        app.router.add_get("/robots.txt", self._robots)
        app.router.add_get("/.well-known/resourcesync", self._described)
        app.router.add_get("/{name:.+}", self._resource)
        return app

    @property
    def _capabilities(self) -> str:
        return f"{self._hub}/{self._set_name}/capabilitylist.xml"

    async def _front(self, _: web.Request) -> web.Response:
        count = len(self._collection.resources)
        text = (
            f'<!doctype html><link rel="resourcesync" href="{self._capabilities}">'
            f"<title>A Source</title><p>{count} resources that change by themselves."
        )
        return web.Response(text=text, content_type="text/html")

    async def _robots(self, _: web.Request) -> web.Response:
        return web.Response(text=f"Sitemap: {self._hub}/{self._set_name}/resourcelist.xml\n")

    async def _described(self, _: web.Request) -> web.Response:
        named = Entry(self._capabilities, md=Md(capability="capabilitylist"))
        document = Document("urlset", Md(capability="description"), (), (named,))
        return web.Response(body=render_document(document), content_type="application/xml")

    async def _resource(self, request: web.Request) -> web.Response:
        resource = self._collection.resources.get(request.match_info["name"])
        if resource is None:
            raise web.HTTPNotFound
        tag = f'"{resource.digest[:32]}"'
        headers = {
            "ETag": tag,
            "Last-Modified": formatdate(resource.modified, usegmt=True),
            "Link": f'<{self._capabilities}>; rel="resourcesync"',
        }
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=resource.content, content_type=resource.type, headers=headers)
