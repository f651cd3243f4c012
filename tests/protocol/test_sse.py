"""A channel as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from rsnotify.resourcesync.forms import accepts_gzip
from rsnotify_client.notification import read_notification
from tests.support.running import PATIENT_SECONDS, RunningHub

PATH = "/channels/{}/{}_notification_channel"


@pytest.fixture
async def hub(shared_hub: RunningHub) -> RunningHub:
    """As new, though it is not: no test of this file with it ends it or looks at its files."""
    return shared_hub


class Stream:
    """An open event stream."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def event(self) -> dict[str, str]:
        """The next event by its fields, as a browser reads it: what has no data is skipped."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENT_SECONDS):
            while line := (await self.answer.content.readline()).decode():
                name, _, value = line.rstrip("\n").partition(": ")
                if line == "\n":
                    if "data" in fields:
                        return fields
                    fields.clear()
                elif not line.startswith(":"):
                    fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        raise EOFError


@asynccontextmanager
async def stream(
    hub: RunningHub, kind: str = "change", query: str = "", **headers: str
) -> AsyncIterator[Stream]:
    headers = {"Accept": "text/event-stream"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    url = hub.url + PATH.format("dataset1", kind) + query
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"] == "text/event-stream"
        yield Stream(answer)


async def test_each_notification_is_an_event_whose_id_is_its_until(hub):
    async with stream(hub) as events:
        for number in range(3):
            answer = await hub.publish(f"http://example.com/res{number}")
            event = await events.event()
            found = read_notification(event["data"])
            assert (event["id"], str(found.from_)) == (answer["until"], answer["from"])
            assert found.changes[0].loc == f"http://example.com/res{number}"


@pytest.mark.parametrize("accepted", ["identity", "br", "gzip;q=0", "gzip", "zstd, gzip;q=0.5"])
async def test_events_are_in_gzip_for_those_who_accept_it(hub, accepted):
    """Each can be read as soon as it is there."""
    in_gzip = accepts_gzip(accepted)
    async with stream(hub, Accept_Encoding=accepted) as events:
        assert "accept-encoding" in events.answer.headers["Vary"].split(", ")
        assert (events.answer.headers.get("Content-Encoding") == "gzip") == in_gzip
        for number in range(3):
            answer = await hub.publish(f"http://example.com/res{number}")
            assert (await events.event())["id"] == answer["until"]


async def test_the_last_event_id_resumes(hub):
    first = await hub.publish("http://example.com/res1")
    second = await hub.publish("http://example.com/res2")
    async with stream(hub, Last_Event_ID=first["until"]) as events:
        assert (await events.event())["id"] == second["until"]
    async with stream(hub, query=f"?from={first['until']}") as events:
        assert (await events.event())["id"] == second["until"]


async def test_a_stream_begins_with_its_position_and_a_pause_of_its_own(hub):
    answer = await hub.publish("http://example.com/res1")
    for begins in (answer["from"], answer["until"]):
        async with stream(hub, query=f"?from={begins}") as events:
            assert events.answer.headers["Rsnotify-From"] == begins
            lines = [await events.answer.content.readline() for _ in range(3)]
            assert lines[0].decode() == f"id: {begins}\n"
            name, _, pause = lines[1].decode().partition(": ")
            assert (name, lines[2]) == ("retry", b"\n")
            assert 1_000 <= int(pause) <= 5_000


async def test_who_is_cut_off_before_the_first_event_misses_nothing(hub):
    """Not even a change with a datetime of its own that lies before the clock of the answer."""
    async with stream(hub) as events:
        begins = (await events.answer.content.readline()).decode().removeprefix("id: ").strip()
    last = await hub.publish("http://example.com/a", datetime=begins)
    assert last["from"] == begins
    async with stream(hub, Last_Event_ID=begins) as events:
        assert (await events.event())["id"] == last["until"]


async def test_the_last_event_id_wins_over_where_the_page_once_began(hub):
    first = await hub.publish("http://example.com/res1")
    second = await hub.publish("http://example.com/res2")
    query = f"?from={first['from']}"
    async with stream(hub, query=query, Last_Event_ID=first["until"]) as events:
        assert (await events.event())["id"] == second["until"]


async def test_a_large_notification_arrives_whole(hub):
    async with stream(hub) as events:
        await hub.publish(*(f"http://example.com/{number}/{'x' * 1000}" for number in range(400)))
        assert len(read_notification((await events.event())["data"]).changes) == 400


async def test_the_framework_channel_is_a_stream_too(hub):
    change = {"loc": "http://example.com/rl.xml", "change": "created", "capability": "resourcelist"}
    async with stream(hub, "framework") as events:
        await hub.ask("POST", "/api/sets/dataset1/framework", json=change)
        assert 'capability="resourcelist"' in (await events.event())["data"]


async def test_what_cannot_be_served_is_an_http_answer(hub):
    headers = {"Accept": "text/event-stream"}
    for path, status in [
        (PATH.format("nosuchset", "change"), 404),
        (PATH.format("dataset1", "weather"), 404),
        (PATH.format("dataset1", "change") + "?from=broken", 400),
        (PATH.format("dataset1", "change") + "?from=2126-01-01T00:00:00Z", 400),
    ]:
        assert (await hub.ask("GET", path, headers=headers))[0] == status, path


async def test_pages_of_an_allowed_origin_may_read_what_comes(hub):
    async with stream(hub, Origin="https://a.example") as events:
        assert events.answer.headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert events.answer.headers["Access-Control-Expose-Headers"] == "Rsnotify-From"


async def test_sigterm_ends_a_stream_as_a_whole(tmp_path):
    async with (
        RunningHub(tmp_path / "data", drain_seconds="0") as hub,
        stream(hub) as events,
    ):
        ending = asyncio.create_task(hub.stop())
        assert (await events.answer.content.read()).startswith(b"id: ")
        assert await ending == 0


async def test_a_removed_set_ends_its_streams(hub):
    async with stream(hub) as events:
        await hub.ask("DELETE", "/api/sets/dataset1")
        await events.answer.content.read()
