"""The topic URL, and publishing to it through the hub URI."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from websockets.asyncio.client import connect

from rsnotify import redis_client
from tests.support.receivers import Receiver, has, subscribe, topic
from tests.support.running import TOKEN, RunningHub, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

URLSET = b"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:md capability="change-notification"
         from="2013-01-02T00:00:00Z" until="2013-01-03T00:00:00Z"/>
  <url><loc>http://example.com/res1</loc><rs:md change="updated"/></url>
</urlset>"""


async def fetch(url: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
        return answer.status, await answer.read(), dict(answer.headers)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_before_the_first_notification_the_topic_is_empty(websub_hub, new_set, method):
    status, body, headers = await fetch(topic(websub_hub, new_set), method)
    assert (status, body) == (200, b"")
    assert headers["Content-Length"] == "0"
    assert headers["Content-Type"] == "application/xml"
    assert f'<{topic(websub_hub, new_set)}>; rel="self"' in headers["Link"]
    assert f'<{websub_hub.url}/hub>; rel="hub"' in headers["Link"]
    answer = await websub_hub.publish("http://example.com/1", set_name=new_set)
    assert headers["rsnotify-from"] == answer["from"]  # a cursor that misses nothing


async def test_head_tells_the_length_of_what_get_would_bring(websub_hub, new_set):
    await websub_hub.publish("http://example.com/1", set_name=new_set)

    async def is_there() -> bytes:
        return (await fetch(topic(websub_hub, new_set)))[1]

    body = await until(is_there)
    status, nothing, headers = await fetch(topic(websub_hub, new_set), "HEAD")
    assert (status, nothing, headers["Content-Length"]) == (200, b"", str(len(body)))


@pytest.mark.parametrize(("hours", "status"), [(-1, 200), (0, 200), (1, 400)])
async def test_a_position_in_the_future_is_refused(websub_hub, new_set, hours, status):
    place = datetime.now(UTC) + timedelta(hours=hours)
    url = f"{topic(websub_hub, new_set)}?from={place:%Y-%m-%dT%H:%M:%SZ}"
    answered, body, _ = await fetch(url)
    assert answered == status
    assert (b"in the future" in body) is (status == 400)


async def test_after_a_restart_the_topic_still_has_the_latest_notification(tmp_path):
    async with (
        RunningHub(tmp_path / "data", callback_private="allow") as hub,
        Receiver() as receiver,
    ):
        await subscribe(hub, receiver)
        await hub.publish("http://example.com/1")
        await until(lambda: _all(receiver, 1))  # else it may be sent together with the next
        await hub.publish("http://example.com/2", "http://example.com/3")
        await until(lambda: _all(receiver, 3))
        await hub.stop()
        await hub.start()
        assert (await fetch(topic(hub)))[1] == receiver.deliveries[-1].body


async def _all(receiver: Receiver, count: int) -> bool:
    return len(receiver.locs) == count


@asynccontextmanager
async def two_hubs(folder: Path, redis_url: str) -> AsyncIterator[tuple[RunningHub, RunningHub]]:
    """Two hubs on one Redis, which write the same addresses, and no other has left anything."""
    async with redis_client.connect(redis_url) as client:
        await client.flushall()
    options = ("--redis", redis_url, "--public-url", "http://hub.example")
    async with (
        RunningHub(folder / "one", *options) as one,
        RunningHub(folder / "two", *options) as two,
    ):
        yield one, two


async def test_the_topic_has_what_any_hub_has_acknowledged(tmp_path, redis_url):
    async with (
        two_hubs(tmp_path, redis_url) as (one, two),
        aiohttp.ClientSession() as session,
    ):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for number in range(150):
            for hub in (one, two):
                change = {"loc": f"http://example.com/{number}", "change": "updated"}
                posting = session.post(
                    f"{one.url}/api/sets/dataset1/changes", json=change, headers=headers
                )
                async with posting as posted:
                    until = (await posted.json())["until"]
                async with session.get(topic(hub)) as answer:
                    assert f'until="{until}"' in await answer.text()


async def test_the_topic_has_what_any_reader_has_got(tmp_path, redis_url):
    async with (
        two_hubs(tmp_path, redis_url) as (one, two),
        connect(one.channel()) as channel,
        aiohttp.ClientSession() as session,
    ):
        for number in range(20):
            posting = asyncio.create_task(one.publish(f"http://example.com/{number}"))
            delivered = await channel.recv()
            async with session.get(topic(two)) as answer:
                assert await answer.text() == delivered
            await posting


async def test_a_source_publishes_its_payload_to_the_hub_and_is_answered_200(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        link = f'<{topic(websub_hub, new_set)}>; rel="self", <{websub_hub.url}/hub>; rel="hub"'
        status, answer = await websub_hub.ask(
            "POST", "/hub", data=URLSET, headers={"Content-Type": "application/xml", "Link": link}
        )
        assert (status, answer["accepted"]) == (200, 1)
        assert (await has(receiver, 1))[0].locs == ["http://example.com/res1"]
