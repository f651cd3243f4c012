"""What the hub does beyond the duties: who may subscribe, where it may call, how much may wait."""

import asyncio
import base64
import hmac

import pytest

from tests.support.receivers import (
    ReceivedRequest,
    Receiver,
    answers,
    ask,
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


# --- private sets --------------------------------------------------------------------------------


async def token_for(hub: RunningHub, set_name: str, *rights: str) -> str:
    content = {"sets": [set_name], "rights": rights}
    return (await hub.ask("POST", "/api/tokens", json=content))[1]["token"]


async def ask_with(
    hub: RunningHub, token: str, set_name: str, callback: str, mode: str = "subscribe"
) -> int:
    form = {"hub.mode": mode, "hub.topic": topic(hub, set_name), "hub.callback": callback}
    headers = {"Authorization": f"Bearer {token}" if token else ""}
    return (await hub.ask("POST", "/hub", data=form, headers=headers))[0]


async def test_subscribing_to_a_private_set_needs_a_token_with_read_right(websub_hub, new_set):
    await websub_hub.ask("PATCH", f"/api/sets/{new_set}", json={"private": True})
    publisher = await token_for(websub_hub, new_set, "publish")
    reader = await token_for(websub_hub, new_set, "read")
    async with Receiver() as receiver:
        assert await ask_with(websub_hub, "", new_set, receiver.callback) == 404
        assert await ask_with(websub_hub, publisher, new_set, receiver.callback) == 403
        assert await ask_with(websub_hub, reader, new_set, receiver.callback) == 202
        await has(receiver, 1, of="verifications")
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        await has(receiver, 1)


async def test_what_is_published_after_a_set_turned_private_reaches_nobody_without_a_right(
    websub_hub, new_set
):
    is_private = asyncio.Event()

    async def answers_then(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await is_private.wait()
        await answers()(asked, writer)

    async with Receiver(post=answers_then) as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await websub_hub.publish("http://example.com/public", set_name=new_set)
        await has(receiver, 1)
        await websub_hub.publish("http://example.com/late", set_name=new_set)  # has to wait
        await websub_hub.ask("PATCH", f"/api/sets/{new_set}", json={"private": True})
        await websub_hub.publish("http://example.com/secret", set_name=new_set)
        is_private.set()
        (denial,) = await has(receiver, 1, of="denials")
        assert denial.query["hub.reason"] == "the topic has become private"
        assert receiver.locs == ["http://example.com/public"]


async def test_a_callback_ends_its_subscription_to_a_private_set_without_a_token(
    websub_hub, new_set
):
    await websub_hub.ask("PATCH", f"/api/sets/{new_set}", json={"private": True})
    reader = await token_for(websub_hub, new_set, "read")
    async with Receiver() as receiver:
        assert await ask_with(websub_hub, "", new_set, receiver.callback, "unsubscribe") == 404
        assert await ask_with(websub_hub, reader, new_set, receiver.callback) == 202
        await until(lambda: subscription(websub_hub, receiver, new_set))
        assert await ask_with(websub_hub, "", new_set, receiver.callback, "unsubscribe") == 202

        async def is_over() -> bool:
            return await subscription(websub_hub, receiver, new_set) is None

        await until(is_over)


async def test_a_subscription_ends_with_the_token_that_made_it(websub_hub, new_set):
    await websub_hub.ask("PATCH", f"/api/sets/{new_set}", json={"private": True})
    reader = await token_for(websub_hub, new_set, "read")
    async with Receiver() as receiver:
        assert await ask_with(websub_hub, reader, new_set, receiver.callback) == 202
        await until(lambda: subscription(websub_hub, receiver, new_set))
        tokens = (await websub_hub.ask("GET", "/api/tokens"))[1]
        (id_,) = [each["id"] for each in tokens if each["sets"] == [new_set]]
        assert (await websub_hub.ask("DELETE", f"/api/tokens/{id_}"))[0] == 204
        (denial,) = await has(receiver, 1, of="denials")
        assert "revoked" in denial.query["hub.reason"]
        await until(lambda: has_gone(websub_hub, receiver, new_set))
        await websub_hub.publish("http://example.com/secret", set_name=new_set)
        assert receiver.locs == []


async def test_a_token_that_is_made_again_subscribes_again(websub_hub, new_set):
    await websub_hub.ask("PATCH", f"/api/sets/{new_set}", json={"private": True})
    asked = {"sets": [new_set], "rights": ["read"], "token": f"rsn_{new_set:a<43}"}
    async with Receiver() as receiver:
        for count in (1, 2):
            _, made = await websub_hub.ask("POST", "/api/tokens", json=asked)
            assert await ask_with(websub_hub, made["token"], new_set, receiver.callback) == 202
            await until(lambda: subscription(websub_hub, receiver, new_set))
            await websub_hub.publish(f"http://example.com/{count}", set_name=new_set)
            await until(lambda wanted=count: has_locs(receiver, wanted))
            assert (await websub_hub.ask("DELETE", f"/api/tokens/{made['id']}"))[0] == 204
            await has(receiver, count, of="denials")
            await until(lambda: has_gone(websub_hub, receiver, new_set))


async def has_locs(receiver: Receiver, count: int) -> bool:
    return len(receiver.locs) == count


async def has_gone(hub: RunningHub, receiver: Receiver, set_name: str) -> bool:
    return await subscription(hub, receiver, set_name) is None


# --- where the hub may call ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "callback",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://[fe80::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::7f00:1]/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
    ],
)
async def test_an_address_that_may_never_be_called_is_refused_at_once(
    websub_hub, new_set, callback
):
    status, text = await ask(websub_hub, "subscribe", topic(websub_hub, new_set), callback)
    assert status == 403
    assert b"may not be called" in text
    assert b"RSNOTIFY_CALLBACK_PRIVATE" not in text


@pytest.mark.parametrize(
    "callback",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::1]:{port}/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://[fd00::1]/",
    ],
)
async def test_private_addresses_are_refused_unless_the_operator_allows_them(strict_hub, callback):
    async with Receiver() as receiver:
        url = callback.format(port=receiver.port)
        status, text = await ask(strict_hub, "subscribe", topic(strict_hub), url)
        assert (status, receiver.asked) == (403, [])
        assert b"may not be called" in text
        assert b"RSNOTIFY_CALLBACK_PRIVATE=allow" in text


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "0177.0.0.1"])
async def test_an_address_in_disguise_is_never_called(strict_hub, host):
    async with Receiver() as receiver:
        url = f"http://{host}:{receiver.port}/"
        status, _ = await ask(strict_hub, "subscribe", topic(strict_hub), url)
        assert status == 202  # a name like any other, as far as the endpoint can tell
        await until(lambda: told_of(strict_hub, url))
        assert receiver.asked == []


async def told_of(hub: RunningHub, callback: str) -> bool:
    return f"{callback} does not confirm" in hub.log.read_text()


# --- how much may wait ---------------------------------------------------------------------------


async def hangs(asked, writer) -> None:
    await writer.wait_closed()


async def test_pending_verifications_are_capped_per_callback_host_and_client_address(tmp_path):
    settings = {"pending_per_host": "3", "pending_per_address": "5", "callback_private": "allow"}
    async with (
        RunningHub(tmp_path / "data", **settings) as hub,
        Receiver(get=hangs) as one,
        Receiver(get=hangs) as other,
    ):
        asked = [
            (await ask(hub, "subscribe", topic(hub), f"{receiver.callback}{number}"))[0]
            for receiver in (one, other)
            for number in range(5)
        ]
        assert asked == [202, 202, 202, 429, 429, 202, 202, 429, 429, 429]


# --- how many there may be -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "who"),
    [
        ({"subscriptions_per_host": "3"}, "HOST"),
        ({"subscriptions_per_address": "3"}, "ADDRESS"),
    ],
)
async def test_a_host_and_a_client_address_have_so_many_subscriptions_and_no_more(
    tmp_path, limits, who
):
    async with (
        RunningHub(tmp_path / "data", callback_private="allow", **limits) as hub,
        Receiver() as receiver,
        Receiver() as other,
        Receiver(get=answers("404 Not Found")) as unwilling,
    ):

        async def asked(callback: str, mode: str = "subscribe") -> int:
            return (await ask(hub, mode, topic(hub), callback))[0]

        async def there_are(count: int) -> None:
            async def so_many() -> bool:
                return len((await hub.ask("GET", "/api/subscriptions"))[1]) == count

            await until(so_many)

        for number in range(3):
            assert await asked(f"{receiver.callback}{number}") == 202
        await there_are(3)
        status, told = await ask(hub, "subscribe", topic(hub), f"{receiver.callback}3")
        assert (status, f"RSNOTIFY_SUBSCRIPTIONS_PER_{who}".encode() in told) == (429, True)
        assert await asked(f"{receiver.callback}0") == 202  # renewed
        if who == "HOST":
            assert await asked(other.callback) == 202
            await there_are(4)
        await hub.publish("http://example.com/1")
        await has(receiver, 3)

        async def accepted(callback: str) -> bool:
            return await asked(callback) == 202

        assert await asked(f"{receiver.callback}0", "unsubscribe") == 202
        await until(lambda: accepted(f"{receiver.callback}3"))
        await there_are(4 if who == "HOST" else 3)
        assert await asked(f"{receiver.callback}4") == 429
        if who == "HOST":  # what no callback confirms does not go on counting
            for number in range(9):
                await until(lambda n=number: accepted(f"{unwilling.callback}{n}"))


async def test_whoever_is_at_the_limit_takes_nothing_from_others(tmp_path):
    """One callback that answers and one client behind a proxy, beside strangers at their limit."""
    settings = {
        "callback_private": "allow",
        "subscriptions_per_address": "40",
        "trusted_proxies": "127.0.0.1",
    }
    async with (
        RunningHub(tmp_path / "data", **settings) as hub,
        Receiver(post=hangs) as strangers,
        Receiver() as honest,
    ):

        async def asked(callback: str, address: str) -> int:
            form = {"hub.mode": "subscribe", "hub.topic": topic(hub), "hub.callback": callback}
            headers = {"Authorization": "", "X-Forwarded-For": address}
            return (await hub.ask("POST", "/hub", data=form, headers=headers))[0]

        for number in range(50):
            expected = 202 if number < 40 else 429
            assert await asked(f"{strangers.callback}{number}", "192.0.2.1") == expected
        assert await asked(honest.callback, "192.0.2.2") == 202
        await until(lambda: subscription(hub, honest))
        for number in range(5):
            await hub.publish(f"http://example.com/{number}")
            await has(honest, number + 1)


async def test_the_same_request_again_is_not_asked_twice(tmp_path):
    async with (
        RunningHub(tmp_path / "data", callback_private="allow", pending_per_host="2") as hub,
        Receiver(get=hangs) as receiver,
    ):
        for _ in range(5):
            assert (await ask(hub, "subscribe", topic(hub), receiver.callback))[0] == 202
        await has(receiver, 1, of="verifications")
        assert len(receiver.verifications) == 1


# --- what is delivered ---------------------------------------------------------------------------


async def test_a_receiver_can_drop_repetitions_and_refuse_replays(websub_hub, new_set):
    async with Receiver(post=answers("503 Busy", Retry_After="1")) as receiver:
        await subscribe(websub_hub, receiver, new_set, hub_secret="secret")
        await websub_hub.publish("http://example.com/1", set_name=new_set)
        first, second = (await has(receiver, 2))[:2]
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        signed = f"{first.headers['webhook-id']}.{first.headers['webhook-timestamp']}.".encode()
        digest = hmac.digest(b"secret", signed + first.body, "sha256")
        assert first.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


async def test_the_operator_may_choose_the_signatures_algorithm(tmp_path):
    settings = {"callback_private": "allow", "signature": "sha512"}
    async with RunningHub(tmp_path / "data", **settings) as hub, Receiver() as receiver:
        await subscribe(hub, receiver, hub_secret="secret")
        await hub.publish("http://example.com/1")
        (delivery,) = await has(receiver, 1)
        digest = hmac.digest(b"secret", delivery.body, "sha512").hex()
        assert delivery.headers["x-hub-signature"] == f"sha512={digest}"


async def test_an_outage_costs_one_catch_up_request(websub_hub, new_set):
    async with Receiver(post=answers("500 Oh")) as receiver, Receiver() as other:
        await subscribe(websub_hub, receiver, new_set)
        await subscribe(websub_hub, other, new_set)
        for number in range(100):
            await websub_hub.publish(f"http://example.com/{number}", set_name=new_set)
        await until(lambda: received(other, 100))
        taken: list[ReceivedRequest] = []
        receiver.post = takes(taken)
        found = await subscription(websub_hub, receiver, new_set)
        await websub_hub.ask("POST", f"/api/subscriptions/{found['id']}/retry")
        assert (await first_of(taken)).locs == [
            f"http://example.com/{number}" for number in range(100)
        ]


async def received(receiver: Receiver, count: int) -> bool:
    return len(receiver.locs) == count


async def takes_a_moment(asked, writer) -> None:
    await asyncio.sleep(0.005)
    writer.write(response())


async def test_one_callback_of_two_topics_gets_one_request_at_a_time(websub_hub, new_set):
    async with Receiver(post=takes_a_moment) as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await ask(websub_hub, "subscribe", topic(websub_hub), receiver.callback)
        await has(receiver, 2, of="verifications")
        for number in range(50):
            await websub_hub.publish(f"http://example.com/a{number}", set_name=new_set)
            await websub_hub.publish(f"http://example.com/b{number}")
        await until(lambda: received(receiver, 100))
        assert receiver.most_at_once == 1
