"""The operator's view of subscriptions: by HTTP and by the command line."""

import json
from pathlib import Path

import pytest

from tests.support.forks import run
from tests.support.receivers import (
    Receiver,
    answers,
    ask,
    has,
    subscribe,
    subscription,
    topic,
)
from tests.support.running import TOKEN, RunningHub, clean_environment, until


@pytest.fixture
async def open_hub(tmp_path: Path):
    async with RunningHub(tmp_path / "data", callback_private="allow") as hub:
        yield hub


async def rsnotify(hub: RunningHub, *words: str) -> tuple[int, str]:
    environment = clean_environment() | {"RSNOTIFY_TOKEN": TOKEN, "COLUMNS": "200"}
    ended = await run(("subscriptions", *words, "--url", hub.url), environment)
    return ended.status, ended.out + ended.err


async def test_the_operator_sees_lists_retries_and_removes(open_hub):
    async with Receiver(post=answers("500 Oh")) as receiver:
        found = await subscribe(open_hub, receiver, hub_secret="geheim")
        await open_hub.publish("http://example.com/1")
        await open_hub.publish("http://example.com/2")

        async def is_behind() -> bool:
            return (await subscription(open_hub, receiver))["failures"] == 1

        await until(is_behind)
        status, listed = await rsnotify(open_hub, "list")
        assert (status, receiver.callback in listed, "500 Oh" in listed) == (0, True, True)
        status, shown = await rsnotify(open_hub, "show", found["id"], "--json")
        fields = json.loads(shown)
        assert (fields["behind_changes"], fields["signed"]) == (2, True)
        assert "geheim" not in listed + shown
        assert 0 < fields["lease_seconds_left"] <= 864_000
        assert fields["position"] == found["position"]
        assert fields["next_attempt"] > fields["answered"]
        status, shown = await rsnotify(open_hub, "show", found["id"])
        assert "behind changes" in shown
        receiver.post = answers()
        assert (await rsnotify(open_hub, "retry", found["id"]))[0] == 0
        assert (await has(receiver, 2))[1].locs == [f"http://example.com/{n}" for n in (1, 2)]
        assert (await rsnotify(open_hub, "remove", found["id"]))[0] == 0
        assert await subscription(open_hub, receiver) is None
        (denial,) = await has(receiver, 1, of="denials")
        assert denial.query["hub.reason"] == "the operator of the hub has removed the subscription"


async def test_a_subscription_survives_a_restart(open_hub):
    async with Receiver() as receiver:
        await subscribe(open_hub, receiver, hub_secret="geheim")
        assert await open_hub.stop() == 0
        await open_hub.start()
        await open_hub.publish("http://example.com/1")
        (delivery,) = await has(receiver, 1)
        assert "x-hub-signature" in delivery.headers


async def test_a_receiver_that_is_only_starting_is_asked_again(open_hub):
    async with Receiver() as receiver:
        callback, port = receiver.callback, receiver.port
    assert (await ask(open_hub, "subscribe", topic(open_hub), callback))[0] == 202

    async def was_tried() -> bool:
        return "no connection" in open_hub.log.read_text()

    await until(was_tried)
    async with Receiver(port=port) as late:
        await has(late, 1, of="verifications")
