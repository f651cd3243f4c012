"""A WebSub topic with a filter: each change of its part is called once, and its cursor moves on."""

from contextlib import AsyncExitStack
from itertools import groupby

import pytest

from rsnotify.live.filter_counts import FILTERS, FILTERS_OF_ONE
from tests.support.filter_takers import takers
from tests.support.receivers import (
    Receiver,
    answers,
    ask,
    confirms,
    distant,
    first_of,
    has,
    subscribe,
    takes,
    topic,
)
from tests.support.running import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAPERS, THESES = "http://example.com/papers/", "http://example.com/theses/"
PDF, HTML = "application/pdf", "text/html"


async def shown(hub, receiver):
    _, found = await hub.ask("GET", "/api/subscriptions")
    return [each for each in found if each["callback"] == receiver.callback]


async def subscribed(hub, receiver, name, query):
    form = {
        "hub.mode": "subscribe",
        "hub.topic": f"{topic(hub, name)}?{query}",
        "hub.callback": receiver.callback,
    }
    status, said = await hub.ask("POST", "/hub", data=form)
    assert status == 202, said


async def subscribed_for_good(hub, receiver, name, query, number=1):
    await subscribed(hub, receiver, name, query)
    await are_shown(hub, receiver, number)


async def are_shown(hub, receiver, number):
    async def is_there():
        return len(await shown(hub, receiver)) == number

    await until(is_there)


async def test_a_callback_is_called_with_what_it_wants_alone(websub_hub, new_set):
    async with Receiver() as receiver:
        query = f"prefix={PAPERS}&change=created"
        await subscribed_for_good(websub_hub, receiver, new_set, query)
        for number in range(4):
            await websub_hub.publish(f"{THESES}{number}", set_name=new_set)
            await websub_hub.publish(f"{PAPERS}{number}", change="created", set_name=new_set)
            await websub_hub.publish(f"{PAPERS}{number}", set_name=new_set)
        await websub_hub.publish(f"{PAPERS}0", change="deleted", set_name=new_set)
        await has(receiver, 5, of="locs")  # two changes may come in one call
        assert receiver.locs == [*(f"{PAPERS}{number}" for number in range(4)), f"{PAPERS}0"]
        told = [each.notification for each in receiver.deliveries]
        assert [each.from_ for each in told[1:]] == [each.until for each in told[:-1]]
        link = receiver.deliveries[0].headers["link"]
        assert f'<{topic(websub_hub, new_set)}?{query}>; rel="self"' in link


async def test_a_callback_may_have_several_parts_and_each_is_another_notification(
    websub_hub, new_set
):
    async with Receiver() as receiver:
        await subscribed_for_good(websub_hub, receiver, new_set, f"prefix={PAPERS}")
        await subscribed_for_good(websub_hub, receiver, new_set, "change=updated", 2)
        await websub_hub.publish(f"{PAPERS}1", set_name=new_set)
        await has(receiver, 2)
        assert receiver.locs == [f"{PAPERS}1"] * 2
        ids = {each.headers["webhook-id"] for each in receiver.deliveries}
        assert len(ids) == 2
        same = f"prefix={PAPERS}".replace("/", "%2F")
        await subscribed(websub_hub, receiver, new_set, same)  # renews the first
        await has(receiver, 3, of="verifications")
        assert len(await shown(websub_hub, receiver)) == 2
        ended = {"hub.mode": "unsubscribe", "hub.callback": receiver.callback}
        for query in (f"prefix={PAPERS}", "change=updated"):
            asked = ended | {"hub.topic": f"{topic(websub_hub, new_set)}?{query}"}
            assert (await websub_hub.ask("POST", "/hub", data=asked))[0] == 202

        async def is_over():
            return not await shown(websub_hub, receiver)

        await until(is_over)


async def test_a_cursor_moves_on_without_a_call(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribed_for_good(websub_hub, receiver, new_set, f"prefix={PAPERS}")
        (before,) = await shown(websub_hub, receiver)
        locs = [f"{THESES}{number}" for number in range(1_000)]
        end = (await websub_hub.publish(*locs, set_name=new_set))["until"]

        async def has_moved():
            (found,) = await shown(websub_hub, receiver)
            return found["position"] == end

        await until(has_moved)
        assert receiver.deliveries == []
        await websub_hub.publish(PAPERS, set_name=new_set)
        await has(receiver, 1)
        told = receiver.deliveries[0].notification
        assert str(told.from_) == before["position"]  # it covers what was passed over
        await websub_hub.publish(*locs, set_name=new_set)
        await websub_hub.publish(PAPERS, set_name=new_set)
        await has(receiver, 2)
        assert receiver.deliveries[1].notification.from_ == told.until


async def test_what_was_missed_while_a_callback_failed_comes_in_part(websub_hub, new_set):
    async with Receiver(post=answers("500 Failed")) as receiver:
        await subscribed_for_good(websub_hub, receiver, new_set, f"prefix={PAPERS}")
        await websub_hub.publish(f"{PAPERS}1", set_name=new_set)
        await has(receiver, 1)
        await websub_hub.publish(f"{THESES}2", f"{PAPERS}3", set_name=new_set)
        (found,) = await shown(websub_hub, receiver)
        # A topic is answered when the process has read all that is in Redis: it will send both.
        await websub_hub.ask("GET", f"/channels/{new_set}/change_notification_channel")
        taken = []
        receiver.post = takes(taken)  # not before: on a slow machine, its time may have come
        await websub_hub.ask("POST", f"/api/subscriptions/{found['id']}/retry")
        assert (await first_of(taken)).locs == [f"{PAPERS}1", f"{PAPERS}3"]


async def test_a_part_that_a_set_no_longer_allows_ends_with_the_reason(websub_hub, new_set):
    async with Receiver() as receiver:
        form = {
            "hub.mode": "subscribe",
            "hub.topic": f"{topic(websub_hub, new_set)}?type={PDF}",
            "hub.callback": receiver.callback,
        }
        status, said = await websub_hub.ask("POST", "/hub", data=form)
        assert (status, b"--filters" in said) == (400, True)
        await websub_hub.ask("PATCH", f"/api/sets/{new_set}", json={"filters": True})
        await subscribed_for_good(websub_hub, receiver, new_set, f"type={PDF}")
        for media_type in (PDF, HTML, HTML):
            await websub_hub.publish(PAPERS, type=media_type, set_name=new_set)
        await websub_hub.publish(THESES, type=PDF, set_name=new_set)
        await has(receiver, 3, of="locs")
        assert receiver.locs == [PAPERS, PAPERS, THESES]
        await websub_hub.ask("PATCH", f"/api/sets/{new_set}", json={"filters": False})
        await websub_hub.publish(THESES, type=PDF, set_name=new_set)
        await are_shown(websub_hub, receiver, 0)
        (denial,) = receiver.denials
        assert "no longer allows filters" in denial.query["hub.reason"]


async def test_the_end_of_a_part_is_not_that_of_the_whole(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribed_for_good(websub_hub, receiver, new_set, f"prefix={PAPERS}")
        await ask(websub_hub, "subscribe", topic(websub_hub, new_set), receiver.callback)
        await are_shown(websub_hub, receiver, 2)
        (part,) = [each for each in await shown(websub_hub, receiver) if "?" in each["topic"]]
        await websub_hub.ask("DELETE", f"/api/subscriptions/{part['id']}")
        (denial,) = await has(receiver, 1, of="denials")
        assert denial.query["hub.topic"] == part["topic"]
        await are_shown(websub_hub, receiver, 1)
        await websub_hub.publish(f"{PAPERS}1", set_name=new_set)
        (delivery,) = await has(receiver, 1)
        assert f'<{topic(websub_hub, new_set)}>; rel="self"' in delivery.headers["link"]


async def test_a_part_whose_callback_failed_is_tried_again_when_the_operator_wants_it(
    websub_hub, new_set
):
    async with Receiver(post=answers("503 Service Unavailable", retry_after="3600")) as receiver:
        await subscribed_for_good(websub_hub, receiver, new_set, f"prefix={PAPERS}")
        await websub_hub.publish(f"{PAPERS}1", set_name=new_set)
        await has(receiver, 1)
        receiver.post = answers()
        (found,) = await shown(websub_hub, receiver)

        async def is_noted():
            return (await shown(websub_hub, receiver))[0]["next_attempt"]

        await until(is_noted)
        await websub_hub.ask("POST", f"/api/subscriptions/{found['id']}/retry")
        await has(receiver, 2)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("prefix=", b"prefix is empty"),
        ("prefix=/papers/", b"with a scheme"),
        ("type=*", b"a media type"),
        ("from=2026-11-20", b"unknown parameter 'from'"),
    ],
)
async def test_a_topic_that_is_no_filter_is_refused(websub_hub, new_set, query, said):
    form = {
        "hub.mode": "subscribe",
        "hub.topic": f"{topic(websub_hub, new_set)}?{query}",
        "hub.callback": "http://127.0.0.1:9/callback",
    }
    status, body = await websub_hub.ask("POST", "/hub", data=form)
    assert (status, said in body) == (400, True), body


async def test_a_filter_more_than_a_channel_may_have_is_denied_with_the_reason(websub_hub, new_set):
    async with AsyncExitStack() as receivers:
        for host, its in groupby(takers()):
            receiver = await receivers.enter_async_context(Receiver(host=host))
            count = len([*its])
            for number in range(count):
                query = f"prefix=http://{host}/{number}"
                await subscribed(websub_hub, receiver, new_set, query)
            await are_shown(websub_hub, receiver, count)
        one_more = await receivers.enter_async_context(Receiver(host="127.0.0.99"))
        await subscribed(websub_hub, one_more, new_set, "prefix=http://a/more")
        (denial,) = await has(one_more, 1, of="denials")
        assert f"{FILTERS} different filters" in denial.query["hub.reason"]
        assert not await shown(websub_hub, one_more)


async def test_one_host_cannot_take_the_filters_of_all_others(websub_hub, new_set):
    async with (
        Receiver() as receiver,
        Receiver() as at_another_port,
        Receiver(host="127.0.0.2") as other,
    ):
        for number in range(FILTERS_OF_ONE):
            await subscribed(websub_hub, receiver, new_set, f"prefix=http://a/{number}")
        await are_shown(websub_hub, receiver, FILTERS_OF_ONE)
        for each in (receiver, at_another_port):
            await subscribed(websub_hub, each, new_set, "prefix=http://a/more")
            (denial,) = await has(each, 1, of="denials")
            assert f"{FILTERS_OF_ONE} different filters at" in denial.query["hub.reason"]
        await subscribed_for_good(websub_hub, other, new_set, "prefix=http://a/more")
        await subscribed_for_good(websub_hub, at_another_port, new_set, "prefix=http://a/0")


@pytest.mark.evidence
async def test_of_many_filters_at_once_one_host_gets_no_more(websub_hub, new_set):
    over = 10
    async with Receiver(get=distant(0.3, confirms)) as receiver:
        for number in range(FILTERS_OF_ONE + over):
            form = {
                "hub.mode": "subscribe",
                "hub.topic": f"{topic(websub_hub, new_set)}?prefix=http://a/{number}",
                "hub.callback": f"{receiver.callback}/{number}",
            }
            assert (await websub_hub.ask("POST", "/hub", data=form))[0] == 202

        async def are_judged():
            _, found = await websub_hub.ask("GET", "/api/subscriptions")
            kept = [each for each in found if each["callback"].startswith(receiver.callback)]
            return len(kept) + len(receiver.denials) == FILTERS_OF_ONE + over

        await until(are_judged)
        assert len(receiver.denials) == over


async def test_a_topic_without_a_filter_is_as_before(websub_hub, new_set):
    async with Receiver() as receiver:
        await subscribe(websub_hub, receiver, new_set)
        await websub_hub.publish(PAPERS, set_name=new_set)
        await has(receiver, 1)
        address = topic(websub_hub, new_set)
        assert (await ask(websub_hub, "unsubscribe", address, receiver.callback))[0] == 202
