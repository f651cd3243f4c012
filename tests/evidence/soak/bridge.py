"""Bridges while hubs, bridges and the Source are killed and lie: at the end nothing is missing.

A sitemap, lists of ResourceSync in pages, a repository of OAI-PMH and a feed change at random; a
second hub follows the first one by its channel. The Source answers 500, a login page, an empty
list or half a document for a while; hubs, bridges and the Source are killed. At the end each set
is what the Source has, by address, lastmod and hash, and nothing was published twice in a row
without anything new. `SOAK_SECONDS` is how long.
"""

import asyncio
import os
import random
import socket
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, Self

import aiohttp
import msgspec

from rsnotify.resourcesync.change import Change, render_datetime
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify_client.notification import position_of
from tests.evidence.soak.bridge_source import CAPABILITIES, World
from tests.support.running import TOKEN, RunningHub, clean_environment
from tests.support.sources import digest

LIES = ("500", "login", "empty", "half", None, None, None, None)
BEGIN = 30
WINDOW = 60
SECOND = 1_000_000
FROMS = {
    "maps": "{url}/map.xml",
    "lists": "{url}" + CAPABILITIES,
    "records": "oai:{url}/oai",
    "feed": "{url}/feed",
}


class Told(NamedTuple):
    """What a list says of a resource."""

    lastmod: int | None
    hash: str | None


State = dict[str, Told]


class Killable:
    """A process that is started again as it was."""

    def __init__(self, words: Sequence[str], folder: Path, log: str) -> None:
        self._words, self._folder, self._log = words, folder, folder / log
        self.process: Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *self._words),
                cwd=self._folder, stdin=DEVNULL, stdout=log, stderr=log,
                env=clean_environment() | {"RSNOTIFY_ADMIN_TOKEN": TOKEN, "PYTHONPATH": PATH},
            )  # fmt: skip

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    def said(self) -> str:
        return self._log.read_text()[-4_000:]


ROOT = Path(__file__).parents[3]
PATH = os.pathsep.join(map(str, (ROOT, ROOT / "clients/python")))


class Worlds:
    """What the Source has, and the file in which its process reads it."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._file, self._chance = folder / "world.json", chance
        self._number = 0
        self._time = self._stamp = 0
        self.world = World(at=self._now(), begins=self._now())
        self.process = Killable(
            ("tests.evidence.soak.bridge_source", str(self._file), str(port)), folder, "source.log"
        )
        for number in range(BEGIN):
            self.world.maps[f"m{number}"] = self._now()
            self.world.feed[f"f{number}"] = self._now()
            self.world.records[number] = self._second(), False
            self._put(f"r{number}")
        self.write()

    def _now(self) -> str:
        """Each another one, none before the clock."""
        self._time = max(self._time + 1, int(time.time() * SECOND))
        return render_datetime(self._time)

    def _second(self) -> str:
        """The same for records, whose stamps have seconds: they may be ahead of the clock."""
        self._stamp = max(self._stamp + SECOND, int(time.time()) * SECOND)
        return render_datetime(self._stamp)[:19] + "Z"

    def write(self) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self.world))
        os.replace(fresh, self._file)

    def lie(self, lie: str | None) -> None:
        self.world.lie = lie
        self.write()

    def _put(self, name: str) -> None:
        at, content = self._now(), self._chance.randbytes(8)
        loc = f"{self.url}/{name}"
        fields = {"lastmod": at, "datetime": at, "hash": digest(content), "length": 8}
        kind = "updated" if loc in self.world.resources else "created"
        self.world.resources[loc] = change = Change(loc, kind, **fields)
        self._note(change, at)

    def _delete(self, loc: str) -> None:
        at = self._now()
        del self.world.resources[loc]
        self._note(Change(loc, "deleted", lastmod=at, datetime=at), at)

    def _note(self, change: Change, at: str) -> None:
        world = self.world
        world.changes.append(change)
        while len(world.changes) > WINDOW:
            world.begins = world.changes.pop(0).datetime or world.begins
        world.at = at

    def step(self) -> None:
        """Something happens in each."""
        self._number += 1
        fresh, chance, world = f"n{self._number}", self._chance, self.world
        name = chance.choice([*world.maps, fresh])
        if name in world.maps and self._may_go(len(world.maps)):
            del world.maps[name]
        else:
            world.maps[name] = self._now()
        kept = [number for number, (_, is_gone) in world.records.items() if not is_gone]
        if self._may_go(len(kept)):
            world.records[chance.choice(kept)] = self._second(), True
        else:
            world.records[chance.choice([*kept, 1_000 + self._number])] = self._second(), False
        if self._may_go(len(world.resources)):
            self._delete(chance.choice([*world.resources]))
        else:
            names = [loc.rpartition("/")[2] for loc in world.resources]
            self._put(chance.choice([*names, fresh]))
        world.feed[chance.choice([*world.feed, fresh])] = self._now()
        self.write()

    def _may_go(self, count: int) -> bool:
        return self._chance.random() < 0.2 and count > BEGIN - 8

    def wanted(self) -> dict[str, State]:
        world = self.world

        def dated(stamps: dict[str, str]) -> State:
            return {f"{self.url}/{name}": Told(position_of(at), None)
                    for name, at in stamps.items()}  # fmt: skip

        records = {
            f"https://repo.example/record/{number}": Told(position_of(at), None)
            for number, (at, is_gone) in world.records.items()
            if not is_gone
        }
        lists = {
            loc: Told(position_of(each.lastmod), each.hash) for loc, each in world.resources.items()
        }
        found = {"maps": dated(world.maps), "lists": lists, "records": records}
        return found | {"feed": dated(world.feed), "edge": lists}


def bridge_of(folder: Path, name: str, hub: RunningHub, froms: dict[str, str]) -> Killable:
    """`rsnotify bridge --config` from these addresses to the sets of these names."""
    tables = []
    for set_name, address in froms.items():
        table = f'[[bridge]]\nfrom = "{address}"\nset = "{set_name}"\nmax-delete = 60\n'
        table += "interval = 1\nmax-interval = 1\nrobots = false\n"
        if address.startswith("oai:"):  # its pages skip records that change meanwhile
            table += 'compare = 3\nloc = "https://repo.example/record/{local}"\n'
        if address.startswith("ws:"):  # what is loaded silently no channel says
            table += "compare = 3\n"
        tables.append(table)
    (folder / f"{name}.toml").write_text("\n".join(tables))
    words = ("--config", f"{name}.toml", "--state", f"{name}.db", "--url", hub.url)
    return Killable(("rsnotify", "bridge", *words), folder, f"{name}.log")


class Scene:
    """All processes."""

    def __init__(self, worlds: Worlds, hubs: list[RunningHub], bridges: list[Killable]) -> None:
        self.worlds, self.hubs, self.bridges = worlds, hubs, bridges

    async def trouble(self, chance: random.Random, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.worlds.lie(chance.choice(LIES))
            for _ in range(chance.randrange(1, 5)):
                self.worlds.step()
                await asyncio.sleep(chance.random() * 0.3)
            await self._kill(chance)
        self.worlds.lie(None)

    async def _kill(self, chance: random.Random) -> None:
        victims = (*self.bridges, *self.hubs, self.worlds.process, None, None, None)
        victim = chance.choice(victims)
        if victim is not None:
            await victim.kill()
            await asyncio.sleep(chance.random())
            await victim.start()

    async def ends_in_step(self) -> None:
        """The Source stands still; in the end the sets are what it has."""
        wanted, found = self.worlds.wanted(), dict[str, State]()
        until = time.monotonic() + 180
        while (found := await self._found()) != wanted:
            if time.monotonic() > until:
                self._say(wanted, found)
                raise AssertionError("the sets are not what the Source has")
            await asyncio.sleep(0.5)

    def _say(self, wanted: dict[str, State], found: dict[str, State]) -> None:
        for name, state in wanted.items():
            has = found[name]
            other = {loc: (state[loc], has[loc]) for loc in state.keys() & has.keys()
                     if state[loc] != has[loc]}  # fmt: skip
            print(name, "missing", state.keys() - has, "too many", has.keys() - state, other)
        for each in (*self.bridges, self.worlds.process):
            print(each.said())

    def _hub_of(self, name: str) -> RunningHub:
        return self.hubs[name == "edge"]

    async def _found(self) -> dict[str, State]:
        """What the sets have, by their journals and what was there before."""
        found = {}
        for name in (*FROMS, "edge"):
            hub = self._hub_of(name)
            await hub.ask("POST", f"/api/sets/{name}/snapshot")
            _, body = await hub.ask("GET", f"/{name}/resourcelist.xml")
            changes = map(change_of, parse_document(body).entries)
            found[name] = {each.loc: Told(position_of(each.lastmod), each.hash) for each in changes}
        return found

    async def check(self) -> int:
        """No resource is said twice to be the same; how much was published."""
        count = 0
        for name in (*FROMS, "edge"):
            before: dict[str, Change] = {}
            for change in await journal(self._hub_of(name), name):
                last = before.get(change.loc)
                if last is not None:
                    was = (last.change == "deleted", last.lastmod, last.hash)
                    now = (change.change == "deleted", change.lastmod, change.hash)
                    assert was != now, f"{name}: {last} was published twice: {change}"
                before[change.loc] = change
                count += 1
        return count


async def journal(hub: RunningHub, name: str) -> list[Change]:
    changes: list[Change] = []
    place: str | None = "1970-01-01T00:00:00Z"
    while place is not None:
        _, body = await hub.ask("GET", f"/{name}/changelist.xml?from={place}")
        document = parse_document(body)
        changes += map(change_of, document.entries)
        place = document.md.until if document.md else None
    return changes


async def soak(folder: Path, seconds: float, seed: int = 1) -> int:
    """How many changes were published; raises AssertionError for what is missing or twice."""
    chance = random.Random(seed)
    worlds = Worlds(folder, chance)
    async with AsyncExitStack() as open_:
        await open_.enter_async_context(worlds.process)
        await answers(worlds.url)
        first = await open_.enter_async_context(RunningHub(folder / "first", sets=(*FROMS,)))
        edge = await open_.enter_async_context(RunningHub(folder / "second", sets=("edge",)))
        froms = {name: each.format(url=worlds.url) for name, each in FROMS.items()}
        chained = {"edge": first.channel("lists")}
        bridges = [bridge_of(folder, "bridge", first, froms)]
        bridges.append(bridge_of(folder, "chain", edge, chained))
        for each in bridges:
            await open_.enter_async_context(each)
        scene = Scene(worlds, [first, edge], bridges)
        await scene.ends_in_step()  # with all that there was to begin with
        await scene.trouble(chance, seconds)
        await scene.ends_in_step()
        return await scene.check()


async def answers(url: str) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while True:
            try:
                async with session.get(f"{url}/map.xml"):
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)


def main() -> None:
    """`make soak SOAK_ARGS=bridge`."""
    seconds = float(os.environ.get("SOAK_SECONDS", "600"))
    seed = random.randrange(10**6)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        count = asyncio.run(soak(Path(folder), seconds, seed))
    print(f"{count} changes were published in {seconds:.0f} s, none missing, none twice")
