"""The page at `/`, as a person uses it."""

import asyncio
from pathlib import Path
from typing import Self

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, Route, expect

from tests.browser.conftest import opened, use_token
from tests.soak.page_open import Sample, check, sample
from tests.support.receivers import Receiver, answers
from tests.support.running import TOKEN, RunningHub, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"viewport": {"width": 360, "height": 740}}
ROWS = 50  # that the table of the latest changes has
LONGEST = "http://example.com/" + "x" * (2048 - 19)
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


async def test_a_change_published_elsewhere_appears(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    await expect(latest(page)).to_have_text("http://example.com/res1")


async def test_a_newcomer_with_a_keyboard_sees_the_change_that_the_page_published(
    page: Page,
) -> None:
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")  # skip to the latest changes
    await page.keyboard.press("Tab")
    await page.keyboard.type(TOKEN)
    await page.keyboard.press("Enter")
    await expect(page.locator("#token .answer")).to_have_text("You use the admin token.")
    await expect(page.locator("#loc")).to_be_focused()
    await page.keyboard.press("Control+A")
    await page.keyboard.type("http://example.com/mine")
    await page.keyboard.press("Enter")
    await expect(page.locator("#publish .answer")).to_contain_text("It arrived")
    await expect(latest(page)).to_have_text("http://example.com/mine")


SETS_AT_ONCE = """async () => {
  const ask = window.fetch, sets = await (await ask("api/sets?search=")).json();
  const headers = new Headers({"content-type": "application/json"});
  window.fetch = (url, options) =>
    url.includes("/api/sets?") ? {ok: true, headers, json: () => sets} : ask(url, options);
}"""


@pytest.mark.parametrize("where", ["#secret", "#no-token button"])
async def test_the_focus_moves_on_from_a_field_that_was_hidden_just_now(
    page: Page, where: str
) -> None:
    """Before the page is drawn again, a browser may leave the focus on what is hidden."""
    await page.evaluate(SETS_AT_ONCE)
    await page.fill("#secret", TOKEN)
    await page.press(where, "Enter")
    await expect(page.locator("#loc")).to_be_focused()


async def test_whoever_publishes_without_a_token_is_led_to_its_field(page: Page) -> None:
    await page.click("#publish button")
    await expect(page.locator("#publish .answer")).to_contain_text("publishing needs a token")
    await expect(page.locator("#secret")).to_be_focused()
    await page.fill("#secret", TOKEN)
    await page.click("#publish button")  # it uses what stands in the field
    await expect(page.locator("#publish .answer")).to_contain_text("It arrived")


async def test_the_page_tells_how_many_read_and_how_the_hub_is(page: Page) -> None:
    numbers = page.locator("#numbers")
    await expect(numbers).to_contain_text("readers of this set now1")
    await expect(numbers).to_contain_text("Redis answers in")


async def test_what_was_published_before_is_there_at_once(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    await page_hub.publish("http://example.com/old", set_name=set_name)
    async with opened(chromium, page_hub, set_name) as page:
        await expect(latest(page)).to_have_text("http://example.com/old")
        await page_hub.publish("http://example.com/new", set_name=set_name)
        await expect(latest(page)).to_have_count(2)
        assert await shown(page) == ["new", "old"]


async def test_a_hub_that_was_killed_is_followed_on_without_gap_or_repetition(
    chromium: Browser, tmp_path: Path
) -> None:
    async with (
        RunningHub(tmp_path / "data") as hub,
        opened(chromium, hub, "dataset1") as page,
    ):
        await hub.publish("http://example.com/1")
        await expect(latest(page)).to_have_count(1)
        await hub.kill()
        await expect(page.locator("#health")).to_contain_text("connection lost")
        await hub.start()
        await hub.publish("http://example.com/2", "http://example.com/3")
        await expect(page.locator("#health")).to_have_text("live")
        await hub.publish("http://example.com/4")
        await expect(latest(page).first).to_have_text("http://example.com/4")
        assert await shown(page) == ["4", "3", "2", "1"]
        assert await page.locator("#latest .bad").count() == 0


async def test_a_hub_that_comes_back_between_two_requests_is_followed_by_websocket_again(
    chromium: Browser, tmp_path: Path
) -> None:
    """Its WebSocket is refused while the hub is away; why, it asks when the hub is back."""
    is_back = asyncio.Event()

    async def later(route: Route) -> None:
        await is_back.wait()
        await route.continue_()

    async with (
        RunningHub(tmp_path / "data") as hub,
        opened(chromium, hub, "dataset1") as page,
    ):
        await page.route("**/channels/dataset1/*", later)
        async with page.expect_request(lambda request: request.method == "HEAD"):
            await hub.kill()
        await hub.start()
        is_back.set()
        await expect(page.locator("#health")).to_have_text("live")
        _, status = await hub.ask("GET", "/api/status")
        readers = status["sets"][0]["channels"][0]["readers"]
        assert readers == {"websocket": 1, "event stream": 0}


async def test_where_no_websocket_is_allowed_the_page_follows_an_event_stream(
    chromium: Browser, tmp_path: Path
) -> None:
    async with (
        RunningHub(tmp_path / "data", allowed_origins="https://a.example") as hub,
        opened(chromium, hub, "dataset1") as page,
    ):
        await hub.publish("http://example.com/res1")
        await expect(latest(page)).to_have_text("http://example.com/res1")


async def test_a_page_of_another_origin_reads_public_channels_and_no_private_one(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
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


async def test_a_set_that_is_removed_ends_the_view_with_its_reason(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    await page_hub.ask("DELETE", f"/api/sets/{set_name}")
    await expect(page.locator("#health")).to_contain_text("stopped")


async def test_what_strangers_wrote_is_only_ever_text_and_breaks_no_layout(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    await page_hub.publish(LONGEST, "javascript:alert(1)", set_name=set_name)
    token = {"sets": [set_name], "note": HOSTILE}
    await page_hub.ask("POST", "/api/tokens", json=token)
    async with opened(chromium, page_hub, set_name, **PHONE) as page:
        await use_token(page)
        await expect(page.locator("#tokens bdi", has_text="<img")).to_have_text(HOSTILE)
        await expect(latest(page).last).to_have_text(LONGEST)
        assert await page.locator("#latest a[href^=javascript]").count() == 0
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_the_tab_keeps_no_more_however_many_changes_come(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    session = await page.context.new_cdp_session(page)

    async def sample_after(rounds: int) -> Sample:
        for number in range(rounds):
            locs = [f"http://example.com/{number}/{each}" for each in range(1_000)]
            await page_hub.publish(*locs, f"http://example.com/last{number}", set_name=set_name)
        await expect(latest(page).first).to_contain_text(f"last{rounds - 1}")
        return await sample(session)

    check(await sample_after(3), await sample_after(9))
    assert len(await shown(page)) == ROWS


async def test_the_table_stands_still_while_it_is_paused(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    await page.click("#pause")
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    await expect(page.locator("#numbers dd").nth(1)).to_have_text("1")
    assert await shown(page) == []
    await page.click("#pause")
    await expect(latest(page)).to_have_text("http://example.com/res1")


async def test_a_paused_table_shows_nothing_of_the_set_before(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    other = f"{set_name}-other"
    await page_hub.ask("PUT", f"/api/sets/{other}", json={})
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    await expect(latest(page)).to_have_count(1)
    await page.click("#pause")
    await use_token(page)  # the sets are read again
    await page.select_option("#set", other)
    await expect(latest(page)).to_have_count(0)


RATES = """async () => {
  const { Rate } = await import("/static/plot.js");
  const rate = new Rate();
  rate.add(2, 1000);
  rate.add(3, 1000);
  rate.add(1, 1002);
  const sum = (now) => rate.values(now).reduce((all, each) => all + each, 0);
  return [rate.values(1003).slice(-4), sum(1003), sum(1299), sum(1300), sum(1302),
    rate.values().length];
}"""


async def test_the_plot_has_the_last_five_minutes_second_by_second(page: Page) -> None:
    assert await page.evaluate(RATES) == [[0, 5, 0, 1], 6, 6, 1, 0, 299]


async def test_attempts_to_connect_again_become_rarer_and_never_all_come_at_once(
    page: Page,
) -> None:
    delays = """async () => {
      const { delay } = await import("/static/following.js");
      return [delay(0, 0), delay(0, 1), delay(3, 1), delay(99, 0), delay(99, 1)];
    }"""
    assert await page.evaluate(delays) == [250, 500, 4_000, 7_500, 15_000]


# Sets ---------------------------------------------------------------------------------------------


async def test_of_many_sets_the_first_are_offered_and_the_others_are_found(
    chromium: Browser, tmp_path: Path
) -> None:
    names = tuple(f"set{number:02}" for number in range(1, 52))
    async with (
        RunningHub(tmp_path / "data", sets=names) as hub,
        opened(chromium, hub, "set51") as page,
    ):
        options = page.locator("#set option")
        await expect(options).to_have_count(51)  # the chosen one, and the first 50
        await expect(page.locator("#found")).to_have_text("the list has the first 50")
        async with page.expect_response(lambda answer: "/api/status" in answer.url) as asked:
            pass
        status = await (await asked.value).json()
        assert [each["name"] for each in status["sets"]] == ["set51"]
        await use_token(page)
        await expect(page.locator("#admin")).to_be_visible()
        await expect(page.locator("#sets tr")).to_have_count(50)
        await page.fill("#find", "T3")
        await expect(page.locator("#found")).to_contain_text("10 found")
        await expect(page.locator("#sets tr")).to_have_count(10)
        await page.select_option("#set", "set37")
        await hub.publish("http://example.com/res1", set_name="set37")
        await expect(latest(page)).to_have_text("http://example.com/res1")


async def test_a_set_that_is_not_there_is_said_to_be_missing(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    async with opened(chromium, page_hub, f"no-{set_name}") as page:
        await expect(page.locator("#found")).to_contain_text(f"There is no set no-{set_name}")


async def test_fifty_sets_need_no_search(chromium: Browser, tmp_path: Path) -> None:
    names = tuple(f"set{number:02}" for number in range(1, 51))
    async with (
        RunningHub(tmp_path / "data", sets=names) as hub,
        opened(chromium, hub, "set01") as page,
    ):
        await expect(page.locator("#set option")).to_have_count(50)
        await expect(page.locator("#find")).to_be_hidden()


# Debugger, validator ------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["websocket", "stream"])
async def test_the_debugger_shows_frames_and_goes_on_from_the_cursor(
    page: Page, page_hub: RunningHub, set_name: str, transport: str
) -> None:
    state, frames = page.locator("#connection-state"), page.locator("#frames li")
    await page.select_option("#transport", transport)
    await page.click("#connection button[type=submit]")
    await expect(state).to_have_text("connected")
    for number in range(2):
        await page_hub.publish(f"http://example.com/{number}", set_name=set_name)
        await expect(frames).to_have_count(number + 1)
    await expect(frames.locator(".tag")).to_have_text(["joins", "first"])
    await expect(frames.first.locator("pre")).to_contain_text("<loc>http://example.com/1</loc>")
    await page.click("#disconnect")
    await expect(state).to_contain_text("disconnected")
    await page_hub.publish("http://example.com/missed", set_name=set_name)
    await page.click("#connection button[type=submit]")
    await expect(frames.locator(".tag")).to_have_text(["joins"])
    await expect(frames.locator("pre")).to_contain_text("missed")


async def test_the_debugger_shows_why_the_hub_ends_a_connection(page: Page) -> None:
    await page.fill("#from", "yesterday")
    await page.press("#from", "Enter")
    await expect(page.locator("#connection-state")).to_contain_text("ended with 4400: malformed")


async def test_a_connection_of_the_debugger_that_was_replaced_says_no_more(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    state, frames = page.locator("#connection-state"), page.locator("#frames li")
    await page.select_option("#transport", "stream")
    for _ in range(2):
        await page.click("#connection button[type=submit]")
        await expect(state).to_have_text("connected")
    await page_hub.publish("http://example.com/1", set_name=set_name)
    await expect(frames).to_have_count(1)
    await expect(state).to_have_text("connected")
    await page.click("#disconnect")
    await expect(state).to_contain_text("disconnected")


async def test_the_validator_names_each_violation_with_its_clause(page: Page) -> None:
    await page.fill("#document", "<urlset/>")
    await page.click("#validate button")
    await expect(page.locator("#violations li")).to_contain_text("Core 7")


async def test_the_validator_shows_what_was_asked_last(page: Page) -> None:
    verdict = page.locator("#verdict")
    async with Held(page, "/api/validate") as held:
        await page.fill("#document", "<urlset/>")
        await page.click("#validate button")
        await page.fill("#document", "no XML")
        await page.click("#validate button")
        await expect(verdict).to_contain_text("1 violation")
        told = await verdict.text_content(), await page.locator("#violations").text_content()
        await held.let_go()
        assert told == (
            await verdict.text_content(),
            await page.locator("#violations").text_content(),
        )


async def test_a_stranger_is_told_that_naming_a_document_needs_a_token(page: Page) -> None:
    await page.fill("#address", "http://example.com/changelist.xml")
    await page.click("#validate button")
    await expect(page.locator("#verdict")).to_contain_text("a token is needed")


async def test_the_hubs_own_documents_are_valid(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    for name in ("Capability List", "open Change List", "Source Description"):
        await page.select_option("#own", label=name)
        await expect(page.locator("#document")).not_to_have_value("")
        await page.click("#validate button")
        await expect(page.locator("#verdict")).to_contain_text("Valid")
        await page.fill("#document", "")


# Tokens, administration ---------------------------------------------------------------------------


async def test_a_wrong_token_is_refused_and_not_kept(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    async with opened(chromium, page_hub, set_name) as page:
        await use_token(page, "rsn_wrong")
        await expect(page.locator("#token .answer")).to_contain_text("unknown")
        assert await page.evaluate("sessionStorage.length") == 0
        await expect(page.locator("#admin")).to_be_hidden()


async def test_a_late_refusal_of_the_token_before_leaves_the_next_one(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    async with opened(chromium, page_hub, set_name) as page, Held(page, "/api/tokens") as held:
        await page.route("**/api/status*", lambda route: route.abort())  # it would be refused too
        await use_token(page, "rsn_wrong")
        await use_token(page)
        await expect(page.locator("#token .answer")).to_have_text("You use the admin token.")
        await held.let_go()
        await expect(page.locator("#token .answer")).to_have_text("You use the admin token.")
        await expect(page.locator("#admin")).to_be_visible()
        assert await page.evaluate("sessionStorage.length") == 1


async def test_a_token_to_publish_opens_no_administration(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    _, made = await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    async with opened(chromium, page_hub, set_name) as page:
        await use_token(page, made["token"])
        await expect(page.locator("#token .answer")).to_have_text("Your token is known.")
        await page.click("#publish button")
        await expect(page.locator("#publish .answer")).to_contain_text("It arrived")
        await expect(page.locator("#admin")).to_be_hidden()


async def test_a_token_that_cannot_be_one_is_refused_at_once(page: Page) -> None:
    for wrong in ("two words", "schlüssel", "x" * 10_000):
        await use_token(page, wrong)
        await expect(page.locator("#token .answer")).to_contain_text("token")
        await expect(page.locator("#token .answer")).to_have_class("answer bad")
        assert await page.evaluate("sessionStorage.length") == 0


async def test_a_token_of_a_private_set_shows_it_and_follows_it(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    private = f"{set_name}-private"
    await page_hub.ask("PUT", f"/api/sets/{private}", json={"private": True})
    wanted = {"sets": [private], "rights": ["publish", "read"]}
    _, made = await page_hub.ask("POST", "/api/tokens", json=wanted)
    async with opened(chromium, page_hub, set_name) as page:
        await use_token(page, made["token"])
        await page.select_option("#set", private)
        await expect(page.locator("#documents-private")).to_be_visible()
        await page.click("#publish button")
        await expect(page.locator("#publish .answer")).to_contain_text("It arrived")


async def test_a_token_in_the_fragment_opens_everything_and_leaves_the_address_at_once(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    async with opened(chromium, page_hub, f"{set_name}#token={TOKEN}") as page:
        await expect(page.locator("#admin")).to_be_attached()
        await expect(page.locator("#forget")).to_be_visible()
        assert await page.evaluate("location.href") == f"{page_hub.url}/?set={set_name}"
        await page.evaluate("location.hash = '#token=rsn_wrong'")
        await expect(page.locator("#token .answer")).to_contain_text("unknown")
        assert await page.evaluate("location.hash") == ""


@pytest.mark.parametrize("wrong", ["%", "two%20words", ""])
async def test_a_fragment_that_is_no_token_is_dropped_too(
    chromium: Browser, page_hub: RunningHub, set_name: str, wrong: str
) -> None:
    async with opened(chromium, page_hub, f"{set_name}#token={wrong}") as page:
        assert await page.evaluate("[location.hash, sessionStorage.length]") == ["", 0]


@pytest.mark.parametrize("more", [0, 1], ids=["the latest", "another came after it"])
async def test_what_is_published_while_the_channel_is_opened_is_seen(
    chromium: Browser, page_hub: RunningHub, set_name: str, more: int
) -> None:
    other = f"{set_name}-other"
    await page_hub.ask("PUT", f"/api/sets/{other}", json={})
    is_published = asyncio.Event()

    async def later(route: Route) -> None:
        await is_published.wait()
        await route.continue_()

    async with opened(chromium, page_hub, set_name) as page:
        await use_token(page)
        await expect(page.locator("#health")).to_have_text("live")
        await page.route(f"**/channels/{other}/**", later)
        await page.select_option("#set", other)
        await page.click("#publish button")
        await expect(page.locator("#publish .answer")).to_contain_text("Waiting for it")
        for number in range(more):
            await page_hub.publish(f"http://example.com/{number}", set_name=other)
        is_published.set()
        await expect(page.locator("#publish .answer")).to_contain_text("It arrived")


async def test_a_change_of_another_set_is_not_taken_for_the_one_that_was_published(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    other, later = f"{set_name}-other", f"{set_name}-later"
    for name in (other, later):
        await page_hub.ask("PUT", f"/api/sets/{name}", json={})
    async with opened(chromium, page_hub, set_name) as page:
        await use_token(page)
        await expect(page.locator("#health")).to_have_text("live")
        await page.route(f"**/channels/{other}/**", lambda _: None)  # is never answered
        await page.select_option("#set", other)
        await page.click("#publish button")
        await expect(page.locator("#publish .answer")).to_contain_text("Waiting for it")
        await page_hub.publish("http://example.com/later", set_name=later)
        await page.select_option("#set", later)
        await expect(page.locator("#publish .answer")).to_contain_text("It is not seen here")


async def test_what_is_stored_after_another_set_was_chosen_is_not_waited_for(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    other = f"{set_name}-other"
    await page_hub.ask("PUT", f"/api/sets/{other}", json={})
    await use_token(page)
    await expect(page.locator(f"#set option[value={other}]")).to_have_count(1)
    async with Held(page, f"/api/sets/{set_name}/changes") as held:
        await page.click("#publish button")
        await expect(page.locator("#publish .answer")).to_have_text("Sending…")
        await page.select_option("#set", other)
        await expect(page.locator("#health")).to_have_text("live")
        await held.let_go()
        await expect(page.locator("#publish .answer")).to_contain_text("another set was chosen")


async def test_whoever_may_only_publish_to_a_private_set_is_told_that_it_is_not_seen(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    private = f"{set_name}-private"
    await page_hub.ask("PUT", f"/api/sets/{private}", json={"private": True})
    _, made = await page_hub.ask("POST", "/api/tokens", json={"sets": [private]})
    async with opened(chromium, page_hub, set_name) as page:
        await use_token(page, made["token"])
        await page.select_option("#set", private)
        await expect(page.locator("#health")).to_contain_text("no right to read")
        await page.click("#publish button")
        await expect(page.locator("#publish .answer")).to_contain_text("Stored. It is not seen")


async def test_a_token_that_expires_is_forgotten_with_its_reason(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    _, made = await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    async with opened(chromium, page_hub, set_name) as page:
        await use_token(page, made["token"])
        await expect(page.locator("#forget")).to_be_visible()
        rotation = {"grace_seconds": 1}
        await page_hub.ask("POST", f"/api/tokens/{made['id']}/rotate", json=rotation)
        await expect(page.locator("#token .answer")).to_contain_text("has expired at")
        assert await page.evaluate("sessionStorage.length") == 0


async def test_the_admin_token_is_kept_for_the_tab_until_it_is_forgotten(page: Page) -> None:
    await use_token(page)
    await expect(page.locator("#admin")).to_be_visible()
    await page.reload()
    await expect(page.locator("#admin")).to_be_visible()
    await page.click("#forget")
    await expect(page.locator("#admin")).to_be_hidden()
    assert await page.evaluate("[sessionStorage.length, localStorage.length]") == [0, 0]


async def test_the_admin_adds_edits_and_removes_a_set(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    name, row = f"{set_name}-new", page.locator("#sets tr", has_text=f"{set_name}-new")
    await use_token(page)
    await page.fill("#set-name", name)
    await page.click("#edit-set button")
    await expect(row).to_contain_text("everybody")
    await row.get_by_role("button", name=f"Edit {name}").click()
    await page.check("#private")
    await page.click("#edit-set button")
    await expect(row).to_contain_text("with a token")
    await row.get_by_role("button", name=f"Remove {name}").click()
    await expect(row).to_have_count(0)
    assert await page.locator("#set option", has_text=name).count() == 0


async def test_the_admin_makes_a_token_that_works_until_it_is_revoked(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    await use_token(page)
    await page.fill("#token-sets", set_name)
    await page.fill("#note", f"for {set_name}")
    await page.click("#new-token button")
    secret = await page.locator("#made-token code").text_content()
    headers = {"Authorization": f"Bearer {secret}"}
    changes = f"/api/sets/{set_name}/changes"
    change = {"loc": "http://example.com/res1", "change": "updated"}

    async def answer() -> int:
        return (await page_hub.ask("POST", changes, headers=headers, json=change))[0]

    assert await answer() == 201
    await page.locator("#tokens tr", has_text=f"for {set_name}").get_by_text("Revoke").click()
    await expect(page.locator("#admin-answer")).to_contain_text("done")

    async def is_refused() -> bool:
        return await answer() == 401

    await until(is_refused)


async def test_the_admin_replaces_a_token_by_another(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    _, old = await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    await use_token(page)
    await page.get_by_role("button", name=f"Replace {old['id']}").click()
    secret = await page.locator("#made-token code").text_content()
    assert secret != old["token"]
    headers = {"Authorization": f"Bearer {secret}"}
    change = {"loc": "http://example.com/res1", "change": "updated"}
    changes = f"/api/sets/{set_name}/changes"
    status, _ = await page_hub.ask("POST", changes, headers=headers, json=change)
    assert status == 201


async def test_a_new_token_is_shown_even_if_the_tables_cannot_be_read_again(
    page: Page, set_name: str
) -> None:
    async def refuse_to_list(route: Route) -> None:
        if route.request.method == "GET":
            await route.fulfill(status=429, json={"detail": "too many requests"})
        else:
            await route.continue_()

    await use_token(page)
    await expect(page.locator("#admin")).to_be_visible()
    await page.route("**/api/tokens", refuse_to_list)
    await page.fill("#token-sets", set_name)
    await page.click("#new-token button")
    await expect(page.locator("#made-token code")).to_contain_text("rsn_")
    await expect(page.locator("#admin-answer")).to_contain_text("too many requests")
    await expect(page.locator("#made-token code")).to_be_visible()


async def test_a_token_that_is_revoked_is_forgotten(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    _, made = await page_hub.ask("POST", "/api/tokens", json={"sets": [set_name]})
    async with opened(chromium, page_hub, set_name) as page:
        await use_token(page, made["token"])
        await expect(page.locator("#forget")).to_be_visible()
        await page_hub.ask("DELETE", f"/api/tokens/{made['id']}")
        await expect(page.locator("#token .answer")).to_contain_text("unknown or has been revoked")
        assert await page.evaluate("sessionStorage.length") == 0


async def test_a_private_set_is_followed_with_a_token_that_stands_in_no_address(
    page: Page, page_hub: RunningHub, set_name: str
) -> None:
    await page_hub.ask("PATCH", f"/api/sets/{set_name}", json={"private": True})
    await use_token(page)
    await expect(page.locator("#set option:checked")).to_have_text(f"{set_name} (private)")
    await expect(page.locator("#health")).to_have_text("live")
    await page_hub.publish("http://example.com/secret", set_name=set_name)
    await expect(latest(page)).to_have_text("http://example.com/secret")


# Everybody ----------------------------------------------------------------------------------------


async def test_axe_finds_nothing_in_the_light_or_in_the_dark(
    chromium: Browser, page_hub: RunningHub, set_name: str
) -> None:
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    async with opened(chromium, page_hub, set_name, color_scheme="light", **PHONE) as page:
        await use_token(page)
        await expect(page.locator("#admin")).to_be_visible()
        await page.fill("#document", "<urlset/>")
        await page.click("#validate button")
        await expect(page.locator("#violations li")).to_be_visible()
        await page.click("#connection button[type=submit]")
        await expect(page.locator("#connection-state")).to_have_text("connected")
        await page_hub.publish("http://example.com/res2", set_name=set_name)
        await page.click("#frames summary")
        await page.click("#publish button")
        await expect(page.locator("#publish .answer")).to_contain_text("It arrived")
        await no_violations(page)
        await page.emulate_media(color_scheme="dark")
        await no_violations(page, "color-contrast")


async def test_axe_finds_nothing_while_the_hub_is_down(chromium: Browser, tmp_path: Path) -> None:
    async with (
        RunningHub(tmp_path / "data") as hub,
        opened(chromium, hub, "dataset1") as page,
    ):
        await page.click("#publish button")  # refused: there is no token
        await page.fill("#from", "yesterday")
        await page.click("#connection button[type=submit]")
        await expect(page.locator("#connection-state")).to_have_class("answer bad")
        await hub.kill()
        await expect(page.locator("#health")).to_contain_text("connection lost")
        await page.fill("#document", "<urlset/>")
        await page.click("#validate button")
        await expect(page.locator("#verdict")).to_have_text("the hub does not answer")
        await no_violations(page)
        await page.emulate_media(color_scheme="dark")
        await no_violations(page, "color-contrast")


async def no_violations(page: Page, *rules: str) -> None:
    only = {"runOnly": rules} if rules else {}
    found = await Axe().run(page, options={"resultTypes": ["violations"], **only})
    assert found.violations_count == 0, found.generate_report()
