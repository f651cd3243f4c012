"""The page in Firefox: what differs between browsers is tried in both."""

import asyncio
import re
import shlex
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.browser import (
    test_one_change,
    test_page,
    test_palette,
    test_reference,
    test_snippets,
    test_timeline,
)
from tests.browser.conftest import no_violations, opened
from tests.support import firefox, needs
from tests.support.running import TOKEN, RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="session")

VIEWS = {  # the address, and what is there when it is ready
    "/?view=overview": "#landing svg",
    "/?set={}": "#line",
    "/?set={}&change=2020-01-01": "#change-answer:has-text('has no change')",
    "/?view=debugger&set={}": "#connection",
    "/?view=validator&set={}": "#validate",
    "/?view=admin": "#admin",
    "/{}/changelist.xml": "tbody tr",
    "/.well-known/resourcesync": "tbody tr",
    "/api": ".example button",
    "/no/where": "#problem",
}


SCHEME = "layout.css.prefers-color-scheme.content-override"  # a preference of Firefox


@asynccontextmanager
async def launched(folder: Path, *options: str, **preferences: int) -> AsyncIterator[Browser]:
    program = folder / "firefox"
    words = [sys.executable, "-P", firefox.__file__, *options, needs.firefox()]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o700)
    async with async_playwright() as playwright:
        browser = await playwright.firefox.launch(
            channel="moz-firefox", executable_path=program, firefox_user_prefs=preferences
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def chromium(tmp_path_factory) -> AsyncIterator[Browser]:
    """In this file it is Firefox, for the tests of other files, too."""
    async with launched(tmp_path_factory.mktemp("firefox")) as browser:
        yield browser


reference = test_reference.reference

for each in (
    test_page.test_a_change_published_elsewhere_appears,
    test_page.test_a_newcomer_with_a_keyboard_sees_the_change_that_the_page_published,
    test_page.test_a_hub_that_was_killed_is_followed_on_without_gap_or_repetition,
    test_page.test_where_no_websocket_is_let_through_the_page_follows_an_event_stream,
    test_page.test_a_connection_that_is_cut_misses_nothing,
    test_page.test_the_picture_can_be_held,
    test_page.test_the_debugger_shows_frames_and_goes_on_from_the_cursor,
    test_page.test_the_validator_marks_each_fault_where_it_stands,
    test_page.test_a_set_is_removed_only_if_its_name_is_typed_and_what_is_lost_is_named,
    test_page.test_what_the_hub_refuses_of_a_set_is_said_beside_the_option_that_it_names,
    test_palette.test_a_set_among_many_is_found_and_opened,
    test_palette.test_the_arrows_go_round_and_what_is_chosen_last_is_taken,
    test_timeline.test_the_focus_stays_in_the_table_when_its_row_leaves,
    test_timeline.test_a_keyboard_chooses_a_stretch_and_lets_it_go,
    test_timeline.test_an_edge_is_moved_by_a_drag_that_begins_on_it,
    test_one_change.test_a_row_leads_to_its_change_with_its_digest_and_three_forms,
    test_snippets.test_what_curl_would_do_is_done_by_the_page_and_its_answer_shown,
    test_reference.test_what_only_reads_is_sent_by_one_press_with_the_token_of_the_tab,
):
    globals()[each.__name__] = each


async def test_what_is_copied_can_be_pasted(page):
    code = page.locator("#snippets [role=tabpanel]:visible .copyable").first
    await code.get_by_role("button", name="Copy").click()
    await expect(code.get_by_text("Copied")).to_be_visible()
    await page.focus("#filter")
    await page.keyboard.press("Control+V")
    copied = (await code.locator("code").text_content() or "").replace("\n", " ")  # in one line
    await expect(page.locator("#filter")).to_have_value(copied)


async def every_view(page: Page, hub: RunningHub, set_name: str) -> AsyncIterator[None]:
    """One after another, when it is ready."""
    for address, ready in VIEWS.items():
        await page.goto(hub.url + address.format(set_name))
        await expect(page.locator(ready).first).to_be_visible()
        yield


async def test_every_view_opens_without_an_error(chromium, page_hub, set_name):
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    async with opened(chromium, page_hub, f"{set_name}#token={TOKEN}") as page:
        async for _ in every_view(page, page_hub, set_name):
            pass


@pytest.mark.evidence
async def test_a_finger_chooses_a_stretch_and_opens_one_of_its_changes(
    page_hub, set_name, tmp_path
):
    await page_hub.publish("http://example.com/0", set_name=set_name)
    async with (
        launched(tmp_path, firefox.FINGER) as browser,
        opened(browser, page_hub, set_name, **test_page.PHONE) as page,
    ):
        await expect(page.locator("#day-says")).to_contain_text("1 change;")
        await page.evaluate(
            "void (onpointerdown = (event) => { globalThis.by = event.pointerType; })"
        )
        await test_timeline.drag(page, 0.5, 1)
        assert await page.evaluate("globalThis.by") == "touch"
        await expect(page.locator("#moment")).to_contain_text("All changes after")
        await page.locator("#latest td:first-child a").click()
        await expect(page.locator("#change-title")).to_contain_text("http://example.com/0")


@pytest.mark.evidence
@pytest.mark.parametrize(("scheme", "code"), [("dark", 0), ("light", 1)])
async def test_axe_finds_nothing_in_any_view(scheme, code, page_hub, set_name, tmp_path):
    await page_hub.publish("http://example.com/res1", set_name=set_name)
    async with (
        launched(tmp_path, **{SCHEME: code}) as browser,
        opened(browser, page_hub, f"{set_name}#token={TOKEN}") as page,
    ):
        async for _ in every_view(page, page_hub, set_name):
            assert await page.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
            await no_violations(page)


@pytest.mark.parametrize("length", [65_536, 65_537, 1_000_000])
async def test_a_line_of_any_length_before_its_address_keeps_nobody_from_firefox(length):
    program = f"import sys; sys.exit('x' * {length} + '\\nWebDriver BiDi listening on ws://a')"
    words = (sys.executable, "-P", firefox.__file__, sys.executable, "-c", program)
    started = await asyncio.create_subprocess_exec(*words, stderr=PIPE)
    _, said = await started.communicate()
    first, second = said.decode().splitlines()
    assert first == "x" * length
    assert re.fullmatch(r"WebDriver BiDi listening on ws://127\.0\.0\.1:\d+", second)
    assert started.returncode == 1
