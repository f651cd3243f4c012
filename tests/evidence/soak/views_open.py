"""Every view that moves stays open while 50 changes come every second.

No tab keeps more than at first. How long its main thread was held is printed and not judged: that
depends on the machine, too.

`SOAK_SECONDS=3600 make soak SOAK_ARGS=views_open` makes it an hour.
"""

import asyncio
import itertools
import os
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, Self

from playwright.async_api import Browser, CDPSession, Page, expect

from tests.browser.conftest import launched, opened
from tests.evidence.soak.page_open import Sample, check, publish_for, sample
from tests.support.running import TOKEN, RunningHub

SECONDS = 1800
CHANGES_A_SECOND = 50  # each a publish of its own
ROUND_SECONDS = 60  # after the first, everything that is bounded has filled up
MORE_NODES = (
    10_000  # a frame in the debugger has hundreds, more on a machine that joins more changes
)
OTHER_SETS = tuple(f"other{number}" for number in range(60))
VIEWS = {  # the address, what is pressed there, and what is there then
    "overview": ("/?view=overview", "", "#overview .spark:visible >> nth=0"),
    "set": ("/?set={}", "", "#latest tr >> nth=1"),
    "debugger": (
        "/?view=debugger&set={}",
        "#connection button:text-is('Connect')",
        "#frames li >> nth=1",
    ),
    "admin": ("/?view=admin", "", "#lines path >> nth=3"),
}
COUNT_LONG_TASKS = """
globalThis.held = { tasks: 0, longest: 0 };
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) {
    held.tasks += 1;
    held.longest = Math.max(held.longest, duration);
  }
}).observe({ type: "longtask", buffered: true });
"""
TAKE = "() => Object.values(held)"
FORGET = """() => new Promise((then) => setTimeout(() => {
  Object.assign(held, { tasks: 0, longest: 0 });
  then();
}, 200))"""  # what the collection took, which is reported afterwards


class Tab(NamedTuple):
    """A view that is open."""

    view: str
    page: Page
    session: CDPSession

    @classmethod
    async def of(cls, view: str, page: Page, hub: RunningHub, set_name: str) -> Self:
        address, pressed, ready = VIEWS[view]
        await page.add_init_script(COUNT_LONG_TASKS)
        await page.goto(hub.url + address.format(set_name))
        if pressed:
            await page.click(pressed)
        await expect(page.locator(ready)).to_be_visible()
        return cls(view, page, await page.context.new_cdp_session(page))

    async def look(self) -> Sample:
        """What it holds; it says how long its main thread was held since the last look."""
        tasks, longest = await self.page.evaluate(TAKE)
        found = await sample(self.session)
        await self.page.evaluate(FORGET)
        long_tasks = f"{tasks}, the longest {longest:.0f} ms" if tasks else "none"
        print(f"  {self.view}: {found}; tasks above 50 ms: {long_tasks}", flush=True)
        return found


async def watch(
    hub: RunningHub, chromium: Browser, seconds: float, rounds: int, set_name: str
) -> None:
    """Refuse a view that has grown since the first of the rounds."""
    numbers = itertools.count(1)
    async with asyncio.TaskGroup() as group, AsyncExitStack() as open_ones:
        publishing = group.create_task(
            publish_for(hub, seconds, numbers, set_name, CHANGES_A_SECOND)
        )
        tabs = [
            await Tab.of(view, await _opened(open_ones, chromium, hub, set_name), hub, set_name)
            for view in VIEWS
        ]
        first: list[Sample] = []
        for turn in range(rounds):
            await asyncio.wait([publishing], timeout=seconds / rounds)
            print(f"round {turn + 1}:", flush=True)
            last = [await tab.look() for tab in tabs]
            first = first or last
        newest = await publishing
        (of_set,) = (tab.page for tab in tabs if tab.view == "set")
        await expect(of_set.locator("#latest td.loc").first).to_have_text(newest)
        for one, other in zip(first, last, strict=True):
            check(one, other, MORE_NODES)


async def _opened(
    open_ones: AsyncExitStack, chromium: Browser, hub: RunningHub, set_name: str
) -> Page:
    return await open_ones.enter_async_context(opened(chromium, hub, f"{set_name}#token={TOKEN}"))


async def run(folder: Path, seconds: float) -> None:
    rounds = max(2, round(seconds / ROUND_SECONDS))
    async with (
        RunningHub(folder / "data", sets=("dataset1", *OTHER_SETS)) as hub,
        launched() as chromium,
    ):
        await watch(hub, chromium, seconds, rounds, "dataset1")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), float(os.environ.get("SOAK_SECONDS", SECONDS))))
