"""A whole visit without a mouse. One always sees where one is."""

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import opened, tab_to
from tests.support.running import TOKEN, RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="session")

WHERE = """() => {
  const at = document.activeElement;
  if (at === document.body) return "nowhere";
  const { top, bottom } = at.getBoundingClientRect();
  if (bottom <= 0 || top >= innerHeight) return `outside of the window: ${at.outerHTML}`;
  const { outlineStyle, boxShadow } = getComputedStyle(at);
  const isMarked = outlineStyle !== "none" || boxShadow !== "none";
  return at.matches(":focus-visible") && isMarked ? "seen" : `unseen: ${at.outerHTML}`;
}"""


async def press(page: Page, key: str, then: str) -> None:
    """The key, until what it leads to is there."""
    await page.keyboard.press(key)
    await expect(page.locator(then)).to_be_visible()


async def is_seen(page: Page) -> None:
    assert await page.evaluate(WHERE) == "seen"


async def go(page: Page, where: str, then: str) -> None:
    """By Tab to what has this address, and by Enter on to a page. That one begins at its top."""
    await tab_to(page, where)
    await is_seen(page)
    await press(page, "Enter", then)
    await page.keyboard.press("Tab")
    await is_seen(page)


async def test_a_visit_by_keyboard_alone(chromium, tmp_path):
    async with (
        RunningHub(tmp_path / "data", sets=("maps", "museum")) as hub,
        opened(chromium, hub, "maps") as page,
    ):
        await hub.publish("http://example.com/1", set_name="museum")
        await page.goto(f"{hub.url}/")
        await expect(page.locator("#overview a").first).to_be_visible()
        await go(page, "#overview a:text-is('museum')", "#latest td.loc")
        await go(page, "#documents a:text-is('newest Change List')", "h1:text-is('Change List')")
        await page.go_back()
        await expect(page.locator("#health")).to_have_text("live")
        await page.keyboard.press("Tab")
        await is_seen(page)
        await press(page, "Control+k", "#palette")
        await is_seen(page)
        await press(page, "Escape", "#health")
        await is_seen(page)
        await press(page, "Control+k", "#palette")
        await page.keyboard.type("maps")
        await press(page, "Enter", "h1.set-name:text-is('maps')")
        await go(page, "nav a:text-is('Admin')", "#not-admin")
        await tab_to(page, "#key")
        await press(page, "Enter", "#secret:focus")
        await is_seen(page)
        await page.keyboard.type(TOKEN)
        await press(page, "Enter", "#admin")
        await expect(page.locator("#key")).to_be_focused()
        await is_seen(page)
        await go(page, "nav a:text-is('Set')", "#try")
        await tab_to(page, "#try")
        await press(page, "Enter", "dialog")
        await is_seen(page)
        await page.keyboard.press("Shift+Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("#work")).to_contain_text("stored")
        await is_seen(page)
        await expect(page.locator("#work")).to_contain_text("Five changes were made")
        await go(page, "nav a:text-is('Admin')", "#admin")
        await tab_to(page, "#key")
        await press(page, "Enter", "#forget")
        await tab_to(page, "#forget")
        await is_seen(page)
        await press(page, "Enter", "#not-admin")
        await expect(page.locator("#key")).to_be_focused()
        await is_seen(page)
