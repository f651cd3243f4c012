"""The hub tests of the public WebSub checker, ported: a topic, a subscriber, and what it compares.

Tests 105 and 106 are about topics of other types; ours are application/xml, so what is held is that
the type of a notification is the topic's own.
"""

import hmac

import pytest

from tests.support.receivers import (
    ReceivedRequest,
    Receiver,
    ask,
    has,
    subscribe,
    subscription,
    topic,
)
from tests.support.running import RunningHub, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECRET = "kahD4Aeth9chae1eeBai"
ALGORITHMS = ("sha1", "sha256", "sha384", "sha512")


async def discover(hub: RunningHub, url: str) -> tuple[bytes, str, str]:
    """Body, Content-Type and Link of the topic, as a checker fetches them."""
    import aiohttp

    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        return await answer.read(), answer.headers["Content-Type"], answer.headers["Link"]


async def check_delivery(hub: RunningHub, url: str, delivery: ReceivedRequest) -> None:
    body, content_type, link = await discover(hub, url)
    assert delivery.body.strip()
    assert delivery.body == body
    assert delivery.headers["content-type"] == content_type
    assert delivery.headers["link"] == link
    assert f'<{hub.url}/hub>; rel="hub"' in link
    assert 'rel="self"' in link


async def test_100_a_typical_subscription_request(websub_hub, new_set) -> None:
    url = topic(websub_hub, new_set)
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        query = receiver.verifications[0].query
        assert (query["hub.mode"], query["hub.topic"]) == ("subscribe", url)
        assert int(query["hub.lease_seconds"]) > 0
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        (delivery,) = await has(receiver, 1)
        await check_delivery(websub_hub, url, delivery)
        assert "x-hub-signature" not in delivery.headers


async def test_101_a_subscription_with_a_secret(websub_hub, new_set) -> None:
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set, hub_secret=SECRET)
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        (delivery,) = await has(receiver, 1)
        await check_delivery(websub_hub, topic(websub_hub, new_set), delivery)
        method, _, digest = delivery.headers["x-hub-signature"].partition("=")
        assert method in ALGORITHMS
        assert digest == hmac.digest(SECRET.encode(), delivery.body, method).hex()


async def test_102_a_subscription_with_additional_parameters(websub_hub, new_set) -> None:
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set, foo="bar", hub_foo="hub.bar")
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        await check_delivery(websub_hub, topic(websub_hub, new_set), (await has(receiver, 1))[0])


async def test_103_a_renewal_is_verified_and_then_each_notification_comes_once(
    websub_hub, new_set
) -> None:
    async with Receiver() as receiver, Receiver() as other:
        for _ in range(2):
            await subscribe(websub_hub, receiver, new_set)
        assert len(receiver.verifications) == 2
        await subscribe(websub_hub, other, new_set)
        for number in (1, 2):
            await websub_hub.publish(f"http://example.com/{number}", set_name=new_set)
            await has(other, number)
            await has(receiver, number)
        assert len(receiver.deliveries) == 2


async def test_104_after_unsubscribing_nothing_comes_any_more(websub_hub, new_set) -> None:
    async with Receiver() as receiver, Receiver() as other:
        await subscribe(websub_hub, receiver, new_set)
        await subscribe(websub_hub, other, new_set)
        await ask(websub_hub, "unsubscribe", topic(websub_hub, new_set), receiver.callback)

        async def has_ended() -> bool:
            return await subscription(websub_hub, receiver, new_set) is None

        await until(has_ended)
        for number in (1, 2):
            await websub_hub.publish(f"http://example.com/{number}", set_name=new_set)
            await has(other, number)
        assert receiver.deliveries == []


@pytest.mark.parametrize("kind", ["change", "framework"], ids=["105", "106"])
async def test_105_106_the_type_of_a_notification_is_the_topics(websub_hub, new_set, kind) -> None:
    url = topic(websub_hub, new_set, kind)
    async with Receiver() as receiver:
        await ask(websub_hub, "subscribe", url, receiver.callback)

        async def is_verified() -> bool:
            return await subscription(websub_hub, receiver, new_set) is not None

        await until(is_verified)
        change = {"loc": f"{websub_hub.url}/{new_set}/capabilitylist.xml", "change": "updated"}
        if kind == "framework":
            change["capability"] = "capabilitylist"
        path = {"change": "changes", "framework": "framework"}[kind]
        await websub_hub.ask("POST", f"/api/sets/{new_set}/{path}", json=change)
        await has(receiver, 1)

        async def has_the_latest() -> bool:  # the hub may tell of its own documents meanwhile
            body, _, _ = await discover(websub_hub, url)
            return body == receiver.deliveries[-1].body

        await until(has_the_latest)
        await check_delivery(websub_hub, url, receiver.deliveries[-1])
