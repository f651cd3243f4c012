"""The Source of the soak of bridges, a process that may be killed: what it has is in a file.

`python -m tests.evidence.soak.bridge_source FILE PORT`. The file is another one after each step,
and says which lie is told: 500, a login page, an empty list, half a document.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from feedgen.feed import FeedGenerator

from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from tests.support.repositories import Record, Repository
from tests.support.sources import entry_of

PAGE = 20
CAPABILITIES = "/capabilitylist.xml"
XML = "application/xml"


class World(msgspec.Struct):
    """All that there is; a lastmod of each resource, or a record's stamp."""

    lie: str | None = None
    maps: dict[str, str] = {}
    feed: dict[str, str] = {}
    records: dict[int, tuple[str, bool]] = {}
    resources: dict[str, Change] = {}
    changes: list[Change] = []  # those of the window
    begins: str = ""  # the window
    at: str = ""


class WorldServer:
    """Serves what the file says at each request."""

    def __init__(self, file: Path, url: str) -> None:
        self._file = file
        self.url = url

    async def serve(self, request: web.Request) -> web.Response:
        world = msgspec.json.decode(self._file.read_bytes(), type=World)
        if world.lie == "500":
            return web.Response(status=500)
        if world.lie == "login":
            return web.Response(text="<html><form>password</form></html>", content_type="text/html")
        documents: dict[str, Any] = {
            "/map.xml": self._map,
            "/feed": self._feed,
            CAPABILITIES: self._capabilities,
            "/resourcelist.xml": self._resource_list,
        }
        if request.path == "/oai":
            return await self._repository(world).handler(request)
        if request.path == "/changelist.xml":
            body = self._change_list(world, int(request.query.get("page", "1")))
        elif request.path in documents:
            body = documents[request.path](world)
        else:
            return web.Response(status=404)
        return web.Response(body=body[: len(body) // 2] if world.lie == "half" else body,
                            content_type=XML)  # fmt: skip

    def _map(self, world: World) -> bytes:
        maps = {} if world.lie == "empty" else world.maps
        entries = tuple(Entry(f"{self.url}/{name}", at) for name, at in maps.items())
        return render_document(Document("urlset", None, (), entries))

    def _feed(self, world: World) -> bytes:
        """The newest first, by feedgen."""
        made = FeedGenerator()
        made.id(self.url)
        made.title("A feed")
        for name, at in sorted(world.feed.items(), key=lambda each: each[1], reverse=True):
            entry = made.add_entry(order="append")
            entry.id(f"{self.url}/{name}")
            entry.title(name)
            entry.link(href=f"{self.url}/{name}")
            entry.updated(datetime.fromisoformat(at))
        return bytes(made.atom_str())

    def _capabilities(self, _: World) -> bytes:
        entries = tuple(
            Entry(f"{self.url}/{name}.xml", md=Md(capability=name))
            for name in ("resourcelist", "changelist")
        )
        return render_document(Document("urlset", Md(capability="capabilitylist"), (), entries))

    def _resource_list(self, world: World) -> bytes:
        resources = [] if world.lie == "empty" else [*world.resources.values()]
        entries = tuple(
            Entry(each.loc, each.lastmod, md=Md(hash=each.hash, length=each.length))
            for each in resources
        )
        md = Md(capability="resourcelist", at=world.at)
        return render_document(Document("urlset", md, (self._up,), entries))

    @property
    def _up(self) -> Link:
        return Link("up", self.url + CAPABILITIES)

    def _change_list(self, world: World, page: int) -> bytes:
        """As Heratio has it: pages, the last days alone, and what is deleted by its address."""
        begin = (page - 1) * PAGE
        links = [self._up]
        if page > 1:
            links.append(Link("prev", f"{self.url}/changelist.xml?page={page - 1}"))
        if begin + PAGE < len(world.changes):
            links.append(Link("next", f"{self.url}/changelist.xml?page={page + 1}"))
        entries = tuple(map(entry_of, world.changes[begin : begin + PAGE]))
        md = Md(capability="changelist", from_=world.begins)
        return render_document(Document("urlset", md, tuple(links), entries))

    def _repository(self, world: World) -> Repository:
        found = Repository(f"{self.url}/oai")
        for number, (at, is_deleted) in world.records.items():
            stamp = datetime.fromisoformat(at).astimezone(UTC).replace(tzinfo=None)
            found.records[number] = Record(number, stamp, is_deleted, f"Record {number}")
        return found


def run() -> None:
    file, port = Path(sys.argv[1]), int(sys.argv[2])
    server = WorldServer(file, f"http://127.0.0.1:{port}")
    app = web.Application()
    app.router.add_get("/{path:.*}", server.serve)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    run()
