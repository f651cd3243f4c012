"""Every address that may be asked without a token, asked by 200 peers again and again: how long the
longest publish, and the longest look at the hub's health, wait meanwhile.

`python -m tests.evidence.bench strangers`, or `python -m tests.evidence.bench.strangers
/api/status` for some. The peers are in a process of their own, and at an address of their own.
Compare with the first rows: nobody asks, and everybody asks for what costs least; what the
processors are too few for makes those wait, too.
"""

import asyncio
import os
import re
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter

import aiohttp
import uvloop

from rsnotify.openapi.operations import OPERATIONS
from tests.evidence.bench.floods import PAUSE_SECONDS, scheduled
from tests.support.running import TOKEN, RunningHub

PEERS = 200
STRANGER = "127.0.0.2"  # their address; a hub serves addresses in turn
SECONDS = 0.8
QUIET_SECONDS = 0.2  # until what was asked last has been answered
SETS = 50
CHANGES = 5_000  # in the open Change List and the Resource List
BATCH = 1_000
CHEAPEST = "/health/live"
MORE = [  # of an address, in other forms
    *("/{set}/changelist.xml?from={from_}", "/{set}/changelist.xml?limit=1000"),
    *("/{set}/changelist.xml?format=json", "/{set}/resourcelist.xml?format=json"),
    *("/a/page/that/is/not/there", "/api/tokens"),
]
NAMES = {
    "{set}": "dataset1",
    "{kind}": "change",
    "/lib/{file}": "/lib/follower.js",
    "client/{file}": "client/rsnotify.js",
    "{file}": "main.js",
}
GZIP = "Accept-Encoding: gzip\r\n"
VALIDATED = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>'


# --- the process that asks -----------------------------------------------------------------------


def ask(port: int, method: str, path: str, headers: str) -> None:
    """Ask for so long, and say how many answers came."""
    os.nice(10)  # strangers have machines of their own
    body = VALIDATED if method == "POST" else b""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: h\r\n{headers}{length}\r\n"
    uvloop.run(_ask(port, head.encode() + body))


async def _ask(port: int, request: bytes) -> None:
    answers = 0

    async def peer() -> None:
        nonlocal answers
        while True:
            own = (STRANGER, 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=own)
            with suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    writer.write(request)
                    await _read_answer(reader)
                    answers += 1
            writer.close()

    peers = [asyncio.create_task(peer()) for _ in range(PEERS)]
    await asyncio.sleep(SECONDS)
    for each in peers:
        each.cancel()
    print(answers, flush=True)


async def _read_answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in head:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    elif found := re.search(rb"content-length: (\d+)", head):
        await reader.readexactly(int(found[1]))


# --- everybody else ------------------------------------------------------------------------------


class Waits:
    """How long each of the others waited, and how much of that time the hub itself worked: the rest
    it waited for a processor, a disk or Redis."""

    def __init__(self, hub: RunningHub) -> None:
        self._hub = hub
        self.known: list[tuple[float, float]] = []

    async def repeat(self, ask: Callable[[], Awaitable[object]]) -> None:
        while True:
            began, worked = perf_counter(), scheduled(self._hub)[0]
            await ask()
            self.known.append((perf_counter() - began, scheduled(self._hub)[0] - worked))
            await asyncio.sleep(PAUSE_SECONDS)

    def longest(self) -> str:
        """The longest of both, which need not be of the same request."""
        waited, worked = (max(each) * 1e3 for each in zip(*self.known, strict=True))
        return f"{waited:.0f} ms, {worked:.0f} ms"


async def report(waits: Sequence[Waits], port: int, what: str, asked: Sequence[str]) -> None:
    for each in waits:
        each.known.clear()
    answers = ""
    if asked:
        words = ("-m", "tests.evidence.bench.strangers", "--ask", str(port), *asked)
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE)
        assert process.stdout is not None
        answers = (await process.stdout.readline()).decode().strip()
        await process.wait()
    else:
        await asyncio.sleep(SECONDS)
    await asyncio.sleep(QUIET_SECONDS)
    longest = " | ".join(each.longest() for each in waits)
    rate = f"{int(answers) / SECONDS:,.0f}" if answers else ""
    print(f"| {what} | {longest} | {rate} |", flush=True)


async def fill(hub: RunningHub) -> dict[str, str]:
    """Sets, changes and a snapshot; what stands in the names of documents."""
    for number in range(SETS):
        await hub.ask("PUT", f"/api/sets/set-{number}")
    for begin in range(0, CHANGES, BATCH):
        await hub.publish(*(f"http://example.com/{n}" for n in range(begin, begin + BATCH)))
    for _ in range(2):  # the first is then in the archive
        await hub.publish("http://example.com/0")
        await hub.ask("POST", "/api/sets/dataset1/snapshot")
    _, index = await hub.ask("GET", "/dataset1/changelist-index.xml")
    _, archive = await hub.ask("GET", "/dataset1/resourcelist-archive.xml")
    (first, *_) = re.findall(r"/changelist/([^<]*?)\.xml", index.decode())
    (part, *_) = re.findall(r"/resourcelist/([^<]*?)\.xml", archive.decode())
    return {**NAMES, "{from_}": first, "{part}": part}


def rows(names: dict[str, str]) -> list[tuple[str, str, str]]:
    """Method, address and headers of all that strangers may ask."""
    open_to_all = [
        key for key, each in OPERATIONS.items() if each.who in ("everybody", "reader")
    ] + [("GET", path) for path in MORE]
    found = []
    for method, path in open_to_all:
        asked = path
        for name, value in names.items():
            asked = asked.replace(name, value)
        found.append((method, asked, ""))
        if path in ("/{set}/changelist.xml", "/{set}/resourcelist.xml"):
            found.append((method, asked, GZIP))
    found.append(("GET", "/dataset1/changelist.xml", "Authorization: Bearer rsn_unknown\r\n"))
    return found


async def measure(only: Sequence[str]) -> None:
    print(
        "| 200 peers ask for | a publish, longest; the hub worked | /health/live, longest; the hub "
        "worked | answers/s |"
    )
    print("|---|---|---|---|", flush=True)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            RunningHub(Path(folder) / "data") as hub,
            aiohttp.ClientSession(connector=connector) as session,
        ):
            names = await fill(hub)
            waits = Waits(hub), Waits(hub)
            asked = partial(publish, hub, session), partial(look, hub, session)
            tasks = [
                asyncio.create_task(each.repeat(ask))
                for each, ask in zip(waits, asked, strict=True)
            ]
            await asyncio.sleep(QUIET_SECONDS)
            await report(waits, hub.port, "nothing", ())
            await report(waits, hub.port, f"{CHEAPEST}: costs least", ("GET", CHEAPEST, ""))
            for method, path, headers in rows(names):
                if not only or path in only:
                    shown = f"{method} {path} {headers.partition(': ')[2].strip()}".strip()
                    await report(waits, hub.port, shown, (method, path, headers))
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


async def publish(hub: RunningHub, session: aiohttp.ClientSession) -> None:
    change = {"loc": "http://example.com/published", "change": "updated"}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{hub.url}/api/sets/dataset1/changes"
    async with session.post(url, json=change, headers=headers) as answer:
        assert answer.status == 201, await answer.text()


async def look(hub: RunningHub, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{hub.url}{CHEAPEST}") as answer:
        await answer.read()


def main(only: Sequence[str] = ()) -> None:
    uvloop.run(measure(only))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        ask(int(sys.argv[2]), *sys.argv[3:6])
    else:
        main(sys.argv[1:])
