"""Channels of the JavaScript client whose tokens end while they are read, on a real hub."""

import asyncio
from collections.abc import AsyncIterator, Callable
from time import time
from typing import Any

import jwt
import pytest
from aiohttp import web

from clients.javascript.tests.programs import NO_DENO, NODE, Reader, deno
from clients.javascript.tests.test_in_chromium import follow
from tests.support.amount import enough
from tests.support.running import RunningHub
from tests.support.stream_server import WebServer, one_answer

SECRET = "a secret of exactly thirty-two b"
SECONDS = 2.0
RENEWALS = 4
DENO = (deno(), "run", "--allow-net", "--allow-read")
WAYS = [
    pytest.param((NODE,), "websocket", id="node-websocket"),
    pytest.param((NODE,), "sse", id="node-stream"),
    pytest.param((NODE,), "long-poll", id="node-long-poll"),
    *(
        pytest.param(
            DENO, way, id=f"deno-{way}", marks=pytest.mark.skipif(DENO[0] is None, reason=NO_DENO)
        )
        for way in ("websocket", "sse", "long-poll")
    ),
]


def signed(number: int, seconds: float = SECONDS, *, may: bool = True) -> str:
    rights = {"read": ["secret" if may else "another"]}
    claims = {"exp": time() + seconds, "rsnotify": rights, "jti": str(number)}
    return jwt.encode(claims, SECRET, "HS256")


class Tokens:
    """A token service; the n-th answer is what `answer(n)` gives, and None is a failure."""

    def __init__(self, answer: Callable[[int], str | None] = signed) -> None:
        self._answer = answer
        self.asked = 0
        self.url = ""

    async def __aenter__(self) -> "Tokens":
        async def give(_: web.Request) -> web.Response:
            self.asked += 1
            found = self._answer(self.asked)
            open_to_pages = {"Access-Control-Allow-Origin": "*"}
            return web.Response(text=found, status=200 if found else 503, headers=open_to_pages)

        self._server = WebServer(one_answer(give))
        await self._server.__aenter__()
        self.url = f"{self._server.url}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()


@pytest.fixture
async def hub(tmp_path: Any, site: str) -> AsyncIterator[RunningHub]:
    """A private set, which pages of the other site may read."""
    async with RunningHub(tmp_path / "data", jwt_key=SECRET, allowed_origins=site) as running:
        await running.ask("PUT", "/api/sets/secret", json={"private": True})
        yield running


@pytest.fixture
async def published(hub: RunningHub) -> AsyncIterator[list[str]]:
    """What is published to the set, one after the other, for as long as the test runs."""
    found: list[str] = []

    async def publish() -> None:
        while True:
            await hub.publish(f"http://example.com/{len(found)}", set_name="secret")
            found.append(str(len(found)))
            await asyncio.sleep(0.02)

    task = asyncio.create_task(publish())
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def check(names: list[str]) -> None:
    """Each once, in order, none left out."""
    assert [int(each) for each in names] == [*range(int(names[0]), int(names[0]) + len(names))]


async def read(reader: Reader, is_enough: Callable[[], bool]) -> tuple[list[str], list[str]]:
    """The names of the changes, and the states, until it is enough or it fails."""
    names, states = list[str](), list[str]()
    while not (is_enough() and names):
        line = await reader.line()
        if "change" in line:
            names.append(line["change"]["loc"].rpartition("/")[2])
        elif "state" in line:
            states.append(line["state"])
        else:
            raise AssertionError(line)
    return names, states


@pytest.mark.parametrize(("program", "way"), enough([WAYS[0], *WAYS[3:], *WAYS[1:3]], 1))
async def test_a_channel_is_renewed_without_a_gap_and_without_a_word(hub, published, program, way):
    async with Tokens() as tokens:
        options = {"transport": way, "tokens": tokens.url, "program": program}
        async with Reader(hub.channel("secret"), **options) as reader:
            names, states = await read(reader, lambda: tokens.asked > RENEWALS)
    check(names)
    assert {*states} == {"live"}
    assert "eyJ" not in hub.log.read_text()


@pytest.mark.evidence
@pytest.mark.parametrize(("program", "way"), WAYS[:3])
async def test_a_service_that_is_away_for_a_moment_costs_no_change(hub, published, program, way):
    async with Tokens(lambda number: None if number in (1, 3) else signed(number)) as tokens:
        options = {"transport": way, "tokens": tokens.url, "program": program}
        async with Reader(hub.channel("secret"), **options) as reader:
            names, _ = await read(reader, lambda: tokens.asked > RENEWALS)
    check(names)


@pytest.mark.parametrize(("program", "way"), enough(WAYS[:3], 1))
async def test_a_right_that_is_withdrawn_at_a_renewal_ends_it_plainly(hub, program, way):
    async with Tokens(lambda number: signed(number, may=number < 3)) as tokens:
        options = {"transport": way, "tokens": tokens.url, "program": program}
        async with Reader(hub.channel("secret"), **options) as reader:
            failed = await reader.line(lambda line: "failed" in line)
    assert failed["failed"] == "Rejected"
    assert "there is no set 'secret'" in failed["message"]
    assert tokens.asked == 3


@pytest.mark.parametrize(("program", "way"), enough(WAYS[:3], 1))
async def test_the_same_token_again_ends_it_with_its_refusal(hub, program, way):
    same = signed(1)
    async with Tokens(lambda _: same) as tokens:
        options = {"transport": way, "tokens": tokens.url, "program": program}
        async with Reader(hub.channel("secret"), **options) as reader:
            failed = await reader.line(lambda line: "failed" in line)
    assert failed["failed"] == "Rejected"
    assert "expired" in failed["message"]


@pytest.mark.parametrize("way", ["websocket", "sse", "long-poll"])
async def test_a_page_of_another_origin_is_renewed_and_shows_no_token_in_an_address(
    browser, site, hub, published, way
):
    async with Tokens() as tokens:
        tab = await follow(browser, site, hub.channel("secret"), transport=way, tokens=tokens.url)
        asked = list[str]()
        tab.page.on("request", lambda request: asked.append(request.url))
        while tokens.asked <= RENEWALS:
            await asyncio.sleep(0.05)
        names = await tab.names(1)
        states = await tab.told(1, "state")
    check(names)
    assert {*states} == {"live"}
    assert asked
    shown = [*asked, *(socket.url for socket in tab.sockets)]
    assert [each for each in shown if "access_token" in each or "eyJ" in each] == []
