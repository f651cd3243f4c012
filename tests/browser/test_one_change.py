"""One change at an address of its own: what people send each other."""

import json

import pytest
from playwright.async_api import expect

from tests.browser.conftest import opened
from tests.browser.test_page import latest, no_violations

pytestmark = pytest.mark.asyncio(loop_scope="session")

DIGEST = f"sha-256:{'0a' * 32}"
LOC = "http://example.com/a&b"


def one(hub, set_name: str, position: str) -> str:
    return f"{hub.url}/?set={set_name}&change={position}"


async def test_a_row_leads_to_its_change_with_its_digest_and_three_forms(page, page_hub, set_name):
    made = await page_hub.publish(LOC, set_name=set_name, hash=DIGEST)
    await expect(latest(page)).to_have_text(LOC)
    await page.click("#latest time")
    await expect(page.locator("#change-title")).to_have_text(f"updated {LOC}")
    await expect(page.locator("#change-facts").get_by_title(DIGEST)).to_be_visible()
    await expect(page.locator("#change-facts time")).to_have_text(made["until"])
    curl, in_json, in_xml = await page.locator("#change-forms .copyable code").all_text_contents()
    assert json.loads(in_json)["hash"] == DIGEST
    assert "  <loc>http://example.com/a&amp;b</loc>\n" in in_xml
    answer = await page.request.get(curl.split("'")[1])
    assert (await answer.json())["changes"] == [json.loads(in_json)]
    await no_violations(page)


async def test_from_a_change_one_goes_to_those_beside_it_and_to_all_that_followed(
    page, page_hub, set_name
):
    locs = [f"http://example.com/{n}" for n in range(3)]
    made = [await page_hub.publish(loc, set_name=set_name) for loc in locs]
    await page.goto(one(page_hub, set_name, made[1]["until"]))
    title, beside = page.locator("#change-title"), page.locator("#beside")
    await beside.get_by_text("The change before").click()
    await expect(title).to_contain_text(locs[0])
    await expect(beside).to_contain_text("The first that is kept")
    for loc in locs[1:]:
        await beside.get_by_text("The change after").click()
        await expect(title).to_contain_text(loc)
    await expect(beside).to_contain_text("The newest there is")
    await page.goto(one(page_hub, set_name, made[0]["until"]))
    await beside.get_by_text("All that followed").click()
    await expect(latest(page)).to_have_text(locs[1:])


async def test_a_position_without_a_change_leads_to_the_last_one_before(page, page_hub, set_name):
    made = await page_hub.publish(LOC, set_name=set_name)
    later = f"{made['until'][:-7]}999999Z"
    await page.goto(one(page_hub, set_name, later))
    answer = page.locator("#change-answer")
    await expect(answer).to_contain_text(f"{set_name} has no change at {later}.")
    await answer.get_by_role("link").click()
    await expect(page.locator("#change-title")).to_contain_text(LOC)


@pytest.mark.parametrize(
    ("position", "said"),
    [("2020-01-01", "has no change at 2020-01-01."), ("2999-01-01", "is in the future"),
     ("yesterday", "malformed")],
)  # fmt: skip
async def test_what_is_no_position_of_a_change_is_said(page, page_hub, set_name, position, said):
    await page.goto(one(page_hub, set_name, position))
    await expect(page.locator("#change-answer")).to_contain_text(said)
    await expect(page.locator("#one-change")).to_be_hidden()
    await no_violations(page)


async def test_a_change_that_is_gone_is_said_to_be_no_longer_kept(chromium, page_hub, set_name):
    made = await page_hub.publish(LOC, set_name=set_name)
    await page_hub.ask("DELETE", f"/api/sets/{set_name}")
    await page_hub.ask("PUT", f"/api/sets/{set_name}")
    async with opened(chromium, page_hub, set_name) as page:
        await page.goto(one(page_hub, set_name, made["until"]))
        await expect(page.locator("#change-answer")).to_contain_text("no longer kept")
        await expect(page.locator("#change-answer")).to_have_class("bad")
