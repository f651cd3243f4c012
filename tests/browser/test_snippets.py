"""What the page gives to copy does what it says, as it stands there."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.conftest import no_violations, opened, tab_to, use_token
from tests.support import needs
from tests.support.receivers import Receiver, answers, confirms
from tests.support.running import TOKEN, RunningHub, clean_environment, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALL = [
    ("curl", "follow"),
    ("curl", "publish"),
    ("JavaScript", "follow, in a web page"),
    ("Python", "follow"),
    ("Python", "publish"),
    ("Command line", "follow"),
    ("Command line", "publish"),
    ("Command line", "keep a copy"),
    ("WebSub", "subscribe; CALLBACK is your address"),
]
FOLLOW = [each for each in ALL if each[1] == "follow"]
PUBLISH = [each for each in ALL if each[1] == "publish"]
NEW = "http://example.com/new"


async def snippet(page: Page, language: str, what: str) -> str:
    """As somebody copies it."""
    await page.click(f"#snippets [role=tab]:text-is('{language}')")
    place = page.locator("#snippets [role=tabpanel]:visible")
    block = place.locator(f".label:text-is('{what}') ~ .program code")
    await expect(block).to_be_visible()
    return await block.text_content() or ""


@asynccontextmanager
async def run(
    language: str, text: str, folder: Path, **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """In a clone with its `.venv`: in a shell that knows nothing of it, or in its Python."""
    if "curl" in text:
        needs.need("curl")
    words = [sys.executable, "-c", text] if language == "Python" else ["sh", "-c", text]
    (folder / ".venv").symlink_to(sys.prefix)
    path = os.pathsep.join(
        each
        for each in os.environ["PATH"].split(os.pathsep)
        if Path(each) != Path(sys.executable).parent
    )
    started = await asyncio.create_subprocess_exec(
        *words,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=folder,
        env=clean_environment() | {"PATH": path, "RSNOTIFY_TOKEN": TOKEN} | variables,
        start_new_session=True,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            os.killpg(started.pid, signal.SIGKILL)
        await started.wait()


async def readers(hub: RunningHub, set_name: str) -> int:
    _, status = await hub.ask("GET", f"/api/status?name={set_name}")
    return sum(status["sets"][0]["channels"][0]["readers"].values())


async def labels_below(page: Page, tab: Locator) -> list[str]:
    panel = await tab.get_attribute("aria-controls")
    return await page.locator(f"#{panel} .label").all_text_contents()


async def test_these_are_all_that_the_page_has(page):
    shown = [
        (await tab.text_content(), what)
        for tab in await page.locator("#snippets [role=tab]").all()
        for what in await labels_below(page, tab)
    ]
    assert shown == ALL


@pytest.mark.parametrize("is_private", [False, True], ids=["public", "private"])
@pytest.mark.parametrize(("language", "what"), FOLLOW)
async def test_what_follows_shows_the_next_change(
    chromium, page_hub, set_name, tmp_path, language, what, is_private
):
    await page_hub.ask("PATCH", f"/api/sets/{set_name}", json={"private": is_private})
    _, token = await page_hub.ask(
        "POST", "/api/tokens", json={"sets": [set_name], "rights": ["read"]}
    )
    async with opened_with(chromium, page_hub, set_name) as page:
        text = await snippet(page, language, what)
    text = text.replace("YOUR TOKEN", token["token"])
    before = await readers(page_hub, set_name)
    async with run(language, text, tmp_path, RSNOTIFY_TOKEN=token["token"]) as program:

        async def follows() -> bool:
            assert program.returncode is None, (await program.stdout.read()).decode()
            return await readers(page_hub, set_name) > before

        await until(follows)
        await page_hub.publish(NEW, set_name=set_name)
        shown = ""
        while NEW not in shown:
            line = await program.stdout.readline()
            assert line, shown
            shown += line.decode()


@asynccontextmanager
async def opened_with(chromium: Browser, hub: RunningHub, set_name: str) -> AsyncIterator[Page]:
    """With the admin token; its connection has ended before anything else is done."""
    async with opened(chromium, hub, f"{set_name}#token={TOKEN}") as page:
        yield page
        await page.click("#cut")

        async def is_gone() -> bool:
            return await readers(hub, set_name) == 0

        await until(is_gone)


@pytest.mark.parametrize(("language", "what"), PUBLISH)
async def test_what_publishes_publishes(page, tmp_path, language, what):
    text = await snippet(page, language, what)
    async with run(language, text, tmp_path) as program:
        shown = await program.stdout.read()
        assert await program.wait() == 0, shown
    await expect(page.locator("#latest td.loc")).to_have_text(await page.input_value("#loc"))


async def test_a_copy_is_kept(page, tmp_path):
    """Of what the page publishes, as it stands there."""
    await use_token(page)
    await page.click("#publish button")
    await expect(page.locator("#publish output")).to_contain_text("It arrived")
    text = await snippet(page, "Command line", "keep a copy")
    async with run("Command line", text, tmp_path) as program:

        async def is_copied() -> bool:
            assert program.returncode is None, (await program.stdout.read()).decode()
            return [each.name for each in (tmp_path / "copy").rglob("*.svg")] == ["icon.svg"]

        await until(is_copied)


@pytest.mark.parametrize(("language", "what"), PUBLISH)
async def test_what_has_the_token_in_use_needs_no_other(page, tmp_path, language, what):
    await expect(page.locator("#with-token")).to_be_hidden()
    await use_token(page)
    assert TOKEN not in await snippet(page, language, what)
    await page.check("#with-token")
    text = await snippet(page, language, what)
    async with run(language, text, tmp_path, RSNOTIFY_TOKEN="") as program:
        shown = await program.stdout.read()
        assert await program.wait() == 0, shown
    await expect(page.locator("#latest td.loc")).to_have_text(await page.input_value("#loc"))


@pytest.mark.parametrize("width", [360, 1440])
async def test_no_line_of_a_program_is_broken_and_the_page_is_no_wider(page, width):
    await page.set_viewport_size({"width": width, "height": 800})
    tabs = page.locator("#snippets [role=tab]")
    for tab in await tabs.all():
        await tab.click()
        for code in await page.locator("#snippets code:visible").all():
            lines = [line for line in (await code.text_content() or "").split("\n") if line]
            assert await code.evaluate(LINES_SEEN) == len(lines)
            within = await code.evaluate("(it) => it.parentElement.getBoundingClientRect().right")
            assert within <= width
        await no_violations(page)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


LINES_SEEN = """(code) => {
  const range = document.createRange();
  range.selectNodeContents(code);
  const seen = [...range.getClientRects()].filter(({ width }) => width);
  return new Set(seen.map(({ bottom }) => Math.round(bottom))).size;
}"""


async def test_what_curl_would_do_is_done_by_the_page_and_its_answer_shown(page, set_name):
    runs = page.locator("#snippets button:text-matches('Run|Stop')")
    await expect(runs).to_have_count(1)
    await use_token(page)
    follow, publish = runs.nth(0), runs.nth(1)
    answers = page.locator("#snippets pre")
    await follow.click()
    await expect(follow).to_have_text("Stop")
    await expect(follow).to_have_attribute("aria-label", re.compile("^Stop "))
    await publish.click()
    await expect(answers.nth(1)).to_contain_text('"accepted":1')
    await expect(answers.nth(0)).to_contain_text(await page.input_value("#loc"))
    await follow.click()
    await expect(follow).to_have_text("Run")
    await expect(page.locator("#snippets output").first).to_have_text("Stopped.")


async def test_an_error_of_the_hub_is_the_answer_of_what_is_run(page, page_hub, set_name):
    await page_hub.ask("PATCH", f"/api/sets/{set_name}", json={"private": True})
    await page.click("#snippets button:text-is('Run')")
    await expect(page.locator("#snippets output")).to_contain_text("404")


async def test_tabs_are_chosen_by_the_arrow_keys_and_one_of_them_by_tab(page):
    tabs = page.locator("#snippets [role=tab]")
    await tab_to(page, "#snippets [role=tab]")
    for key, at in (
        ("ArrowRight", 1),
        ("End", 4),
        ("ArrowRight", 0),
        ("ArrowLeft", 4),
        ("Home", 0),
    ):
        await page.keyboard.press(key)
        await expect(tabs.nth(at)).to_be_focused()
        await expect(tabs.nth(at)).to_have_attribute("aria-selected", "true")
        await expect(page.locator("#snippets [role=tabpanel]:visible")).to_have_count(1)
    await page.keyboard.press("Tab")
    await expect(page.locator("#snippets button:focus")).to_have_text("Copy")


async def test_a_callback_is_subscribed(page, page_hub, set_name, tmp_path):
    async with Receiver(get=confirms) as receiver:
        text = await snippet(page, "WebSub", "subscribe; CALLBACK is your address")
        async with run("WebSub", text, tmp_path, CALLBACK=receiver.callback) as program:
            await program.wait()

        async def is_subscribed() -> bool:
            _, found = await page_hub.ask("GET", "/api/subscriptions")
            return any(each["callback"] == receiver.callback for each in found)

        await until(is_subscribed)


async def test_a_page_of_another_origin_follows_with_the_module_of_the_hub(
    chromium, page, page_hub, set_name
):
    text = await snippet(page, "JavaScript", "follow, in a web page")
    html = answers("200 OK", b"<!doctype html><title>x</title>", Content_Type="text/html")
    async with Receiver(get=html) as elsewhere, await chromium.new_page() as other:
        told: list[str] = []
        other.on("console", lambda message: told.append(message.text))
        await other.goto(elsewhere.callback)
        await other.add_script_tag(content=text, type="module")

        async def follows() -> bool:
            return await readers(page_hub, set_name) == 2

        await until(follows)
        await page_hub.publish(NEW, set_name=set_name)

        async def is_told() -> bool:
            return f"updated {NEW}" in told

        await until(is_told)
