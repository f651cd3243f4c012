"""The script of the documents' book: a button at each example that copies it."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

SCRIPT = Path(__file__).parents[2] / "docs/_static/copy.js"
EXAMPLE = '<div class="highlight"><pre>rsnotify sets list\n</pre></div>'

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_example_is_copied_as_it_stands(chromium: Browser, tmp_path):
    page_file = tmp_path / "page.html"
    script = f"<script>{SCRIPT.read_text()}</script>"
    page_file.write_text(f"<!doctype html><title>page</title>{EXAMPLE}{EXAMPLE}{script}")
    context = await chromium.new_context(permissions=["clipboard-read", "clipboard-write"])
    async with context:
        page = await context.new_page()
        await page.goto(page_file.as_uri())
        await page.get_by_role("button", name="Copy").first.click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == "rsnotify sets list"
        assert await page.get_by_role("button").count() == 2
