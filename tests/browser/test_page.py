"""The page at `/`, as a person uses it."""

import asyncio
import itertools
import re
from types import SimpleNamespace
from typing import Self

import pytest
from playwright.async_api import Page, Route, expect

from rsnotify.sets.options import SetOptions
from rsnotify.web.validation import DOCUMENT_BYTES
from tests.browser.conftest import choose, no_violations, opened, tab_to, use_token, view
from tests.evidence.soak.page_open import Sample, check, publish_for, sample, use_while
from tests.support.cutting_proxy import CuttingProxy
from tests.support.receivers import Receiver, answers, subscribe
from tests.support.running import TOKEN, RunningHub, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"viewport": {"width": 360, "height": 740}}
ADMIN_ROWS = 25  # of each table
FAULTY = """<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
  xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:ln rel="up" href="http://example.com/up"/>
<rs:md capability="changelist" from="2026-11-20T00:00:00Z"/>
<url><loc>http://example.com/a</loc>
<rs:md change="moved" datetime="2026-11-20T00:00:00Z"/></url></urlset>
"""
HIDE = "Object.defineProperty(document, 'hidden', { value: true, configurable: true })"
UNDONE_MS = 8_000  # in which what is about to be done can be undone
ROWS = 50  # that the table of the latest changes has
LONGEST = "http://example.com/" + "x" * (2048 - 19)
DESCRIPTION = ".well-known/resourcesync"
HOSTILE = "<img src=x onerror=document.body.remove()><script>alert(1)</script>\u202etxt.exe"


def latest(page: Page):
    return page.locator("#latest td.loc")


async def shown(page: Page) -> list[str]:
    return [loc.rpartition("/")[2] for loc in await latest(page).all_text_contents()]


class Held:
    """The first request to an address waits until it is let go."""

    def __init__(self, page: Page, path: str) -> None:
        self.page = page
        self.path = path
        self._let_go = asyncio.Event()
        self._count = 0

    async def __aenter__(self) -> Self:
        await self.page.route(f"**{self.path}", self._answer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.page.unroute(f"**{self.path}")

    async def _answer(self, route: Route) -> None:
        self._count += 1
        if self._count == 1:
            await self._let_go.wait()
        await route.continue_()

    async def let_go(self) -> None:
        """Until the page has dealt with what was answered."""
        async with self.page.expect_response(f"**{self.path}") as response:
            self._let_go.set()
        await (await response.value).finished()
        await self.page.evaluate("new Promise((then) => setTimeout(then, 100))")


async def test_a_change_published_elsewhere_appears(page, page_hub, set_name):
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    await expect(latest(page)).to_have_text("http://example.com/res1")


async def test_a_newcomer_with_a_keyboard_sees_the_change_that_the_page_published(page):
    await tab_to(page, "#key")
    await page.keyboard.press("Enter")
    await tab_to(page, "#secret")
    await page.keyboard.type(TOKEN)
    await page.keyboard.press("Enter")
    await expect(page.locator("#token output")).to_have_text("You use the admin token.")
    await expect(page.locator("#token")).to_be_hidden()
    await expect(page.locator("#loc")).to_be_visible()  # its view is loaded after the token's words
    await tab_to(page, "#loc")
    await page.keyboard.press("Control+A")
    await page.keyboard.type("http://example.com/mine")
    await page.keyboard.press("Enter")
    await expect(page.locator("#publish output")).to_contain_text("It arrived")
    await expect(latest(page)).to_have_text("http://example.com/mine")


async def test_the_focus_is_where_the_token_was_given_when_it_is_in_use(page):
    await use_token(page)
    await expect(page.locator("#key")).to_be_focused()
    await expect(page.locator("#key")).to_have_text("Token in use")


async def test_a_keyboard_need_not_pass_every_change(page, page_hub, set_name):
    await page_hub.publish(*(f"http://example.com/{n}" for n in range(50)), set_name=set_name)
    await expect(latest(page)).to_have_count(50)
    await page.focus("#lookup button")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await expect(page.locator("#may-not button")).to_be_focused()


async def test_without_a_token_the_page_leads_to_its_field_and_shows_no_form(page):
    await expect(page.locator("#may-not")).to_contain_text("Making changes needs a token.")
    await expect(page.locator("#publishing")).to_be_hidden()
    await page.click("#may-not button")
    await expect(page.locator("#secret")).to_be_focused()
    await page.keyboard.type(TOKEN)
    await page.keyboard.press("Enter")
    await page.click("#publish button")
    await expect(page.locator("#publish output")).to_contain_text("It arrived")


async def test_the_page_tells_how_many_read_and_how_the_hub_is(page):
    await expect(page.locator("#readers")).to_have_text("1")
    await view(page, "Admin")
    await expect(page.locator("#numbers")).to_contain_text("Redis answers in")


async def test_what_was_published_before_is_there_at_once(chromium, page_hub, set_name):
    await page_hub.publish("http://example.com/old", set_name=set_name)
    async with opened(chromium, page_hub, set_name) as page:
        await expect(latest(page)).to_have_text("http://example.com/old")
        await page_hub.publish("http://example.com/new", set_name=set_name)
        await expect(latest(page)).to_have_count(2)
        assert await shown(page) == ["new", "old"]


async def test_a_hub_that_was_killed_is_followed_on_without_gap_or_repetition(chromium, tmp_path):
    async with (
        RunningHub(tmp_path / "data") as hub,
        opened(chromium, hub, "dataset1") as page,
    ):
        await hub.publish("http://example.com/1")
        await expect(latest(page)).to_have_count(1)
        await hub.kill()
        await expect(page.locator("#health")).to_have_text("connection lost; trying again")
        await expect(page.locator("#health")).to_have_attribute("title", re.compile(hub.url))
        await hub.start()
        await hub.publish("http://example.com/2", "http://example.com/3")
        await expect(page.locator("#health")).to_have_text("live")
        await expect(page.locator("#health")).to_have_attribute("title", "")
        await hub.publish("http://example.com/4")
        await expect(latest(page).first).to_have_text("http://example.com/4")
        assert await shown(page) == ["4", "3", "2", "1"]
        assert await page.locator("#latest .bad").count() == 0


async def readers_of(hub: RunningHub, set_name: str) -> dict[str, int]:
    _, status = await hub.ask("GET", f"/api/status?name={set_name}")
    readers: dict[str, int] = status["sets"][0]["channels"][0]["readers"]
    return readers


async def test_a_hub_that_was_away_is_followed_by_websocket_again(chromium, tmp_path):
    """Also if its event stream, which is opened first, is asked for when it is not yet back."""
    is_back = asyncio.Event()

    async def later(route: Route) -> None:
        await is_back.wait()
        await route.continue_()

    async with (
        RunningHub(tmp_path / "data") as hub,
        opened(chromium, hub, "dataset1") as page,
    ):
        await page.route("**/channels/dataset1/*", later)
        async with page.expect_request("**/channels/dataset1/*"):
            await hub.kill()
        await hub.start()
        is_back.set()
        await expect(page.locator("#health")).to_have_text("live")
        assert await readers_of(hub, "dataset1") == {
            "websocket": 1,
            "event stream": 0,
            "long poll": 0,
        }


async def test_where_no_websocket_is_let_through_the_page_follows_an_event_stream(
    chromium, page_hub, set_name
):
    async with (
        CuttingProxy(page_hub.port, "refused", None) as proxy,
        opened(chromium, SimpleNamespace(url=proxy.of(page_hub.url)), set_name) as page,
    ):
        await page_hub.publish("http://example.com/res1", set_name=set_name)
        await expect(latest(page)).to_have_text("http://example.com/res1")
        readers = await readers_of(page_hub, set_name)
        assert readers == {"websocket": 0, "event stream": 1, "long poll": 0}


async def test_a_page_of_another_origin_reads_public_channels_and_no_private_one(
    chromium, page_hub, set_name
):
    channel = f"{page_hub.url}/channels/{set_name}/change_notification_channel"
    read = "url => fetch(url).then(answer => answer.status, error => error.name)"
    html = answers("200 OK", b"<!doctype html>", Content_Type="text/html")
    async with Receiver(get=html) as elsewhere, await chromium.new_page() as page:
        await page.goto(elsewhere.callback)
        assert await page.evaluate(read, channel) == 200
        await page_hub.ask("PATCH", f"/api/sets/{set_name}", json={"private": True})
        assert await page.evaluate(read, channel) == 404
        wanted = {"sets": [set_name], "rights": ["read"]}
        _, made = await page_hub.ask("POST", "/api/tokens", json=wanted)
        with_token = f"{channel}?access_token={made['token']}"
        assert await page.evaluate(read, with_token) == "TypeError"


async def test_a_set_that_is_removed_ends_the_view_with_its_reason(page, page_hub, set_name):
    await page_hub.ask("DELETE", f"/api/sets/{set_name}")
    await expect(page.locator("#health")).to_contain_text("stopped")


async def test_a_shade_at_an_edge_says_that_a_table_goes_on_behind_it(chromium, page_hub, set_name):
    narrow = {"width": 500, "height": 740}
    async with opened(chromium, page_hub, set_name, viewport=narrow) as page:
        await view(page, "Overview")
        table = page.locator(".scroll:has(#overview)")
        await expect(page.locator("#overview tr").first).to_be_visible()

        async def edges() -> list[bytes]:
            """A few pixels above what is written in its head."""
            await table.scroll_into_view_if_needed()
            box = await table.bounding_box()
            assert box is not None
            strip = {"y": round(box["y"]) + 2, "width": 2, "height": 2}
            ends = (round(box["x"]) + 1, round(box["x"] + box["width"]) - 3)
            return [await page.screenshot(clip={"x": x, **strip}) for x in ends]

        plain, shade = await edges()
        assert shade != plain
        await table.evaluate("each => { each.scrollLeft = each.scrollWidth; }")
        assert (await edges())[1] == plain


async def test_what_strangers_wrote_is_only_ever_text_and_breaks_no_layout(
    chromium, page_hub, set_name
):
    await page_hub.publish(LONGEST, "javascript:alert(1)", set_name=set_name)
    token = {"sets": [set_name], "note": HOSTILE}
    await page_hub.ask("POST", "/api/tokens", json=token)
    async with opened(chromium, page_hub, set_name, **PHONE) as page:
        await use_token(page)
        await view(page, "Admin")
        await expect(page.locator("#tokens bdi", has_text="<img")).to_have_text(HOSTILE)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await view(page, "Set")
        await expect(latest(page).last).to_have_text(LONGEST)
        assert await page.locator("#latest a[href^=javascript]").count() == 0
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_the_tab_keeps_no_more_however_many_changes_come(page, page_hub, set_name):
    session = await page.context.new_cdp_session(page)

    async def sample_after(rounds: int) -> Sample:
        for number in range(rounds):
            locs = [f"http://example.com/{number}/{each}" for each in range(1_000)]
            await page_hub.publish(*locs, f"http://example.com/last{number}", set_name=set_name)
        await expect(latest(page).first).to_contain_text(f"last{rounds - 1}")
        return await sample(session)

    check(await sample_after(3), await sample_after(9))
    assert len(await shown(page)) == ROWS


async def test_the_page_answers_while_300_changes_a_second_come_and_shows_them_all(
    page, page_hub, set_name
):
    numbers = itertools.count(1)
    newest = await use_while(page, publish_for(page_hub, 2, numbers, set_name))
    await expect(latest(page).first).to_have_text(newest)
    await expect(page.locator("#resources")).to_have_text(str(next(numbers) - 1))
    assert await page.locator("#latest .bad").count() == 0


async def test_the_table_stands_still_while_it_is_paused(page, page_hub, set_name):
    await page.click("#pause")
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    await expect(page.locator("#today")).to_have_text("1")
    assert await shown(page) == []
    await page.click("#pause")
    await expect(latest(page)).to_have_text("http://example.com/res1")


# Sets ---------------------------------------------------------------------------------------------


async def test_of_many_sets_the_first_are_shown_and_the_others_are_found(chromium, tmp_path):
    names = tuple(f"set{number:02}" for number in range(1, 52))
    async with (
        RunningHub(tmp_path / "data", sets=names) as hub,
        opened(chromium, hub, "set51") as page,
    ):
        async with page.expect_response(lambda answer: "/api/status" in answer.url) as asked:
            pass
        status = await (await asked.value).json()
        assert [each["name"] for each in status["sets"]] == ["set51"]
        await view(page, "Overview")
        rows = page.locator("#overview tr")
        await expect(rows).to_have_count(50)
        await expect(page.locator("#found")).to_have_text("the 50 that changed last of 51")
        await hub.publish("http://example.com/res1", set_name="set51")
        await expect(rows.first.locator("a")).to_have_text("set51")
        await page.click(".order:text-is('Set')")
        await expect(page.locator("#found")).to_have_text("the first 50 of 51")
        await expect(rows.first.locator("a")).to_have_text("set01")
        await page.click(".order:text-is('Resources')")
        only = "the 50 that changed last of 51; only these 50 are sorted by “Resources”"
        await expect(page.locator("#found")).to_have_text(only)
        await page.fill("#find", "T3")
        await expect(page.locator("#found")).to_have_text("10 in all")
        await expect(rows).to_have_count(10)
        await choose(page, "set37")
        await hub.publish("http://example.com/res1", set_name="set37")
        await expect(latest(page)).to_have_text("http://example.com/res1")


async def test_the_overview_has_what_happens_in_each_set(chromium, page_hub, set_name):
    await page_hub.publish(*(f"http://example.com/{n}" for n in range(3)), set_name=set_name)
    await page_hub.publish("http://example.com/0", set_name=set_name)
    async with opened(chromium, page_hub, set_name) as page:
        await expect(page.locator("#resources")).to_have_text("3")
        await expect(page.locator("#today")).to_have_text("4")
        await view(page, "Overview")
        await page.fill("#find", set_name)
        row = page.locator("#overview tr", has=page.locator(f"a:text-is('{set_name}')"))
        await expect(row.locator("td").nth(0)).to_contain_text(re.compile("just now| s ago"))
        await expect(row.locator("td").nth(1)).to_have_text("4")
        await expect(row.locator("td").nth(2)).to_have_text("3")
        await expect(row.locator("td").nth(3)).to_have_text("0")
        link = row.locator("a")
        await link.focus()
        await page_hub.publish("http://example.com/new", set_name=set_name)
        await expect(row.locator("td").nth(2)).to_have_text("4")
        await expect(row.get_by_role("img", name="1 change", exact=True)).to_be_visible()
        await expect(link).to_be_focused()


async def test_what_has_no_column_on_a_narrow_screen_stands_below_the_name(
    chromium, page_hub, set_name
):
    """On a telephone, and with 200 % zoom in a window of 1280 pixels."""
    await page_hub.publish("http://example.com/1", "http://example.com/2", set_name=set_name)
    async with opened(chromium, page_hub, set_name) as page:
        await view(page, "Overview")
        await page.fill("#find", set_name)
        row = page.locator("#overview tr", has=page.locator(f"a:text-is('{set_name}')"))
        words, small_line = row.get_by_text("2 resources, 0 readers"), row.get_by_role("img")
        await expect(words).to_have_count(1)
        await page.click(".order:text-is('Changes today')")
        for width, is_in_words in (
            (390, True),
            (480, True),
            (481, False),
            (640, False),
            (641, False),
        ):
            await page.set_viewport_size({"width": width, "height": 800})
            await expect(words).to_be_visible(visible=is_in_words)
            await expect(row.locator("td").nth(2)).to_be_visible(visible=not is_in_words)
            await expect(small_line).to_have_count(1)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert await page.locator(".order:visible").evaluate_all(BROKEN_WORDS) == []
            await no_violations(page)


BROKEN_WORDS = """
(heads) => heads.flatMap((head) => [...head.firstChild.data.matchAll(/\\S+/g)].filter((word) => {
  const range = document.createRange();
  range.setStart(head.firstChild, word.index);
  range.setEnd(head.firstChild, word.index + word[0].length);
  return range.getClientRects().length > 1;
}).map(String))
"""


async def set_names(page: Page) -> list[str]:
    return await page.locator("#overview a").all_text_contents()


async def test_the_overview_is_ordered_by_any_of_its_columns(chromium, tmp_path):
    async with (
        RunningHub(tmp_path / "data", sets=("set10", "set2", "set1")) as hub,
        opened(chromium, hub, "set1") as page,
    ):
        for name, count in (("set1", 3), ("set10", 1), ("set2", 2)):
            locs = [f"http://example.com/{number}" for number in range(count)]
            await hub.publish(*locs, set_name=name)
        await view(page, "Overview")
        await expect(page.locator("#overview td:nth-child(4)")).to_have_text(["2", "1", "3"])
        for column, forwards in (
            ("Last change", ["set2", "set10", "set1"]),
            ("Set", ["set1", "set2", "set10"]),
            ("Changes today", ["set1", "set2", "set10"]),
            ("Resources", ["set1", "set2", "set10"]),
        ):
            head = page.locator("th", has=page.locator(f".order:text-is('{column}')"))
            if column != "Last change":
                await head.locator("button").press("Enter")
            first = "ascending" if column == "Set" else "descending"
            await expect(head).to_have_attribute("aria-sort", first)
            assert await set_names(page) == forwards
            await head.locator("button").press("Enter")
            then = "descending" if column == "Set" else "ascending"
            await expect(head).to_have_attribute("aria-sort", then)
            assert await set_names(page) == forwards[::-1]
            assert await page.locator("th[aria-sort]").count() == 1


async def test_the_focus_stays_in_the_overview_when_its_row_leaves(chromium, tmp_path):
    async with (
        RunningHub(tmp_path / "data", sets=("a", "b", "c")) as hub,
        opened(chromium, hub, "a") as page,
    ):
        await view(page, "Overview")
        await page.click(".order:text-is('Set')")
        await page.focus("#overview a:text-is('b')")
        await hub.publish("http://example.com/1", set_name="c")  # nothing moves under the hand
        await expect(page.locator("#overview tr").nth(2)).not_to_contain_text("never")
        await hub.ask("DELETE", "/api/sets/b")
        await expect(page.locator("#overview a:text-is('c')")).to_be_focused()
        await hub.ask("DELETE", "/api/sets/c")
        await expect(page.locator("#overview a:text-is('a')")).to_be_focused()
        await hub.ask("DELETE", "/api/sets/a")
        await expect(page.locator("#find")).to_be_focused()
        await expect(page.locator("#no-sets code").nth(1)).to_contain_text("rsnotify publish first")


async def test_the_overview_has_words_and_no_head_of_nothing_where_it_has_no_row(page, set_name):
    is_let_in = asyncio.Event()

    async def later(route: Route) -> None:
        await is_let_in.wait()
        await route.continue_()

    await page.route("**/api/status?*", later)
    await view(page, "Overview")
    said, table = page.locator("#found"), page.get_by_role("region", name="Sets")
    await expect(said).to_have_text("Asking the hub…")
    await expect(table).to_be_hidden()
    is_let_in.set()
    await expect(table).to_be_visible()
    await page.fill("#find", "nowhere")
    await expect(said).to_have_text("No set has this in its name.")
    await expect(table).to_be_hidden()
    await page.fill("#find", set_name)
    await expect(table.get_by_role("link", name=set_name, exact=True)).to_be_visible()


async def test_a_hub_with_one_set_begins_with_it(chromium, tmp_path):
    async with RunningHub(tmp_path / "data") as hub, opened(chromium, hub, "dataset1") as page:
        await page.goto(f"{hub.url}/")
        await expect(page.locator("h1.set-name")).to_have_text("dataset1")
        await view(page, "Overview")
        await expect(page.locator("#overview a")).to_have_text("dataset1")
        await page.go_back()
        await expect(page.locator("h1.set-name")).to_have_text("dataset1")


async def test_a_set_that_is_not_there_is_said_to_be_missing(page, page_hub, set_name):
    await page.goto(f"{page_hub.url}/?view=toString&set={set_name}")
    await expect(page.locator("h1.set-name")).to_have_text(set_name)
    await page.goto(f"{page_hub.url}/?set=no-{set_name}")
    await expect(page.locator("#problem")).to_contain_text(f"There is no set no-{set_name}")
    await expect(page.locator("h1:visible")).to_have_text(f"no-{set_name}")
    await no_violations(page)


async def test_a_link_leads_to_the_set_of_the_address_before_the_hub_has_answered(
    page, page_hub, set_name
):
    async def never(_: Route) -> None: ...

    await page.route("**/api/sets?*", never)
    async with page.expect_request("**/api/sets?*"):
        await page.goto(f"{page_hub.url}/?set={set_name}", wait_until="commit")
    await expect(page.locator("h1:visible")).to_have_text("Opening…")
    await view(page, "Debugger")
    await expect(page).to_have_url(f"{page_hub.url}/?view=debugger&set={set_name}")
    await page.unroute("**/api/sets?*")


# Changes ------------------------------------------------------------------------------------------


async def test_the_last_fifty_changes_are_there_at_once_and_a_filter_finds_among_them(
    chromium, page_hub, set_name
):
    for batch in range(2):
        locs = [f"http://example.com/{batch}-{each}" for each in range(30)]
        await page_hub.publish(*locs, set_name=set_name)
    async with opened(chromium, page_hub, set_name) as page:
        await expect(latest(page)).to_have_count(ROWS)
        assert (await shown(page))[0] == "1-29"
        assert (await shown(page))[-1] == "0-10"
        await page.fill("#filter", "1-2")
        await expect(latest(page)).to_have_count(11)
        await page.fill("#filter", "nowhere")
        await expect(page.locator("#nothing")).to_contain_text("None of the changes")


async def test_one_resource_is_looked_up(page, page_hub, set_name):
    made = await page_hub.publish("http://example.com/a&b", set_name=set_name, length=1700)
    await page.fill("#filter", "http://example.com/a&b")
    await page.press("#filter", "Enter")
    await expect(page.locator("#known p")).to_have_text("It is there.")
    facts = page.locator("#known dl")
    names = ["Address", "When", "Length"]
    await expect(facts.locator("dt")).to_have_text(names)
    await expect(facts.locator("dd").first).to_have_text("http://example.com/a&b")
    await expect(facts.locator("time")).to_have_text(made["until"])
    await expect(facts.locator("dd").last).to_have_text("1.7 kB (1,700 bytes)")
    await no_violations(page)
    await page.fill("#filter", "http://example.com/gone")
    await page.press("#filter", "Enter")
    await expect(page.locator("#known")).to_contain_text("never known, or deleted")
    await expect(facts).to_have_count(0)


async def test_a_link_shares_a_moment_and_what_followed_it(chromium, page_hub, set_name):
    for number in range(3):
        await page_hub.publish(f"http://example.com/{number}", set_name=set_name)
    async with opened(chromium, page_hub, set_name) as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.click("#share")
        link = await page.evaluate("navigator.clipboard.readText()")
        await page_hub.publish("http://example.com/3", set_name=set_name)
        await expect(latest(page)).to_have_count(4)
        await page.goto(link)
        await expect(page.locator("#moment")).to_contain_text("the oldest first")
        assert await shown(page) == ["2", "3"]
        await page_hub.publish("http://example.com/4", set_name=set_name)
        await page.click("#moment a")
        await expect(latest(page)).to_have_count(5)
        assert await shown(page) == ["4", "3", "2", "1", "0"]


async def test_the_only_change_of_a_set_is_shared_too(chromium, page_hub, set_name):
    await page_hub.publish("http://example.com/0", set_name=set_name)
    async with opened(chromium, page_hub, set_name) as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.click("#share")
        await page.goto(await page.evaluate("navigator.clipboard.readText()"))
        await expect(page.locator("#moment")).to_contain_text("the oldest first")
        assert await shown(page) == ["0"]


async def test_where_a_table_has_no_row_there_are_words_and_no_head_of_nothing(
    page, page_hub, set_name
):
    table, words = page.locator("table:has(#latest)"), page.locator("#nothing")
    await expect(words.and_(page.get_by_text("No change yet"))).to_be_visible()
    await expect(table).to_be_hidden()
    await page_hub.publish("http://example.com/1", set_name=set_name)
    await expect(table).to_be_visible()
    await expect(words).to_be_hidden()
    await page.fill("#filter", "no such")
    await expect(words.and_(page.get_by_text("None of the changes"))).to_be_visible()
    await expect(table).to_be_hidden()


async def test_a_page_that_reads_counts_itself_before_the_hub_does(page):
    async def nobody(route: Route) -> None:
        answer = await route.fetch()
        status = await answer.json()
        for channel in status["sets"][0]["channels"]:
            channel["readers"] = dict.fromkeys(channel["readers"], 0)
        await route.fulfill(response=answer, json=status)

    await page.route("**/api/status*", nobody)
    await page.reload()
    await expect(page.locator("#readers")).to_have_text("1")
    await page.click("#cut")
    await expect(page.locator("#readers")).to_have_text("0")


# See it work --------------------------------------------------------------------------------------


async def test_a_connection_that_is_cut_misses_nothing(page, page_hub, set_name):
    await use_token(page)
    await page_hub.publish("http://example.com/0", set_name=set_name)
    await expect(latest(page)).to_have_count(1)
    await page.click("#cut")
    await expect(page.locator("#health")).to_have_text("cut by you")
    for number in range(1, 4):
        await page_hub.publish(f"http://example.com/{number}", set_name=set_name)
    await page.click("#publish button")
    await expect(page.locator("#publish output")).to_contain_text("while the channel is not")
    await expect(page.locator("#missing")).to_have_text("4 missing")
    assert await shown(page) == ["0"]
    await page.click("#cut")
    await expect(page.locator("#work")).to_contain_text(
        re.compile(r"^4 missing → 0, in [\d,]+ ms: ")
    )
    await expect(page.locator("#work")).to_contain_text("4 changes that came meanwhile arrived")
    await expect(page.locator("#missing")).to_have_text("4 → 0 missing")
    await expect(page.locator("#publish output")).to_contain_text("It arrived")
    await expect(latest(page)).to_have_count(5)
    assert await shown(page) == ["icon.svg", "3", "2", "1", "0"]
    await page.click("#cut")
    await page.click("#cut")
    await expect(page.locator("#work")).to_contain_text("Nothing had changed")


async def test_changes_are_made_with_the_javascript_client_once_it_is_agreed_to(page, set_name):
    await expect(page.locator("#try")).to_be_hidden()
    await use_token(page)
    dialog = page.locator("dialog")
    await page.click("#try")
    await expect(dialog).to_contain_text(set_name)
    await expect(page.locator("dialog button:text-is('Cancel')")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(page.locator("#work")).to_be_empty()
    await page.click("#try")
    await page.click("dialog button:text-is('Publish them')")
    for count in (5, 10):
        await expect(page.locator("#work")).to_contain_text("Five changes were made")
        await expect(latest(page)).to_have_count(count)
        if count == 5:
            await page.click("#try")  # it is not asked again


async def test_dots_end_and_are_never_too_many(page, page_hub, set_name):
    for number in range(20):
        locs = [f"http://example.com/{number}/{each}" for each in range(50)]
        await page_hub.publish(*locs, set_name=set_name)
    await expect(latest(page).first).to_contain_text("19/49")
    assert await page.locator("#dots circle").count() <= 60 + 15
    await expect(page.locator("#dots circle")).to_have_count(0)


async def flown(page: Page, group: str) -> None:
    """From now on the body says how many dots have begun."""
    await page.evaluate(
        """(group) => {
          document.body.dataset.flown = 0;
          new MutationObserver((records) => {
            for (const { addedNodes } of records) document.body.dataset.flown -= -addedNodes.length;
          }).observe(document.querySelector(group), { childList: true });
        }""",
        group,
    )


async def test_the_picture_can_be_held(page, page_hub, set_name):
    await page.click("#still")
    await expect(page.locator("#still")).to_have_attribute("aria-pressed", "true")
    await flown(page, "#dots")
    await page_hub.publish("http://example.com/1", set_name=set_name)
    await expect(latest(page)).to_have_count(1)
    await expect(page.locator("body")).to_have_attribute("data-flown", "0")
    await page.click("#still")
    await page_hub.publish("http://example.com/2", set_name=set_name)
    await expect(latest(page)).to_have_count(2)
    await expect(page.locator("body")).to_have_attribute("data-flown", "3")
    await expect(page.locator("#dots circle")).to_have_count(0)


async def test_a_hub_begins_with_a_picture_in_which_its_changes_move(chromium, tmp_path):
    """From the Sources through the sets that changed last, to who reads them."""
    names = tuple(f"set{number}" for number in range(1, 8))
    async with (
        RunningHub(tmp_path / "data", sets=names) as hub,
        opened(chromium, hub, "set1") as page,
    ):
        await page.goto(f"{hub.url}/")
        places = page.locator("#landing text")
        await expect(places.filter(has_text="set")).to_have_text([*names[:5]])
        await flown(page, "#landing .dots")
        await hub.publish("http://example.com/1", "http://example.com/2", set_name="set2")
        await expect(page.locator("body")).to_have_attribute(
            "data-flown", "2"
        )  # nobody reads it: to the lists alone
        await hub.publish("http://example.com/1", set_name="set7")
        await expect(places.filter(has_text="set7")).to_be_visible()  # in the place of another
        await expect(places.filter(has_text="set2")).to_be_visible()
        await expect(places.filter(has_text="set")).to_have_count(5)
        await page.emulate_media(reduced_motion="reduce")
        await hub.publish("http://example.com/3", set_name="set2")
        await expect(page.locator("#overview tr").first.locator("td").nth(1)).to_have_text("3")
        await expect(page.locator("body")).to_have_attribute("data-flown", "2")


async def test_the_line_of_any_set_is_followed_cut_and_joined_again_at_the_landing(
    chromium, tmp_path
):
    """By keyboard, and then another one with the mouse."""
    async with (
        RunningHub(tmp_path / "data", sets=("maps", "museum", "photographs")) as hub,
        opened(chromium, hub, "maps") as page,
    ):
        await page.goto(f"{hub.url}/")
        await use_token(page)
        landing, said, cut = (
            page.locator(each) for each in ("#landing", "#line-says", "#cut-line")
        )
        museum, maps = (
            landing.get_by_role("button", name=f"Follow {name}") for name in ("museum", "maps")
        )
        await expect(cut).to_be_hidden()
        await museum.press("Enter")
        await expect(museum).to_have_attribute("aria-pressed", "true")
        await expect(said).to_have_text("This page follows museum now, by WebSocket.")
        await cut.press("Enter")
        await hub.publish("http://example.com/1", set_name="maps")  # nothing of this one is missing
        await landing.get_by_role("button", name="Make five changes").press("Enter")
        await page.click("dialog button:text-is('Publish them')")
        await expect(landing.locator(".missing")).to_have_text("5 missing")
        await no_violations(page)
        await cut.press("Enter")
        await expect(said).to_contain_text(re.compile(r"^5 missing → 0, in [\d,]+ ms: 5 changes "))
        await expect(landing.locator(".missing")).to_have_text("5 → 0 missing")
        await maps.click()
        await expect(said).to_have_text("This page follows maps now, by WebSocket.")
        await expect(museum).to_have_attribute("aria-pressed", "false")
        await expect(landing.locator(".missing")).to_be_empty()
        await maps.click()
        await expect(cut).to_be_hidden()
        await expect(said).to_be_empty()


@pytest.mark.parametrize(("events", "name"), [(None, "event stream"), ("refused", "long poll")])
async def test_the_landing_says_by_what_it_follows_a_set_and_draws_its_line_there(
    chromium, page_hub, set_name, events, name
):
    async with CuttingProxy(page_hub.port, "refused", events) as proxy:
        place = SimpleNamespace(url=proxy.of(page_hub.url))
        async with opened(chromium, place, set_name) as page:
            await page_hub.publish("http://example.com/1", set_name=set_name)  # it stands first
            await page.goto(f"{place.url}/?view=overview")
            landing, said = page.locator("#landing"), page.locator("#line-says")
            await landing.get_by_role("button", name=f"Follow {set_name}", exact=True).click()
            await expect(said).to_have_text(f"This page follows {set_name} now, by {name}.")
            way = await landing.locator("path.own").get_attribute("d") or ""
            height = await landing.get_by_text("stream or poll").get_attribute("y") or ""
            assert float(way.rpartition(",")[2]) == float(height) + 2


# Debugger, validator ------------------------------------------------------------------------------


COLOUR = """(name) => {
  const one = document.body.appendChild(document.createElement("i"));
  one.style.color = `var(--${name})`;
  return getComputedStyle(one).color;
}"""


async def has_the_colour(page: Page, where: str, name: str) -> None:
    await expect(page.locator(where)).to_have_css("color", await page.evaluate(COLOUR, name))


async def test_what_was_ended_by_hand_is_shown_neither_as_good_nor_as_bad(page, set_name):
    await page.click("#cut")
    await expect(page.locator("#work")).to_contain_text("Cut.")
    await has_the_colour(page, "#work", "soft")
    await page.click("#cut")
    await expect(page.locator("#work")).to_contain_text("Connected again.")
    await has_the_colour(page, "#work", "good")
    await view(page, "Debugger")
    await page.click("#connection button:text-is('Connect')")
    await expect(page.locator("#connection-state")).to_contain_text("connected")
    await has_the_colour(page, "#connection-state", "good")
    await page.click("#disconnect")
    await expect(page.locator("#connection-state")).to_have_text("ended: disconnected")
    await has_the_colour(page, "#connection-state", "soft")


async def test_what_is_only_beginning_is_shown_neither_as_good_nor_as_bad(page, page_hub, set_name):
    await page_hub.publish("http://example.com/1", set_name=set_name)  # the landing has the newest
    is_let_in = asyncio.Event()

    async def later(route: Route) -> None:
        await is_let_in.wait()
        await route.continue_()

    await page.route(f"**/channels/{set_name}/*", later)
    await page.reload()
    await expect(page.locator("#health")).to_have_text("connecting…")
    await has_the_colour(page, "#health", "soft")
    is_let_in.set()
    await expect(page.locator("#health")).to_have_text("live")
    await has_the_colour(page, "#health", "good")
    is_let_in.clear()
    await view(page, "Debugger")
    await page.select_option("[name=transport]", "sse")
    await page.click("#connection button:text-is('Connect')")
    await expect(page.locator("#connection-state")).to_have_text("connecting…")
    await has_the_colour(page, "#connection-state", "soft")
    await view(page, "Overview")
    await page.get_by_label(f"Follow {set_name}").click()
    await expect(page.locator("#line-says")).to_have_text(f"Connecting to {set_name}…")
    await has_the_colour(page, "#line-says", "soft")
    is_let_in.set()
    await expect(page.locator("#line-says")).to_contain_text("follows")
    await has_the_colour(page, "#line-says", "good")


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_the_debugger_shows_frames_and_goes_on_from_the_cursor(
    page, page_hub, set_name, transport
):
    await view(page, "Debugger")
    state, frames = page.locator("#connection-state"), page.locator("#frames > li")
    await page.select_option("[name=transport]", transport)
    await page.click("#connection button:text-is('Connect')")
    await expect(state).to_have_text("connected")
    for number in range(2):
        await page_hub.publish(f"http://example.com/{number}", set_name=set_name)
        await expect(frames).to_have_count(number + 1)
    await expect(frames.locator(".joint")).to_have_text(["joins", "first"])
    await expect(frames.locator("ul")).to_have_text(
        ["updated http://example.com/1", "updated http://example.com/0"]
    )
    await expect(frames.first).to_contain_text(re.compile(r"· [\d.,]+ ms after the one before"))
    await expect(frames.first.locator("pre")).to_contain_text("<loc>http://example.com/1</loc>")
    await page.click("#disconnect")
    await expect(state).to_contain_text("disconnected")
    await page_hub.publish("http://example.com/missed", set_name=set_name)
    await page.click("#connection button:text-is('Connect')")
    await expect(frames.locator(".joint")).to_have_text(["joins"])
    await expect(frames.locator("pre")).to_contain_text("missed")


async def test_the_debugger_shows_only_the_frames_that_have_a_text(page, page_hub, set_name):
    await view(page, "Debugger")
    frames = page.locator("#frames > li")
    await page.click("#connection button:text-is('Connect')")
    await expect(page.locator("#connection-state")).to_have_text("connected")
    await expect(page.locator("#frames-shown")).to_contain_text("No frame yet")
    for name in ("apple", "pear"):
        await page_hub.publish(f"http://example.com/{name}", set_name=set_name)
        await expect(frames.first).to_contain_text(name)
    await page.fill("#frame-filter", "APPLE")
    await expect(page.locator("#frames-shown")).to_have_text("1 of 2 frames")
    await expect(page.locator("#frames > li:visible")).to_contain_text("apple")
    await page_hub.publish("http://example.com/pear", set_name=set_name)
    await expect(page.locator("#frames-shown")).to_have_text("1 of 3 frames")
    await page.fill("#frame-filter", "")
    await expect(page.locator("#frames > li:visible")).to_have_count(3)


async def test_the_debugger_names_the_first_changes_of_a_frame(page, page_hub, set_name):
    await view(page, "Debugger")
    await page.click("#connection button:text-is('Connect')")
    await expect(page.locator("#connection-state")).to_have_text("connected")
    await page_hub.publish(*(f"http://example.com/{n}" for n in range(7)), set_name=set_name)
    changes = page.locator("#frames ul li")
    await expect(changes).to_have_count(6)
    await expect(changes.last).to_have_text("and 2 more")


async def test_the_debugger_shows_why_the_hub_ends_a_connection(page):
    await view(page, "Debugger")
    await page.fill("#from", "yesterday")
    await page.press("#from", "Enter")
    await expect(page.locator("#connection-state")).to_contain_text("ended with 4400: malformed")


async def test_on_a_telephone_a_field_has_the_width_of_its_card(chromium, page_hub, set_name):
    phone = {"viewport": {"width": 390, "height": 844}}
    async with opened(chromium, page_hub, set_name, **phone) as page:
        await view(page, "Debugger")
        await expect(page.locator("#frame-filter")).to_be_visible()
        edges = [
            await page.locator(where).evaluate("(it) => it.getBoundingClientRect().right")
            for where in ("#from", "#frame-filter")
        ]
        assert edges[0] == edges[1]


async def test_the_debugger_promises_no_frame_of_a_connection_that_has_ended(page):
    await view(page, "Debugger")
    await page.click("#connection button:text-is('Connect')")
    await expect(page.locator("#frames-shown")).to_contain_text("No frame yet")
    await page.click("#disconnect")
    await expect(page.locator("#frames-shown")).to_be_empty()


async def test_a_connection_of_the_debugger_that_was_replaced_says_no_more(
    page, page_hub, set_name
):
    await view(page, "Debugger")
    state, frames = page.locator("#connection-state"), page.locator("#frames > li")
    await page.select_option("[name=transport]", "sse")
    for _ in range(2):
        await page.click("#connection button:text-is('Connect')")
        await expect(state).to_have_text("connected")
    await page_hub.publish("http://example.com/1", set_name=set_name)
    await expect(frames).to_have_count(1)
    await expect(state).to_have_text("connected")
    await page.click("#disconnect")
    await expect(state).to_contain_text("disconnected")


async def test_the_validator_names_each_violation_with_its_clause(page):
    await view(page, "Validator")
    await page.fill("[name=document]", "<urlset/>")
    await page.click("#validate button")
    await expect(page.locator("#violations li")).to_contain_text("Core 7")


async def test_the_validator_marks_each_fault_where_it_stands(page):
    await view(page, "Validator")
    await page.fill("[name=document]", FAULTY)
    await page.click("#validate button:text-is('Validate')")
    fault = page.locator("#violations li", has_text="change")
    await expect(fault.locator("mark")).to_have_text('change="moved"')
    await expect(page.locator("#gutter .bad")).to_have_text(["5\n"])
    await fault.locator("button").click()
    await expect(page.locator("#pasted")).to_be_focused()
    chosen = "document.activeElement.value.slice(pasted.selectionStart, pasted.selectionEnd)"
    assert await page.evaluate(chosen) == 'change="moved"'
    await no_violations(page)
    await page.locator("#pasted").press_sequentially(" ")
    await expect(page.locator("#gutter .bad")).to_have_count(0)


async def test_a_link_to_a_document_elsewhere_makes_the_hub_fetch_nothing_until_it_is_pressed(
    page, page_hub, set_name
):
    """Under both names that a link may give it, and with the admin's token in the tab."""
    async with Receiver(get=answers("200 OK", b"<urlset/>")) as elsewhere:
        await use_token(page)
        for name in ("url", "document"):
            await page.goto(f"{page_hub.url}/?view=validator&{name}={elsewhere.callback}")
            await expect(page.locator("#verdict")).to_contain_text("press Validate")
            await expect(page.locator("[name=address]")).to_have_value(elsewhere.callback)
        assert elsewhere.asked == []
        await page.click("#validate button:text-is('Validate')")
        await expect(page.locator("#verdict")).to_contain_text("1 violation")
        assert len(elsewhere.asked) == 1


async def test_what_was_validated_has_an_address_which_shows_the_same(page, page_hub, set_name):
    await view(page, "Validator")
    await page.fill("[name=address]", f"{page_hub.url}/{set_name}/capabilitylist.xml")
    await page.click("#validate button:text-is('Validate')")
    await expect(page.locator("#verdict")).to_contain_text("Valid")
    await page.reload()
    await expect(page.locator("#verdict")).to_contain_text("Valid")
    await expect(page.locator("#pasted")).to_have_value(re.compile("capabilitylist"))


async def test_the_whole_source_is_drawn_as_a_tree_and_each_document_judged(
    page, page_hub, set_name
):
    await page_hub.publish("http://example.com/a", set_name=set_name)
    await page_hub.ask("PUT", f"/api/sets/{set_name}-other")
    await view(page, "Validator")
    await page.click("#draw-source")
    says = page.locator("#tree-says")
    await expect(says).to_contain_text("all valid; ")
    await expect(says).to_contain_text("named and not read")
    tree = page.locator("#tree")
    await expect(tree.locator("> li > a")).to_have_text("Source Description")
    sets = tree.locator("> li > ul > li > a")
    await expect(sets).to_have_text([f"{set_name}/capabilitylist.xml"])
    below = tree.locator("> li > ul > li > ul > li > a")
    for name, count in (("changelist-index.xml", 1), ("_notification_channel", 2)):
        await expect(below.filter(has_text=name)).to_have_count(count)
    await no_violations(page)


async def test_in_a_narrow_window_the_tree_breaks_no_verdict_and_a_name_only_if_it_must(
    chromium, page_hub, set_name
):
    phone = {"viewport": {"width": 390, "height": 844}}
    async with opened(chromium, page_hub, set_name, **phone) as page:
        await view(page, "Validator")
        await page.click("#draw-source")
        await expect(page.locator("#tree-says")).to_contain_text("all valid")
        for verdict in await page.locator("#tree .help").all():
            assert await verdict.evaluate("(it) => it.getClientRects().length") == 1
        channel = page.locator("#tree a", has_text="change_notification_channel")
        assert await channel.evaluate(LINES_OF_ITS_LAST_NAME) == 1
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


LINES_OF_ITS_LAST_NAME = """(link) => {
  const range = document.createRange();
  range.selectNode(link.lastChild);
  return range.getClientRects().length;
}"""


async def test_a_long_name_of_the_overview_goes_on_below_its_beginning(chromium, tmp_path):
    long = "manuscripts-and-letters-of-the-nineteenth-century"
    async with (
        RunningHub(tmp_path / "data", sets=("one", long)) as hub,
        opened(chromium, hub, "one", viewport={"width": 820, "height": 900}) as page,
    ):
        await view(page, "Overview")
        name = page.locator(f"#overview a:text-is('{long}')")
        await expect(name).to_be_visible()
        lefts = await name.evaluate("(it) => [...it.getClientRects()].map(({ left }) => left)")
        assert len(lefts) > 1
        assert len({round(left) for left in lefts}) == 1


async def test_a_document_of_the_tree_that_is_wrong_leads_to_what_is(page, page_hub, set_name):
    async def answer(route: Route) -> None:
        await route.fulfill(content_type="application/xml", body=FAULTY)

    await page.route(f"**/{set_name}/changelist-index.xml", answer)
    await view(page, "Validator")
    await page.click("#draw-source")
    await expect(page.locator("#tree-says")).to_contain_text("1 of 5 documents is wrong")
    await page.click("#tree a:text-is('1 violation')")
    await expect(page.locator("#violations mark")).to_have_text('change="moved"')


def description_of(*locs: str, root: str = "urlset", length: int = 0) -> str:
    entry = "url" if root == "urlset" else "sitemap"
    entries = "".join(f"<{entry}><loc>{loc}</loc></{entry}>" for loc in locs)
    return (
        f'<{root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
        ' xmlns:rs="http://www.openarchives.org/rs/terms/">'
        f'<rs:md capability="description"/>{entries}</{root}>'
    ).ljust(length)


async def test_of_several_descriptions_the_tree_follows_the_one_that_names_the_set(
    page, page_hub, set_name
):
    """It is so long that the hub does not check it, for which it is not wrong."""
    parts = [f"{page_hub.url}/{DESCRIPTION}/{number}.xml" for number in (1, 2, 3)]
    names = (f"{set_name}-before", set_name, f"{set_name}-more")
    sets = [f"{page_hub.url}/{name}/capabilitylist.xml" for name in names]
    documents = {
        f"{page_hub.url}/{DESCRIPTION}": description_of(*parts, root="sitemapindex"),
        parts[1]: description_of(*sets, length=3 * DOCUMENT_BYTES),
    }

    async def answer(route: Route) -> None:
        await route.fulfill(content_type="application/xml", body=documents[route.request.url])

    async def above(route: Route) -> None:
        found = await (await route.fetch()).text()
        body = found.replace(f"/{DESCRIPTION}", f"/{DESCRIPTION}/2.xml")
        await route.fulfill(content_type="application/xml", body=body)

    await page.route(f"**/{DESCRIPTION}**", answer)
    await page.route(f"**/{set_name}/capabilitylist.xml", above)
    await view(page, "Validator")
    await page.click("#draw-source")
    says = page.locator("#tree-says")
    await expect(says).to_contain_text("others valid; 1 is too long to be checked here; 4 more are")
    tree = page.locator("#tree")
    await expect(tree.locator("> li > ul > li > a")).to_have_text([f"{DESCRIPTION}/2.xml"])
    named = tree.locator("> li > ul > li")
    await expect(named).to_contain_text("`rsnotify validate FILE|URL`")
    await expect(named.locator("> ul > li > a")).to_have_text([f"{set_name}/capabilitylist.xml"])


async def test_the_validator_shows_what_was_asked_last(page):
    await view(page, "Validator")
    verdict = page.locator("#verdict")
    async with Held(page, "/api/validate") as held:
        await page.fill("[name=document]", "<urlset/>")
        await page.click("#validate button")
        await page.fill("[name=document]", "no XML")
        await page.click("#validate button")
        await expect(verdict).to_contain_text("1 violation")
        told = await verdict.text_content(), await page.locator("#violations").text_content()
        await held.let_go()
        assert told == (
            await verdict.text_content(),
            await page.locator("#violations").text_content(),
        )


async def test_what_is_pasted_is_judged_though_an_address_was(page, page_hub):
    await view(page, "Validator")
    await page.fill("[name=address]", f"{page_hub.url}/.well-known/resourcesync")
    await page.click("#validate button")
    await expect(page.locator("#verdict")).to_contain_text("Valid")
    await page.fill("[name=document]", "<urlset/>")
    await page.click("#validate button")
    await expect(page.locator("#verdict")).to_contain_text("violation")


async def test_a_stranger_is_told_that_naming_a_document_needs_a_token(page):
    await view(page, "Validator")
    await page.fill("[name=address]", "http://example.com/changelist.xml")
    await page.click("#validate button")
    await expect(page.locator("#verdict")).to_contain_text("a token is needed")


async def test_the_hubs_own_documents_are_valid(page, page_hub, set_name):
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    await view(page, "Validator")
    for name in (f"{set_name}/capabilitylist.xml", ".well-known/resourcesync"):
        address = f"{page_hub.url}/{name}"
        await expect(page.locator(f"#own-documents option[value='{address}']")).to_be_attached()
        await page.fill("[name=address]", address)
        await page.click("#validate button")
        await expect(page.locator("#verdict")).to_contain_text("Valid")
        await expect(page.locator("[name=document]")).not_to_have_value("")
        await page.fill("[name=document]", "")


# Tokens, administration ---------------------------------------------------------------------------


async def test_a_wrong_token_is_refused_and_not_kept(page, page_hub, set_name):
    await use_token(page, "rsn_wrong")
    await expect(page.locator("#token output")).to_contain_text("unknown")
    assert await page.evaluate("sessionStorage.length") == 0
    await view(page, "Admin")
    await expect(page.locator("#not-admin")).to_be_visible()
    await expect(page.locator("#admin")).to_be_hidden()


async def test_a_token_to_publish_opens_no_administration(page, page_hub, set_name):
    _, made = await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    await use_token(page, made["token"])
    await expect(page.locator("#token output")).to_have_text("Your token is known.")
    await page.click("#publish button")
    await expect(page.locator("#publish output")).to_contain_text("It arrived")
    await view(page, "Admin")
    await expect(page.locator("#not-admin")).to_be_visible()
    await expect(page.locator("#admin")).to_be_hidden()


async def test_a_token_that_may_not_publish_is_shown_no_form_to_publish(page, page_hub, set_name):
    wanted = {"sets": [set_name], "rights": ["read"]}
    _, made = await page_hub.ask("POST", "/api/tokens", json=wanted)
    await use_token(page, made["token"])
    await expect(page.locator("#may-not")).to_contain_text("may not publish to this set")
    await expect(page.locator("#publishing")).to_be_hidden()


async def test_a_token_that_cannot_be_one_is_refused_at_once(page):
    await page.click("#key")
    for wrong in ("two words", "schlüssel", "x" * 10_000):
        await page.fill("#secret", wrong)
        await page.press("#secret", "Enter")
        await expect(page.locator("#token output")).to_contain_text("token")
        await expect(page.locator("#token output")).to_have_class("bad")
        assert await page.evaluate("sessionStorage.length") == 0


async def test_a_token_of_a_private_set_shows_it_and_follows_it(page, page_hub, set_name):
    private = f"{set_name}-private"
    await page_hub.ask("PUT", f"/api/sets/{private}", json={"private": True})
    wanted = {"sets": [private], "rights": ["publish", "read"]}
    _, made = await page_hub.ask("POST", "/api/tokens", json=wanted)
    await use_token(page, made["token"])
    await choose(page, private)
    await expect(page.locator("#is-private")).to_be_visible()
    await page.click("#publish button")
    await expect(page.locator("#publish output")).to_contain_text("It arrived")


async def test_a_token_in_the_fragment_opens_everything_and_leaves_the_address_at_once(
    chromium, page_hub, set_name
):
    async with opened(chromium, page_hub, f"{set_name}#token={TOKEN}") as page:
        await expect(page.locator("#key")).to_have_text("Token in use")
        assert await page.evaluate("location.href") == f"{page_hub.url}/?set={set_name}"
        await page.evaluate("location.hash = '#token=rsn_wrong'")
        await expect(page.locator("#token output")).to_contain_text("unknown")
        assert await page.evaluate("location.hash") == ""


@pytest.mark.parametrize("wrong", ["%", "two%20words", ""])
async def test_a_fragment_that_is_no_token_is_dropped_too(chromium, page_hub, set_name, wrong):
    async with opened(chromium, page_hub, f"{set_name}#token={wrong}") as page:
        assert await page.evaluate("[location.hash, sessionStorage.length]") == ["", 0]


@pytest.mark.parametrize("more", [0, 1], ids=["the latest", "another came after it"])
async def test_what_is_published_while_the_channel_is_opened_is_seen(
    page, page_hub, set_name, more
):
    other = f"{set_name}-other"
    await page_hub.ask("PUT", f"/api/sets/{other}", json={})
    is_published = asyncio.Event()

    async def later(route: Route) -> None:
        await is_published.wait()
        await route.continue_()

    await use_token(page)
    await expect(page.locator("#health")).to_have_text("live")
    await page.route(f"**/channels/{other}/*", later)
    await choose(page, other)
    await page.click("#publish button")
    await expect(page.locator("#publish output")).to_contain_text("Waiting for it")
    for number in range(more):
        await page_hub.publish(f"http://example.com/{number}", set_name=other)
    is_published.set()
    await expect(page.locator("#publish output")).to_contain_text("It arrived")


async def test_whoever_may_only_publish_to_a_private_set_is_told_that_it_is_not_seen(
    page, page_hub, set_name
):
    private = f"{set_name}-private"
    await page_hub.ask("PUT", f"/api/sets/{private}", json={"private": True})
    _, made = await page_hub.ask("POST", "/api/tokens", json={"sets": [private]})
    await use_token(page, made["token"])
    await choose(page, private)
    await expect(page.locator("#health")).to_contain_text("no right to read")
    await page.click("#publish button")
    await expect(page.locator("#publish output")).to_contain_text("Stored. Not seen")


async def test_a_token_that_expires_is_not_kept_for_a_reason_that_is_shown(
    page, page_hub, set_name
):
    _, made = await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    await use_token(page, made["token"])
    rotation = {"grace_seconds": 1}
    await page_hub.ask("POST", f"/api/tokens/{made['id']}/rotate", json=rotation)
    await expect(page.locator("#token output")).to_contain_text("has expired at")
    assert await page.evaluate("sessionStorage.length") == 0


async def test_the_admin_token_is_kept_for_the_tab_until_it_is_forgotten(page):
    await use_token(page)
    await view(page, "Admin")
    await expect(page.locator("#admin")).to_be_visible()
    await page.reload()
    await expect(page.locator("#admin")).to_be_visible()
    await page.click("#key")
    await page.click("#forget")
    await expect(page.locator("#not-admin")).to_be_visible()
    await expect(page.locator("#admin")).to_be_hidden()
    assert await page.evaluate("[sessionStorage.length, localStorage.length]") == [0, 0]


async def test_the_admin_adds_edits_and_removes_a_set(page, page_hub, set_name):
    name = f"{set_name}-new"
    row = page.locator("#set-table tr", has=page.locator(f"a:text-is('{name}')"))

    async def found() -> dict[str, object]:
        return (await page_hub.ask("GET", f"/api/sets?name={name}"))[1][0]

    async def save() -> None:
        await page.click(".options button:text-is('Save')")
        await expect(page.locator("#admin-answer")).to_have_text(f"Save {name}: done.")
        await expect(page.locator(".options")).to_have_count(0)

    await open_admin(page)
    await page.click("#add-set")
    await expect(page.locator("#new-set [name=name]")).to_be_focused()
    await page.keyboard.type(name)
    await page.check("[name=private]")
    await save()
    await expect(page.locator("#add-set")).to_be_focused()
    assert (await found())["private"] is True
    await page.fill("[aria-label='Find in Sets']", name)
    await expect(row.locator(".tag")).to_be_visible()
    await row.get_by_text("Edit").click()
    await expect(page.locator("[name=private]")).to_be_checked()
    await page.fill("[name=describedby]", "http://example.com/about")
    await page.uncheck("[name=private]")
    await save()
    await expect(row.get_by_text("Edit")).to_be_focused()
    assert (await found())["private"] is False
    assert (await found())["describedby"] == "http://example.com/about"
    await row.get_by_text("Edit").click()
    await page.fill("[name=max_bytes]", "1")
    assert await page.is_visible("[name=max_bytes]:invalid")
    await page.fill("[name=max_bytes]", "2000000")
    await save()
    await expect(row).to_contain_text("of 2 MB")
    assert (await found())["max_bytes"] == 2_000_000
    await row.get_by_text("Edit").click()
    await page.fill("[name=max_bytes]", "")
    await save()
    await expect(row).not_to_contain_text("of 2 MB")
    assert (await found())["max_bytes"] is None
    await row.get_by_text("Remove").click()
    await page.fill("dialog input", name)
    await page.press("dialog input", "Enter")
    await expect(page.locator("#admin-answer")).to_have_text(f"Remove {name}: done.")
    await expect(row).to_have_count(0)
    assert (await page_hub.ask("GET", f"/api/sets?name={name}"))[1] == []


async def open_admin(page: Page) -> None:
    await use_token(page)
    await view(page, "Admin")
    await expect(page.locator("#set-table tr").first).to_be_visible()


async def open_form(page: Page, set_name: str) -> None:
    await page.fill("[aria-label='Find in Sets']", set_name)
    await page.get_by_role("button", name=f"Edit {set_name}", exact=True).click()
    await expect(page.locator(".opened")).to_be_visible()


async def test_every_option_of_a_set_can_be_chosen(page, page_hub, set_name):
    """Whatever is chosen is stored: nothing is another option's field."""
    record = (await page_hub.ask("GET", f"/api/sets?name={set_name}"))[1][0]
    wanted: dict[str, object] = {}
    await open_admin(page)
    await open_form(page, set_name)
    form = page.locator(".opened form")
    await form.evaluate(
        "(form) => form.querySelectorAll('details').forEach((e) => { e.open = true; })"
    )
    for name in SetOptions.__struct_fields__:
        field = form.locator(f"[name={name}]")
        if isinstance(record[name], bool):
            wanted[name] = not record[name]
            await field.click()
        elif name == "iiif":
            wanted[name] = "Collection"
            await field.select_option("Collection")
        else:
            wanted[name] = 3_000_000 if name == "max_bytes" else f"http://example.com/{name}"
            await field.fill(str(wanted[name]))
    await page.keyboard.press("Enter")
    await expect(page.locator("#admin-answer")).to_have_text(f"Save {set_name}: done.")
    stored = (await page_hub.ask("GET", f"/api/sets?name={set_name}"))[1][0]
    assert {name: stored[name] for name in wanted} == wanted


async def test_what_the_hub_refuses_of_a_set_is_said_beside_the_option_that_it_names(
    page, set_name
):
    await open_admin(page)
    await open_form(page, set_name)
    await page.click("summary:text('Channels of the Source')")
    await page.fill("[name=topic]", "urn:topic")
    await page.click("summary:text('Channels of the Source')")
    await page.click(".options button:text-is('Save')")
    field = page.locator(".field", has=page.locator("[name=topic]"))
    await expect(field.locator(".wrong")).to_contain_text("must begin with one of http://")
    await expect(page.locator("[name=topic]")).to_be_focused()
    assert await page.get_attribute("[name=topic]", "aria-invalid") == "true"
    await no_violations(page)
    await page.fill("[name=topic]", "")
    await page.click(".options button:text-is('Save')")
    await expect(page.locator("#admin-answer")).to_have_text(f"Save {set_name}: done.")


async def test_what_was_not_changed_in_a_form_is_not_taken_back(page, page_hub, set_name):
    await open_admin(page)
    await open_form(page, set_name)
    await page_hub.ask("PATCH", f"/api/sets/{set_name}", json={"private": True})
    await page.fill("[name=describedby]", "http://example.com/about")
    await page.click(".options button:text-is('Save')")
    await expect(page.locator("#admin-answer")).to_have_text(f"Save {set_name}: done.")
    found = (await page_hub.ask("GET", f"/api/sets?name={set_name}"))[1][0]
    assert (found["private"], found["describedby"]) == (True, "http://example.com/about")


async def test_a_form_stays_with_what_was_typed_when_the_table_shows_other_sets(page, set_name):
    await open_admin(page)
    await open_form(page, set_name)
    await page.fill("[name=describedby]", "http://example.com/typed")
    await page.fill("[aria-label='Find in Sets']", "no such set")
    await expect(page.locator("#set-table a")).to_have_count(0)
    assert await page.input_value("[name=describedby]") == "http://example.com/typed"
    await page.click(".options button:text-is('Cancel')")
    await expect(page.locator(".options")).to_have_count(0)


async def test_a_set_is_removed_only_if_its_name_is_typed_and_what_is_lost_is_named(
    page, page_hub, set_name
):
    await page_hub.publish("http://example.com/1", "http://example.com/2", set_name=set_name)
    await open_admin(page)
    await page.fill("[aria-label='Find in Sets']", set_name)
    remove = page.get_by_role("button", name=f"Remove {set_name}", exact=True)
    await remove.click()
    dialog = page.locator("dialog")
    await expect(dialog).to_contain_text("what the hub knows of 2 resources")
    await no_violations(page)
    await page.click("dialog button:text-is('Remove it')")
    assert await page.is_visible("dialog :invalid")
    await page.fill("dialog input", set_name[:-1])
    await page.press("dialog input", "Enter")
    assert await page.is_visible("dialog :invalid")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(remove).to_be_focused()
    await expect(page.locator("#admin-answer")).to_be_empty()
    assert len((await page_hub.ask("GET", f"/api/sets?name={set_name}"))[1]) == 1


async def test_the_focus_goes_on_to_the_next_row_if_its_row_leaves(page, page_hub, set_name):
    names = [f"{set_name}-{letter}" for letter in "abc"]
    for name in names:
        await page_hub.ask("PUT", f"/api/sets/{name}")
    await open_admin(page)
    await page.fill("[aria-label='Find in Sets']", f"{set_name}-")
    await expect(page.locator("#set-table a")).to_have_text(names)
    await page.get_by_role("button", name=f"Edit {names[1]}").focus()
    await page_hub.ask("DELETE", f"/api/sets/{names[0]}")
    await expect(page.locator("#set-table a")).to_have_text(names[1:])
    await expect(page.get_by_role("button", name=f"Edit {names[1]}")).to_be_focused()
    await page_hub.ask("DELETE", f"/api/sets/{names[1]}")
    await expect(page.locator("#set-table a")).to_have_text(names[2:])
    await expect(page.locator(f"#set-table a:text-is('{names[2]}')")).to_be_focused()


PRESS_AND_LEAVE = """(head) => {
    head.click();
    document.querySelector("[aria-label='Edit set1']").focus();
}"""  # before the hub has answered


async def test_the_sets_of_the_admin_are_ordered_as_those_of_the_overview(chromium, tmp_path):
    async with (
        RunningHub(tmp_path / "data", sets=("set10", "set2", "set1")) as hub,
        opened(chromium, hub, "set1") as page,
    ):
        await use_token(page)
        await hub.publish("http://example.com/1", set_name="set10")
        await page.goto(f"{hub.url}/?view=admin")
        names = page.locator("#set-table a")
        newest = page.locator("th", has=page.locator(".order:text-is('Last change')"))
        by_name = page.locator("th", has=page.locator(".order:text-is('Set')"))
        await expect(names).to_have_text(["set10", "set1", "set2"])
        await expect(newest).to_have_attribute("aria-sort", "descending")
        await by_name.locator("button").press("Enter")
        await expect(names).to_have_text(["set1", "set2", "set10"])
        await expect(by_name).to_have_attribute("aria-sort", "ascending")
        await by_name.locator("button").press("Enter")
        await expect(names).to_have_text(["set10", "set2", "set1"])
        await newest.locator("button").evaluate(PRESS_AND_LEAVE)
        await expect(names).to_have_text(["set10", "set1", "set2"])  # what was pressed is done
        await hub.publish("http://example.com/1", set_name="set1")
        row = page.locator("#set-table tr", has=page.locator("a:text-is('set1')"))
        await expect(row.locator("td").first).to_have_text("1")
        await expect(names).to_have_text(["set10", "set1", "set2"])  # under a hand they stay
        await by_name.locator("button").focus()
        await expect(names).to_have_text(["set1", "set10", "set2"])


@pytest.mark.parametrize("width", [360, 800])
async def test_in_a_narrow_window_too_the_sets_of_the_admin_are_ordered_by_what_stands_in_words(
    chromium, tmp_path, width
):
    size = {"width": width, "height": 800}
    async with (
        RunningHub(tmp_path / "data", sets=("one", "two")) as hub,
        opened(chromium, hub, "one", viewport=size) as page,
    ):
        await hub.publish("http://example.com/1", "http://example.com/2", set_name="one")
        await hub.publish("http://example.com/1", set_name="two")
        await open_admin(page)
        await page.fill("[aria-label='Find in Sets']", "")
        names = page.locator("#set-table a")
        await expect(names).to_have_text(["two", "one"])
        await page.click(".order:text-is('Changes today')")
        await expect(names).to_have_text(["one", "two"])
        for column in ("Set", "Last change", "Readers now", "Takes of Redis"):
            await page.click(f".order:text-is('{column}')")
            await expect(page.locator("[aria-sort]")).to_have_text(column)
        table = page.get_by_role("region", name="Sets")
        assert await table.evaluate("(it) => it.scrollWidth - it.clientWidth") == 0
        await page.get_by_label("Edit one").click()
        form = page.locator("#set-table form")
        assert await form.evaluate("(it) => it.getBoundingClientRect().right <= innerWidth")


async def test_many_sets_and_tokens_are_shown_in_pages(chromium, tmp_path):
    names = [f"set{number:02}" for number in range(ADMIN_ROWS + 2)]
    async with RunningHub(tmp_path / "data", sets=tuple(names)) as hub:
        for name in names:
            await hub.ask("POST", "/api/tokens", json={"sets": [name], "note": f"of {name}"})
        async with opened(chromium, hub, names[3]) as page:
            await open_admin(page)
            await expect(page.locator("#set-table a")).to_have_text([names[3]])  # that was chosen
            await page.fill("[aria-label='Find in Sets']", "")
            for table, by in (("Sets", ", by last change"), ("Tokens", "")):
                tools = page.locator(".tools", has=page.get_by_label(f"Find in {table}"))
                rows = page.locator(f"[role=region][aria-label={table}] tbody tr")
                await expect(tools.locator("output")).to_have_text(f"1 to 25 of {len(names)}{by}")
                await expect(rows).to_have_count(ADMIN_ROWS)
                await tools.get_by_text("Next").click()
                await expect(tools.locator("output")).to_have_text(f"26 to 27 of 27{by}")
                await expect(rows).to_have_count(2)
                await expect(tools.get_by_text("Next")).to_be_focused()
                await tools.get_by_text("Next").press("Enter")
                await tools.get_by_text("Back").click()
                await expect(rows).to_have_count(ADMIN_ROWS)
                await tools.get_by_text("Next").click()
                await page.get_by_label(f"Find in {table}").fill(names[7].upper())
                await expect(rows).to_have_count(1)
                await expect(tools.locator("output")).to_have_text("1 in all")
                await page.get_by_label(f"Find in {table}").fill("nowhere")
                await expect(tools.locator("output")).to_have_text("None has this in it.")


async def test_who_turns_the_page_before_what_was_typed_is_looked_for_stays_there(
    chromium, tmp_path
):
    async with RunningHub(tmp_path / "data") as hub:
        for number in range(2 * ADMIN_ROWS + 1):
            await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"], "note": f"n{number}"})
        async with opened(chromium, hub, "dataset1") as page:
            await use_token(page)
            await view(page, "Admin")
            found = page.locator(".tools", has=page.get_by_label("Find in Tokens"))
            await expect(found.locator("output")).to_have_text("1 to 25 of 51")
            await page.clock.install()
            await page.fill("[aria-label='Find in Tokens']", "n")
            await page.get_by_label("Next in Tokens").press("Enter")
            await page.clock.run_for(1_000)
            await expect(found.locator("output")).to_have_text("26 to 50 of 51")


async def test_an_order_of_the_rows_shown_alone_is_not_taken_for_one_of_all_sets(
    chromium, tmp_path
):
    """The hub orders all of them by name, and by the last change; newest first."""
    names = tuple(f"set{number:02}" for number in range(ADMIN_ROWS + 2))
    async with (
        RunningHub(tmp_path / "data", sets=names) as hub,
        opened(chromium, hub, names[0]) as page,
    ):
        await open_admin(page)
        await page.fill("[aria-label='Find in Sets']", "")
        said = page.locator(".tools", has=page.get_by_label("Find in Sets")).locator("output")
        await expect(said).to_have_text("1 to 25 of 27, by last change")
        for column, by in (
            ("Set", "by name"),
            ("Set", "by name; only these 25 are sorted by “Set”, in reverse"),
            ("Last change", "by last change"),
            (
                "Last change",
                "by last change; only these 25 are sorted by “Last change”, in reverse",
            ),
            ("Readers now", "by last change; only these 25 are sorted by “Readers now”"),
        ):
            await page.locator(f".order:text-is('{column}'):visible").press("Enter")
            await expect(said).to_have_text(f"1 to 25 of 27, {by}")
        await page.get_by_label("Next in Sets").click()
        await expect(said).to_have_text(f"26 to 27 of 27, {by.replace('25', '2')}")
        await page.fill("[aria-label='Find in Sets']", names[7])
        await expect(said).to_have_text("1 in all")


async def test_admin_shows_words_and_no_head_of_nothing_until_the_hub_has_answered(page):
    is_let_in = asyncio.Event()

    async def later(route: Route) -> None:
        await is_let_in.wait()
        await route.continue_()

    await use_token(page)
    for each in ("status?*", "tokens*", "subscriptions*"):
        await page.route(f"**/api/{each}", later)
    await view(page, "Admin")
    admin = page.locator("[data-view=admin]")
    waits = [admin.get_by_text("Asking the hub…"), admin.get_by_text("Not read yet.")]
    await expect(waits[0].locator("visible=true")).to_have_count(1)
    await expect(waits[1].locator("visible=true")).to_have_count(3)
    await expect(admin.locator("table:visible")).to_have_count(0)
    for card in await admin.locator(".card:visible").all():
        assert await card.evaluate(ROOM_BELOW) <= LINE_MARGIN, await card.text_content()
    is_let_in.set()
    await expect(page.locator("#numbers")).to_contain_text("store")
    for each in waits:
        await expect(each.locator("visible=true")).to_have_count(0)


@pytest.mark.parametrize(
    ("path", "label"), [("tokens", "Tokens"), ("subscriptions", "WebSub subscriptions")]
)
async def test_a_table_that_cannot_be_read_says_so_in_its_place_and_is_tried_again(
    page, path, label
):
    await use_token(page)
    await page.route(f"**/api/{path}", lambda route: route.abort())
    await view(page, "Admin")
    said = page.locator(".tools", has=page.get_by_label(f"Find in {label}")).locator("output")
    await expect(said).to_have_text("Cannot be read: the hub does not answer; trying again.")
    await expect(said).to_have_class(re.compile("bad"))
    await page.unroute(f"**/api/{path}")
    await expect(said).to_have_text(re.compile(r"^\d|There are none yet"))
    await expect(said).not_to_have_class(re.compile("bad"))


async def test_a_table_that_cannot_be_read_is_not_asked_for_while_nobody_looks(page):
    asked = []

    async def refuse(route: Route) -> None:
        asked.append(route.request.url)
        await route.abort()

    await use_token(page)
    await page.clock.install()
    await page.route("**/api/tokens", refuse)
    await view(page, "Admin")
    said = page.locator(".tools", has=page.get_by_label("Find in Tokens")).locator("output")
    await expect(said).to_contain_text("trying again")
    await page.evaluate(HIDE)
    asked.clear()
    for _ in range(5):
        await page.clock.run_for(10_000)
        await page.evaluate("fetch('api/status')")  # what was asked before it has come
    assert asked == []
    await page.unroute("**/api/tokens")
    await page.evaluate("delete document.hidden")
    await page.clock.run_for(10_000)
    await expect(said).to_have_text(re.compile(r"^\d|There are none yet"))


@pytest.mark.parametrize("width", [360, 390, 801, 820, 961, 1440])
async def test_the_tables_of_the_admin_are_no_wider_than_the_window(chromium, tmp_path, width):
    """What has no column there stands in words below the first."""
    names = ("photographs", "manuscripts-and-letters", "maps")
    private = {"callback_private": "allow"}
    async with RunningHub(tmp_path / "data", sets=names, **private) as hub, Receiver() as reader:
        note = "the database of the museum, " * 4
        _, made = await hub.ask("POST", "/api/tokens", json={"sets": [*names], "note": note})
        await subscribe(hub, reader, names[1])
        size = {"width": width, "height": 800}
        async with opened(chromium, hub, names[0], viewport=size) as page:
            await open_admin(page)
            await page.fill("[aria-label='Find in Sets']", "")
            for label, column, name, one in (
                ("Sets", "Last change", "Remove maps", "never"),
                ("Tokens", "Last used", f"Revoke {made['id']}", "never"),
                ("WebSub subscriptions", "Channel", f"End {reader.callback}", f"{names[1]} change"),
            ):
                table = page.get_by_role("region", name=label)
                row = table.get_by_role("row", name=name)
                await expect(table.get_by_role("button", name=name)).to_be_visible()
                assert await table.evaluate("(it) => it.scrollWidth - it.clientWidth") == 0, label
                in_words = row.get_by_text(f"{column} {one}")
                heads = table.get_by_role("columnheader", name=column)
                is_a_column = await row.locator(":is(th, td):visible").count() > 2
                assert await in_words.is_visible() != is_a_column, label
                assert await heads.is_visible() == (is_a_column or label == "Sets"), label
            await no_violations(page)


async def test_admin_draws_what_the_hub_says_in_time_and_says_it_in_words(page, page_hub, set_name):
    await page.clock.install()
    await open_admin(page)
    lines = page.locator("#lines > div:visible")
    names = ["Changes a second", "Notifications a second", "Readers", "Redis takes"]
    await expect(lines.locator("dt")).to_have_text(names)
    await expect(lines.locator("dd strong").nth(3)).to_contain_text("MB")
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    await expect(lines.nth(0).locator("dd strong")).not_to_have_text("0")
    await expect(lines.nth(0).locator(".help")).to_have_text(re.compile(r", in \d+ s$"))
    await expect(lines.nth(0).locator("path")).to_have_attribute("d", re.compile("^M.*L"))


async def test_a_line_of_time_that_moves_by_less_than_is_shown_is_said_to_stand(page):
    size = itertools.count(2_430_000)

    async def grown(route: Route) -> None:
        answer = await route.fetch()
        status = await answer.json()
        status["store"]["bytes"] = next(size)
        await route.fulfill(response=answer, json=status)

    await page.route("**/api/status?*", grown)
    await page.clock.install()
    await open_admin(page)
    said = page.locator("#lines > div", has_text="Redis takes").locator(".help")
    await expect(said).to_have_text(re.compile(r"^2\.43 MB all the time, in \d+ s$"))


async def test_a_line_of_time_is_broken_where_nobody_looked(page):
    await page.clock.install()
    await open_admin(page)
    line = page.locator("#lines path").first
    await expect(line).to_have_attribute("d", re.compile("L"))
    await page.evaluate(HIDE)
    await page.clock.run_for(60_000)
    whole = await line.get_attribute("d") or ""
    await page.clock.run_for(60_000)
    assert await line.get_attribute("d") == whole
    await page.evaluate("delete document.hidden")
    await expect(line).to_have_attribute("d", re.compile("M.*M"))


async def test_a_set_that_is_there_is_not_changed_by_the_form_of_a_new_one(
    page, page_hub, set_name
):
    """Its options would be those of an empty form: a private set would be public."""
    await page_hub.ask("PUT", "/api/sets/another", json={"private": True, "max_bytes": 2_000_000})
    await open_admin(page)
    await page.click("#add-set")
    await page.fill("[name=name]", "another")
    await page.click("#new-set button:text-is('Save')")
    await expect(page.locator("#new-set .wrong:not(:empty)")).to_contain_text("another is taken")
    found = (await page_hub.ask("GET", "/api/sets?name=another"))[1][0]
    assert (found["private"], found["max_bytes"]) == (True, 2_000_000)
    await page_hub.ask("DELETE", "/api/sets/another")


async def test_a_set_that_went_meanwhile_is_not_removed_again(page, page_hub, set_name):
    await page_hub.ask("PUT", f"/api/sets/{set_name}-gone")
    await open_admin(page)
    await page.fill("[aria-label='Find in Sets']", set_name)
    remove = page.get_by_role("button", name=f"Remove {set_name}-gone")
    await expect(remove).to_be_visible()
    await page.route("**/api/status?name=*", lambda route: route.fulfill(json={"sets": []}))
    await remove.click()
    words = f"Remove {set_name}-gone: there is no set {set_name}-gone"
    await expect(page.locator("#admin-answer")).to_have_text(words)
    await expect(page.locator("dialog")).to_have_count(0)


async def test_the_admin_makes_a_token_that_works_until_it_is_revoked(page, page_hub, set_name):
    await page.clock.install()
    await use_token(page)
    await view(page, "Admin")
    await page.click("#add-token")
    await page.fill("[name=sets]", "nowhere")
    await page.fill("[name=note]", f"for {set_name}")
    await page.keyboard.press("Enter")
    field = page.locator(".field", has=page.locator("[name=sets]"))
    await expect(field.locator(".wrong")).to_contain_text("nowhere")
    await page.fill("[name=sets]", set_name)
    await page.keyboard.press("Enter")
    secret = await page.locator("#made-token code").text_content()
    headers = {"Authorization": f"Bearer {secret}"}
    changes = f"/api/sets/{set_name}/changes"
    change = {"loc": "http://example.com/res1", "change": "updated"}

    async def answer() -> int:
        return (await page_hub.ask("POST", changes, headers=headers, json=change))[0]

    assert await answer() == 201
    await find_token(page, f"for {set_name}")
    await page.locator("#tokens tr", has_text=f"for {set_name}").get_by_text("Revoke").click()
    await page.clock.run_for(UNDONE_MS)
    await expect(page.locator("#admin-answer")).to_contain_text("Revoke")
    await expect(page.locator("#admin-answer")).to_contain_text("done")

    async def is_refused() -> bool:
        return await answer() == 401

    await until(is_refused)


async def test_the_sets_of_a_token_are_offered_and_one_that_is_not_there_is_named_unsent(
    page, page_hub, set_name
):
    for letter in "ab":
        await page_hub.ask("PUT", f"/api/sets/{set_name}-{letter}")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    await use_token(page)
    await view(page, "Admin")
    await page.click("#add-token")
    field = page.locator(".field", has=page.locator("[name=sets]"))
    offered, wrong = page.locator("#sets-offered option"), field.locator(".wrong")

    async def offers(*values: str) -> None:
        await expect(offered).to_have_count(len(values))
        found = await offered.evaluate_all("all => all.map(({ value }) => value)")
        assert found == list(values)

    await page.fill("[name=sets]", f"{set_name}-")
    await offers(f"{set_name}-a", f"{set_name}-b")
    await expect(wrong).to_be_empty()  # it may go on
    await page.fill("[name=sets]", f"{set_name} {set_name}-b")
    await offers(f"{set_name} {set_name}-b")
    await page.fill("[name=sets]", f"nowhere {set_name}-")
    await expect(wrong).to_have_text("There is no set nowhere.")
    await expect(page.locator("[name=sets]")).to_have_attribute("aria-invalid", "true")
    await no_violations(page)
    await page.keyboard.press("Enter")
    await expect(wrong).to_have_text(f"There is no set nowhere, nor {set_name}-.")
    await page.fill("[name=sets]", f"{set_name}-a {set_name}-b")
    await expect(wrong).to_be_empty()
    assert "POST" not in sent
    await page.keyboard.press("Enter")
    await expect(page.locator("#made-token code")).to_contain_text("rsn_")


async def test_what_is_undone_is_not_done(page, page_hub, set_name):
    id_ = await about_to_revoke(page, page_hub, set_name)
    await expect(page.locator("#about-to button")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#about-to p")).to_have_count(0)
    await expect(page.get_by_role("button", name=f"Revoke {id_}")).to_be_focused()
    await page.clock.run_for(2 * UNDONE_MS)
    assert id_ in await token_ids(page_hub)


async def test_what_waits_is_not_done_if_the_page_is_left_and_the_page_says_so_afterwards(
    page, page_hub, set_name
):
    id_ = await about_to_revoke(page, page_hub, set_name)
    await page.clock.run_for(UNDONE_MS // 2)
    await expect(page.locator("#about-to .count")).to_have_text("4 s")
    await view(page, "Overview")
    await page.clock.run_for(2 * UNDONE_MS)
    await page.go_back()
    left = f"Not done, because the page was left before: Revoke {id_}"
    await expect(page.locator("#admin-answer")).to_contain_text(left)
    await page.clock.run_for(2 * UNDONE_MS)
    assert id_ in await token_ids(page_hub)
    await page.reload()
    await expect(page.locator("#admin")).to_be_visible()
    await expect(page.locator("#admin-answer")).to_be_empty()


async def test_what_is_about_to_be_done_twice_is_done_once(page, page_hub, set_name):
    id_ = await about_to_revoke(page, page_hub, set_name)
    await page.get_by_role("button", name=f"Revoke {id_}", exact=True).click()
    await expect(page.locator("#about-to p")).to_have_count(1)
    await expect(page.locator("#about-to button")).to_be_focused()
    await no_violations(page)


async def find_token(page: Page, text: str) -> None:
    """Where there are few there is nothing to find them by."""
    await expect(page.locator("#tokens tr").first).to_be_visible()
    if await page.get_by_label("Find in Tokens").is_visible():
        await page.get_by_label("Find in Tokens").fill(text)


async def about_to_revoke(page: Page, page_hub: RunningHub, set_name: str) -> str:
    """The id of a token of which the page says that it will be revoked."""
    _, made = await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    await page.clock.install()
    await use_token(page)
    await view(page, "Admin")
    await find_token(page, made["id"])
    await page.get_by_role("button", name=f"Revoke {made['id']}", exact=True).click()
    return made["id"]


async def token_ids(page_hub: RunningHub) -> list[str]:
    return [each["id"] for each in (await page_hub.ask("GET", "/api/tokens"))[1]]


async def test_the_admin_replaces_a_token_by_another(page, page_hub, set_name):
    _, old = await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    await use_token(page)
    await view(page, "Admin")
    await find_token(page, old["id"])
    await page.get_by_role("button", name=f"Replace {old['id']}", exact=True).click()
    secret = await page.locator("#made-token code").text_content()
    assert secret != old["token"]
    headers = {"Authorization": f"Bearer {secret}"}
    change = {"loc": "http://example.com/res1", "change": "updated"}
    changes = f"/api/sets/{set_name}/changes"
    status, _ = await page_hub.ask("POST", changes, headers=headers, json=change)
    assert status == 201


@pytest.mark.parametrize("is_meant", [False, True])
async def test_the_admin_replaces_a_token_that_has_leaked_at_once_if_it_is_meant(
    page, page_hub, set_name, is_meant
):
    _, old = await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    headers = {"Authorization": f"Bearer {old['token']}"}
    change = {"loc": "http://example.com/res1", "change": "updated"}
    changes = f"/api/sets/{set_name}/changes"

    async def answer() -> int:
        return (await page_hub.ask("POST", changes, headers=headers, json=change))[0]

    async def is_refused() -> bool:
        return await answer() == 401

    await use_token(page)
    await view(page, "Admin")
    await find_token(page, old["id"])
    await page.locator("#tokens tr", has_text=old["id"]).get_by_text("Replace now").click()
    await expect(page.locator("dialog")).to_contain_text(f"The token for {set_name} ends at once")
    await expect(page.locator("dialog button:text-is('Keep it')")).to_be_focused()
    if is_meant:
        await page.click("dialog button:text-is('End it now')")
        await expect(page.locator("#made-token code")).to_contain_text("rsn_")
        await until(is_refused)
    else:
        await page.keyboard.press("Enter")
        await expect(page.locator("dialog")).to_have_count(0)
        await expect(page.locator("#made-token code")).to_have_count(0)
        assert await answer() == 201


async def test_a_new_token_is_shown_even_if_the_tables_cannot_be_read_again(page, set_name):
    async def refuse_to_list(route: Route) -> None:
        if route.request.method == "GET":
            await route.fulfill(status=429, json={"detail": "too many requests"})
        else:
            await route.continue_()

    await use_token(page)
    await view(page, "Admin")
    await page.route("**/api/tokens", refuse_to_list)
    await page.click("#add-token")
    await page.fill("[name=sets]", set_name)
    await page.click("#new-token button:text-is('Make it')")
    await expect(page.locator("#made-token code")).to_contain_text("rsn_")
    said = page.locator(".tools", has=page.get_by_label("Find in Tokens")).locator("output")
    await expect(said).to_contain_text("too many requests")
    await expect(page.locator("#made-token code")).to_be_visible()


async def test_a_token_that_is_revoked_is_not_kept(page, page_hub, set_name):
    _, made = await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    await use_token(page, made["token"])
    await page_hub.ask("DELETE", f"/api/tokens/{made['id']}")
    await expect(page.locator("#token output")).to_contain_text("not kept: the token")
    assert await page.evaluate("sessionStorage.length") == 0


async def test_a_private_set_is_followed_with_a_token_that_stands_in_no_address(
    page, page_hub, set_name
):
    await page_hub.ask("PATCH", f"/api/sets/{set_name}", json={"private": True})
    await use_token(page)
    await expect(page.locator("#is-private")).to_be_visible()
    await expect(page.locator("#health")).to_have_text("live")
    await page_hub.publish("http://example.com/secret", set_name=set_name)
    await expect(latest(page)).to_have_text("http://example.com/secret")


# Everybody ----------------------------------------------------------------------------------------


VIEWS = ("Overview", "Debugger", "Validator", "Admin", "Set")
ROOM_BELOW = """(card) => {
  const shown = [...card.children].filter((each) => each.clientHeight && each.textContent);
  const lowest = Math.max(...shown.map((each) => each.getBoundingClientRect().bottom));
  const { bottom } = card.getBoundingClientRect();
  return bottom - card.clientTop - parseFloat(getComputedStyle(card).paddingBottom) - lowest;
}"""
LINE_MARGIN = 8  # pixels: that of a paragraph


async def test_what_is_not_there_yet_takes_no_room_at_the_foot_of_its_card(chromium, tmp_path):
    async with (
        RunningHub(tmp_path / "data") as hub,
        opened(chromium, hub, f"dataset1#token={TOKEN}") as page,
    ):
        for name in ("Overview", "Validator", "Admin"):
            await view(page, name)
            place = page.locator(f"[data-view={name.lower()}]")
            await expect(place).to_be_visible()
            waits = place.get_by_text(re.compile("Asking the hub|Not read yet"))
            await expect(waits.locator("visible=true")).to_have_count(0)
            for card in await place.locator(".card:visible").all():
                assert await card.evaluate(ROOM_BELOW) <= LINE_MARGIN, await card.text_content()


async def test_axe_finds_nothing_in_any_view_in_the_light_or_in_the_dark(
    chromium, page_hub, set_name
):
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    still = {"color_scheme": "light", "reduced_motion": "reduce"}  # no colour halfway to another
    async with opened(chromium, page_hub, set_name, **still, **PHONE) as page:
        await no_violations(page)
        await use_token(page)
        await page.click("#key")
        await expect(page.locator("#forget")).to_be_visible()
        await no_violations(page)
        await page.keyboard.press("Escape")
        for name in VIEWS:
            await view(page, name)
            await fill_view(page, name)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            await page.emulate_media(color_scheme="light")
            await no_violations(page)
            await page.emulate_media(color_scheme="dark")
            await no_violations(page, "color-contrast")


async def fill_view(page: Page, name: str) -> None:
    """Show what it shows at the most."""
    match name:
        case "Overview":
            await expect(page.locator("#overview a").first).to_be_visible()
        case "Debugger":
            await page.click("#connection button:text-is('Connect')")
            await expect(page.locator("#connection-state")).to_have_text("connected")
        case "Validator":
            await page.fill("[name=document]", "<urlset/>")
            await page.click("#validate button")
            await expect(page.locator("#violations li")).to_be_visible()
        case "Admin":
            await expect(page.locator("#tokens tr").first).to_be_visible()
            await page.get_by_role("button", name="Edit").first.click()
            await expect(page.locator(".opened")).to_be_visible()
            await page.click("#add-token")
        case "Set":
            await page.click("#publish button")
            await expect(page.locator("#publish output")).to_contain_text("It arrived")
            await page.click("#cut")
            await expect(page.locator("#health")).to_have_text("cut by you")


async def test_axe_finds_nothing_while_the_hub_is_down(chromium, tmp_path):
    async with (
        RunningHub(tmp_path / "data") as hub,
        opened(chromium, hub, "dataset1") as page,
    ):
        await view(page, "Debugger")
        await page.fill("#from", "yesterday")
        await page.press("#from", "Enter")
        await expect(page.locator("#connection-state")).to_have_class("bad")
        await no_violations(page)
        await view(page, "Set")
        await expect(page.locator("#health")).to_have_text("live")
        await hub.kill()
        await expect(page.locator("#health")).to_contain_text("connection lost")
        await no_violations(page)
        await page.emulate_media(color_scheme="dark")
        await no_violations(page, "color-contrast")


# Other protocols ----------------------------------------------------------------------------------


@pytest.mark.parametrize("email", [None, "admin@hub.example.org"])
async def test_a_set_shows_by_which_other_protocols_it_can_be_read(chromium, tmp_path, email):
    """And what is shown is there."""
    settings = {} if email is None else {"admin_email": email}
    async with RunningHub(tmp_path / "data", **settings) as hub:
        for options, views in (({}, ["Atom feed"]), ({"atom": False, "iiif": "Manifest"},
                               ["activities of IIIF"])):  # fmt: skip
            await hub.ask("PATCH", "/api/sets/dataset1", json=options)
            async with opened(chromium, hub, "dataset1") as page:
                shown = page.locator("#documents li:nth-child(n+9) a")
                wanted = ["DCAT", *(["OAI-PMH"] if email else []), *views]
                await expect(shown).to_have_text(wanted)
                for link in await shown.all():
                    answer = await page.request.get(await link.get_attribute("href") or "")
                    assert answer.status == 200
