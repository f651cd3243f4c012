"""A long history: what Redis keeps of it, how long a start takes, how soon an answer from anywhere
in it begins.

`python -m tests.bench.history 10000000` takes another number of changes; each resource has two.
"""

import asyncio
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop

from rsnotify.resourcesync.change import Position, render_datetime
from rsnotify.storage.connection import connect
from tests.bench.pull import Peer, change, get, post
from tests.running import RunningHub

CHANGES = 1_000_000
PLACES = 20  # in the history, evenly spread
CONNECTIONS = 4


async def fill(port: int, first: int, count: int) -> None:
    """So many changes, each of a resource of its own."""
    peers = [await Peer.connect(port) for _ in range(CONNECTIONS)]
    starts = iter(range(first, first + count, 1_000))

    async def send(peer: Peer) -> None:
        for start in starts:
            head, _, _ = await peer.ask(post([change(start + n) for n in range(1_000)]))
            assert head.startswith(b"HTTP/1.1 201"), head

    await asyncio.gather(*map(send, peers))


async def used_memory(data: Path) -> int:
    client = connect(f"unix://{data}/redis.sock")
    try:
        return int((await client.info("memory"))["used_memory"])
    finally:
        await client.aclose()


async def first_bytes(port: int, begin: Position, end: Position) -> list[float]:
    """Milliseconds until the first byte of what follows each of these places; from the journal
    the first time, so nothing of it is in memory."""
    found = []
    for place in range(PLACES):
        position = Position(begin + (end - begin) * place // PLACES)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = time.perf_counter()
        writer.write(get(f"/dataset1/changelist.xml?from={render_datetime(position)}"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(1)
        found.append((time.perf_counter() - began) * 1000)
        writer.close()
    return sorted(found)


async def measure(changes: int) -> None:
    print("| what | measured |\n|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        hub = RunningHub(data, resourcelist_minutes="10000")
        async with hub:
            begin = position_of(datetime.now(UTC))
            await hub.publish("http://example.com/first")
            empty = await used_memory(data)
            await fill(hub.port, 0, changes // 2)
            half = await used_memory(data)
            await fill(hub.port, 0, changes // 2)
            full = await used_memory(data)
            end = position_of(datetime.now(UTC) - timedelta(seconds=1))
        of_change = (full - half) / (changes // 2)
        of_resource = (half - empty) / (changes // 2) - of_change
        print(f"| a change, in Redis | {of_change:.0f} bytes |")
        print(f"| a resource, in Redis | {of_resource:.0f} bytes more |")
        began = time.perf_counter()
        async with hub:
            print(f"| start, with loading Redis | {time.perf_counter() - began:.1f} s |")
            times = await first_bytes(hub.port, begin, end)
            print(
                f"| first byte from {PLACES} places, median and longest "
                f"| {times[PLACES // 2]:.0f} ms, {times[-1]:.0f} ms |",
                flush=True,
            )


def position_of(moment: datetime) -> Position:
    return Position(int(moment.timestamp() * 1_000_000))


def main(changes: int = CHANGES) -> None:
    print(f"{changes:,} changes of {changes // 2:,} resources\n")
    uvloop.run(measure(changes))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
