"""What pulling costs: a cold Change List, polls of a warm one, a snapshot under load.

The hub has one core, the load the other. Beside it, in the same run, the reference client `resync`
writes the same Change List, if it is installed.
"""

import asyncio
import importlib.util
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from tests.evidence.bench.peer import Peer, fill, get, loc
from tests.evidence.bench.snapshots import snapshot_under_load, tag_of
from tests.support.running import RunningHub

ENTRIES = 50_000
RESOURCES = 1_000_000
SECONDS = 4.0
POLLERS = 16
CHANGES_A_SECOND = 1_000


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


async def snapshot(hub: RunningHub) -> list[str]:
    taken = await snapshot_under_load(hub, CHANGES_A_SECOND)
    return [
        f"| snapshot of {RESOURCES:,} resources at {CHANGES_A_SECOND:,} changes/s "
        f"| {taken.seconds:.1f} s | |",
        f"| … memory of the hub process grows by | {taken.memory:.0f} MB | < 200 MB |",
        f"| … publishing one change, median and p99 | {taken.median:.1f} ms, {taken.p99:.1f} ms "
        "| < 50 ms |",
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
