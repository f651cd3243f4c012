"""The whole state of a set: a first load, one with few differences, and what others wait meanwhile.

The hub, its Redis (fsync on every write), the load and another Source share the machine's cores.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.running import TOKEN, RunningHub

RESOURCES = 1_000_000
CHANGED_EVERY = 1_000
PAUSE_SECONDS = 0.01  # between two publishes of the other Source
PATH = "/api/sets/dataset1/resources"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


async def body(changed_every: int = 0) -> AsyncIterator[bytes]:
    """A line for each resource, a thousand at a time."""
    for start in range(0, RESOURCES, 1_000):
        numbers = range(start, min(start + 1_000, RESOURCES))
        yield b"".join(_line(n, bool(changed_every) and n % changed_every == 0) for n in numbers)


def _line(number: int, is_changed: bool) -> bytes:
    return (
        b'{"loc":"http://example.com/dataset1/resource/%d","lastmod":"2026-11-01T00:00:00Z",'
        b'"hash":"md5:%032x","length":%d,"type":"text/html"}\n'
    ) % (number, number, number + is_changed)


class OtherSource:
    """Publishes to another set all the time, and notes how long each took."""

    def __init__(self, hub: RunningHub) -> None:
        self._hub = hub
        self.seconds: list[float] = []

    async def __aenter__(self) -> "OtherSource":
        self._task = asyncio.create_task(self._publish())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _publish(self) -> None:
        change = json.dumps({"loc": "http://example.com/other", "change": "updated"}).encode()
        headers = HEADERS | {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(headers=headers) as session:
            while True:
                began = time.perf_counter()
                address = f"{self._hub.url}/api/sets/other/changes"
                async with session.post(address, data=change) as answer:
                    assert answer.status == 201
                self.seconds.append(time.perf_counter() - began)
                await asyncio.sleep(PAUSE_SECONDS)

    def percentile(self, part: float) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * part)] * 1000


async def load(hub: RunningHub, query: str, changed_every: int) -> Any:
    headers = HEADERS | {"Content-Type": "application/x-ndjson"}
    timeout = aiohttp.ClientTimeout(total=1_800)
    async with (
        aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
        session.put(hub.url + PATH + query, data=body(changed_every)) as answer,
    ):
        content = await answer.json(content_type=None)
        assert answer.status in (200, 202), content
        return content


async def decided(hub: RunningHub) -> float:
    """When all of the load under way was staged and compared."""
    while True:
        await asyncio.sleep(0.1)
        under_way = (await hub.ask("GET", PATH))[1]["load"]
        if under_way is not None and under_way["stage"] != "staging":
            return time.perf_counter()


async def measure(hub: RunningHub, what: str, query: str = "", changed_every: int = 0) -> None:
    async with OtherSource(hub) as other:
        began, deciding = time.perf_counter(), asyncio.create_task(decided(hub))
        found = await load(hub, query, changed_every)
        while (await hub.ask("GET", PATH))[1]["load"] is not None:
            await asyncio.sleep(0.2)
        ended = time.perf_counter()
    loaded = deciding.result() if deciding.done() else ended  # a dry run is never decided
    deciding.cancel()
    print(
        f"{what:26}{loaded - began:6.1f} s {RESOURCES / (loaded - began):8,.0f}/s, "
        f"then {ended - loaded:4.1f} s   others' publish: "
        f"p50 {other.percentile(0.5):.0f} ms, p99 {other.percentile(0.99):.0f} ms   "
        f"hub {peak_mib(hub)} MiB   updated {found['updated']}",
        flush=True,
    )


def peak_mib(hub: RunningHub) -> int:
    assert hub.process is not None
    lines = Path(f"/proc/{hub.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


async def run(folder: Path) -> None:
    async with RunningHub(folder / "data", sets=("dataset1", "other")) as hub:
        print(f"{RESOURCES:,} resources:")
        await measure(hub, "first load, then its list")
        await measure(hub, "compared: 0.1 % changed", "?dry_run=yes", CHANGED_EVERY)
        await measure(hub, "loaded: 0.1 %, then told", "", CHANGED_EVERY)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
