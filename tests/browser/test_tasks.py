"""Ten things that people come for, done by the words on the page alone, as a newcomer does them.

A step is something pressed, written or drawn. How many each takes is held here: a page on which one
takes more has become worse. What is pressed is the only thing there with its name.
"""

import re
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from functools import reduce

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import opened
from tests.browser.test_page import FAULTY, UNDONE_MS
from tests.support.running import TOKEN, RunningHub, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOST = "http://museum.example/objects"
PRESSED = ("button", "link", "tab", "option", "radio")


class Newcomer:
    """Somebody who sees the page for the first time."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.steps = 0

    async def press(self, name: str | re.Pattern[str]) -> None:
        """What has these words, shown or read aloud."""
        self.steps += 1
        exact = isinstance(name, str)
        found = (self.page.get_by_role(role, name=name, exact=exact) for role in PRESSED)
        await reduce(Locator.or_, found).click()

    async def write(self, name: str, text: str) -> None:
        self.steps += 1
        field = self.page.locator("input, textarea")
        await self.page.get_by_label(name, exact=True).and_(field).fill(text)

    async def key(self, key: str) -> None:
        self.steps += 1
        await self.page.keyboard.press(key)

    async def draw(self, one: str, other: str) -> None:
        """A line over what lies between two words."""
        self.steps += 1
        words = [self.page.get_by_text(each, exact=True) for each in (one, other)]
        (first, last) = [box for each in words if (box := await each.bounding_box())]
        above = first["y"] - 20
        await self.page.mouse.move(first["x"] + first["width"] / 2, above)
        await self.page.mouse.down()
        await self.page.mouse.move(last["x"] + last["width"] / 2, above, steps=5)
        await self.page.mouse.up()

    async def sees(self, words: str | re.Pattern[str]) -> None:
        await expect(self.page.get_by_text(words).filter(visible=True).first).to_be_visible()

    async def copied(self) -> str:
        return await self.page.evaluate("navigator.clipboard.readText()")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def museum(tmp_path_factory) -> AsyncIterator[RunningHub]:
    """A hub with three sets."""
    data = tmp_path_factory.mktemp("museum") / "data"
    async with RunningHub(data, sets=("maps", "objects", "photographs")) as hub:
        for name in ("maps", "objects", "photographs"):
            await hub.publish(f"{HOST}/{name}/1", f"{HOST}/{name}/2", set_name=name)
        yield hub


@pytest_asyncio.fixture(loop_scope="session")
async def newcomer(chromium, museum: RunningHub) -> AsyncIterator[Newcomer]:
    """At the front page, with an address that a colleague gave."""
    async with opened(chromium, museum, "maps") as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.goto(f"{museum.url}/")
        yield Newcomer(page)


@pytest_asyncio.fixture(loop_scope="session")
async def operator(newcomer: Newcomer) -> Newcomer:
    """Who has the admin's token, and gives it to the page."""
    await newcomer.press("Use a token")
    await newcomer.write("Token", TOKEN)
    await newcomer.key("Enter")
    await newcomer.sees("Token in use")
    return newcomer


async def test_find_the_set_that_changed_last(newcomer, museum):
    await museum.publish(f"{HOST}/photographs/1", set_name="photographs")
    first = newcomer.page.get_by_role("row").nth(1)
    await expect(first.get_by_role("link")).to_have_text("photographs")
    await expect(first).to_contain_text(re.compile("just now| s ago"))
    assert newcomer.steps == 0


async def test_share_what_happened_between_two_hours(newcomer, museum):
    """It is in the address that the other one opens."""
    await museum.ask("PUT", "/api/sets/night")
    made = await museum.publish(f"{HOST}/night", set_name="night")
    at = datetime.fromisoformat(made["until"]).astimezone()
    await newcomer.page.clock.install(time=at + timedelta(hours=9))
    await newcomer.press("night")
    await newcomer.sees("1 change; most from")
    await newcomer.draw(*hours_around(at))
    await newcomer.sees("All changes after")
    await newcomer.press("Copy link")
    await newcomer.sees("Copied")
    assert newcomer.steps <= 3
    await newcomer.page.goto(await newcomer.copied())
    await newcomer.sees("All changes after")
    await newcomer.sees(f"{HOST}/night")


def hours_around(at: datetime) -> Iterator[str]:
    """Two words on the line of time; between their middles, which are after the hour, it lies."""
    before = at - timedelta(minutes=45)
    first = before.replace(hour=before.hour // 3 * 3, minute=0)
    for each in (first, first + timedelta(hours=6)):
        yield f"{each:%H:%M}" if each.hour else f"{each.day} {each:%b}"


async def test_see_why_a_reader_whose_line_was_cut_missed_nothing(newcomer, museum):
    await newcomer.press("objects")
    await newcomer.press("Cut this page's connection")
    await museum.publish(f"{HOST}/a", f"{HOST}/b", set_name="objects")
    await newcomer.sees("2 missing")
    await newcomer.press("Connect again")
    await newcomer.sees(re.compile("^2 missing → 0, in"))
    assert newcomer.steps <= 3


async def test_find_a_resource_in_whatever_set_it_is(newcomer, museum):
    await museum.publish(f"{HOST}/lost", set_name="maps", hash=f"md5:{'0a' * 16}")
    await newcomer.press(re.compile("^Find (Ctrl K|⌘K)$"))
    await newcomer.write("Find anything", f"{HOST}/lost")
    await newcomer.sees("in maps")
    await newcomer.key("Enter")
    await newcomer.sees("It is there.")
    assert newcomer.steps <= 3


async def test_get_what_follows_a_set_in_python(newcomer):
    await newcomer.press("maps")
    await newcomer.press("Python")
    await newcomer.press("Copy follow")
    assert "rsnotify_client" in await newcomer.copied()
    assert newcomer.steps <= 3


async def test_send_somebody_one_change(newcomer, museum):
    await museum.publish(f"{HOST}/sent", set_name="photographs")
    await newcomer.press("photographs")
    row = newcomer.page.get_by_role("row", name=f"{HOST}/sent")
    await row.get_by_role("link").first.click()
    newcomer.steps += 1
    await newcomer.press("Copy link")
    assert newcomer.steps <= 3
    await newcomer.page.goto(await newcomer.copied())
    await newcomer.sees(f"{HOST}/sent")


async def test_find_what_is_wrong_with_a_document(newcomer):
    await newcomer.press("Validator")
    await newcomer.write("or the document itself", FAULTY)
    await newcomer.press("Validate")
    await newcomer.press("Go to line 5, column 8")
    chosen = await newcomer.page.evaluate("getSelection().toString()")
    assert chosen == 'change="moved"'
    assert newcomer.steps <= 4


async def test_see_a_notification_as_a_program_gets_it(newcomer, museum):
    await newcomer.press("Debugger")
    await newcomer.press("Connect")
    await newcomer.sees("connected")
    await museum.publish(f"{HOST}/seen", set_name="maps")
    await newcomer.sees(f"<loc>{HOST}/seen</loc>")
    assert newcomer.steps <= 2


async def test_publish_a_change_and_see_it_arrive(operator):
    await operator.press("maps")
    await operator.write("Resource that has changed", f"{HOST}/mine")
    await operator.press("Publish")
    await operator.sees(re.compile(r"It arrived \d+ ms after you pressed Publish"))
    assert operator.steps <= 6  # three of which gave the token


async def test_let_a_colleague_publish_and_take_it_back(operator, museum):
    async def status(token: str) -> int:
        change = {"loc": f"{HOST}/theirs", "change": "updated"}
        headers = {"Authorization": f"Bearer {token}"}
        path = "/api/sets/maps/changes"
        return (await museum.ask("POST", path, headers=headers, json=change))[0]

    async def is_refused() -> bool:
        return await status(token) == 401

    await operator.press("Admin")
    await operator.press("Make a token")
    await operator.write("Sets", "maps")
    await operator.write("Note", "for Jo")
    await operator.press("Make it")
    await operator.press("Copy It is shown this once")
    token = await operator.copied()
    assert await status(token) == 201
    await operator.press(re.compile("^Revoke "))
    await operator.sees("if this page stays open")
    assert operator.steps <= 10
    await until(is_refused)


async def test_take_a_token_back_by_mistake_and_undo_it(operator, museum):
    _, made = await museum.ask("POST", "/api/tokens", json={"sets": ["maps"]})

    async def ids() -> list[str]:
        return [each["id"] for each in (await museum.ask("GET", "/api/tokens"))[1]]

    async def is_gone() -> bool:
        return made["id"] not in await ids()

    await operator.page.clock.install()
    await operator.press("Admin")
    await operator.press(f"Revoke {made['id']}")
    await operator.press(f"Undo Revoke {made['id']}")
    assert operator.steps <= 6  # three of which gave the token
    await operator.page.clock.run_for(2 * UNDONE_MS)
    assert made["id"] in await ids()
    await operator.press(f"Revoke {made['id']}")
    await operator.page.clock.run_for(UNDONE_MS)
    await until(is_gone)


async def test_send_a_request_as_a_program_would(operator, museum):
    await operator.press("The HTTP API")
    await operator.write("Find in the contents", "api/changes")
    await operator.key("Enter")
    example = operator.page.get_by_role("form", name="Send POST /api/changes")
    await example.get_by_text("more field").click()
    changes = f'{{"loc": "{HOST}/by-hand", "change": "updated", "sets": ["maps", "objects"]}}'
    await example.get_by_label("Body").fill(changes)
    await example.get_by_role("button", name="Send").click()
    await operator.press("Send it")
    await expect(example.get_by_role("status")).to_contain_text("201 Created")
    assert operator.steps + 3 <= 10
    for name in ("maps", "objects"):
        await operator.page.goto(f"{museum.url}/?set={name}")
        await operator.sees(f"{HOST}/by-hand")
