"""A snapshot of a large set, taken while a Source publishes."""

import asyncio
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from tests.evidence.bench.peer import Peer, change, get, post
from tests.support.running import RunningHub

RESOURCE_LIST = "/dataset1/resourcelist.xml"


def resident(hub: RunningHub) -> float:
    """MB of memory of the hub process."""
    assert hub.process is not None
    status = Path(f"/proc/{hub.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def publishing(hub: RunningHub, ended: asyncio.Event, a_second: int) -> list[float]:
    """So many changes a second, each in a request of its own; how long each took, in ms."""
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
            while began + number / a_second <= now:
                due = began + number / a_second
                tasks.create_task(publish(number, due))
                number += 1
            await asyncio.sleep(0.0005)
    return took


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


class Taken(NamedTuple):
    """What it cost to take a snapshot while changes came in."""

    seconds: float
    memory: float  # by how many MB the hub process has grown
    latencies: list[float]  # of the changes, in ms, sorted

    @property
    def median(self) -> float:
        return statistics.median(self.latencies)

    @property
    def p99(self) -> float:
        return self.latencies[int(len(self.latencies) * 0.99)]


async def snapshot_under_load(hub: RunningHub, changes_a_second: int) -> Taken:
    await take(hub)  # so the hub has done what the filling left to do
    before, ended = resident(hub), asyncio.Event()
    load = asyncio.create_task(publishing(hub, ended, changes_a_second))
    began, highest = time.perf_counter(), before
    taking = asyncio.create_task(take(hub))
    while not taking.done():
        highest = max(highest, resident(hub))
        await asyncio.wait({taking}, timeout=0.05)
    took = time.perf_counter() - began
    ended.set()
    await taking
    return Taken(took, highest - before, sorted(await load))
