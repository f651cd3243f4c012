"""Sources of many kinds, whose resources change at random: what each publishes of the same world.

A kind renders the documents of a Source, and says which resources can be had one by one. The seed
decides all that happens.
"""

import gzip
import hashlib
import io
import os
import random
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterable
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import NamedTuple

from aiohttp import web
from msgspec.structs import replace

from rsnotify.resourcesync.change import Link, Position
from rsnotify.resourcesync.tables import PATCH
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, Root, render_document
from tests.support.sources import CAPABILITIES, Handler, Source, rendered

RESOURCES = 42
SECOND = 1_000_000


class Event(NamedTuple):
    """One change of the world."""

    at: Position
    change: str
    name: str
    content: bytes | None


class World:
    """What a Source has, and all that happened to it."""

    def __init__(self, seed: str, now: Position) -> None:
        self.random = random.Random(seed)
        self.began = self.now = now
        self.state: dict[str, bytes] = {}
        self.changed: dict[str, Position] = {}
        self.events: list[Event] = []
        self._numbers = iter(range(10_000))
        for _ in range(RESOURCES):
            self._set(self._new_name(), self._content())
        self.events.clear()
        self.tick()

    def tick(self, seconds: float = 1) -> Position:
        self.now = Position(self.now + int(seconds * SECOND))
        return self.now

    def _new_name(self) -> str:
        return f"f{self.random.randrange(3)}/{next(self._numbers)}.txt"

    def _content(self) -> bytes:
        return self.random.randbytes(self.random.randrange(1, 400)).hex().encode()

    def _set(self, name: str, content: bytes) -> None:
        change = "updated" if name in self.state else "created"
        self.state[name], self.changed[name] = content, self.now
        self.events.append(Event(self.now, change, name, content))

    def _delete(self, name: str) -> bytes:
        content = self.state.pop(name)
        self.changed.pop(name)
        self.events.append(Event(self.now, "deleted", name, None))
        return content

    def step(self) -> None:
        """Creates, updates, one rename, deletions, and several changes to one resource."""
        acts: list[Callable[[], None]] = [
            *[self._create] * self.random.randrange(1, 4),
            *[self._update] * self.random.randrange(3, 9),
            *[self._remove] * self.random.randrange(1, 3),
            self._rename,
            self._create_and_remove,
        ]
        self.random.shuffle(acts)
        for act in acts:
            self.tick()
            act()
        self.tick()

    def _pick(self) -> str:
        return self.random.choice(sorted(self.state))

    def _create(self) -> None:
        self._set(self._new_name(), self._content())

    def _update(self) -> None:
        self._set(self._pick(), self._content())

    def _remove(self) -> None:
        self._delete(self._pick())

    def _rename(self) -> None:
        content = self._delete(self._pick())
        self.tick()
        self._set(self._new_name(), content)

    def _create_and_remove(self) -> None:
        name = self._new_name()
        self._set(name, self._content())
        self.tick()
        self._delete(name)


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"


class Kind:
    """How a Source says what it has. `publish` is called at the beginning and after each round."""

    capabilities: tuple[str, ...] = ("resourcelist",)
    has_resources = True  # each can be fetched alone
    has_digests = True

    def __init__(self, source: Source, world: World) -> None:
        self.source = source
        self.world = world
        self.round = 0
        self.address = source.url + CAPABILITIES

    def begin(self) -> None:
        """What there is from the beginning."""
        self.source.documents[CAPABILITIES] = self.source.capability_list(*self.capabilities)

    def publish(self) -> None:
        self.source.resources.clear()
        if self.has_resources:
            self.source.resources |= {f"/{name}": body for name, body in self.world.state.items()}
        if not self.round:
            self.begin()
        self.render()
        self.round += 1

    def render(self) -> None:
        raise NotImplementedError

    # Entries ------------------------------------------------------------------------------------

    def md(self, content: bytes, **fields: str) -> Md:
        if not self.has_digests:
            return Md(**fields)
        return Md(hash=md5(content), length=len(content), **fields)

    def resource(self, name: str, **fields: str) -> Entry:
        changed = str(self.world.changed[name])
        return Entry(self.source.loc(name), changed, md=self.md(self.world.state[name], **fields))

    def resources(self) -> list[Entry]:
        return [self.resource(name) for name in self.world.state]

    def event(self, event: Event, **fields: str) -> Entry:
        fields |= {"change": event.change, "datetime": str(event.at)}
        md = Md(**fields) if event.content is None else self.md(event.content, **fields)
        lastmod = None if event.content is None else str(event.at)
        return Entry(self.source.loc(event.name), lastmod, md=md)

    def put(self, name: str, body: bytes) -> None:
        self.source.documents[f"/{name}"] = body

    def document(self, root: Root, md: Md, entries: Iterable[Entry], *links: Link) -> bytes:
        up = Link("up", self.source.url + CAPABILITIES)
        return render_document(Document(root, md, (up, *links), tuple(entries)))


class FourLists(Kind):
    """Some of Resource List, Resource Dump, Change List, Change Dump; one of the first two.

    Resources can be had one by one only where a list of resources or of changes has them.
    """

    def __init__(self, source: Source, world: World, capabilities: tuple[str, ...]) -> None:
        super().__init__(source, world)
        self.capabilities = capabilities
        self.has_resources = bool({"resourcelist", "changelist"} & {*capabilities})
        self.has_digests = bool(world.random.randrange(4))
        self.packages: list[Entry] = []
        self.told = 0  # events that are in packages

    @property
    def tells_changes(self) -> bool:
        return bool({"changelist", "changedump"} & {*self.capabilities})

    def render(self) -> None:
        is_new = not self.tells_changes or not self.round or self.world.random.randrange(2)
        if is_new and "resourcelist" in self.capabilities:
            self.put("resourcelist.xml", rendered("resourcelist", self.resources(), **self.at))
        if is_new and "resourcedump" in self.capabilities:
            self.render_dump()
        if "changelist" in self.capabilities:
            entries = [self.event(each) for each in self.world.events]
            begin = {"from": str(self.world.began)}
            self.put("changelist.xml", rendered("changelist", entries, **begin))
        if "changedump" in self.capabilities:
            self.render_changes()

    @property
    def at(self) -> dict[str, str]:
        return {"at": str(self.world.tick())}

    def render_dump(self) -> None:
        names = list(self.world.state)
        half = len(names) // 2
        entries = []
        for number, part in enumerate((names[:half], names[half:])):
            packed = [(self.resource(name, path=f"/a/{name}"), name) for name in part]
            manifest = rendered("resourcedump-manifest", [each for each, _ in packed], **self.at)
            members = {f"a/{name}": self.world.state[name] for _, name in packed}
            entries.append(self.package(f"rd{number}", manifest, members))
        self.put("resourcedump.xml", rendered("resourcedump", entries, **self.at))

    def render_changes(self) -> None:
        new = self.world.events[self.told :]
        if new or not self.round:
            begin = str(self.world.events[self.told - 1].at if self.told else self.world.began)
            end = str(new[-1].at if new else self.world.now)
            packed = [
                (self.event(each, **({} if each.content is None else {"path": f"/{n}"})), each)
                for n, each in enumerate(new)
            ]
            times = {"from": begin, "until": end}
            manifest = rendered("changedump-manifest", [each for each, _ in packed], **times)
            members = {f"{n}": each.content for n, each in enumerate(new) if each.content}
            named = self.package(f"cd{self.round}", manifest, members)
            md = Md(from_=begin, until=end, type="application/zip")
            self.packages.append(Entry(named.loc, md=md, links=named.links))
            self.told = len(self.world.events)
        begin = str(self.world.began)
        self.put("changedump.xml", rendered("changedump", self.packages, **{"from": begin}))

    def package(self, name: str, manifest: bytes, members: dict[str, bytes]) -> Entry:
        """Of two packages one has a manifest that can be had alone."""
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("manifest.xml", manifest)
            for path, content in members.items():
                packed.writestr(path, content)
        body = file.getvalue()
        self.put(f"{name}.zip", body)
        links: tuple[Link, ...] = ()
        if self.world.random.randrange(2):
            self.put(f"{name}.xml", manifest)
            links = (Link("contents", self.source.loc(f"{name}.xml")),)
        md = Md(hash=md5(body), length=len(body), type="application/zip")
        return Entry(self.source.loc(f"{name}.zip"), md=md, links=links)


class PlainSitemap(Kind):
    """A sitemap of the kind that most sites have: only days, and it is found from robots.txt."""

    name = "sitemap.xml"

    @staticmethod
    def lastmod(at: Position) -> str | None:
        return str(at)[:10]

    def begin(self) -> None:
        self.source.documents.pop(CAPABILITIES)
        self.address = self.source.url + "/"
        self.put("robots.txt", f"Sitemap: {self.source.loc(self.name)}\n".encode())

    def render(self) -> None:
        entries = [
            Entry(self.source.loc(name), self.lastmod(changed))
            for name, changed in self.world.changed.items()
        ]
        self.put(self.name, render_document(Document("urlset", None, (), tuple(entries))))


class BySeconds(PlainSitemap):
    @staticmethod
    def lastmod(at: Position) -> str | None:
        return second(at)


class PackedSitemap(PlainSitemap):
    """A sitemap index with parts in gzip, which says nothing of when anything changed."""

    name = "sitemap_index.xml"

    @staticmethod
    def lastmod(_: Position) -> str | None:
        return None

    def render(self) -> None:
        locs, parts = [self.source.loc(name) for name in self.world.state], []
        for number, at in enumerate(range(0, len(locs), 15)):
            part = Document("urlset", None, (), tuple(Entry(loc) for loc in locs[at : at + 15]))
            parts.append(Entry(self.source.loc(f"sitemap{number}.xml.gz")))
            self.put(f"sitemap{number}.xml.gz", gzip.compress(render_document(part)))
        self.put(self.name, render_document(Document("sitemapindex", None, (), tuple(parts))))


class Heratio(Kind):
    """Pages of both lists, made when they are asked for: `until` is now, each page says the same.

    All that is there comes first, in the order of its last change, then what was deleted.
    """

    capabilities = ("resourcelist", "changelist")
    has_digests = False
    page = 11

    def begin(self) -> None:
        super().begin()
        self.source.handlers["/resourcelist.xml"] = self.served("resourcelist")
        self.source.handlers["/changelist.xml"] = self.served("changelist")

    def render(self) -> None:
        pass

    def served(self, capability: str) -> Handler:
        async def serve(request: web.Request) -> web.Response:
            number = int(request.query.get("page", "1"))
            entries = self.listed() if capability == "resourcelist" else self.changes()
            links = []
            if number * self.page < len(entries):
                links.append(Link("next", self.source.loc(f"{capability}.xml?page={number + 1}")))
            if number > 1:
                links.append(Link("prev", self.source.loc(f"{capability}.xml?page={number - 1}")))
            now = second(self.world.now)
            md = Md(capability=capability, at=now)
            if capability == "changelist":
                began = Position(self.world.began - 86_400 * SECOND)
                md = Md(capability=capability, from_=second(began), until=now)
            part = entries[(number - 1) * self.page : number * self.page]
            body = self.document("urlset", md, part, *links)
            return web.Response(body=body, content_type="application/xml")

        return serve

    def listed(self) -> list[Entry]:
        return [
            Entry(self.source.loc(name), second(at), md=Md(datetime=second(at)))
            for name, at in self.world.changed.items()
        ]

    def changes(self) -> list[Entry]:
        last = {each.name: each for each in self.world.events}
        there = [each for each in last.values() if each.content is not None]
        gone = [each for each in last.values() if each.content is None]
        return [self._entry(each) for each in (*there, *gone)]

    def _entry(self, event: Event) -> Entry:
        md = Md(change=event.change, datetime=second(event.at))
        return Entry(self.source.loc(event.name), second(event.at), md=md)


def second(at: Position) -> str:
    return f"{str(at)[:19]}Z"


class PagesOfTheHub(Kind):
    """As this hub has them with `?limit=`: each page says where it ends, the last one is open."""

    capabilities = ("resourcelist", "changelist")
    page = 7

    def render(self) -> None:
        if self.round % 2 == 0:
            self.pages("resourcelist", self.resources(), Md(at=str(self.world.tick())))
        entries = [self.event(each) for each in self.world.events]
        self.pages("changelist", entries, None)

    def pages(self, capability: str, entries: list[Entry], md: Md | None) -> None:
        pages = [entries[at : at + self.page] for at in range(0, len(entries), self.page)] or [[]]
        begin = str(self.world.began)
        for number, part in enumerate(pages):
            is_last = number + 1 == len(pages)
            links = () if is_last else (Link("next", f"{capability}{number + 1}.xml"),)
            name = f"{capability}{number or ''}.xml"
            said = Md(capability=capability, at=md and md.at)
            if md is None:
                end = None if is_last or not part[-1].md else part[-1].md.datetime
                said = Md(capability=capability, from_=begin, until=end)
                begin = end or begin
            self.put(name, self.document("urlset", said, part, *links))


class ClosedLists(Kind):
    """An index of Change Lists, one for each round, all closed; the oldest are in the archive."""

    capabilities = ("resourcelist", "changelist", "changelist-archive")

    def __init__(self, source: Source, world: World) -> None:
        super().__init__(source, world)
        self.lists: list[Entry] = []
        self.told = 0

    def render(self) -> None:
        if not self.round:
            at = {"at": second(self.world.tick())}
            self.put("resourcelist.xml", rendered("resourcelist", self.resources(), **at))
            self.last = str(self.world.began)
        new, self.told = self.world.events[self.told :], len(self.world.events)
        begin, self.last = self.last, str(self.world.tick())
        name, md = f"changes{self.round}.xml", Md(from_=begin, until=self.last)
        listed = Md(capability="changelist", from_=begin, until=self.last)
        index = Link("index", self.source.loc("changelist.xml"))
        self.put(name, self.document("urlset", listed, map(self.event, new), index))
        self.lists.append(Entry(self.source.loc(name), md=md))
        for place, lists, capability in (
            ("changelist.xml", self.lists[-2:], "changelist"),
            ("changelist-archive.xml", self.lists[:-2], "changelist-archive"),
        ):
            begin = lists[0].md.from_ if lists and lists[0].md else str(self.world.began)
            md = Md(capability=capability, from_=begin)
            root: Root = "sitemapindex" if capability == "changelist" else "urlset"
            self.put(place, self.document(root, md, lists))


class PyResourceSync(Kind):
    """As `py-resourcesync` writes them: an index with parts, and a closed list for each run.

    All changes of a run have the time of the run, at which its list begins, too; deletions have no
    `lastmod`. The first list begins when the Resource List was complete, which is after its `at`.
    """

    capabilities = ("resourcelist", "changelist")

    def __init__(self, source: Source, world: World) -> None:
        super().__init__(source, world)
        self.lists: list[tuple[str, str | None, list[Entry]]] = []
        self.told = 0

    def render(self) -> None:
        if not self.round:
            self.render_resources()
            return
        new = {each.name: each for each in self.world.events[self.told :]}
        self.told, run = len(self.world.events), second(self.world.tick())
        if self.lists:
            begin, _, entries = self.lists[-1]
            self.lists[-1] = begin, run, entries
        begin = run if self.lists else self.completed
        self.lists.append((begin, None, [self._entry(each, run) for each in new.values()]))
        named = []
        for number, (begin, until, entries) in enumerate(self.lists):
            md = Md(capability="changelist", from_=begin, until=until)
            index = Link("index", self.source.loc("changelist.xml"))
            self.put(f"changelist_{number:04}.xml", self.document("urlset", md, entries, index))
            md = Md(from_=begin, until=until)
            named.append(Entry(self.source.loc(f"changelist_{number:04}.xml"), md=md))
        md = Md(capability="changelist", from_=self.completed)
        self.put("changelist.xml", self.document("sitemapindex", md, named))

    def _entry(self, event: Event, run: str) -> Entry:
        entry = self.event(event)
        assert entry.md is not None
        lastmod = entry.lastmod and second(event.at)
        return replace(entry, lastmod=lastmod, md=replace(entry.md, datetime=run))

    def render_resources(self) -> None:
        at, self.completed = second(self.world.now), second(self.world.tick(3))
        entries, parts = self.resources(), []
        for number, start in enumerate(range(0, len(entries), 20)):
            md = Md(capability="resourcelist", at=at, completed=self.completed)
            name = f"resourcelist_{number:04}.xml"
            index = Link("index", self.source.loc("resourcelist.xml"))
            self.put(name, self.document("urlset", md, entries[start : start + 20], index))
            parts.append(Entry(self.source.loc(name), md=Md(at=at, completed=self.completed)))
        md = Md(capability="resourcelist", at=at, completed=self.completed)
        self.put("resourcelist.xml", self.document("sitemapindex", md, parts))
        md = Md(capability="changelist", from_=self.completed)
        self.put("changelist.xml", self.document("urlset", md, []))


class NinthDraft(Kind):
    """Documents of version 0.9: `resourcesync` for `up`, and changes without `datetime`."""

    capabilities = ("resourcelist", "changelist")

    def begin(self) -> None:
        offered = [
            Entry(self.source.loc(f"{each}.xml"), md=Md(capability=each))
            for each in self.capabilities
        ]
        md = Md(capability="capabilitylist", modified=str(self.world.now))
        links = (Link("resourcesync", self.source.loc(".well-known/resourcesync")),)
        body = render_document(Document("urlset", md, links, tuple(offered)))
        self.source.documents[CAPABILITIES] = body

    def render(self) -> None:
        if self.round % 2 == 0:
            md = Md(capability="resourcelist", at=str(self.world.tick()))
            self.put("resourcelist.xml", self._document(md, self.resources()))
        md = Md(capability="changelist", from_=str(self.world.began))
        self.put("changelist.xml", self._document(md, map(self._change, self.world.events)))

    def _change(self, event: Event) -> Entry:
        entry = self.event(event)
        assert entry.md is not None
        return replace(entry, lastmod=str(event.at), md=replace(entry.md, datetime=None))

    def _document(self, md: Md, entries: Iterable[Entry]) -> bytes:
        links = (Link("resourcesync", self.source.url + CAPABILITIES),)
        return render_document(Document("urlset", md, links, tuple(entries)))


class Patches(Kind):
    """JSON and XML resources that change by patches, and each whole as it was written first."""

    capabilities = ("resourcelist", "changelist")

    def __init__(self, source: Source, world: World) -> None:
        super().__init__(source, world)
        self.applied = 0
        self.patched = ("p/x.json", "p/y.xml")
        for name in self.patched:
            self.world.state[name] = self._written(name, 0)
            self.world.changed[name] = self.world.now
        self.changes: list[Entry] = []
        self.told = 0

    @staticmethod
    def _written(name: str, number: int) -> bytes:
        if name.endswith("json"):
            return b'{"first": %d, "last": "%b"}' % (number, b"x" * 300)
        return b'<?xml version="1.0"?>\n<r><n>%d</n>%b</r>\n' % (number, b"<x/>" * 80)

    def render(self) -> None:
        at = {"at": str(self.world.tick())}
        if not self.round:
            self.put("resourcelist.xml", rendered("resourcelist", self.resources(), **at))
        new = [each for each in self.world.events[self.told :] if each.name not in self.patched]
        self.changes += map(self.event, new)
        self.told = len(self.world.events)
        for name in self.patched if self.round else ():
            self.changes.append(self._patch(name))
        md = {"from": str(self.world.began)}
        self.put("changelist.xml", rendered("changelist", self.changes, **md))

    def _patch(self, name: str) -> Entry:
        """The file changes; nobody can fetch it whole."""
        kind = name.rpartition(".")[2]
        patch = b'[{"op": "replace", "path": "/first", "value": %d}]' % self.round
        if kind == "xml":
            patch = b'<diff><replace sel="r/n/text()">%d</replace></diff>' % self.round
        content, at = self._written(name, self.round), self.world.tick()
        self.world.state[name], self.world.changed[name] = content, at
        self.source.resources.pop(f"/{name}", None)
        self.put(f"patch{self.round}.{kind}", patch)
        link = Link(
            PATCH,
            self.source.loc(f"patch{self.round}.{kind}"),
            length=len(patch),
            type=f"application/{kind}-patch+{kind}",
        )
        md = self.md(content, change="updated", datetime=str(at))
        return Entry(self.source.loc(name), str(at), md=md, links=(link,))


class ReferenceBuild(Kind):
    """Files, and what `resync-build` writes of them.

    Its Change List says neither when it begins nor when anything happened, and of what was deleted
    it has the `lastmod` of before.
    """

    capabilities = ("resourcelist", "changelist")

    def __init__(self, source: Source, world: World, folder: Path, command: Path) -> None:
        super().__init__(source, world)
        self.folder = folder
        self.command = command

    def render(self) -> None:
        files = self.folder / "files"
        shutil.rmtree(files, ignore_errors=True)
        for name, content in self.world.state.items():
            (files / name).parent.mkdir(parents=True, exist_ok=True)
            (files / name).write_bytes(content)
            changed = self.world.changed[name] / SECOND
            os.utime(files / name, (changed, changed))
        first = self.folder / "resourcelist.xml"
        if not self.round:
            self._build("resourcelist")
            self.put("changelist.xml", rendered("changelist", []))
        else:
            self._build("changelist", "--reference", str(first))

    def _build(self, capability: str, *words: str) -> None:
        """The times of what happens follow the clock, for its Resource List has the time of now."""
        out = self.folder / f"{capability}.xml"
        mapping = f"{self.source.url}/={self.folder}/files/"
        line = [self.command, f"--write-{capability}", "--hash", "md5", "--outfile", out, *words]
        subprocess.run([*line, mapping], check=True, capture_output=True)
        self.put(f"{capability}.xml", out.read_bytes())
        written = formatdate(time() + 10 * self.round, usegmt=True)

        async def serve(_: web.Request) -> web.Response:
            headers = {"Last-Modified": written}
            return web.Response(body=out.read_bytes(), content_type="text/xml", headers=headers)

        self.source.handlers[f"/{capability}.xml"] = serve


# Lies -------------------------------------------------------------------------------------------

ENTRIES = re.compile(rb"<(url|sitemap)>.*?</\1>", re.DOTALL)
DIGEST = re.compile(rb"md5:([0-9a-f]{32})")
LIES = ("cut", "emptied", "halved", "a wrong digest", "500", "an HTML page")


class Lie:
    """One document of a Source that is for a while not what it should be."""

    def __init__(self, kind: Kind) -> None:
        chance, documents = kind.world.random, kind.source.documents
        self.kind = chance.choice(LIES)
        lists = [path for path in documents if path.endswith((".xml", ".gz"))]
        lists += [path for path in kind.source.handlers if path.endswith(".xml")]
        whole = sorted({*lists} - {CAPABILITIES})
        if self.kind in ("emptied", "halved"):  # of changes, nobody can know that some are missing
            whole = [path for path in whole if "change" not in path and "cd" not in path] or whole
        self.path = chance.choice(whole)
        self._source = kind.source
        self._honest = kind.source.handlers.get(self.path)

    def begin(self) -> None:
        self._source.handlers[self.path] = self._serve

    def end(self) -> None:
        del self._source.handlers[self.path]
        if self._honest is not None:
            self._source.handlers[self.path] = self._honest

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.kind == "500":
            return web.Response(status=500)
        if self.kind == "an HTML page":
            return web.Response(body=b"<html><p>Sorry</html>", content_type="text/html")
        body = self._source.documents.get(self.path, b"")
        if self._honest is not None:
            answer = await self._honest(request)
            assert isinstance(answer, web.Response)
            assert isinstance(answer.body, bytes)
            body = answer.body
        return web.Response(body=self._told(body), content_type="application/xml")

    def _told(self, body: bytes) -> bytes:
        if self.kind == "cut" or not body.startswith(b"<"):
            return body[: len(body) // 2]
        if self.kind == "a wrong digest":
            last = [each.start(1) for each in DIGEST.finditer(body)][-1:]
            return body[: last[0]] + b"0" * 32 + body[last[0] + 32 :] if last else body
        keep = 0 if self.kind == "emptied" else len(ENTRIES.findall(body)) // 2
        numbers = iter(range(1_000_000))
        return ENTRIES.sub(lambda found: found[0] if next(numbers) < keep else b"", body)
