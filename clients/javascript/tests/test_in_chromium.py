"""The JavaScript client in pages of another origin than the hub's, in a real Chromium."""

import asyncio
import json
from typing import Any

from playwright.async_api import BrowserContext, Page, expect

from clients.javascript.tests.programs import CLIENT

EXAMPLES = CLIENT.parents[1] / "tests/specification/examples"
PATIENT = 60_000  # milliseconds, for any fact

FOLLOW = """async ([url, { tokens, ...options }]) => {
  const { follow } = await import("/rsnotify.js");
  globalThis.told = [];
  const onState = ({ state, transport }) => told.push({ state, transport });
  if (tokens) options.token = async () => (await fetch(tokens)).text();
  (async () => {
    try {
      for await (const { loc } of follow(url, { ...options, onState })) told.push({ loc });
    } catch (error) {
      told.push({ failed: error.name });
    }
  })();
}"""
BOTH_READERS = """async (texts) => {
  const [{ DocumentReader, parseDocument }, { XmlReader }] =
    await Promise.all(["document", "xml"].map((name) => import(`/lib/${name}.js`)));
  const read = (text, ...inner) => {
    try {
      return parseDocument(text, new DocumentReader(...inner));
    } catch (error) {
      return error.name;
    }
  };
  return texts.map((text) => [text, read(text), read(text, new XmlReader())].map(JSON.stringify));
}"""
HOSTILE = (
    "",
    "hello",
    "<html/>",
    "<urlset",
    "<!DOCTYPE urlset><urlset/>",
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">&a;</urlset>',
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url></urlset></url>',
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><x:y/></urlset>',
)
KIND = (
    '<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9" '
    'xmlns:r="http://www.openarchives.org/rs/terms/"><s:url><s:loc> <![CDATA[http://a/?b&]]>&amp;'
    '<!-- c --></s:loc><r:md change="updated" length="1" x:y="z" xmlns:x="urn:x"/>'
    "<s:loc2>deep<b>er</b></s:loc2></s:url></s:urlset>"
)


class Tab:
    """A page that follows, and what it was told."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.sockets: list[Any] = []
        page.on("websocket", lambda socket: self.sockets.append(socket))  # noqa: PLW0108 - it is marked

    async def told(self, count: int, what: str) -> list[str]:
        """The first so many texts of this kind, once they are there."""
        found = f"told.map(({{ {what} }}) => {what}).filter(Boolean)"
        await self.page.wait_for_function(f"{found}.length >= {count}")
        return list(await self.page.evaluate(found))

    async def names(self, count: int) -> list[str]:
        """The last parts of the addresses of so many changes."""
        return [loc.rpartition("/")[2] for loc in await self.told(count, "loc")]


async def follow(browser: BrowserContext, site: str, url: str, **options: Any) -> Tab:
    tab = Tab(await browser.new_page())
    await tab.page.goto(site)
    await tab.page.evaluate(FOLLOW, [url, options])
    return tab


async def test_pages_of_another_origin_follow_a_public_set_across_a_killed_hub(browser, site, hub):
    tabs = [await follow(browser, site, url) for url in (hub.channel(), hub.url)]
    chosen = ("sse", "long-poll")
    tabs += [await follow(browser, site, hub.channel(), transport=each) for each in chosen]
    for tab, transport in zip(tabs, ("websocket", "websocket", *chosen), strict=True):
        assert await tab.told(1, "transport") == [transport]
    await hub.publish("http://example.com/1")
    for tab in tabs:
        await tab.names(1)
    await hub.kill()
    await hub.start()
    await hub.publish("http://example.com/2")
    await hub.publish("http://example.com/3")
    for tab in tabs:
        assert await tab.names(3) == ["1", "2", "3"]
    old = await follow(browser, site, hub.channel(), position="2020-01-01")
    assert await old.names(3) == ["1", "2", "3"]


async def test_the_example_lists_what_changes_and_says_what_is_wrong(browser, site, hub):
    page = await browser.new_page()
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    await page.goto(f"{site}/example/index.html")
    await page.get_by_label("Address of a Source").fill(hub.url)
    await page.get_by_role("button", name="Follow").click()
    status = page.get_by_role("status")
    await expect(status).to_contain_text("websocket", timeout=PATIENT)
    await hub.publish("http://example.com/1", "http://example.com/2")
    newest, _ = await items(page, 2)
    assert newest.endswith(" updated http://example.com/2")
    await page.get_by_label("Address of a Source").fill(f"{hub.url}/nothing")
    await page.get_by_role("button", name="Follow").click()
    await expect(status).to_contain_text("there is no set 'nothing'", timeout=PATIENT)
    assert await items(page, 0) == []
    assert failed == []


async def items(page: Page, count: int) -> list[str]:
    await expect(page.get_by_role("listitem")).to_have_count(count, timeout=PATIENT)
    return await page.get_by_role("listitem").all_inner_texts()


async def test_a_page_of_another_origin_reads_no_private_set(browser, site, hub):
    """Not even with the token of its visitor."""
    _, made = await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"], "rights": ["read"]})
    await hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
    await hub.publish("http://example.com/1")
    for way in ("websocket", "sse"):
        options = {"position": "2020-01-01", "token": made["token"], "transport": way}
        tab = await follow(browser, site, hub.channel(), **options)
        assert await tab.told(1, "failed") == ["Rejected"]
        assert await tab.names(0) == []


async def test_tabs_of_one_site_share_one_connection(browser, site, hub):
    leader = await follow(browser, site, hub.channel(), shared=True)
    await leader.told(1, "transport")
    others = [await follow(browser, site, hub.channel(), shared=True) for _ in range(2)]
    for other in others:
        await other.told(1, "transport")
    await hub.publish("http://example.com/1", "http://example.com/2")
    for tab in (leader, *others):
        assert await tab.names(2) == ["1", "2"]
    assert [len(tab.sockets) for tab in (leader, *others)] == [1, 0, 0]
    await leader.page.close()
    await hub.publish("http://example.com/3")
    for tab in others:
        assert await tab.names(3) == ["1", "2", "3"]
    assert sum(len(tab.sockets) for tab in others) == 1


async def test_a_tab_that_begins_further_back_gets_what_the_others_have(browser, site, hub):
    await hub.publish("http://example.com/1")
    now = await follow(browser, site, hub.channel(), shared=True)
    await now.told(1, "transport")
    await hub.publish("http://example.com/2")
    await now.names(1)
    old = await follow(browser, site, hub.channel(), shared=True, position="2020-01-01")
    assert await old.names(2) == ["1", "2"]
    await hub.publish("http://example.com/3")
    assert await old.names(3) == ["1", "2", "3"]
    assert await now.names(2) == ["2", "3"]


async def test_a_tab_from_before_all_history_stands_with_the_others_though_nothing_comes(
    browser, site, hub
):
    now = await follow(browser, site, hub.channel(), shared=True)
    await now.told(1, "transport")
    old = await follow(browser, site, hub.channel(), shared=True, position="2020-01-01")
    assert await old.told(1, "state") == ["live"]
    async with asyncio.timeout(20):
        while not all(socket.is_closed() for socket in old.sockets):
            await asyncio.sleep(0.01)
    await hub.publish("http://example.com/1")
    for tab in (now, old):
        assert await tab.names(1) == ["1"]


async def test_the_browsers_parser_and_our_own_read_the_same(browser, site):
    page = await browser.new_page()
    await page.goto(site)
    examples = [path.read_text() for path in sorted(EXAMPLES.glob("*.xml"))]
    read = await page.evaluate(BOTH_READERS, [*examples, KIND, *HOSTILE])
    for text, by_browser, by_us in read:
        assert by_browser == by_us, text
    assert json.loads(read[len(examples)][1])["entries"][0]["loc"] == "http://a/?b&&"
    assert {by_us for _, _, by_us in read[-len(HOSTILE) :]} == {'"Rejected"'}


async def test_the_example_page_shows_what_changes(browser, site, hub):
    page = await browser.new_page()
    await page.goto(f"{site}/example/index.html")
    await page.fill("input", hub.url)
    await page.click("button")
    await page.wait_for_selector("text=live: websocket")
    await hub.publish("http://example.com/?&lt;")
    item = await page.wait_for_selector("li")
    assert (await item.text_content()).endswith("updated http://example.com/?&lt;")
