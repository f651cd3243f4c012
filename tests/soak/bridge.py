"""Bridges while hub, bridge and Sources are killed and lie: at the end nothing is missing or twice.

Three Sources change at random: a sitemap, lists of ResourceSync, and a repository of OAI-PMH. They
answer 500, a login page or an empty list for a while; hub and bridge are killed. `SOAK_SECONDS` is
how long.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from typing import Any

from aiohttp import web

from rsnotify.resourcesync.change import Change, render_datetime
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from tests.support.repositories import Repository
from tests.support.running import TOKEN, RunningHub, clean_environment
from tests.support.sources import CAPABILITIES, Source

SETS = ("maps", "lists", "records")
LIES = ("500", "login", "empty", None, None, None)
BEGIN = 30


class Worlds:
    """What the three Sources have."""

    def __init__(self, source: Source, chance: random.Random) -> None:
        self.source, self._chance = source, chance
        self.maps: dict[str, str] = {}
        self.repository = Repository(source.loc("oai"))
        self.lie: str | None = None
        self._number = 0
        self._time = int(time.time()) * 1_000_000
        for number in range(BEGIN):
            self.maps[f"m{number}"] = self._now()
            self.repository.put(number)
            source.add(f"r{number}", b"first")
        source.list_resources()
        source.handlers |= {"/map.xml": self._map, "/oai": self._oai}

    def _now(self) -> str:
        self._time += 1_000_000
        return render_datetime(self._time)

    def step(self) -> None:
        """Something happens in each."""
        self._number += 1
        fresh = f"n{self._number}"
        name = self._chance.choice([*self.maps, fresh])
        if self._chance.random() < 0.2 and len(self.maps) > BEGIN - 8 and name in self.maps:
            del self.maps[name]
        else:
            self.maps[name] = self._now()
        kept = [each.number for each in self.repository.records.values() if not each.is_deleted]
        if self._chance.random() < 0.2 and len(kept) > BEGIN - 8:
            self.repository.delete(self._chance.choice(kept))
        else:
            self.repository.put(self._chance.choice([*kept, 1_000 + self._number]))
        names = [path[1:] for path in self.source.resources]
        gone = self._chance.random() < 0.2 and len(names) > BEGIN - 8
        self.source.now = max(self.source.now, int(time.time() * 1_000_000))
        content = None if gone else self._chance.randbytes(8)
        self.source.change(self._chance.choice(names if gone else [*names, fresh]), content)

    def _lied(self) -> web.Response | None:
        if self.lie == "500":
            return web.Response(status=500)
        if self.lie == "login":
            return web.Response(text="<html><form>password</form></html>", content_type="text/html")
        return None

    async def _map(self, _: web.Request) -> web.Response:
        maps = {} if self.lie == "empty" else self.maps
        entries = "".join(
            f"<url><loc>{self.source.loc(name)}</loc><lastmod>{at}</lastmod></url>"
            for name, at in maps.items()
        )
        text = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'
        return self._lied() or web.Response(text=text, content_type="application/xml")

    async def _oai(self, request: web.Request) -> web.Response:
        return self._lied() or await self.repository.handler(request)

    def wanted(self) -> dict[str, set[str]]:
        return {
            "maps": {*map(self.source.loc, self.maps)},
            "lists": {self.source.url + path for path in self.source.resources},
            "records": self.repository.resources(),
        }


class BridgeProcess:
    """`rsnotify bridge --config`, killed and started again."""

    def __init__(self, folder: Path, source: Source, hub: RunningHub) -> None:
        self._folder, self._hub = folder, hub
        froms = ("{0}/map.xml", "{0}" + CAPABILITIES, "oai:{0}/oai")
        tables = [
            f'[[bridge]]\nfrom = "{from_.format(source.url)}"\nset = "{name}"\n'
            "interval = 1\nmax-interval = 1\nmax-delete = 60\n"
            for from_, name in zip(froms, SETS, strict=True)
        ]
        tables[-1] += "compare = 3\n"  # its pages skip records that change meanwhile
        tables[-1] += 'loc = "https://repo.example/record/{local}"\n'
        (folder / "bridges.toml").write_text("\n".join(tables))
        self.process: Process | None = None

    async def start(self) -> None:
        words = ["bridge", "--config", "bridges.toml", "--state", "bridge.db", "--url"]
        with (self._folder / "bridge.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "rsnotify", *words, self._hub.url),
                cwd=self._folder, stdin=DEVNULL, stdout=log, stderr=log,
                env=clean_environment() | {"RSNOTIFY_ADMIN_TOKEN": TOKEN},
            )  # fmt: skip

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def soak(folder: Path, seconds: float, seed: int = 1) -> int:
    """How many changes were published; raises AssertionError for what is missing or twice."""
    chance = random.Random(seed)
    async with Source() as source, RunningHub(folder / "data", sets=SETS) as hub:
        worlds = Worlds(source, chance)
        bridge = BridgeProcess(folder, source, hub)
        await bridge.start()
        try:
            await _ends_in_step(worlds, hub, folder)  # with all that there was to begin with
            await _trouble(worlds, bridge, hub, chance, seconds)
            await _ends_in_step(worlds, hub, folder)
        finally:
            await bridge.kill()
        return sum([await _check(hub, name) for name in SETS])


async def _trouble(
    worlds: Worlds, bridge: BridgeProcess, hub: RunningHub, chance: random.Random, seconds: float
) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        worlds.lie = chance.choice(LIES)
        for _ in range(chance.randrange(1, 5)):
            worlds.step()
            await asyncio.sleep(chance.random() * 0.3)
        match chance.randrange(8):
            case 0 | 1:
                await bridge.kill()
                await bridge.start()
            case 2:
                await hub.kill()
                await asyncio.sleep(chance.random())
                await hub.start()
    worlds.lie = None


async def _ends_in_step(worlds: Worlds, hub: RunningHub, folder: Path) -> None:
    async with asyncio.timeout(120):
        found: dict[str, Any] = {}
        try:
            while (found := await _found(hub)) != worlds.wanted():
                await asyncio.sleep(0.5)
        except TimeoutError:
            raise
        except asyncio.CancelledError:
            for name, wanted in worlds.wanted().items():
                print(name, "missing", wanted - found[name], "too many", found[name] - wanted)
            print((folder / "bridge.log").read_text()[-4_000:])
            raise


async def _found(hub: RunningHub) -> dict[str, set[str]]:
    """What the sets have, by their journals and what was there before."""
    found = {}
    for name in SETS:
        await hub.ask("POST", f"/api/sets/{name}/snapshot")
        _, body = await hub.ask("GET", f"/{name}/resourcelist.xml")
        listed = {entry.loc for entry in parse_document(body).entries}
        found[name] = listed
    return found


async def _check(hub: RunningHub, name: str) -> int:
    """No resource is said twice to be the same."""
    before: dict[str, Change] = {}
    changes = await _journal(hub, name)
    for change in changes:
        last = before.get(change.loc)
        if last is not None:
            was = (last.change == "deleted", last.lastmod, last.hash)
            now = (change.change == "deleted", change.lastmod, change.hash)
            assert was != now, f"{name}: {last} was published twice: {change}"
        before[change.loc] = change
    return len(changes)


async def _journal(hub: RunningHub, name: str) -> list[Change]:
    changes: list[Change] = []
    place: str | None = "1970-01-01T00:00:00Z"
    while place is not None:
        _, body = await hub.ask("GET", f"/{name}/changelist.xml?from={place}")
        document = parse_document(body)
        changes += map(change_of, document.entries)
        place = document.md.until if document.md else None
    return changes


def main() -> None:
    """`make soak SOAK_ARGS=bridge`."""
    seconds = float(os.environ.get("SOAK_SECONDS", "600"))
    with tempfile.TemporaryDirectory() as folder:
        count = asyncio.run(soak(Path(folder), seconds, random.randrange(10**6)))
    print(f"{count} changes were published in {seconds:.0f} s, none missing, none twice")
