"""The 26 duties of a WebSub hub, each held from outside.

Their numbers are those of docs/reference/websub-conformance.md.
"""

import hashlib
import hmac

import aiohttp
import pytest

from rsnotify.websub.rules import FORM_BYTES
from tests.support.receivers import (
    ReceivedRequest,
    Receiver,
    answers,
    ask,
    confirms,
    first_of,
    has,
    response,
    subscribe,
    subscription,
    takes,
    topic,
)
from tests.support.running import RunningHub, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORM = "application/x-www-form-urlencoded"
HUB = "hub.mode=subscribe&hub.topic={topic}&hub.callback={callback}"


async def post(hub: RunningHub, body: bytes | str, content_type: str = FORM) -> tuple[int, bytes]:
    headers = {"Content-Type": content_type, "Authorization": ""}
    return await hub.ask("POST", "/hub", data=body, headers=headers)


# --- the request ---------------------------------------------------------------------------------


async def test_1_a_form_with_callback_mode_and_topic_is_accepted(websub_hub, new_set):
    async with Receiver() as receiver:
        body = HUB.format(topic=topic(websub_hub, new_set), callback=receiver.callback)
        status, _ = await post(websub_hub, body, f"{FORM}; charset=utf-8")
        assert status == 202
        await has(receiver, 1, of="verifications")


@pytest.mark.parametrize("missing", ["hub.mode", "hub.topic", "hub.callback"])
async def test_1_a_form_without_one_of_the_three_is_refused(websub_hub, new_set, missing):
    fields = {
        "hub.mode": "subscribe",
        "hub.topic": topic(websub_hub, new_set),
        "hub.callback": "http://127.0.0.1:9/",
    }
    del fields[missing]
    status, text = await websub_hub.ask("POST", "/hub", data=fields)
    assert (status, text.decode()) == (400, f"{missing} is missing\n")


async def test_2_a_secret_of_199_bytes_signs_and_one_of_200_is_refused(websub_hub, new_set):
    async with Receiver() as receiver:
        url = topic(websub_hub, new_set)
        status, text = await ask(
            websub_hub, "subscribe", url, receiver.callback, hub_secret="s" * 200
        )
        assert (status, text) == (400, b"hub.secret must be shorter than 200 bytes\n")
        await subscribe(websub_hub, receiver, new_set, hub_secret="s" * 199)
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        (delivery,) = await has(receiver, 1)
        digest = hmac.digest(b"s" * 199, delivery.body, "sha256").hex()
        assert delivery.headers["x-hub-signature"] == f"sha256={digest}"


async def test_3_another_mode_is_refused(websub_hub, new_set):
    status, text = await ask(
        websub_hub, "Subscribe", topic(websub_hub, new_set), "http://127.0.0.1:9/"
    )
    assert status == 400
    assert b"hub.mode is subscribe, unsubscribe or publish" in text


@pytest.mark.parametrize(("asked", "granted"), [("60", "60"), ("99999999", "2678400")])
async def test_4_a_lease_is_granted_as_asked_but_not_for_ever(websub_hub, new_set, asked, granted):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set, hub_lease_seconds=asked)
        assert receiver.verifications[0].query["hub.lease_seconds"] == granted


async def test_4_a_lease_is_ignored_when_unsubscribing(websub_hub, new_set):
    async with Receiver() as receiver:
        status, _ = await ask(
            websub_hub,
            "unsubscribe",
            topic(websub_hub, new_set),
            receiver.callback,
            hub_lease_seconds="nonsense",
        )
        assert status == 202


async def test_5_unknown_parameters_are_ignored(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set, hub_verify="async", foo="1", hub_foo="2")


async def test_6_a_renewal_replaces_the_secret_once_it_is_confirmed(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set, hub_secret="old")
        await subscribe(websub_hub, receiver, new_set, hub_secret="new", hub_lease_seconds=99)
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        (delivery,) = await has(receiver, 1)
        assert delivery.headers["x-hub-signature"] == signature("new", delivery)


async def test_6_a_renewal_that_is_not_confirmed_changes_nothing(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set, hub_secret="old", hub_lease_seconds=9999)
        receiver.get = answers("404 Not Found")
        await ask(
            websub_hub,
            "subscribe",
            topic(websub_hub, new_set),
            receiver.callback,
            hub_secret="new",
            hub_lease_seconds=1,
        )
        await has(receiver, 2, of="verifications")
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        (delivery,) = await has(receiver, 1)
        assert delivery.headers["x-hub-signature"] == signature("old", delivery)
        assert (await subscription(websub_hub, receiver, new_set))["lease_seconds_left"] > 1


async def test_6_a_renewal_keeps_the_cursor(websub_hub, new_set):
    async with Receiver(post=answers("500 No")) as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        await has(receiver, 1)
        receiver.post = answers()
        await subscribe(websub_hub, receiver, new_set, hub_lease_seconds=77)
        assert (await has(receiver, 2))[1].locs == ["http://example.com/1"]


async def test_7_unsubscribing_is_verified_and_ends_the_subscription(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        url = topic(websub_hub, new_set)
        assert (await ask(websub_hub, "unsubscribe", url, receiver.callback))[0] == 202
        await until(gone(websub_hub, receiver, new_set))
        assert receiver.verifications[-1].mode == "unsubscribe"
        async with Receiver() as other:
            await subscribe(websub_hub, other, new_set)
            await websub_hub.publish("http://example.com/1", set_name=new_set)
            await has(other, 1)
        assert receiver.deliveries == []


async def test_7_unsubscribing_that_is_not_confirmed_changes_nothing(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        receiver.get = answers("404 Not Found")
        await ask(websub_hub, "unsubscribe", topic(websub_hub, new_set), receiver.callback)
        await has(receiver, 2, of="verifications")
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        await has(receiver, 1)


async def test_8_percent_escapes_in_the_topic_are_decoded(websub_hub, new_set):
    async with Receiver() as receiver:
        url = topic(websub_hub, new_set).replace("change_notification", "change%5Fnotification")
        await ask(websub_hub, "subscribe", url, receiver.callback)
        (verification,) = await has(receiver, 1, of="verifications")
        assert verification.query["hub.topic"] == url  # as asked, so that it is recognised


@pytest.mark.parametrize("mode", ["subscribe", "unsubscribe"])
@pytest.mark.parametrize("url", ["http://example.com/feed", "HUB/channels/a/misspelt_channel"])
async def test_9_and_12_a_topic_that_is_not_ours_is_an_error_at_once(websub_hub, mode, url):
    url = url.replace("HUB", websub_hub.url)
    async with Receiver() as receiver:
        status, told = await ask(websub_hub, mode, url, receiver.callback)
        assert (status, told) == (404, f"this hub does not serve the topic {url!r}\n".encode())
        assert receiver.asked == []


async def test_10_the_callbacks_own_query_is_kept(websub_hub, new_set):
    async with Receiver(path="/callback?a=%20b&hub.mode=mine&") as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        (delivery,) = await has(receiver, 1)
        assert delivery.target == receiver.path
        assert receiver.verifications[0].target.startswith(receiver.path + "hub.mode=subscribe&")


# --- the response --------------------------------------------------------------------------------


async def test_12_a_body_that_is_too_long_is_refused(websub_hub):
    assert (await post(websub_hub, b"a=" + b"b" * (FORM_BYTES - 2)))[0] == 400
    assert (await post(websub_hub, b"a=" + b"b" * (FORM_BYTES - 1)))[0] == 413


@pytest.mark.parametrize(
    "get", [confirms, answers("404 Not Found"), answers("200 OK", b"wrong")], ids=["yes", "no", "?"]
)
async def test_11_13_the_answer_is_202_whatever_the_verification_will_say(websub_hub, new_set, get):
    async with Receiver(get=get) as receiver:
        answer = await ask(websub_hub, "subscribe", topic(websub_hub, new_set), receiver.callback)
        assert answer == (202, b"The callback will be asked to confirm.\n")


# 14: a redirect to another hub is for hubs that cannot serve; this one answers 503 instead.


async def test_15_when_a_set_is_removed_its_subscribers_are_told(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await websub_hub.ask("DELETE", f"/api/sets/{new_set}")
        (denial,) = await has(receiver, 1, of="denials")
        assert denial.query["hub.topic"] == topic(websub_hub, new_set)


# --- verification --------------------------------------------------------------------------------


async def test_16_a_verification_carries_mode_topic_challenge_and_lease(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        query = receiver.verifications[0].query
        assert query.keys() == {"hub.mode", "hub.topic", "hub.challenge", "hub.lease_seconds"}
        assert (query["hub.mode"], query["hub.lease_seconds"]) == ("subscribe", "864000")


async def test_16_every_challenge_is_a_new_one(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await ask(websub_hub, "subscribe", topic(websub_hub, new_set), receiver.callback)
        asked = await has(receiver, 2, of="verifications")
        challenges = {each.query["hub.challenge"] for each in asked}
        assert len(challenges) == 2
        assert all(len(challenge) >= 32 for challenge in challenges)


async def redirects(asked: ReceivedRequest, writer) -> None:
    challenge = asked.query["hub.challenge"].encode()
    writer.write(response("302 Found", challenge, Location="/elsewhere"))


async def fails_with_the_challenge(asked: ReceivedRequest, writer) -> None:
    writer.write(response("500 Oh", asked.query["hub.challenge"].encode()))


async def adds_a_line(asked: ReceivedRequest, writer) -> None:
    writer.write(response("200 OK", asked.query["hub.challenge"].encode() + b"\n"))


@pytest.mark.parametrize(
    "get",
    [redirects, fails_with_the_challenge, adds_a_line, answers("200 OK", b"x" * 100_000)],
    ids=["3xx", "5xx", "another body", "an endless body"],
)
async def test_17_anything_but_2xx_with_the_challenge_is_no(websub_hub, new_set, get):
    async with Receiver(get=get) as receiver, Receiver() as other:
        await ask(websub_hub, "subscribe", topic(websub_hub, new_set), receiver.callback)
        await has(receiver, 1, of="verifications")
        await subscribe(websub_hub, other, new_set)
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        await has(other, 1)
        assert await subscription(websub_hub, receiver, new_set) is None
        assert len(receiver.asked) == 1


async def test_18_a_lease_that_has_ended_ends_the_subscription(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)  # for longer first: to be seen at all
        url = topic(websub_hub, new_set)
        await ask(websub_hub, "subscribe", url, receiver.callback, hub_lease_seconds=1)
        await until(gone(websub_hub, receiver, new_set))
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        async with Receiver() as other:
            await subscribe(websub_hub, other, new_set)
            await websub_hub.publish("http://example.com/2", set_name=new_set)
            await has(other, 1)
        assert receiver.deliveries == []


async def test_19_a_subscription_is_verified_once_and_then_left_alone(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        for number in range(3):
            await websub_hub.publish(f"http://example.com/{number}", set_name=new_set)
        await has(receiver, 1)
        assert len(receiver.verifications) == 1


# --- publishing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hub.url", "hub.topic"])
async def test_20_a_ping_for_our_topics_does_no_harm(websub_hub, new_set, name):
    topics = [topic(websub_hub, new_set), topic(websub_hub, new_set, "framework")]
    body = "hub.mode=publish" + "".join(f"&{name}={url}" for url in topics)
    assert await post(websub_hub, body) == (204, b"")


# --- distribution --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["change", "framework"])
async def test_21_22_a_delivery_is_the_topics_content_type_and_links(websub_hub, new_set, kind):
    """Hub and topic are in one header, for subscribers that read only the first."""
    url = topic(websub_hub, new_set, kind)
    async with Receiver() as receiver, aiohttp.ClientSession() as session:
        await ask(websub_hub, "subscribe", url, receiver.callback)

        async def is_verified() -> bool:
            return await subscription(websub_hub, receiver, new_set) is not None

        await until(is_verified)
        change = {"loc": f"{websub_hub.url}/{new_set}/capabilitylist.xml", "change": "updated"}
        more = {"capability": "capabilitylist"} if kind == "framework" else {}
        path = {"change": "changes", "framework": "framework"}[kind]

        async def is_the_topics() -> bool:
            """Of two changes that came in one call the topic has the newest alone: then another."""
            before = len(receiver.deliveries)
            await websub_hub.ask("POST", f"/api/sets/{new_set}/{path}", json=change | more)
            await has(receiver, before + 1)
            delivery = receiver.deliveries[-1]
            async with session.get(url) as answer:
                if await answer.read() != delivery.body:
                    return False
                for name in ("content-type", "link"):
                    assert delivery.headers[name] == answer.headers[name]
            return True

        await until(is_the_topics)
        delivery = receiver.deliveries[-1]
        assert delivery.headers["content-type"] == "application/xml"
        link = delivery.headers["link"]
        assert f'<{websub_hub.url}/hub>; rel="hub"' in link
        assert f'<{url}>; rel="self"' in link


async def test_23_any_2xx_is_success_whatever_the_body(websub_hub, new_set):
    async with Receiver(post=answers("299 Odd", b"<failure/>")) as receiver:
        await subscribe(websub_hub, receiver, new_set)
        for number in (1, 2):
            await websub_hub.publish(f"http://example.com/{number}", set_name=new_set)
            await has(receiver, number)
        assert receiver.locs == ["http://example.com/1", "http://example.com/2"]


async def test_23_gone_ends_the_subscription(websub_hub, new_set):
    async with Receiver(post=answers("410 Gone")) as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        await until(gone(websub_hub, receiver, new_set))


async def test_23_anything_else_is_a_failure_that_waits(websub_hub, new_set):
    post = answers("302 Found", Location="http://169.254.169.254/latest/meta-data")
    async with Receiver(post=post) as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        await until(failed(websub_hub, receiver, new_set))
        found = await subscription(websub_hub, receiver, new_set)
        assert found["last_answer"] == "302 Found"
        assert found["position"] < found["next_attempt"]


async def test_24_a_failed_notification_comes_again_with_what_came_after(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await websub_hub.publish("http://example.com/0", set_name=new_set)
        await has(receiver, 1)  # so what follows its position is in the hub's memory
        receiver.post = answers("500 Oh")
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        await until(failed(websub_hub, receiver, new_set))
        for number in (2, 3):
            await websub_hub.publish(f"http://example.com/{number}", set_name=new_set)
        # A topic is answered when the process has read all that is in Redis: it will send both.
        await websub_hub.ask("GET", f"/channels/{new_set}/change_notification_channel")
        taken: list[ReceivedRequest] = []
        receiver.post = takes(taken)  # not before: on a slow machine, its time may have come
        await retry(websub_hub, receiver, new_set)
        assert (await first_of(taken)).locs == [f"http://example.com/{n}" for n in (1, 2, 3)]


async def test_24_a_retry_after_is_obeyed(websub_hub, new_set):
    async with Receiver(post=answers("503 Unavailable", Retry_After="1")) as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        await has(receiver, 2)  # the schedule would have taken five seconds
        assert (await subscription(websub_hub, receiver, new_set))["failures"] == 0


async def test_25_without_a_secret_nothing_is_signed(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        (delivery,) = await has(receiver, 1)
        assert "x-hub-signature" not in delivery.headers
        assert "webhook-signature" not in delivery.headers


async def test_25_the_signature_covers_the_exact_body(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set, hub_secret="geheim €")
        await websub_hub.publish("http://example.com/%C3%A9", set_name=new_set)
        (delivery,) = await has(receiver, 1)
        assert delivery.headers["x-hub-signature"] == signature("geheim €", delivery)


# 26 binds subscribers: they must not find the subscription by the Link headers.


def signature(secret: str, delivery: ReceivedRequest) -> str:
    return f"sha256={hmac.new(secret.encode(), delivery.body, hashlib.sha256).hexdigest()}"


def gone(hub: RunningHub, receiver: Receiver, set_name: str):
    async def is_gone() -> bool:
        return await subscription(hub, receiver, set_name) is None

    return is_gone


def failed(hub: RunningHub, receiver: Receiver, set_name: str):
    async def has_failed() -> bool:
        return (await subscription(hub, receiver, set_name))["next_attempt"] is not None

    return has_failed


async def retry(hub: RunningHub, receiver: Receiver, set_name: str) -> None:
    found = await subscription(hub, receiver, set_name)
    status, _ = await hub.ask("POST", f"/api/subscriptions/{found['id']}/retry")
    assert status == 202
