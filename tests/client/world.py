"""Sources of many kinds, whose resources change at random: what each publishes of the same world.

A kind renders the documents of a Source, and says which resources can be had one by one. The seed
decides all that happens.
"""

import hashlib
import io
import random
import zipfile
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rsnotify.resourcesync.change import Link, Position
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, Root, render_document
from tests.sources import CAPABILITIES, Source, rendered

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
