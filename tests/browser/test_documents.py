"""Documents and errors as pages."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import REFUSED, opened, use_token
from tests.browser.test_page import HOSTILE, no_violations
from tests.support.running import TOKEN

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def window(chromium: Browser) -> AsyncIterator[Page]:
    """A window in which nothing is open yet; its console stays quiet."""
    told: list[str] = []
    context = await chromium.new_context(viewport={"width": 360, "height": 740})
    page = await context.new_page()
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    yield page
    await context.close()
    assert [text for text in told if not text.startswith(REFUSED)] == []


async def test_from_the_source_description_links_lead_to_each_change(window, page_hub, set_name):
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    await window.goto(f"{page_hub.url}/.well-known/resourcesync")
    await expect(window.locator("h1")).to_have_text("Source Description")
    link = f"{page_hub.url}/{set_name}/capabilitylist.xml"
    await window.get_by_role("link", name=link, exact=True).click()
    await expect(window.locator("h1")).to_have_text("Capability List")
    await window.goto(f"{page_hub.url}/{set_name}/changelist.xml")
    await expect(window.locator("h1")).to_have_text("Change List")
    await expect(window.locator("tbody tr")).to_contain_text("http://example.com/res1")
    await expect(window.locator("tbody tr")).to_contain_text(re.compile("ago|just now"))
    assert await window.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await no_violations(window)
    await window.emulate_media(color_scheme="dark")
    await no_violations(window, "color-contrast")
    await window.click("text=Validate this")
    await expect(window.locator("#verdict")).to_contain_text("Valid")
    await window.go_back()
    await window.click("text=Raw XML")
    assert "format=xml" in window.url


async def test_the_entries_stand_on_the_same_ground_as_what_is_said_of_the_document(
    window, page_hub, set_name
):
    await window.goto(f"{page_hub.url}/{set_name}/capabilitylist.xml")
    await expect(window.locator("tbody tr")).not_to_have_count(0)
    ground = "cards => cards.map(each => getComputedStyle(each).backgroundColor)"
    above, below = await window.locator("#content > .card").evaluate_all(ground)
    assert above == below


async def test_a_document_that_lists_nothing_says_so(window, page_hub, set_name):
    await window.goto(f"{page_hub.url}/{set_name}/changelist.xml")
    await expect(window.locator("#entries")).to_have_text("Nothing is listed here.")
    await expect(window.locator("table")).to_have_count(0)
    await no_violations(window)


async def test_what_more_there_is_of_an_entry_takes_no_column_from_the_others(
    window, page_hub, set_name
):
    """Few have a digest: it stands below their address, and no address breaks beside nothing."""
    more = {"length": 5, "type": "text/plain", "hash": f"md5:{'0' * 32}"}
    for change in ({"loc": "http://example.com/a"}, {"loc": "http://example.com/b", **more}):
        body = {"change": "updated", **change}
        status, _ = await page_hub.ask("POST", f"/api/sets/{set_name}/changes", json=body)
        assert status == 201
    await window.goto(f"{page_hub.url}/{set_name}/changelist.xml")
    await expect(window.locator("thead th")).to_have_text(["Address", "What", "When"])
    with_more, without = (window.locator("tbody tr").nth(at) for at in (0, 1))
    await expect(with_more.locator(".more")).to_contain_text("length 5, type text/plain")
    await expect(with_more.locator(".digest")).to_be_visible()
    await expect(without.locator(".more")).to_be_hidden()
    table = window.get_by_role("region", name="Entries")
    assert await table.evaluate("({ scrollWidth, clientWidth }) => scrollWidth - clientWidth") == 0
    await no_violations(window)


async def test_on_a_telephone_an_address_has_the_whole_width_and_the_table_is_still_one(
    chromium, page_hub, set_name
):
    """What else is in a row stands above the address, or below it."""
    await page_hub.publish("http://example.com/a/long/path/to/a/resource", set_name=set_name)
    phone = {"width": 390, "height": 844}
    async with opened(chromium, page_hub, set_name, viewport=phone) as page:
        await expect(page.locator("#latest td.loc")).to_be_visible()
        for _ in range(2):
            address, row = page.locator("td.loc").first, page.locator("tr:has(td.loc)").first
            widths = [await each.evaluate("(it) => it.offsetWidth") for each in (address, row)]
            assert widths[0] == widths[1]
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert await roles(page) >= {"table", "row", "columnheader", "cell"}
            await no_violations(page)
            await page.goto(f"{page_hub.url}/{set_name}/changelist.xml")
            await expect(address).to_be_visible()


async def roles(page: Page) -> set[str]:
    """What those are told who hear the page."""
    session = await page.context.new_cdp_session(page)
    tree = await session.send("Accessibility.getFullAXTree")
    return {node["role"]["value"] for node in tree["nodes"] if "role" in node}


async def test_no_empty_line_is_left_between_the_links_of_an_entry(window, page_hub, set_name):
    await window.goto(f"{page_hub.url}/{set_name}/capabilitylist.xml")
    entry = window.locator("td.loc", has_text="change_notification_channel").first
    await expect(entry).to_contain_text("hub: ")
    gaps = await entry.evaluate("""(it) => {
      const lines = [...it.children].filter((each) => each.textContent);
      const boxes = lines.map((each) => each.getBoundingClientRect());
      return boxes.slice(1).map(({ top }, at) => top - boxes[at].bottom);
    }""")
    assert gaps
    assert max(gaps) < 4  # pixels


async def test_the_newest_changes_come_first_and_each_page_has_an_address(
    window, page_hub, set_name
):
    await page_hub.publish(
        *(f"http://example.com/{each}" for each in range(201)), set_name=set_name
    )
    rows, pages = window.locator("tbody tr"), window.locator("#pages")
    await window.goto(f"{page_hub.url}/{set_name}/changelist.xml")
    await expect(window.locator("#content")).to_contain_text("201 entries, the newest first")
    await expect(rows).to_have_count(200)
    await expect(rows.first).to_contain_text("http://example.com/200")
    await pages.get_by_text("After").click()
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("http://example.com/0")
    await expect(pages.locator("a").first).to_be_focused()
    await window.reload()
    await expect(pages).to_contain_text("201 to 201 of 201")
    await no_violations(window)
    await window.go_back()
    await expect(rows).to_have_count(200)


async def test_two_hundred_entries_are_one_page(window, page_hub, set_name):
    await page_hub.publish(
        *(f"http://example.com/{each}" for each in range(200)), set_name=set_name
    )
    await window.goto(f"{page_hub.url}/{set_name}/changelist.xml")
    await expect(window.locator("tbody tr")).to_have_count(200)
    await expect(window.locator("#pages")).to_be_hidden()


async def test_a_digest_is_short_and_copied_whole(window, page_hub, set_name):
    digest = f"sha-256:{'0a' * 32}"
    await page_hub.publish("http://example.com/a", set_name=set_name, hash=digest)
    await window.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await window.goto(f"{page_hub.url}/{set_name}/changelist.xml")
    button = window.locator("td .digest")
    await expect(button).to_have_text("sha-256:0a0a0a0a…")
    await button.click()
    await expect(button).to_have_text("Copied")
    assert await window.evaluate("navigator.clipboard.readText()") == digest


async def test_what_a_source_wrote_is_only_ever_text(window, page_hub, set_name):
    links = [{"rel": "describedby", "href": "javascript:alert(1)"}]
    change = {"loc": "javascript:alert(2)", "change": "updated", "links": links}
    status, _ = await page_hub.ask("POST", f"/api/sets/{set_name}/changes", json=change)
    assert status == 201
    status, _ = await page_hub.ask(
        "POST",
        f"/api/sets/{set_name}/changes",
        json={"loc": "http://example.com/x", "change": "updated", "type": HOSTILE[:60]},
    )
    await window.goto(f"{page_hub.url}/{set_name}/changelist.xml")
    await expect(window.locator("tbody tr").first).to_contain_text("javascript:alert(2)")
    assert await window.locator("a[href^=javascript]").count() == 0
    assert await window.locator("main img, main script").count() == 0


async def test_a_private_document_is_read_with_the_token_of_the_tab(window, page_hub, set_name):
    await page_hub.ask("PATCH", f"/api/sets/{set_name}", json={"private": True})
    address = f"{page_hub.url}/{set_name}/capabilitylist.xml"
    answer = await window.goto(address)
    assert answer is not None
    assert answer.status == 404
    await expect(window.locator("h1")).to_have_text("Not found")
    await window.goto(f"{page_hub.url}/?set={set_name}#token={TOKEN}")
    await expect(window.locator("#is-private")).to_be_visible()
    await window.click("#documents a:text-is('Capability List')")
    await expect(window.locator("h1")).to_have_text("Capability List")
    assert TOKEN not in await window.content()


async def test_a_missing_address_and_the_api_are_pages_in_the_same_frame(window, page_hub):
    answer = await window.goto(f"{page_hub.url}/a/b/c")
    assert answer is not None
    assert answer.status == 404
    await expect(window.locator("#problem")).to_contain_text("there is nothing at /a/b/c")
    await no_violations(window)
    await window.click("footer a:text-is('The HTTP API')")
    await expect(window.locator("h1").first).to_contain_text("HTTP")
    await window.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
    await no_violations(window)
    await window.click("nav a:text-is('Overview')")
    await expect(window.locator("h1:visible")).to_have_text("Sets")


async def test_the_address_of_a_private_set_opens_its_view_in_a_tab_that_has_its_token(
    page, page_hub, set_name
):
    private = f"{set_name}-private"
    await page_hub.ask("PUT", f"/api/sets/{private}", json={"private": True})
    await page.goto(f"{page_hub.url}/{private}")
    await expect(page.locator("#problem")).to_contain_text("there is no set")
    await page.goto(f"{page_hub.url}/{set_name}")
    await expect(page.locator("h1.set-name")).to_have_text(set_name)
    await use_token(page)
    await page.goto(f"{page_hub.url}/{private}")
    await expect(page.locator("h1.set-name")).to_have_text(private)
