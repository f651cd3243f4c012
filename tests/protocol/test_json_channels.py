"""Channels in JSON: the same notifications, for those who ask."""

import asyncio

import aiohttp
import pytest
from websockets.asyncio.client import connect

from rsnotify_client.notification import read_notification
from tests.protocol.test_channels import close_of
from tests.protocol.test_sse import stream
from tests.support.jsonform import told
from tests.support.receivers import topic
from tests.support.running import PATIENT_SECONDS, RunningHub

SUBPROTOCOL = "rsnotify.json"


@pytest.fixture
async def hub(shared_hub: RunningHub) -> RunningHub:
    """As new, though it is not: no test of this file with it ends it or looks at its files."""
    return shared_hub


async def test_a_subprotocol_is_answered_and_joins_like_xml(hub):
    async with (
        connect(hub.channel(), subprotocols=["other", SUBPROTOCOL]) as in_json,
        connect(hub.channel() + "?format=json") as named,
        connect(hub.channel(), compression=None) as in_xml,
    ):
        assert (in_json.subprotocol, in_xml.subprotocol) == (SUBPROTOCOL, None)
        for number in range(3):
            await hub.publish(f"http://example.com/{number}")
            first, second, third = [
                await asyncio.wait_for(each.recv(), PATIENT_SECONDS)
                for each in (in_json, named, in_xml)
            ]
            found, same = told(first), read_notification(third)
            assert first == second
            assert (found["from"], found["until"]) == (str(same.from_), str(same.until))
            assert found["changes"][0]["loc"] == f"http://example.com/{number}"


async def test_several_channels_are_told_apart_in_json(hub):
    await hub.ask("PUT", "/api/sets/other")
    address = hub.channel().replace("/dataset1/", "/") + "?set=dataset1&set=other&format=json"
    async with connect(address) as channel:
        for name in ("dataset1", "other"):
            await hub.publish(f"http://example.com/{name}", set_name=name)
            found = told(await asyncio.wait_for(channel.recv(), PATIENT_SECONDS))
            (up,) = found["links"]
            assert up == {"rel": "up", "href": f"{hub.url}/{name}/capabilitylist.xml"}


async def test_a_format_that_does_not_exist_is_4400_or_400(hub):
    code, reason = await close_of(hub.channel() + "?format=yaml")
    assert (code, "xml or json" in reason) == (4400, True)
    url = topic(hub, "dataset1") + "?format=ndjson"
    for accept in ("text/event-stream", "*/*"):
        async with aiohttp.ClientSession(headers={"accept": accept}) as session:
            assert (await session.get(url)).status == 400


async def test_the_topic_is_the_latest_notification_in_json(hub):
    url = topic(hub, "dataset1")
    async with aiohttp.ClientSession(headers={"accept": "application/json"}) as session:
        async with session.get(url) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            empty = told(await answer.read())
        assert (empty["from"], empty["changes"]) == (empty["until"], [])
        await hub.publish("http://example.com/a")
        async with session.get(url) as answer:
            found = told(await answer.read())
            assert "accept" in answer.headers["vary"].lower()
        assert [change["loc"] for change in found["changes"]] == ["http://example.com/a"]
        async with session.get(url, headers={"accept": "*/*"}) as answer:
            assert answer.content_type == "application/xml"


@pytest.mark.parametrize("accept", ["text/event-stream", "text/event-stream, */*;q=0.1"])
async def test_an_event_stream_is_xml_unless_json_is_asked_for(hub, accept):
    async with stream(hub, accept=accept) as events:
        await hub.publish("http://example.com/a")
        assert (await events.event())["data"].startswith("<?xml")
    async with stream(hub, accept="text/event-stream, application/json") as events:
        await hub.publish("http://example.com/b")
        assert told((await events.event())["data"])["changes"]
