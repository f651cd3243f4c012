"""`rsnotify bridge`: a long list compared, many Sources at rest, OAI-PMH, two hubs in a chain."""

import asyncio
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from websockets.asyncio.client import ClientConnection, connect

from rsnotify_bridge.memory import BridgeStore
from rsnotify_bridge.options import BridgeOptions
from rsnotify_bridge.service import Bridges, HubAddress
from rsnotify_client.network import Network
from tests.support.running import TOKEN, RunningHub, clean_environment
from tests.support.sources import Source

ENTRIES = 1_000_000
SOURCES = 500
PARTS = 20
RECORDS, PAGE = 10_000, 100
CHANGES = 200


@asynccontextmanager
async def bridging(
    folder: Path, hub: RunningHub, *sources: str, **options: Any
) -> AsyncIterator[Bridges]:
    given = {"set": "dataset1", **options}
    chosen = [msgspec.convert({"from": each, **given}, BridgeOptions) for each in sources]
    with closing(BridgeStore(folder / "bridge.db")) as store:
        bridges = Bridges(chosen, HubAddress(hub.url, TOKEN), store, Network())
        try:
            yield bridges
        finally:
            await bridges.close()


def part(number: int, version: int) -> bytes:
    """A twentieth of the list, of which one entry in a thousand is another in each version."""
    each = ENTRIES // PARTS
    entries = (
        f"<url><loc>http://a.example/records/{at:08d}</loc><lastmod>2026-11-"
        f"{20 + (version if at % 1000 == 0 else 0)}T00:00:00Z</lastmod></url>"
        for at in range(number * each, (number + 1) * each)
    )
    head = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    return f"{head}{''.join(entries)}</urlset>".encode()


async def compare(folder: Path, hub: RunningHub, source: Source) -> None:
    """A sitemap of a million entries, one in a thousand of which has changed."""
    version = 0

    async def handler(request: web.Request) -> web.Response:
        number = int(request.path.rpartition("/")[2])
        return web.Response(body=await asyncio.to_thread(part, number, version))

    names = [f"part/{number}" for number in range(PARTS)]
    source.handlers |= {f"/{name}": handler for name in names}
    index = "".join(f"<sitemap><loc>{source.loc(name)}</loc></sitemap>" for name in names)
    namespace = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    text = f"<sitemapindex {namespace}>{index}</sitemapindex>"
    source.documents["/index.xml"] = text.encode()
    for words in ("first, and loaded", "compared"):
        began, used = time.monotonic(), time.process_time()
        async with bridging(folder, hub, source.loc("index.xml")) as bridges:
            is_well = await bridges.once()
            facts = bridges.bridges[0].state.facts
        seconds, processor = time.monotonic() - began, time.process_time() - used
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{ENTRIES} entries {words}: {seconds:.0f} s, {processor:.0f} s of processor with "
              f"the Source; at most {memory} MB; well: {is_well}, published {facts.published}",
              flush=True)  # fmt: skip
        version = 1


async def many(folder: Path, hub: RunningHub, source: Source) -> None:
    """So many Sources at a minute's interval: what one look of each costs."""

    async def handler(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == '"1"':
            return web.Response(status=304)
        entry = f"<url><loc>http://a.example{request.path}</loc></url>"
        text = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entry}</urlset>'
        return web.Response(text=text, headers={"ETag": '"1"'}, content_type="application/xml")

    names = [f"map{number}.xml" for number in range(SOURCES)]
    source.handlers |= {f"/{name}": handler for name in names}
    addresses = map(source.loc, names)
    async with bridging(folder, hub, *addresses, shared=True, interval=60.0) as bridges:
        await bridges.once()
        began, used = time.monotonic(), time.process_time()
        is_well = await bridges.once()
        seconds, processor = time.monotonic() - began, time.process_time() - used
    print(f"{SOURCES} Sources looked at, nothing changed: {seconds:.1f} s, {processor:.2f} s of "
          f"processor with the Source: {100 * processor / 60:.1f} % of a core at a minute's "
          f"interval; well: {is_well}", flush=True)  # fmt: skip


async def chain(folder: Path, first: RunningHub, _: Source) -> None:
    """Two hubs and the bridge between them, each a process; when a reader of each has a change."""
    async with AsyncExitStack() as opened:
        second = await opened.enter_async_context(RunningHub(folder / "second", sets=("edge",)))
        words = (first.channel(), "edge", "--no-robots", "--interval", "1", "--url", second.url)
        bridge = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rsnotify", "bridge", *words),
            cwd=folder, env=clean_environment() | {"RSNOTIFY_TOKEN": TOKEN}, stdout=DEVNULL,
        )  # fmt: skip
        opened.callback(bridge.kill)
        near, far = [await opened.enter_async_context(connect(each, proxy=None))
                     for each in (first.channel(), second.channel("edge"))]  # fmt: skip
        async with asyncio.timeout(60):
            while not await arrives(first, far, "warm"):  # the bridge may not follow it yet
                pass
        await read_until(near, "warm")
        times = []
        for number in range(CHANGES):
            await first.publish(f"http://a.example/{number}-")
            near_at, far_at = await asyncio.gather(
                *(read_until(each, f"/{number}-") for each in (near, far))
            )
            times.append(1_000 * (far_at - near_at))
    middle, slow = statistics.median(times), sorted(times)[-3]
    print(f"a chain of two hubs, {CHANGES} changes one after the other: a reader of the second one "
          f"has them later by p50 {middle:.1f} ms, p99 {slow:.1f} ms", flush=True)  # fmt: skip


async def arrives(hub: RunningHub, reader: ClientConnection, name: str) -> bool:
    await hub.publish(f"http://a.example/{name}")
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            return bool(await read_until(reader, name))
    return False


async def read_until(reader: ClientConnection, name: str) -> float:
    """When a notification with this name came."""
    while name not in await reader.recv(decode=True):
        pass
    return time.perf_counter()


HEAD = (
    '<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/">'
    "<responseDate>2026-11-20T00:00:00Z</responseDate>"
)
IDENTITY = (
    f"{HEAD}<Identify><granularity>YYYY-MM-DDThh:mm:ssZ</granularity>"
    "<deletedRecord>persistent</deletedRecord></Identify></OAI-PMH>"
)


async def repository(request: web.Request) -> web.Response:
    if request.query["verb"] == "Identify":
        return web.Response(text=IDENTITY, content_type="text/xml")
    begin = int(request.query.get("resumptionToken", "0"))
    await asyncio.sleep(0.05)  # as a database takes
    found = "".join(
        f"<header><identifier>oai:a:{each}</identifier>"
        "<datestamp>2026-11-20T00:00:00Z</datestamp></header>"
        for each in range(begin, begin + PAGE)
    )
    token = begin + PAGE if begin + PAGE < RECORDS else ""
    text = (f"{HEAD}<ListIdentifiers>{found}<resumptionToken>{token}</resumptionToken>"
            "</ListIdentifiers></OAI-PMH>")  # fmt: skip
    return web.Response(text=text, content_type="text/xml")


def serve_repository(said: Any) -> None:
    """In a process of its own: what the bridge does takes no time of it."""

    async def serve() -> None:
        async with Source() as source:
            source.handlers["/oai"] = repository
            said.send(source.loc("oai"))
            await asyncio.Event().wait()

    asyncio.run(serve())


async def harvest(folder: Path, hub: RunningHub, _: Source) -> None:
    """All pages of a repository, asked for one after the other; and bridged."""
    heard, said = multiprocessing.Pipe(duplex=False)
    spawning = multiprocessing.get_context("spawn")
    process = spawning.Process(target=serve_repository, args=(said,), daemon=True)
    process.start()
    try:
        await _harvest(folder, hub, await asyncio.to_thread(heard.recv))
    finally:
        process.kill()


async def _harvest(folder: Path, hub: RunningHub, url: str) -> None:
    before = await all_pages(url)
    async with bridging(folder, hub, f"oai:{url}", set="records") as bridges:
        await hub.ask("PUT", "/api/sets/records")
        (bridge,) = bridges.bridges
        began, since = time.monotonic(), time.time()
        is_well = await bridge.once()
        took = time.monotonic() - began
        harvested = (bridge.state.facts.compared_at or 0.0) - since
    alone = (before + await all_pages(url)) / 2
    print(f"OAI-PMH, {RECORDS} records in pages of {PAGE}, 50 ms each: the server gives "
          f"{RECORDS / alone:.0f} a second, the bridge harvests and records "
          f"{RECORDS / harvested:.0f}: {alone / harvested:.2f} of it; with its load into the hub "
          f"{alone / took:.2f}; well: {is_well}", flush=True)  # fmt: skip


async def all_pages(url: str) -> float:
    """How long they take a client that does nothing with them, one after the other."""
    began = time.monotonic()
    async with aiohttp.ClientSession() as session:
        for begin in range(0, RECORDS, PAGE):
            address = f"{url}?verb=ListIdentifiers&resumptionToken={begin}"
            async with session.get(address) as answer:
                await answer.read()
    return time.monotonic() - began


async def measure() -> None:
    with tempfile.TemporaryDirectory() as name:
        for part_ in (chain, many, harvest, compare):
            folder = Path(name, part_.__name__)
            folder.mkdir()
            async with Source() as source, RunningHub(folder / "data") as hub:
                await part_(folder, hub, source)


def main() -> None:
    asyncio.run(measure())
