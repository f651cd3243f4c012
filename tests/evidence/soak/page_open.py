"""The page stays open while 300 changes come every second, beside 10,000 other sets.

Its tab keeps no more than at first, answers, and has counted each change.

`SOAK_SECONDS=600 make soak SOAK_ARGS=page_open` makes it shorter.
"""

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from playwright.async_api import Browser, CDPSession, Page, expect

from tests.browser.conftest import launched, opened, use_token
from tests.support.running import TOKEN, RunningHub

SECONDS = 1800
CHANGES_A_SECOND = 300  # each a publish of its own
AT_ONCE = 32  # publishes under way, at most
OTHER_SETS = 10_000
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


def check(first: Sample, last: Sample, more_nodes: int = MORE_NODES) -> None:
    """Refuse a tab that has grown."""
    assert last.heap_bytes - first.heap_bytes < MORE_BYTES, (first, last)
    assert last.nodes - first.nodes < more_nodes, (first, last)
    assert last.listeners - first.listeners < MORE_NODES, (first, last)


async def publish_for(
    hub: RunningHub,
    seconds: float,
    numbers: Iterator[int],
    set_name: str = SET,
    a_second: int = CHANGES_A_SECOND,
) -> str:
    """As many changes in each second, however long the hub takes for one; the newest of them."""
    began = time.monotonic()
    free = asyncio.Semaphore(AT_ONCE)
    stored = list[tuple[str, str]]()

    async def publish(loc: str) -> None:
        change = {"loc": loc, "change": "updated"}
        async with free, session.post(address, json=change) as answer:
            assert answer.status == 201, await answer.text()
            stored.append(((await answer.json())["until"], loc))

    address = f"{hub.url}/api/sets/{set_name}/changes"
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
        asyncio.TaskGroup() as publishing,
    ):
        for turn in range(int(seconds * a_second)):
            await asyncio.sleep(max(0.0, began + turn / a_second - time.monotonic()))
            publishing.create_task(publish(f"http://example.com/{next(numbers)}"))
    return max(stored)[1]


async def add_sets(hub: RunningHub, count: int) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def add(number: int) -> None:
        async with free, session.put(f"{hub.url}/api/sets/other{number}") as answer:
            assert answer.status == 201, await answer.text()

    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
        asyncio.TaskGroup() as adding,
    ):
        for number in range(count):
            adding.create_task(add(number))


async def use_while(page: Page, work: Coroutine[Any, Any, str]) -> str:
    """Filter, stop and go on again and again until the work is done; its result."""
    working = asyncio.create_task(work)
    while True:
        await page.fill("#filter", "no such resource")
        await expect(page.locator("#nothing")).to_contain_text("None of the changes shown")
        await page.fill("#filter", "")
        await page.click("#pause")
        await expect(page.locator("#pause")).to_have_text("Go on")
        await page.click("#pause")
        await expect(page.locator("#pause")).to_have_text("Pause")
        done, _ = await asyncio.wait([working], timeout=1)
        if done:
            return working.result()


async def watch(page: Page) -> CDPSession:
    """The set, as one sees it who may publish: all that moves."""
    await use_token(page)
    await expect(page.locator("#health")).to_have_text("live")
    return await page.context.new_cdp_session(page)


async def run(folder: Path, seconds: float) -> None:
    async with RunningHub(folder / "data") as hub, launched() as chromium:
        await add_sets(hub, OTHER_SETS)
        await _watched(hub, chromium, seconds)


async def _watched(hub: RunningHub, chromium: Browser, seconds: float) -> None:
    numbers = itertools.count(1)
    async with opened(chromium, hub, SET) as page:
        session = await watch(page)
        first = None
        for turn in range(max(2, round(seconds / FIRST_SECONDS))):
            publishing = publish_for(hub, min(FIRST_SECONDS, seconds / 2), numbers)
            newest = await use_while(page, publishing)
            last = await sample(session)
            first = first or last
            print(f"minute {turn + 1}: {last}", flush=True)
        await expect(page.locator("#latest td.loc").first).to_have_text(newest)
        await expect(page.locator("#resources")).to_have_text(f"{next(numbers) - 1:,}")
        assert await page.locator("#latest .bad").count() == 0
        check(first, last)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), float(os.environ.get("SOAK_SECONDS", SECONDS))))
