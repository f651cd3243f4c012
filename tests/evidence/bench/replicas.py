"""What it costs to let a replica confirm: three hubs on one primary with a replica, in turn.

Nobody confirms, a replica has it in memory, or a replica has it on disk. Primary and replica sync
their files on every write, and share the machine's cores with the hubs and the load. Both are the
newest server of the machine that can say what a replica has on disk, else disk is left out.
"""

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from rsnotify.process.embedded_redis.binaries import installed_binaries
from tests.evidence.bench.appends import Load, change, over_http
from tests.evidence.bench.peer import post
from tests.support.redis_replicas import knows_files, replicated
from tests.support.running import RunningHub

TURNS = 6
SINGLE = 100  # changes of one publisher, a turn
LOADS = {"bulk": Load(1_000, 4, 30), "16 connections": Load(1, 16, 2_000)}
NOBODY = {"replicas": "0"}
MEMORY = {"replicas": "1", "replicas_confirm": "memory"}
DISK = {"replicas": "1", "replicas_confirm": "disk"}


async def answers(port: int) -> list[float]:
    """The milliseconds of each answer to a publisher that sends one change after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken = []
    for number in range(SINGLE):
        began = time.perf_counter()
        writer.write(post([change(number)]))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 201"), head
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        taken.append((time.perf_counter() - began) * 1000)
    writer.close()
    return taken


async def measure() -> None:
    binaries = await installed_binaries()
    binary = next((each for each in binaries if knows_files(each)), binaries[0])
    kinds = {"nobody": NOBODY, "memory": MEMORY}
    if knows_files(binary):
        kinds["disk"] = DISK
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = await stack.enter_async_context(replicated(folder, binary=binary.path))
        hubs = {
            name: await stack.enter_async_context(
                RunningHub(folder / name, "--redis", redis.primary.url, **settings)
            )
            for name, settings in kinds.items()
        }
        taken: dict[str, list[float]] = {name: [] for name in kinds}
        rates: dict[tuple[str, str], list[float]] = {}
        for _ in range(TURNS):
            for name, hub in hubs.items():
                taken[name] += await answers(hub.port)
                for load, size in LOADS.items():
                    rate = await over_http(hub.port, size) * size.changes_a_request
                    rates.setdefault((name, load), []).append(rate)
    print(f"{binary.engine}\n")
    print(f"| who confirms | answer p50 ms | p99 ms | {' | '.join(LOADS)}, changes/s |")
    print("|---|---|---|---|---|")
    for name, found in taken.items():
        p50, p99 = (sorted(found)[int(len(found) * share)] for share in (0.5, 0.99))
        means = (f"{sum(each) / TURNS:,.0f}" for each in (rates[name, load] for load in LOADS))
        print(f"| {name} | {p50:.1f} | {p99:.1f} | {' | '.join(means)} |", flush=True)


def main() -> None:
    uvloop.run(measure())
