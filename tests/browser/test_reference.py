"""The reference of the HTTP API at `/api`, as a person uses it."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser.conftest import no_violations, opened
from tests.support.running import TOKEN, RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZES = ((1440, 900), (820, 900), (360, 740))


@pytest_asyncio.fixture(loop_scope="session")
async def reference(chromium, page_hub: RunningHub, set_name: str) -> AsyncIterator[Page]:
    """The reference, with the admin token in use."""
    async with opened(chromium, page_hub, f"{set_name}#token={TOKEN}") as page:
        await expect(page.locator("#key")).to_have_text("Token in use")
        await page.click("footer a:text-is('The HTTP API')")
        await expect(page.locator(".example button").first).to_be_visible()
        yield page


async def test_the_contents_are_searched_by_address_and_by_what_is_said(reference):
    links = reference.locator(".contents li:visible a")
    for wanted, found in (
        ("RETRY", ["POST /api/subscriptions/{subscription}/retry"]),
        ("revoke", ["DELETE /api/tokens/{token}"]),
    ):
        await reference.fill("[aria-label='Find in the contents']", wanted)
        await expect(links).to_have_text(found)
    await expect(reference.locator(".contents output")).to_have_text("1 found")
    await reference.keyboard.press("Enter")
    assert reference.url.endswith("/api#delete_api_tokens_token")
    await reference.fill("[aria-label='Find in the contents']", "nowhere")
    await expect(reference.locator(".contents output")).to_have_text("Nothing has this in it.")


async def test_the_contents_go_along_with_what_is_read(reference):
    await reference.set_viewport_size({"width": 1440, "height": 500})
    contents = reference.locator(".contents")
    for name in ("get_set_capabilitylist_xml", "post_api_sets_set_changes"):
        link = contents.locator(f"a[href='#{name}']")
        await reference.locator(f"#{name}").evaluate("(it) => it.scrollIntoView()")
        await expect(link).to_have_attribute("aria-current", "location")
        await expect(link).to_be_in_viewport(ratio=1)


async def test_what_is_code_is_shown_as_code_and_no_name_is_broken(reference):
    section = reference.locator("#get_set_changelist_xml")
    await expect(section.locator("p code").first).to_have_text("from")
    assert "`" not in await reference.locator("#main").inner_text()
    for width in (1440, 820, 360):
        await reference.set_viewport_size({"width": width, "height": 800})
        names = reference.locator("td:first-child code:visible")
        assert (
            await names.evaluate_all(
                "(all) => all.filter((each) => each.getClientRects().length > 1).length"
            )
            == 0
        )
        assert await reference.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_what_only_reads_is_sent_by_one_press_with_the_token_of_the_tab(reference, set_name):
    section = reference.locator("#get_api_tokens")
    await section.get_by_role("button", name="Send").click()
    await expect(section.locator("output")).to_contain_text("200 OK, after")
    await expect(section.locator("pre").nth(1)).to_contain_text("content-type: application/json")


async def test_a_request_is_sent_with_what_its_fields_say(reference, set_name):
    section = reference.locator("#get_api_sets")
    await section.locator("summary:text('more field')").click()
    await section.get_by_label("name", exact=True).fill(set_name)
    await reference.keyboard.press("Enter")
    await expect(section.locator("pre").nth(1)).to_contain_text(f'"name": "{set_name}"')


async def test_a_refusal_is_shown_as_the_hub_says_it(reference):
    section = reference.locator("#get_set_capabilitylist_xml")
    await section.get_by_label("set", exact=True).fill("no/where")
    await reference.keyboard.press("Enter")
    await expect(section.locator("output")).to_have_class("bad")
    await expect(section.locator("pre").nth(1)).to_contain_text('"status": 404')


async def test_what_changes_something_is_asked_about_before(reference, page_hub, set_name):
    async def is_there() -> bool:
        return bool((await page_hub.ask("GET", f"/api/sets?name={set_name}"))[1])

    section = reference.locator("#delete_api_sets_set")
    await section.get_by_label("set", exact=True).fill(set_name)
    await reference.keyboard.press("Enter")
    await expect(reference.locator("dialog")).to_contain_text(f"Send DELETE /api/sets/{set_name}?")
    await reference.keyboard.press("Escape")
    await expect(reference.locator("dialog")).to_have_count(0)
    assert await is_there()
    await section.get_by_role("button", name="Send").click()
    await reference.click("dialog button:text-is('Send it')")
    await expect(section.locator("output")).to_contain_text("204")
    assert not await is_there()


async def test_a_long_answer_is_cut_and_that_is_said(reference):
    section = reference.locator("#get_api_openapi_json")
    await section.get_by_role("button", name="Send").click()
    await expect(section.locator("output")).to_contain_text("only its first 65,536 characters")


async def test_the_examples_of_several_sets_name_several_and_are_answered(reference, page_hub):
    for name in ("dataset1", "dataset2"):
        await page_hub.ask("PUT", f"/api/sets/{name}")
    section = reference.locator("#post_api_changes")
    await section.get_by_role("button", name="Send").click()
    await reference.click("dialog button:text-is('Send it')")
    await expect(section.locator("output")).to_contain_text("201 Created")
    body = section.locator("pre").nth(1)
    await expect(body).to_contain_text('"dataset2"')
    section = reference.locator("#get_channels_change_notification_channel")
    await section.locator("summary:text('more field')").click()
    await expect(section.get_by_label("set", exact=True)).to_have_value("dataset1 dataset2")
    async with reference.expect_request("**/channels/change_notification_channel?*") as asked:
        await section.get_by_role("button", name="Send").click()
    assert (await asked.value).url.endswith("?set=dataset1&set=dataset2")


async def test_an_example_of_a_body_is_accepted_as_it_stands(reference, page_hub):
    await page_hub.ask("PUT", "/api/sets/dataset1")
    section = reference.locator("#post_api_sets_set_changes")
    await section.locator("summary:text('more field')").click()
    await section.get_by_label("Content-Type").select_option("application/xml")
    await expect(section.get_by_label("Body")).to_have_value(re.compile("^<urlset"))
    await section.get_by_role("button", name="Send").click()
    await reference.click("dialog button:text-is('Send it')")
    await expect(section.locator("output")).to_contain_text("201 Created")


async def test_anything_else_is_found_from_there(reference, set_name):
    await reference.keyboard.press("Control+k")
    await reference.keyboard.type(f"{set_name} capab")
    await expect(reference.locator("#choices li")).to_have_count(1)
    await reference.keyboard.press("Enter")
    await expect(reference.locator("h1")).to_have_text("Capability List")


async def test_a_link_to_a_schema_opens_it(reference):
    schema = reference.locator("#SetOptions")
    await expect(schema).to_be_hidden()
    await reference.click(".contents a[href='#SetOptions']")
    await expect(schema).to_be_visible()
    await reference.reload()
    await expect(schema).to_be_visible()


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(reference, size):
    await reference.set_viewport_size({"width": size[0], "height": size[1]})
    section = reference.locator("#get_api_status")
    await section.get_by_role("button", name="Send").click()
    await expect(section.locator("output")).to_contain_text("200 OK")
    assert await reference.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await reference.emulate_media(color_scheme="light", reduced_motion="reduce")
    await no_violations(reference)
    await reference.emulate_media(color_scheme="dark", reduced_motion="reduce")
    await no_violations(reference, "color-contrast")
