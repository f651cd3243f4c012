"""A long history: what Redis keeps of it, how long a start takes, how soon an answer from anywhere
in it begins, what a snapshot costs those who publish meanwhile.

`python -m tests.evidence.bench.history 10000000` takes another number of changes; each resource has
two.
"""

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from rsnotify.coordination import keys
from rsnotify.journal.windows import Windows
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import Position, render_datetime
from rsnotify.resourcesync.notification import ChannelName
from tests.evidence.bench.peer import Peer, fill, get
from tests.evidence.bench.readers import HANDSHAKE
from tests.evidence.bench.snapshots import snapshot_under_load
from tests.support.running import RunningHub

CHANGES = 1_000_000
PLACES = 20  # in the history, evenly spread
CHANGES_A_SECOND = 100  # while a snapshot is taken
CHANNEL = ChannelName("dataset1", "change")
CHANNEL_PATH = "/channels/dataset1/change_notification_channel"
LOADED = re.compile(r"DB loaded from \S+(?: \S+)*: ([\d.]+) seconds")


def change_list(place: str) -> bytes:
    return get(f"/dataset1/changelist.xml?from={place}")


def page(place: str) -> bytes:
    return get(f"/dataset1/changelist.xml?from={place}&limit=1000")


def page_before(place: str) -> bytes:
    return get(f"/dataset1/changelist.xml?until={place}&limit=1000")


def event_stream(place: str) -> bytes:
    return get(f"{CHANNEL_PATH}?from={place}", Accept="text/event-stream")


def websocket(place: str) -> bytes:
    return HANDSHAKE.format(path=f"{CHANNEL_PATH}?from={place}", offer="").encode()


WAYS = (change_list, page, page_before, event_stream, websocket)


@asynccontextmanager
async def redis_of(hub: RunningHub) -> AsyncIterator[Client]:
    client = connect(f"unix://{hub.data}/redis.sock")
    try:
        yield client
    finally:
        await client.aclose()


async def used_memory(hub: RunningHub) -> int:
    async with redis_of(hub) as client:
        return int((await client.info("memory"))["used_memory"])


async def places_in(hub: RunningHub) -> list[Position]:
    """Evenly spread, from the first change on."""
    async with redis_of(hub) as client:
        ((oldest, _),) = await client.xrange(keys.stream(CHANNEL), count=1)
        head = int(await client.hget(keys.record(CHANNEL), "head"))
    milliseconds, _, microseconds = oldest.partition(b"-")
    begin = int(milliseconds) * 1000 + int(microseconds)
    return [Position(begin + (head - begin) * number // PLACES) for number in range(PLACES)]


async def first_bytes(
    hub: RunningHub, ask: Callable[[str], bytes], places: Iterable[Position]
) -> list[float]:
    """Milliseconds until the first change of what is at each of these places."""
    found = []
    for place in places:
        peer = await Peer.connect(hub.port)
        began = time.perf_counter()
        peer.writer.write(ask(render_datetime(place)))
        head = await peer.reader.readuntil(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 101")), head
        await peer.reader.readuntil(b"<url>")
        found.append((time.perf_counter() - began) * 1000)
        peer.writer.close()
    return sorted(found)


async def show_first_bytes(hub: RunningHub, where: str, places: Iterable[Position]) -> None:
    """Each way of asking has places of its own, so that nothing of it is in memory."""
    for turn, ask in enumerate(WAYS):
        times = await first_bytes(hub, ask, [Position(place + turn) for place in places])
        print(
            f"| {where}: {ask.__name__.replace('_', ' ')}, first change from {PLACES} places, "
            f"median and longest | {times[PLACES // 2]:.0f} ms, {times[-1]:.0f} ms |",
            flush=True,
        )


async def trim(hub: RunningHub) -> None:
    """As upkeep does when a day has passed: what is packed leaves the stream."""
    async with redis_of(hub) as client:
        windows = Windows(client)
        span = await windows.span("dataset1")
        while span.record.packed_until < span.record.window_from:
            await asyncio.sleep(1)
            span = await windows.span("dataset1")
        for window in span.windows:
            assert await windows.trim("dataset1", window)


async def show_start(hub: RunningHub) -> None:
    began = time.perf_counter()
    await hub.start()
    took = time.perf_counter() - began
    loading = float(LOADED.findall((hub.data / "redis.log").read_text())[-1])
    print(
        f"| start; of it, until Redis has loaded | {took:.1f} s; {loading:.1f} s |",
        flush=True,
    )


async def show_snapshot(hub: RunningHub, resources: int) -> None:
    taken = await snapshot_under_load(hub, CHANGES_A_SECOND)
    print(
        f"| snapshot of {resources:,} resources at {CHANGES_A_SECOND} changes/s "
        f"| {taken.seconds:.1f} s |\n"
        f"| … memory of the hub process grows by | {taken.memory:.0f} MB |\n"
        f"| … publishing one change, median, p99, longest | {taken.median:.1f} ms, "
        f"{taken.p99:.1f} ms, {taken.latencies[-1]:.1f} ms |",
        flush=True,
    )


async def show_bytes(hub: RunningHub, changes: int) -> None:
    """Fill it: the first half makes the resources, the second changes them."""
    empty = await used_memory(hub)
    await fill(hub.port, changes // 2)
    half = await used_memory(hub)
    await fill(hub.port, changes // 2)
    of_change = (await used_memory(hub) - half) / (changes // 2)
    of_resource = (half - empty) / (changes // 2) - of_change
    print(f"| a change, in Redis | {of_change:.0f} bytes |")
    print(f"| a resource, in Redis | {of_resource:.0f} bytes more |", flush=True)


async def look(hub: RunningHub, resources: int) -> None:
    """Everything that is asked of a long history."""
    await show_start(hub)
    async with hub_that_runs(hub):
        places = await places_in(hub)
        await show_first_bytes(hub, "in the stream", places)
        await show_snapshot(hub, resources)
        await trim(hub)
        await show_first_bytes(hub, "packed", places)


@asynccontextmanager
async def hub_that_runs(hub: RunningHub) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await hub.stop()


async def measure(changes: int) -> None:
    print("| what | measured |\n|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        hub = RunningHub(Path(folder, "data"), resourcelist_minutes="10000")
        hub.ready_seconds = 600
        async with hub:
            await show_bytes(hub, changes)
        await look(hub, changes // 2)


def main(changes: int = CHANGES) -> None:
    print(f"{changes:,} changes of {changes // 2:,} resources\n")
    uvloop.run(measure(changes))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
