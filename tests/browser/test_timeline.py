"""The line of time of a set: a stretch of it is chosen by hand, and its address shares it."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import opened, tab_to
from tests.browser.test_page import PHONE, latest, no_violations, shown

pytestmark = pytest.mark.asyncio(loop_scope="session")

READ = 10_000  # changes that are read without being asked
PAGE = 50


def says(page: Page):
    return page.locator("#day-says")


async def at(page: Page, share: float) -> tuple[float, float]:
    """A point of the line, so much of its width from its left."""
    box = await page.locator("#line").bounding_box()
    assert box is not None
    return box["x"] + share * (box["width"] - 1), box["y"] + box["height"] / 2


async def drag(page: Page, one: float, other: float) -> None:
    await page.mouse.move(*await at(page, one))
    await page.mouse.down()
    await page.mouse.move(*await at(page, (one + other) / 2))
    await page.mouse.move(*await at(page, other))
    await page.mouse.up()


def asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


async def test_a_drag_shows_a_stretch_and_whoever_opens_its_address_sees_the_same(
    chromium, page_hub, set_name
):
    await page_hub.publish("http://example.com/0", "http://example.com/1", set_name=set_name)
    async with opened(chromium, page_hub, set_name) as page:
        await expect(says(page)).to_contain_text("2 changes; most from")
        await drag(page, 0.2, 0.1)
        await expect(page.locator("#nothing")).to_have_text("No change in this stretch.")
        await drag(page, 0.9, 1)
        await expect(latest(page)).to_have_text(["http://example.com/0", "http://example.com/1"])
        await expect(says(page)).to_contain_text(": 2 changes")
        await no_violations(page)
        await page.emulate_media(color_scheme="dark")
        await no_violations(page, "color-contrast")
        assert set(asked(page)) == {"set", "from", "until"}
        told = await page.locator("#moment").text_content(), await says(page).text_content()
        await page.reload()
        await expect(latest(page)).to_have_text(["http://example.com/0", "http://example.com/1"])
        await expect(says(page)).to_have_text(told[1] or "")
        await expect(page.locator("#moment")).to_have_text(told[0] or "")
        await page.locator("#whole").press("Enter")
        await expect(page.locator("#day-before")).to_be_focused()  # of what has gone its neighbour
        assert set(asked(page)) == {"set"}
        assert await shown(page) == ["1", "0"]


async def test_a_keyboard_chooses_a_stretch_and_lets_it_go(page, page_hub, set_name):
    await page_hub.publish("http://example.com/0", set_name=set_name)
    await expect(says(page)).to_contain_text("1 change;")
    await tab_to(page, "[role=slider][aria-label=From]")
    await page.keyboard.press("End")
    await expect(page.locator("#moment")).to_contain_text("All changes after")
    await expect(says(page)).to_contain_text(": 1 change")
    wide = asked(page)
    await page.keyboard.press("PageDown")
    await page.wait_for_url(lambda url: parse_qs(urlsplit(url).query)["from"] != wide["from"])
    assert asked(page)["until"] == wide["until"]
    await page.keyboard.press("Escape")
    await expect(page.locator("#moment")).to_be_hidden()
    assert set(asked(page)) == {"set"}


async def test_a_finger_chooses_a_stretch(chromium, page_hub, set_name):
    await page_hub.publish("http://example.com/0", set_name=set_name)
    async with opened(chromium, page_hub, set_name, has_touch=True, **PHONE) as page:
        await expect(says(page)).to_contain_text("1 change;")
        session = await page.context.new_cdp_session(page)
        for kind, share in (("touchStart", 0.5), ("touchMove", 0.8), ("touchMove", 1)):
            x, y = await at(page, share)
            points = [{"x": x, "y": y}]
            await session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        await session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        await expect(page.locator("#moment")).to_contain_text("All changes after")
        await expect(latest(page)).to_have_text("http://example.com/0")


async def test_an_edge_is_moved_by_a_drag_that_begins_on_it(page, page_hub, set_name):
    await expect(says(page)).to_contain_text("No change")
    await drag(page, 0.3, 0.6)
    await expect(page.locator("#nothing")).to_be_visible()  # what appears moves the line
    before = asked(page)
    await drag(page, 0.6, 0.8)
    after = asked(page)
    assert (after["from"], after["until"] > before["until"]) == (before["from"], True)


def written(at: datetime) -> str:
    """As a field for a date and a time has it."""
    return f"{at.astimezone():%Y-%m-%dT%H:%M}"


async def test_two_times_that_are_written_are_a_stretch_whose_address_fills_them_in_again(
    page, page_hub, set_name
):
    made = await page_hub.publish("http://example.com/0", set_name=set_name)
    after = datetime.fromisoformat(made["until"]) + timedelta(hours=1)  # by the clock of the page
    await page.clock.install(time=after)
    await page.reload()
    await expect(says(page)).to_contain_text("1 change;")
    times = [written(after - timedelta(minutes=minutes)) for minutes in (73, 17)]
    await page.fill("#day-from", times[0])
    await page.fill("#day-until", times[1])
    await page.press("#day-until", "Enter")
    await expect(latest(page)).to_have_text(["http://example.com/0"])
    await expect(says(page)).to_have_text(f"{times[0][11:]} to {times[1][11:]}: 1 change.")
    moments = [
        f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for time in times
    ]
    assert [asked(page)[name] for name in ("from", "until")] == [[each] for each in moments]
    await no_violations(page)
    await page.reload()
    for field, time in zip(("#day-from", "#day-until"), times, strict=True):
        await expect(page.locator(field)).to_have_value(time)
    await drag(page, 0.1, 0.2)
    await expect(page.locator("#day-from")).not_to_have_value(times[0])
    await page.click("#whole")
    await expect(page.locator("#day-from")).to_have_value("")


async def test_two_times_of_another_day_turn_the_line_to_it(page, page_hub, set_name):
    last_week = datetime.now(UTC) - timedelta(days=7)
    await page.fill("#day-from", written(last_week))
    await page.fill("#day-until", written(last_week + timedelta(hours=1)))
    await page.press("#day-until", "Enter")
    await expect(page.locator("#day-title")).to_contain_text("24 hours until")
    hours = [written(last_week + timedelta(hours=more))[11:] for more in (0, 1)]
    await expect(says(page)).to_have_text(f"{hours[0]} to {hours[1]}: 0 changes.")


async def test_of_a_stretch_of_several_days_it_is_said_that_one_of_them_is_drawn(
    page, page_hub, set_name
):
    made = await page_hub.publish("http://example.com/0", set_name=set_name)
    after = datetime.fromisoformat(made["until"]) + timedelta(hours=1)
    await page.clock.install(time=after)
    await page.reload()
    await expect(says(page)).to_contain_text("1 change;")
    for hours, words in (
        (23, f"to {written(after)[11:]}: 1 change."),
        (72, "1 change of the stretch in these 24 hours."),
    ):
        await page.fill("#day-from", written(after - timedelta(hours=hours)))
        await page.fill("#day-until", written(after))
        await page.press("#day-until", "Enter")
        await expect(latest(page)).to_have_text(["http://example.com/0"])
        await expect(says(page)).to_contain_text(words)


@pytest.mark.parametrize(
    ("times", "why", "wrong"),
    [
        (("", "2026-11-20T16:00"), "From: give a date and a time.", "#day-from"),
        (("2026-11-20T15:00", ""), "Until: give a date and a time.", "#day-until"),
        (("2026-11-20T16:00", "2026-11-20T16:00"), "Until is not after From.", "#day-until"),
        (("2026-11-20T15:00", "9999-11-20T16:00"), "Until is still to come.", "#day-until"),
    ],
)
async def test_what_is_wrong_with_two_times_is_said_at_the_one_to_mend(page, times, why, wrong):
    for field, time in zip(("#day-from", "#day-until"), times, strict=True):
        await page.fill(field, time)
    await page.click("#exact button")
    await expect(page.locator("#exact-wrong")).to_have_text(why)
    await expect(page.locator(wrong)).to_be_focused()
    await expect(page.locator("#exact [aria-invalid]")).to_have_count(1)
    assert set(asked(page)) == {"set"}
    await no_violations(page)


async def test_each_change_that_comes_is_counted(page, page_hub, set_name):
    await expect(says(page)).to_have_text("No change in these 24 hours.")
    for count in ("1 change;", "2 changes;"):
        await page_hub.publish("http://example.com/0", set_name=set_name)
        await expect(says(page)).to_contain_text(count)


async def test_what_is_not_read_is_said_and_read_when_it_is_asked_for(chromium, page_hub, set_name):
    for part in range(2):
        locs = [f"http://example.com/{part}/{n}" for n in range(READ // 2)]
        await page_hub.publish(*locs, set_name=set_name)
    async with opened(chromium, page_hub, set_name) as page:
        await expect(says(page)).to_contain_text("10,000 changes;")
        await expect(page.locator("#read-on")).to_be_hidden()
        await page_hub.publish("http://example.com/more", set_name=set_name)
        await expect(says(page)).to_contain_text("10,001 changes;")
        await page.reload()
        await expect(says(page)).to_contain_text("10,000 changes;")
        await expect(says(page)).to_contain_text("is not read yet")
        await page.locator("#read-on").press("Enter")
        await expect(page.get_by_role("slider", name="From")).to_be_focused()
        await expect(says(page)).to_contain_text("10,001 changes;")
        await expect(says(page)).not_to_contain_text("is not read")


async def test_a_clock_that_is_behind_hides_nothing_that_is_newer(page, page_hub, set_name):
    """Whatever page of the list is read last."""
    now = datetime.now(UTC)
    pages = [(now, [{"rel": "prev", "href": "x"}]), (now - timedelta(minutes=15), [])]

    async def answer(route: Route) -> None:
        time, links = pages.pop(0)
        at = f"{time:%Y-%m-%dT%H:%M:%S.%fZ}"
        body = {"from": at, "links": links, "changes": [{"datetime": at}]}
        await route.fulfill(json=body)

    await page.route("**/changelist.xml?*limit=2000*", answer)
    await page.add_init_script("const now = Date.now; Date.now = () => now() - 3_600_000")
    await page.reload()
    await expect(says(page)).to_contain_text("2 changes;")


async def test_a_day_that_is_not_read_is_not_said_to_be_empty(page, set_name):
    async def never(_: Route) -> None: ...

    await page.route(f"**/channels/{set_name}/*", never)
    await page.reload()
    await expect(says(page)).to_have_text("Not read yet.")
    await page.unroute(f"**/channels/{set_name}/*")


async def test_the_day_before_is_a_line_of_its_own(page, page_hub, set_name):
    await page_hub.publish("http://example.com/0", set_name=set_name)
    await expect(says(page)).to_contain_text("1 change;")
    after = page.locator("#day-after")
    await expect(after).to_have_attribute("aria-disabled", "true")
    await page.click("#day-before")
    await expect(page.locator("#day-title")).to_contain_text("24 hours until")
    await expect(says(page)).to_have_text("No change in these 24 hours.")
    await after.press("Enter")
    for _ in range(2):  # at the end of its way it stays where it is
        await expect(page.locator("#day-title")).to_have_text("The last 24 hours")
        await expect(says(page)).to_contain_text("1 change;")
        await expect(after).to_have_attribute("aria-disabled", "true")
        await expect(after).to_be_focused()
        await after.press("Enter")


async def test_a_stretch_is_shown_fifty_changes_at_a_time(chromium, page_hub, set_name):
    made = await page_hub.publish(
        *(f"http://example.com/{n}" for n in range(PAGE + 1)), set_name=set_name
    )
    shared = f"{set_name}&from={made['from']}&until={made['until']}"
    async with opened(chromium, page_hub, shared) as page:
        await expect(page.locator("#moment")).to_contain_text("The first 50 changes")
        assert len(await shown(page)) == PAGE
        await page.locator("#more").press("Enter")
        await expect(page.locator("#moment")).to_contain_text("All changes after")
        assert len(await shown(page)) == PAGE + 1
        await expect(page.locator("#more")).to_be_hidden()
        await expect(page.get_by_role("region", name="Latest changes")).to_be_focused()
        await page.get_by_text("Show the latest").press("Enter")
        await expect(page.locator("#moment")).to_be_hidden()
        await expect(page.locator("#filter")).to_be_focused()


async def test_the_focus_stays_in_the_table_when_its_row_leaves(page, page_hub, set_name):
    await page_hub.publish("http://example.com/old", set_name=set_name)
    link = page.locator("#latest td.loc a")
    await link.focus()
    await page_hub.publish("http://example.com/new", set_name=set_name)
    await expect(link).to_have_count(2)
    await expect(link.last).to_be_focused()
    await page_hub.publish(*(f"http://example.com/{n}" for n in range(PAGE)), set_name=set_name)
    await expect(latest(page).first).to_have_text("http://example.com/49")
    await expect(page.locator("#latest tr:nth-child(2) a").first).to_be_focused()  # in its place
