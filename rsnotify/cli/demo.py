"""`rsnotify demo`: a Source to try things with; its resources change by themselves.

Rules that hold here: a resource changes before its change is published; discovery leads to the hub;
a set that holds anything but a demo's resources is left as it is.
"""

import asyncio
import hashlib
import json
import random
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from email.utils import formatdate
from functools import partial
from time import time
from typing import Annotated, Any, NamedTuple

import msgspec
from aiohttp import web
from typer import Option

from rsnotify.cli.options import Commands
from rsnotify.cli.target import HERE, Hub, asked, hub_at, path_of_set
from rsnotify.cli.terminal import echo
from rsnotify.documents.documents import robots
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.change import Change, ChangeKind, render_datetime
from rsnotify.resourcesync.notification import SOURCE_DESCRIPTION
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from rsnotify_client.blocking_threads import BlockingThreads
from rsnotify_client.documents import RemoteDocument
from rsnotify_client.hub import HubClient
from rsnotify_client.token import Token
from rsnotify_client.web import Web

commands = Commands()


@commands.command()
async def demo(
    resources: Annotated[int, Option(min=1, help="How many resources it begins with.")] = 100,
    rate: Annotated[float, Option(min=0, max=100_000, metavar="N", help="Changes a second.")] = 1.0,
    set_name: Annotated[
        str, Option("--set", metavar="NAME", help="A set of its own on the hub; made if new.")
    ] = "demo",
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, Option(min=0, max=65535, metavar="NUMBER", help="Port; 0 takes a free one.")
    ] = 9000,
    seed: Annotated[int | None, Option(help="The same seed, the same changes.")] = None,
    hub: Hub = HERE,
) -> None:
    """Run a Source to try things with.

    Its resources change by themselves. It serves them over HTTP, publishes every change to the
    hub, and leads its visitors to the hub's documents. What an earlier demo left in the set
    is deleted; a set with other resources is refused. Once it answers it prints one line,
    `rsnotify demo ready ADDRESS`, on stdout.
    """
    url = hub.url.rstrip("/")
    collection = Collection("", 0, random.Random(seed))  # noqa: S311
    runner = web.AppRunner(Site(collection, url, set_name).application(), access_log=None)
    await runner.setup()
    with hub.token() as token, hub_at(url, token) as client:
        kept = SetOfDemo(client, token, set_name)
        try:
            collection.base = await _listen(runner, host, port)
            await kept.begin(collection, resources)
            echo(f"rsnotify demo ready {collection.base}")
            echo(
                f"{resources} resources, {rate:g} changes a second; copy them with: "
                f"rsnotify mirror {collection.base} copy --lag",
                err=True,
            )
            await kept.go_on(collection, rate)
        finally:
            await runner.cleanup()


AT_ONCE = 1_000
TICK_SECONDS = 0.02
PATIENCE_SECONDS = 86_400.0
TYPES = {"txt": "text/plain", "html": "text/html", "json": "application/json"}
WORDS = (
    "archive", "catalogue", "copy", "dataset", "edition", "folio", "journal", "leaf", "letter",
    "manuscript", "map", "note", "page", "print", "record", "report", "review", "scroll", "series",
    "table", "thesis", "title", "volume",
)  # fmt: skip
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

    def __init__(self, base: str, count: int, chance: random.Random) -> None:
        self.base = base
        self.resources: dict[str, Resource] = {}
        self._chance = chance
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

    def created(self) -> Iterator[Change]:
        """All that there is, as changes."""
        for name, resource in self.resources.items():
            yield self._change(name, resource, "created")

    def loc(self, name: str) -> str:
        return f"{self.base}/{name}"

    def _write(self, name: str, what: ChangeKind) -> Change:
        content = self._content(name)
        digest = hashlib.sha256(content).hexdigest()
        media_type = TYPES[name.rpartition(".")[2]]
        resource = self.resources[name] = Resource(content, media_type, time(), digest)
        return self._change(name, resource, what)

    def _change(self, name: str, resource: Resource, what: ChangeKind) -> Change:
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
        app.router.add_get(SOURCE_DESCRIPTION, self._description)
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
        return web.Response(
            text=robots(self._hub, [f"/{self._set_name}/resourcelist.xml"]),
            content_type="text/plain",
        )

    async def _description(self, _: web.Request) -> web.Response:
        """The Source Description: the demo's one set of resources, whatever else the hub has."""
        entry = Entry(self._capabilities, md=Md(capability="capabilitylist"))
        document = Document("urlset", Md(capability="description"), entries=(entry,))
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


async def _listen(runner: web.AppRunner, host: str, port: int) -> str:
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no name of a host"
        raise InvalidSettings(
            f"cannot listen on {host}:{port}: {why}; choose another --host or --port"
        ) from None
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{runner.addresses[0][1]}"


class SetOfDemo(NamedTuple):
    """The set on the hub that names the collection."""

    hub: HubClient
    token: Token | None
    name: str

    async def begin(self, collection: Collection, count: int) -> None:
        """The set exists and has exactly our resources; a snapshot says so."""
        try:
            await self._ask("PUT", "", body=b"{}")
        except Rejected as error:
            if error.status != 403:
                raise
        await self._snapshot()
        listed = await self._listed()
        self._check_ours(listed)
        for _ in range(count):
            collection.create()
        now = {collection.loc(name) for name in collection.resources}
        await self._publish([Change(loc, "deleted") for loc in listed if loc not in now])
        await self._publish(list(collection.created()))
        await self._snapshot()

    async def go_on(self, collection: Collection, rate: float) -> None:
        if rate <= 0:
            await asyncio.Event().wait()
        began, done = time(), 0
        while True:
            await asyncio.sleep(max(TICK_SECONDS, (done + 1) / rate - (time() - began)))
            due = min(int((time() - began) * rate) - done, AT_ONCE)
            if due > 0:
                await self._publish([collection.change() for _ in range(due)])
                done += due

    async def _snapshot(self) -> None:
        """Without the right to ask for one, the hub's own is waited for."""
        with suppress(Rejected, TryAgain):
            await self._ask("POST", "/snapshot")

    async def _listed(self) -> list[str]:
        async with Web(self.token, self.hub.url) as web:
            try:
                document = RemoteDocument(web, f"{self.hub.url}/{self.name}/resourcelist.xml")
                return [entry.loc async for entries in document for entry in entries]
            except Rejected:
                return []  # there is no snapshot yet

    def _check_ours(self, listed: Sequence[str]) -> None:
        """Refuse a set with resources of somebody else: the demo would delete them."""
        foreign = [loc for loc in listed if not OURS.fullmatch(loc)]
        if foreign:
            raise InvalidSettings(
                f"the set {self.name} holds {len(foreign)} resources that are no demo's, such as "
                f"{foreign[0]}: give the demo a set of its own with --set"
            )

    async def _publish(self, changes: Sequence[Change]) -> None:
        for start in range(0, len(changes), AT_ONCE):
            body = msgspec.json.encode(changes[start : start + AT_ONCE])
            key = {"Idempotency-Key": secrets.token_hex(16)}
            headers = {"Content-Type": "application/json"} | key
            await self._ask("POST", "/changes", body=body, headers=headers)

    async def _ask(self, method: str, path: str, **sent: Any) -> None:
        """In a thread that ends with the program, even while the hub is away."""
        ask = partial(asked, self.hub, patience_seconds=PATIENCE_SECONDS, **sent)
        with closing(BlockingThreads(1)) as threads:
            await threads.run(ask, method, path_of_set(self.name) + path)
