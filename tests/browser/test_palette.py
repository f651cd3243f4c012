"""Ctrl+K: whatever the page has is found by its name, with the keyboard alone."""

import asyncio

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import opened, use_token
from tests.support.running import RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="session")


def option(page: Page, text: str):
    return page.get_by_role("option").filter(has_text=text)


async def find(page: Page, text: str) -> None:
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Find anything")).to_be_focused()
    await page.keyboard.type(text)


async def active(page: Page) -> str:
    """The text of the choice that the field points to."""
    return await page.evaluate(
        "document.getElementById(document.activeElement.getAttribute("
        "'aria-activedescendant'))?.firstChild.textContent ?? ''"
    )


async def test_a_set_among_many_is_found_and_opened(chromium, tmp_path):
    """The hub looks for it: the page has fifty of them."""
    names = tuple(f"set{number}" for number in range(120))
    async with (
        RunningHub(tmp_path / "data", sets=names) as hub,
        opened(chromium, hub, "set1") as page,
    ):
        await find(page, "SET119")
        await expect(option(page, "set119").first).to_have_attribute("aria-selected", "true")
        await page.keyboard.press("Enter")
        await expect(page.locator("h1.set-name")).to_have_text("set119")


async def test_enter_waits_for_what_was_typed_though_the_answer_to_no_text_comes_first(
    page, page_hub, set_name
):
    other = f"{set_name}-meant"
    await page_hub.ask("PUT", f"/api/sets/{other}")
    is_let_in = asyncio.Event()

    async def later(route: Route) -> None:
        await is_let_in.wait()
        await route.continue_()

    await page.route("**/api/status?*search=&*", later)
    await page.keyboard.press("Control+k")
    await page.keyboard.insert_text(other)
    await page.keyboard.press("Enter")
    is_let_in.set()
    await expect(page.locator("h1.set-name")).to_have_text(other)


async def test_enter_takes_what_was_typed_last_however_soon_it_comes(page, page_hub, set_name):
    other = f"{set_name}-other"
    await page_hub.ask("PUT", f"/api/sets/{other}")
    await page_hub.publish("http://example.com/1", set_name=set_name)  # among the first
    await page.keyboard.press("Control+k")
    await expect(option(page, set_name).first).to_be_visible()  # of no text
    await page.keyboard.insert_text(other)
    await page.keyboard.press("Enter")
    await expect(page.locator("h1.set-name")).to_have_text(other)


async def test_a_document_of_a_set_is_found_by_the_words_of_both(page, page_hub, set_name):
    await find(page, f"{set_name} capab")
    await expect(page.get_by_role("option")).to_have_count(1)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{page_hub.url}/{set_name}/capabilitylist.xml")
    await expect(page.locator("h1")).to_have_text("Capability List")
    await find(page, "valid")  # there, too
    await expect(option(page, "Validator")).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1:visible")).to_have_text("Validator")


async def test_a_resource_is_found_in_the_sets_that_have_it(page, page_hub, set_name):
    loc = f"http://example.com/{set_name}/one"
    await page_hub.publish(loc, set_name=set_name)
    await find(page, loc)
    await expect(page.get_by_role("option")).to_have_count(1)
    await expect(option(page, loc)).to_contain_text(f"in {set_name}")
    await page.keyboard.press("Enter")
    await expect(page.locator("#known")).to_contain_text("It is there")
    await find(page, f"{loc}/none")
    await expect(page.locator("#palette output")).to_contain_text("has this resource")


async def test_the_arrows_go_round_and_what_is_chosen_last_is_taken(page):
    await find(page, "d")
    await expect(option(page, "Debugger")).to_be_visible()
    await expect(option(page, "Overview")).to_have_count(0)  # the choices before the letter
    count = await page.get_by_role("option").count()
    first = await active(page)
    await page.keyboard.press("ArrowUp")
    last = await active(page)
    assert last != first
    await page.keyboard.press("ArrowDown")
    assert await active(page) == first
    for _ in range(count):
        await page.keyboard.press("ArrowDown")
    assert await active(page) == first
    for _ in range(0, count, 8):  # by one press
        await page.keyboard.press("PageDown")
    assert await active(page) == last
    assert await page.locator("#choices [aria-selected=true]").count() == 1


async def test_the_token_is_given_from_there_and_escape_leads_back(page):
    await page.focus("#pause")
    await find(page, "nothing like this")
    await expect(page.locator("#palette output")).to_contain_text("Nothing has")
    await page.keyboard.press("Enter")  # there is nothing to take
    await page.keyboard.press("Escape")
    await expect(page.locator("#pause")).to_be_focused()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("token")  # over what was typed before
    await expect(option(page, "Use a token")).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page.locator("#secret")).to_be_focused()


async def test_a_private_set_is_found_by_who_may_know_of_it(page, page_hub, set_name):
    private = f"{set_name}-private"
    await page_hub.ask("PUT", f"/api/sets/{private}", json={"private": True})
    await find(page, private)
    await expect(page.locator("#palette output")).to_contain_text("Nothing has")
    await page.keyboard.press("Control+k")
    await expect(page.locator("#palette")).to_be_hidden()
    await use_token(page)
    await find(page, private)
    await expect(option(page, private).first).to_be_visible()


async def test_without_the_hub_the_views_are_still_there(chromium, tmp_path):
    async with RunningHub(tmp_path / "data") as hub, opened(chromium, hub, "dataset1") as page:
        await hub.kill()
        await find(page, "x")
        await expect(page.locator("#palette output")).to_contain_text("the hub does not answer")
        await expect(option(page, "Overview")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_in_it(page, set_name, scheme):
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    await find(page, set_name)
    await expect(option(page, set_name).first).to_be_visible()
    found = await Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
