"""How many durable changes a hub takes: over HTTP, beside a bare pipelined XADD of the same bytes.

The hub, its Redis (fsync on every write) and the load share the machine's cores.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import uvloop

from rsnotify.journal.submission import fragment_of
from rsnotify.redis_client import connect
from rsnotify.resourcesync.change import Change
from tests.evidence.bench.peer import post
from tests.support.running import RunningHub


class Load(NamedTuple):
    changes_a_request: int
    connections: int
    requests: int


LOADS = (Load(1_000, 4, 400), Load(1_000, 32, 400), Load(100, 32, 2_000), Load(1, 32, 40_000))


def change(number: int) -> dict[str, object]:
    return {
        "loc": f"http://example.com/dataset1/resource/{number % 100_000}",
        "change": "updated",
        "hash": "md5:1584abdf8ebdc9802ac0c6a7402c03b6",
        "length": 8876,
        "type": "text/html",
    }


def requests(load: Load) -> Iterator[bytes]:
    for number in range(load.requests):
        start = number * load.changes_a_request
        changes = [change(start + offset) for offset in range(load.changes_a_request)]
        yield post(changes)


async def send_all(port: int, waiting: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while waiting:
        writer.write(waiting.pop())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 201"), head
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
    writer.close()


async def over_http(port: int, load: Load) -> float:
    waiting = list(requests(load))
    began = time.perf_counter()
    await asyncio.gather(*(send_all(port, waiting) for _ in range(load.connections)))
    return load.requests / (time.perf_counter() - began)


async def bare(url: str, changes: int = 200_000, at_once: int = 1_000) -> float:
    client = connect(url)
    fragments = [fragment_of(Change(**change(number))).xml for number in range(at_once)]
    began = time.perf_counter()
    for _ in range(changes // at_once):
        pipeline = client.pipeline(transaction=False)
        for fragment in fragments:
            pipeline.execute_command("XADD", "bench", "*", "", fragment)
        await pipeline.execute()
    rate = changes / (time.perf_counter() - began)
    await client.unlink("bench")
    await client.aclose()
    return rate


async def measure() -> None:
    print("| changes a request | connections | requests/s | durable changes/s | of bare XADD |")
    print("|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        async with RunningHub(Path(folder, "data")) as hub:
            for load in LOADS:
                reference = await bare(f"unix://{folder}/data/redis.sock")
                rate = await over_http(hub.port, load)
                changes = rate * load.changes_a_request
                print(
                    f"| {load.changes_a_request:,} | {load.connections} | {rate:,.0f} "
                    f"| {changes:,.0f} | {changes / reference:.2f} of {reference:,.0f} |",
                    flush=True,
                )


def main() -> None:
    uvloop.run(measure())
