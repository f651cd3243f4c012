"""The page stays open while 200 changes come every second: its tab keeps no more than at first.

`SOAK_SECONDS=600 make soak SOAK_ARGS=page_open` makes it shorter.
"""

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
from playwright.async_api import CDPSession, Page, expect

from tests.browser.conftest import launched, opened, use_token
from tests.support.running import TOKEN, RunningHub

SECONDS = 1800
CHANGES_A_SECOND = 200
TOGETHER = 4  # changes of one publish, and so of one notification
FIRST_SECONDS = 60  # after it, everything that is bounded has filled up
MORE_BYTES = 1_000_000
MORE_NODES = 2_000  # as many come and go between two collections
SET = "dataset1"


class Sample(NamedTuple):
    """What a tab holds."""

    heap_bytes: int
    nodes: int
    listeners: int

    def __str__(self) -> str:
        return (
            f"heap {self.heap_bytes / 1e6:.2f} MB, {self.nodes} nodes, {self.listeners} listeners"
        )


async def sample(session: CDPSession) -> Sample:
    """What is left after everything that nobody holds was collected."""
    await session.send("HeapProfiler.collectGarbage")
    heap = await session.send("Runtime.getHeapUsage")
    counters = await session.send("Memory.getDOMCounters")
    return Sample(int(heap["usedSize"]), counters["nodes"], counters["jsEventListeners"])


def check(first: Sample, last: Sample) -> None:
    """Refuse a tab that has grown."""
    assert last.heap_bytes - first.heap_bytes < MORE_BYTES, (first, last)
    assert last.nodes - first.nodes < MORE_NODES, (first, last)
    assert last.listeners - first.listeners < MORE_NODES, (first, last)


async def publish_for(hub: RunningHub, seconds: float, numbers: Iterator[int]) -> str:
    """As many changes in each second, however long the hub takes for one; the last of them."""
    began = time.monotonic()
    pause = TOGETHER / CHANGES_A_SECOND
    address = f"{hub.url}/api/sets/{SET}/changes"
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        for turn in range(int(seconds / pause)):
            await asyncio.sleep(max(0.0, began + turn * pause - time.monotonic()))
            locs = [f"http://example.com/{next(numbers)}" for _ in range(TOGETHER)]
            changes = [{"loc": loc, "change": "updated"} for loc in locs]
            async with session.post(address, json=changes) as answer:
                assert answer.status == 201, await answer.text()
    return locs[-1]


async def watch(page: Page) -> CDPSession:
    """The set, as one sees it who may publish: all that moves."""
    await use_token(page)
    await expect(page.locator("#health")).to_have_text("live")
    return await page.context.new_cdp_session(page)


async def run(folder: Path, seconds: float) -> None:
    numbers = itertools.count(1)
    async with (
        RunningHub(folder / "data") as hub,
        launched() as chromium,
        opened(chromium, hub, SET) as page,
    ):
        session = await watch(page)
        first = None
        for turn in range(max(2, round(seconds / FIRST_SECONDS))):
            newest = await publish_for(hub, min(FIRST_SECONDS, seconds / 2), numbers)
            last = await sample(session)
            first = first or last
            print(f"minute {turn + 1}: {last}", flush=True)
        await expect(page.locator("#latest td.loc").first).to_have_text(newest)
        assert await page.locator("#latest .bad").count() == 0
        check(first, last)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), float(os.environ.get("SOAK_SECONDS", SECONDS))))
