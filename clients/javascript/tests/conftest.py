"""A web site of another origin than the hub's, and a headless Chromium to look at it."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from playwright.async_api import BrowserContext, async_playwright

from clients.javascript.tests.programs import CLIENT
from tests.support import needs
from tests.support.stream_server import WebServer


@pytest.fixture
async def site() -> AsyncIterator[str]:
    """A web site of another origin, which serves the client, and a page as its address says."""

    async def page(request: web.Request) -> web.Response:
        text = request.query.get("html", "<!doctype html><title>a page</title>")
        return web.Response(text=text, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_static("/", CLIENT)
    async with WebServer(app) as server:
        yield server.url


@pytest.fixture
async def browser() -> AsyncIterator[BrowserContext]:
    path = needs.chromium()
    async with async_playwright() as playwright:
        arguments = ["--no-sandbox"]  # root has no sandbox
        chromium = await playwright.chromium.launch(executable_path=path, args=arguments)
        yield await chromium.new_context()
        await chromium.close()
