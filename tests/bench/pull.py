"""What pulling costs: a cold Change List, polls of a warm one, a snapshot under load.

The hub has one core, the load the other. Beside it, in the same run, the reference client `resync`
writes the same Change List, if it is installed.
"""

import asyncio
import importlib.util
import json
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from tests.running import TOKEN, RunningHub

ENTRIES = 50_000
RESOURCES = 1_000_000
RESOURCE_LIST = "/dataset1/resourcelist.xml"
SECONDS = 4.0
POLLERS = 16
CHANGES_A_SECOND = 1_000


def loc(number: int) -> str:
    return f"http://example.com/dataset1/resource/{number}"


def change(number: int) -> dict[str, object]:
    digest = "md5:1584abdf8ebdc9802ac0c6a7402c03b6"
    return {"loc": loc(number), "change": "updated", "hash": digest, "length": 8876}


def post(changes: list[dict[str, object]]) -> bytes:
    body = json.dumps(changes).encode()
    return (
        f"POST /api/sets/dataset1/changes HTTP/1.1\r\nHost: hub\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


class Peer:
    """One connection that asks and reads whole answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> "Peer":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))

    async def ask(self, request: bytes) -> tuple[bytes, int, float]:
        """The head, the bytes of the body, and when its first byte came."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            return head, *await self._chunks()
        length = int((lower.partition(b"content-length:")[2] or b"0\r").partition(b"\r")[0])
        first = time.perf_counter()
        left = length
        while left:
            left -= len(await self.reader.read(left))
        return head, length, first

    async def _chunks(self) -> tuple[int, float]:
        total, first = 0, 0.0
        while size := int(await self.reader.readline(), 16):
            first = first or time.perf_counter()
            await self.reader.readexactly(size + 2)
            total += size
        await self.reader.readline()
        return total, first


def get(path: str, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\nHost: hub\r\n{lines}\r\n".encode()


async def fill(port: int, count: int) -> None:
    peers = [await Peer.connect(port) for _ in range(4)]
    starts = iter(range(0, count, 1_000))

    async def send(peer: Peer) -> None:
        for start in starts:
            head, _, _ = await peer.ask(post([change(start + n) for n in range(1_000)]))
            assert head.startswith(b"HTTP/1.1 201"), head

    await asyncio.gather(*map(send, peers))


async def cold(hub: RunningHub) -> str:
    peer = await Peer.connect(hub.port)
    began = time.perf_counter()
    head, size, first = await peer.ask(get("/dataset1/changelist.xml"))
    ended = time.perf_counter()
    assert head.startswith(b"HTTP/1.1 200"), head
    return (
        f"| first GET of a cold list, {ENTRIES:,} entries, {size / 1e6:.1f} MB: first byte, last "
        f"| {first - began:.3f} s, {ended - began:.3f} s | ≤ 0.5 s, ≤ 1 s |"
    )


async def polled(port: int, request: bytes) -> tuple[float, float]:
    """Answers a second, bytes of XML a second."""
    peers = [await Peer.connect(port) for _ in range(POLLERS)]
    until, answers, size = time.perf_counter() + SECONDS, 0, 0

    async def poll(peer: Peer) -> None:
        nonlocal answers, size
        while time.perf_counter() < until:
            _, length, _ = await peer.ask(request)
            answers, size = answers + 1, size + length

    await asyncio.gather(*map(poll, peers))
    return answers / SECONDS, size / SECONDS


async def warm(hub: RunningHub) -> list[str]:
    peer = await Peer.connect(hub.port)
    head, _, _ = await peer.ask(get("/dataset1/changelist.xml"))
    tag = tag_of(head)
    unchanged, _ = await polled(hub.port, get("/dataset1/changelist.xml", If_None_Match=tag))
    _, rate = await polled(hub.port, get("/dataset1/changelist.xml"))
    return [
        f"| polls of the open list, unchanged (304) | {unchanged:,.0f}/s | ≥ 5,000/s |",
        f"| polls of the open list, {ENTRIES:,} entries | {rate / 1e6:,.0f} MB/s | ≥ 300 MB/s |",
    ]


def resident(hub: RunningHub, field: str = "VmRSS") -> float:
    """MB of memory of the hub process."""
    assert hub.process is not None
    status = Path(f"/proc/{hub.process.pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) / 1024


async def publishing(hub: RunningHub, ended: asyncio.Event) -> list[float]:
    """1,000 changes a second, each in a request of its own; how long each took, in ms."""
    peers = [await Peer.connect(hub.port) for _ in range(32)]
    free: asyncio.Queue[Peer] = asyncio.Queue()
    for peer in peers:
        free.put_nowait(peer)
    took: list[float] = []

    async def publish(number: int, due: float) -> None:
        peer = await free.get()
        await peer.ask(post([change(number)]))
        took.append((time.perf_counter() - due) * 1000)
        free.put_nowait(peer)

    began, number = time.perf_counter(), 0
    async with asyncio.TaskGroup() as tasks:
        while not ended.is_set():
            now = time.perf_counter()
            while began + number / CHANGES_A_SECOND <= now:
                due = began + number / CHANGES_A_SECOND
                tasks.create_task(publish(number, due))
                number += 1
            await asyncio.sleep(0.0005)
    return took


async def settled(hub: RunningHub) -> None:
    """Wait until the hub has done what the filling left to do."""
    status = 202
    while status != 201:
        status, _ = await hub.ask("POST", "/api/sets/dataset1/snapshot")


async def take(hub: RunningHub) -> None:
    """Take a snapshot and wait until it has taken its place."""
    before = await tag_of_resources(hub)
    await hub.ask("POST", "/api/sets/dataset1/snapshot")
    while await tag_of_resources(hub) == before:
        await asyncio.sleep(0.1)


async def tag_of_resources(hub: RunningHub) -> str:
    peer = await Peer.connect(hub.port)
    head, _, _ = await peer.ask(get(RESOURCE_LIST))
    peer.writer.close()
    return tag_of(head)


def tag_of(head: bytes) -> str:
    return head.lower().partition(b"etag: ")[2].partition(b"\r")[0].decode()


async def snapshot(hub: RunningHub) -> list[str]:
    await settled(hub)
    before, ended = resident(hub), asyncio.Event()
    load = asyncio.create_task(publishing(hub, ended))
    began, highest = time.perf_counter(), before
    taking = asyncio.create_task(take(hub))
    while not taking.done():
        highest = max(highest, resident(hub))
        await asyncio.wait({taking}, timeout=0.05)
    took = time.perf_counter() - began
    ended.set()
    latencies = sorted(await load)
    await taking
    median, worst = statistics.median(latencies), latencies[int(len(latencies) * 0.99)]
    return [
        f"| snapshot of {RESOURCES:,} resources at {CHANGES_A_SECOND:,} changes/s "
        f"| {took:.1f} s | |",
        f"| … memory of the hub process grows by | {highest - before:.0f} MB | < 200 MB |",
        f"| … publishing one change, median and p99 | {median:.1f} ms, {worst:.1f} ms | < 50 ms |",
    ]


def of_resync() -> str:
    if importlib.util.find_spec("resync") is None:
        return "| `resync` writing the same list | not installed | |"
    from resync.change_list import ChangeList
    from resync.resource import Resource

    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    began = time.perf_counter()
    changes = ChangeList()
    for number in range(ENTRIES):
        changes.add(
            Resource(uri=loc(number), lastmod=now, change="updated", ts_datetime=0, length=8876)
        )
    size = len(changes.as_xml())
    took = time.perf_counter() - began
    return f"| `resync` writing the same list, {size / 1e6:.1f} MB | {took:.2f} s | |"


async def measure() -> None:
    print("| what | measured | wanted |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        hub = RunningHub(Path(folder, "data"), changelist_max=str(ENTRIES))
        async with hub:
            await fill(hub.port, ENTRIES - 1_000)
            await hub.publish(*(loc(number) for number in range(999)))
        async with hub:  # started anew, so nothing is in its memory
            print(await cold(hub), of_resync(), *await warm(hub), sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = {"changelist_max": str(ENTRIES), "resourcelist_minutes": "10000"}
        async with RunningHub(Path(folder, "data"), **settings) as hub:
            await fill(hub.port, RESOURCES)
            print(*await snapshot(hub), sep="\n", flush=True)


def main() -> None:
    uvloop.run(measure())
