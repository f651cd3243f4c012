"""A channel as a Durable Stream: server-sent events (PROTOCOL.md 5.8)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import aiohttp
import pytest
from yarl import URL

from rsnotify.resourcesync.change import Position
from tests.protocol.test_streams import ask, publish
from tests.support.amount import amount
from tests.support.running import PATIENT_SECONDS, RunningHub


@pytest.fixture
async def hub(shared_hub: RunningHub) -> RunningHub:
    """As new, though it is not: no test of this file with it ends it or looks at its files."""
    return shared_hub


class Events:
    """An open stream."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.headers = answer.headers
        self._content = answer.content

    async def next(self) -> tuple[str, object]:
        """The next event: its type, and its data."""
        kind, lines = "", []
        async with asyncio.timeout(PATIENT_SECONDS):
            while line := (await self._content.readline()).decode():
                name, _, value = line.rstrip("\n").partition(":")
                if line == "\n" and lines:
                    return kind, json.loads("\n".join(lines))
                if name == "event":
                    kind = value.strip()
                elif name == "data":
                    lines.append(value)
        raise EOFError

    async def messages(self) -> tuple[list[str], dict]:
        """The names of the next changes, and what the control event behind them says."""
        kind, data = await self.next()
        assert kind == "data"
        then, said = await self.next()
        assert then == "control"
        return [each["loc"].rpartition("/")[2] for each in data], said


@asynccontextmanager
async def events(hub: RunningHub, token: str = "", **query: str) -> AsyncIterator[Events]:
    asked = urlencode(sorted({"live": "sse", **query}.items()))
    url = URL(f"{hub.url}/streams/dataset1?{asked}", encoded=True)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        yield Events(answer)


async def test_whoever_has_read_all_is_told_so_first(hub):
    until = (await publish(hub, "a"))["until"]
    for offset in (until, "now"):
        async with events(hub, offset=offset) as found:
            kind, said = await found.next()
            assert kind == "control"
            assert said == {
                "streamNextOffset": until,
                "streamCursor": said["streamCursor"],
                "upToDate": True,
            }
            assert said["streamCursor"].isdecimal()


async def test_each_notification_is_followed_by_where_it_goes_on(hub):
    offset = (await ask(hub, method="HEAD")).next
    async with events(hub, offset=offset) as found:
        await found.next()
        for number in range(3):
            until = (await publish(hub, f"a{number}", f"b{number}"))["until"]
            names, said = await found.messages()
            assert names == [f"a{number}", f"b{number}"]
            assert (said["streamNextOffset"], said["upToDate"]) == (until, True)


async def test_only_the_end_is_up_to_date(hub):
    for start in range(0, 2_500, 500):
        await publish(hub, *map(str, range(start, start + 500)))
    async with events(hub, offset="-1") as found:
        names: list[str] = []
        while len(names) < 2_500:
            more, said = await found.messages()
            names += more
            assert said.get("upToDate", False) == (len(names) == 2_500)
        assert names == [*map(str, range(2_500))]
        until = (await publish(hub, "then"))["until"]
        assert await found.messages() == (
            ["then"],
            {"streamNextOffset": until, "streamCursor": said_of(until), "upToDate": True},
        )


def said_of(until: str) -> str:
    """The cursor of an answer that ends there."""
    return str(int(Position.parse(until)))


async def test_who_was_cut_off_goes_on_where_it_was(hub):
    """…and is not told that nothing is new of a publish that was answered a moment before."""
    offset, got, times = "-1", [], amount(40, evidence=2_000)
    for number in range(times):
        await publish(hub, str(number))
        async with events(hub, offset=offset) as found:
            names, said = await found.messages()
            got += names
            offset = said["streamNextOffset"]
    assert got == [str(number) for number in range(times)]


async def test_the_headers_are_those_of_an_event_stream(hub):
    async with events(hub, offset="now") as found:
        assert found.headers["Content-Type"] == "text/event-stream"
        assert {"no-cache", "no-store"} <= {*found.headers["Cache-Control"].split(", ")}
        assert "Content-Length" not in found.headers
        assert found.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_cursor_that_comes_again_grows(hub):
    await publish(hub, "a")
    async with events(hub, offset="-1") as found:
        _, said = await found.messages()
    async with events(hub, offset="-1", cursor=said["streamCursor"]) as found:
        kind, again = await found.next()
        assert (kind, "upToDate" in again) == ("control", False)
        assert int(again["streamCursor"]) > int(said["streamCursor"])
        assert (await found.messages())[0] == ["a"]


async def test_a_removed_set_ends_the_stream(hub):
    async with events(hub, offset="now") as found:
        await found.next()
        await hub.ask("DELETE", "/api/sets/dataset1")
        with pytest.raises(EOFError):
            await found.next()
    assert (await ask(hub, live="sse", offset="now")).status == 404


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"offset": "x"}, 400),
        ({"offset": "9999-12-31T23:59:59.999999Z"}, 400),
    ],
)
async def test_what_is_wrong_is_said_before_a_stream_begins(hub, query, status):
    assert (await ask(hub, live="sse", **query)).status == status


async def test_an_offset_of_a_removed_set_is_gone_before_a_stream_begins(hub):
    until = (await publish(hub, "a"))["until"]
    await hub.ask("DELETE", "/api/sets/dataset1")
    await hub.ask("PUT", "/api/sets/dataset1")
    assert (await ask(hub, live="sse", offset=until)).status == 410


async def test_a_revoked_token_ends_the_stream(hub):
    await hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
    asked = {"sets": ["dataset1"], "rights": ["read"]}
    _, made = await hub.ask("POST", "/api/tokens", json=asked)
    assert (await ask(hub, live="sse", offset="now")).status == 404
    async with events(hub, made["token"], offset="now") as found:
        await found.next()
        await hub.ask("DELETE", f"/api/tokens/{made['id']}")
        with pytest.raises(EOFError):
            await found.next()
