"""A headless Chromium, and the page of a hub in it; `test_firefox.py` puts Firefox in its place.

Whatever a test does, the page must stay quiet: no error on its console but what the browser itself
tells of refused requests, no request to another host, no token in an address.
"""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.support import needs
from tests.support.running import TOKEN, RunningHub

REFUSED = ("Failed to load resource", "WebSocket connection to", "Firefox can")  # 't establish one
MS = 1_000

expect.set_options(timeout=20 * MS)
_numbers = itertools.count(1)


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    arguments = ["--no-sandbox", "--disable-gpu"]  # root has no sandbox
    path = needs.chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def page_hub(tmp_path_factory) -> AsyncIterator[RunningHub]:
    """One hub for all tests of the page: each takes a set of its own."""
    data = tmp_path_factory.mktemp("page") / "data"
    async with RunningHub(data, sets=(), callback_private="allow") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def set_name(page_hub: RunningHub) -> str:
    """A set that nobody else publishes to."""
    name = f"set{next(_numbers)}"
    status, _ = await page_hub.ask("PUT", f"/api/sets/{name}")
    assert status == 201
    return name


@pytest_asyncio.fixture(loop_scope="session")
async def page(chromium: Browser, page_hub: RunningHub, set_name: str) -> AsyncIterator[Page]:
    """The page, following the set of this test."""
    async with opened(chromium, page_hub, set_name) as page:
        yield page


class Place(Protocol):
    """A hub, or what leads to one."""

    url: str


@asynccontextmanager
async def opened(
    chromium: Browser,
    hub: Place,
    set_name: str,
    **options: Any,
) -> AsyncIterator[Page]:
    """The page in a browser window of its own."""
    told: list[str] = []
    asked: list[str] = []
    options = {"color_scheme": "null"} | options  # as the browser has it
    context = await chromium.new_context(**options)
    context.set_default_timeout(120 * MS)  # the machine may be busy: one claims nothing about it
    page = await context.new_page()
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    await page.goto(f"{hub.url}/?set={set_name}")
    await expect(page.locator("#health")).to_have_text("live")
    yield page
    await context.close()
    assert [text for text in told if not text.startswith(REFUSED)] == []
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(hub.url).netloc}
    assert not any(TOKEN in url or "rsn_" in url for url in asked)


async def use_token(page: Page, token: str = TOKEN) -> None:
    """The page is opened anew with it."""
    await page.click("#key")
    await page.fill("#secret", token)
    async with page.expect_event("load"):
        await page.press("#secret", "Enter")


async def view(page: Page, name: str) -> None:
    """Go to a view, as one does with the mouse."""
    await page.click(f"nav a:text-is('{name}')")


async def choose(page: Page, set_name: str) -> None:
    await view(page, "Overview")
    await page.fill("#find", set_name)
    await page.click(f"#overview a:text-is('{set_name}')")
    await expect(page.locator("h1.set-name")).to_have_text(set_name)  # until then it shows another


async def tab_to(page: Page, where: str) -> None:
    """Press Tab until it has the focus."""
    for _ in range(60):
        if await page.locator(f"{where}:focus").count():
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"no Tab leads to {where}")


STILL = """() => Promise.allSettled(document.getAnimations()
  .filter(({ effect }) => effect.getComputedTiming().endTime < Infinity)
  .map(({ finished }) => finished))"""


async def no_violations(page: Page, *rules: str) -> None:
    await page.evaluate(STILL)  # a colour on its way to another is none of the page's
    only = {"runOnly": rules} if rules else {}
    found = await Axe().run(page, options={"resultTypes": ["violations"], **only})
    assert found.violations_count == 0, found.generate_report()
