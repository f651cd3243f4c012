"""Every example of docs/javascript.md runs as it stands, against a hub; every number is the one
that holds."""

import asyncio
import os
import re
from asyncio.subprocess import PIPE
from pathlib import Path
from urllib.parse import urlencode

import pytest

from clients.javascript.tests.programs import CLIENT, NODE
from tests.support.receivers import ReceivedRequest, Receiver, response
from tests.support.running import TOKEN, RunningHub

PAGE = (CLIENT.parents[1] / "docs/javascript.md").read_text()
EXAMPLES = re.findall(r"^```(js|html)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
HUB = "http://127.0.0.1:8080"
BACK_END = "http://127.0.0.1:3000/token"
FOLLOWING = [
    text
    for language, text in EXAMPLES
    if language == "js" and "follow(" in text and BACK_END not in text
]
RENEWING = [text for _, text in EXAMPLES if BACK_END in text]
PUBLISHING = [text for language, text in EXAMPLES if language == "js" and "publish(" in text]
WEB_PAGES = [text for language, text in EXAMPLES if language == "html"]

NUMBERS = {
    "web.js": {
        "PAGE_CHARS": "2 * 1024 * 1024",
        "PAGE_SECONDS": "60",
        "ANSWER_SECONDS": "20",
        "SILENCE_SECONDS": "45",
    },
    "xml.js": {"TOKEN_CHARS": "8 * 1024"},
    "channel.js": {"NOTIFICATION_CHARS": "16 * 1024 * 1024", "QUIET_SECONDS": "90"},
    "changelists.js": {"DOCUMENT_BYTES": "50 * 1024 * 1024"},
    "follower.js": {"POLL_SECONDS": "60", "OPTION_SECONDS": "1_000_000"},
    "polls.js": {"POLL_ANSWER_SECONDS": "45", "SOON_SECONDS": "10"},
    "publish.js": {"GIVE_UP_SECONDS": "60"},
    "token.js": {"ANSWER_SECONDS": "30", "EARLY_SECONDS": "30"},
    "retry.js": {"FIRST_SECONDS": "0.5", "LONGEST_SECONDS": "30"},
}


def test_every_example_is_run():
    run = [*FOLLOWING, *PUBLISHING, *WEB_PAGES, *RENEWING]
    assert len(run) == len(EXAMPLES) == 6


async def run(text: str, folder: Path, hub: RunningHub) -> asyncio.subprocess.Process:
    """An example in a directory where the client is installed."""
    installed = folder / "node_modules/rsnotify"
    if not installed.exists():
        installed.parent.mkdir()
        installed.symlink_to(CLIENT, target_is_directory=True)
    (folder / "example.mjs").write_text(text.replace(HUB, hub.url))
    return await asyncio.create_subprocess_exec(
        NODE,
        "example.mjs",
        cwd=folder,
        stdout=PIPE,
        env=os.environ | {"RSNOTIFY_TOKEN": TOKEN},
    )


async def test_every_example_that_follows_tells_what_changes(hub, tmp_path):
    assert FOLLOWING
    for number, text in enumerate(FOLLOWING):
        process = await run(text, tmp_path, hub)
        publishing = asyncio.create_task(publish_until_cancelled(hub, number))
        async with asyncio.timeout(60):
            while not (line := await process.stdout.readline()).startswith(b"updated "):
                assert line
        assert line == f"updated http://example.com/{number}\n".encode()
        publishing.cancel()
        process.kill()
        await process.wait()


async def test_the_example_that_renews_its_token_goes_on_with_the_next(hub, tmp_path):
    (text,) = RENEWING
    await hub.ask("PUT", "/api/sets/renewed", json={"private": True})
    asked = {"sets": ["renewed"], "rights": ["read"]}
    _, first = await hub.ask("POST", "/api/tokens", json=asked)
    tokens = [first["token"].encode(), TOKEN.encode()]

    asked_for = 0

    async def give(_: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal asked_for
        asked_for += 1
        token = tokens.pop(0) if tokens[1:] else tokens[0]
        writer.write(response("200 OK", token, Content_Type="text/plain"))

    async with Receiver(get=give) as back_end:
        text = text.replace(BACK_END, back_end.callback).replace("/dataset1", "/renewed")
        process = await run(text, tmp_path, hub)
        publishing = asyncio.create_task(publish_until_cancelled(hub, 1, "renewed"))
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"updated http://example.com/1\n"
            await hub.ask("DELETE", f"/api/tokens/{first['id']}")
            while asked_for < 2:  # the revoked one is refused
                assert await process.stdout.readline() == b"updated http://example.com/1\n"
            await hub.publish("http://example.com/2", set_name="renewed")
            while (line := await process.stdout.readline()) != b"updated http://example.com/2\n":
                assert line == b"updated http://example.com/1\n"
        publishing.cancel()
        process.kill()
        await process.wait()


async def publish_until_cancelled(hub: RunningHub, number: int, set_name: str = "dataset1") -> None:
    """Whoever follows begins now, and says to nobody when that is."""
    while True:
        await hub.publish(f"http://example.com/{number}", set_name=set_name)
        await asyncio.sleep(0.1)


async def test_the_example_that_publishes_does(hub, tmp_path):
    for text in PUBLISHING:
        process = await run(text, tmp_path, hub)
        said, _ = await process.communicate()
        assert process.returncode == 0
        assert said.startswith(b"accepted 2 changes, the last at 20")


async def test_the_example_page_of_the_docs_shows_what_changes_and_goes_on_where_it_was(
    browser, site, hub
):
    (text,) = WEB_PAGES
    url = f"{site}/?{urlencode({'html': text.replace(HUB, hub.url)})}"
    page = await browser.new_page()
    await page.goto(url)
    publishing = asyncio.create_task(publish_until_cancelled(hub, 1))
    item = await page.wait_for_selector("li")
    publishing.cancel()
    assert await item.text_content() == "updated http://example.com/1"
    await page.close()
    await hub.publish("http://example.com/2")
    page = await browser.new_page()
    await page.goto(url)
    await page.wait_for_selector("li >> text=updated http://example.com/2")


@pytest.mark.parametrize("file", NUMBERS)
def test_every_number_is_the_one_that_holds(file):
    source = (CLIENT / "lib" / file).read_text()
    for name, value in NUMBERS[file].items():
        assert re.search(rf"^export const {name} = {re.escape(value)};", source, re.MULTILINE)


def test_the_numbers_are_on_the_page():
    for said in (
        "| 50 MiB, unpacked |",
        "| 8,192 characters |",
        "| 16 Mi characters |",
        "| 2 Mi characters and 60 s |",
        "| 20 s |",
        "| 45 s |",
        "there is no channel; 60 |",
        "is dead; 90 |",
        "at most 1,000,000.",
        "a random part of 0.5 s",
        "up to 30 s",
        "for a minute (`giveUpSeconds`)",
    ):
        assert said in PAGE
