"""Topics of a Source's own: it names the hub's channels, and the hub answers to both names."""

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Any

import aiohttp
import pytest

from tests.support.receivers import Receiver, ask, has, topic
from tests.support.running import RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="session")

NUMBERS = count(1)
ENTRY = (
    '\n<?xml version="1.0" encoding="UTF-8"?>\n'
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
    'xmlns:rs="http://www.openarchives.org/rs/terms/">'
    '<rs:ln rel="up" href="http://source.example/capabilitylist.xml"/>'
    '<rs:md capability="change-notification" from="2026-01-01T00:00:00Z"'
    ' until="2026-01-01T00:00:01Z"/>'
    '<url><loc>http://source.example/1</loc><rs:md change="updated"/></url></urlset>'
)


def own_topics() -> dict[str, str]:
    number = next(NUMBERS)
    return {
        "topic": f"http://source.example/{number}/changes",
        "framework_topic": f"https://source.example/{number}/framework?of=it",
    }


async def edit(hub: RunningHub, set_name: str, **options: object) -> tuple[int, Any]:
    return await hub.ask("PATCH", f"/api/sets/{set_name}", json=options)


async def fat_ping(hub: RunningHub, own: str) -> tuple[int, Any]:
    """As LANL's publisher of 2014 does: its template begins with an empty line."""
    headers = {
        "Link": f'<{own}>; rel="self", <{hub.url}/hub>; rel="hub"',
        "Content-Type": "application/xml",
    }
    return await hub.ask("POST", "/hub", data=ENTRY.encode(), headers=headers)


async def links(hub: RunningHub, address: str) -> Mapping[str, Any]:
    async with aiohttp.ClientSession() as session, session.head(address) as answer:
        return {rel: str(link["url"]) for rel, link in answer.links.items()}


async def test_a_subscription_to_the_sources_topic_is_verified_and_delivered_under_it(
    websub_hub, new_set
):
    own = own_topics()
    assert (await edit(websub_hub, new_set, **own))[0] == 200
    async with Receiver() as receiver:
        assert (await ask(websub_hub, "subscribe", own["topic"], receiver.callback))[0] == 202
        (verification,) = await has(receiver, 1, of="verifications")
        assert verification.query["hub.topic"] == own["topic"]
        assert (await fat_ping(websub_hub, own["topic"]))[0] == 200
        (delivered,) = await has(receiver, 1)
        assert f'<{own["topic"]}>; rel="self"' in delivered.headers["link"]
        assert delivered.locs == ["http://source.example/1"]
        assert (await ask(websub_hub, "unsubscribe", own["topic"], receiver.callback))[0] == 202
        await has(receiver, 2, of="verifications")


async def test_the_hubs_own_name_of_the_channel_keeps_working(websub_hub, new_set):
    await edit(websub_hub, new_set, **own_topics())
    hubs = topic(websub_hub, new_set)
    async with Receiver() as receiver:
        assert (await ask(websub_hub, "subscribe", hubs, receiver.callback))[0] == 202
        await has(receiver, 1, of="verifications")
        assert (await fat_ping(websub_hub, hubs))[0] == 200
        (delivered,) = await has(receiver, 1)
        assert f'<{hubs}>; rel="self"' in delivered.headers["link"]


async def test_discovery_leads_to_the_sources_topics(websub_hub, new_set):
    own = own_topics()
    await edit(websub_hub, new_set, **own)
    for kind, option in (("change", "topic"), ("framework", "framework_topic")):
        address = f"{websub_hub.url}/channels/{new_set}/{kind}_notification_channel"
        assert (await links(websub_hub, address))["self"] == own[option]
    _, document = await websub_hub.ask("GET", f"/{new_set}/capabilitylist.xml")
    for address in own.values():
        assert f"<loc>{address}</loc>".encode() in document


async def test_a_ping_for_the_sources_topic_is_known(websub_hub, new_set):
    own = own_topics()
    form = {"hub.mode": "publish", "hub.url": own["framework_topic"]}
    assert (await websub_hub.ask("POST", "/hub", data=form))[0] == 404
    await edit(websub_hub, new_set, **own)
    assert (await websub_hub.ask("POST", "/hub", data=form))[0] == 204


async def test_a_topic_that_was_taken_out_is_no_topic_any_more(websub_hub, new_set):
    own = own_topics()
    await edit(websub_hub, new_set, **own)
    await edit(websub_hub, new_set, topic=None)
    status, text = await fat_ping(websub_hub, own["topic"])
    assert (status, b"does not serve the topic" in text) == (404, True)


async def test_a_topic_belongs_to_one_set(websub_hub, new_set):
    own = own_topics()
    assert (await edit(websub_hub, new_set, **own))[0] == 200
    assert (await edit(websub_hub, new_set, **own))[0] == 200  # its own are no obstacle
    other = f"{new_set}-other"
    for option, taken in (("topic", own["framework_topic"]), ("framework_topic", own["topic"])):
        status, problem = await websub_hub.ask("PUT", f"/api/sets/{other}", json={option: taken})
        assert (status, f"a topic of the set {new_set!r} already" in problem["detail"]) == (
            409,
            True,
        )
    names = [each["name"] for each in (await websub_hub.ask("GET", "/api/sets"))[1]]
    assert other not in names


async def test_of_sets_that_want_one_topic_at_once_one_gets_it(websub_hub, new_set):
    wanted = own_topics()["topic"]
    names = [f"{new_set}-{number}" for number in range(8)]
    answers = await asyncio.gather(
        *(websub_hub.ask("PUT", f"/api/sets/{name}", json={"topic": wanted}) for name in names)
    )
    assert sorted(status for status, _ in answers) == [201, *[409] * 7]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "ws://source.example/a"}, "topic: 'ws://source.example/a' must begin with"),
        ({"topic": "http://source.example/a b"}, "topic: loc is"),
        ({"topic": "http://a.org/" + "x" * 2048}, "topic: the address is too long"),
        ({"topic": "http://a.org/t", "framework_topic": "http://a.org/t"}, "are the same"),
        ({"change_notification": "http://a.org/c"}, "name its hub in channel_hub"),
        ({"channel_hub": "ftp://a.org/hub"}, "channel_hub: 'ftp://a.org/hub' must begin"),
        ({"changelist": "no uri"}, "changelist: loc is 'no uri'"),
    ],
)
async def test_an_option_that_cannot_be_is_refused_by_name(websub_hub, new_set, options, told):
    status, problem = await edit(websub_hub, new_set, **options)
    assert (status, told in problem["detail"]) == (400, True), problem


async def test_the_hubs_own_name_of_a_channel_is_no_topic_of_a_source(websub_hub, new_set):
    status, problem = await edit(websub_hub, new_set, topic=topic(websub_hub, "another"))
    assert (status, "the hub's own name of a channel" in problem["detail"]) == (400, True)
