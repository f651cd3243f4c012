"""The subscriptions in a real Redis: who owns a share, and what only its owner may write."""

import asyncio
from typing import Any

import pytest
from redis.exceptions import ResponseError

from rsnotify.coordination import keys
from rsnotify.errors import TooFewReplicas, TooMany, Unanswered
from rsnotify.redis_client import Client, Replicas, connect
from rsnotify.websub.heartbeats import CLAIM_SECONDS
from rsnotify.websub.subscription import SHARES, PendingRequest, Progress, Subscription, share_of
from rsnotify.websub.subscription_store import Stored, Subscriptions, release_all_claims
from tests.support.clock import HOUR

CALLBACK = "http://callback.test/1"
SHARE = share_of(CALLBACK)


def subscriptions(
    client: Client, per_host: int = 10, per_address: int = 10, **options: Any
) -> Subscriptions:
    return Subscriptions(
        client, "here:1", pending_per_host=per_host, pending_per_address=per_address, **options
    )


def request(order: str = "subscribe", callback: str = CALLBACK, **fields: object) -> PendingRequest:
    return PendingRequest(order, "http://t/", callback, "dataset1", lease_seconds=60, **fields)


STORED = Stored(
    Subscription("dataset1", "change", "http://t/", CALLBACK, created=1, lease_end=2), Progress(7)
)


async def pending(store: Subscriptions) -> dict[str, PendingRequest]:
    (found,) = await store.requests([SHARE])
    return found


async def test_a_share_has_one_owner(client):
    one, two = subscriptions(client), subscriptions(client)
    assert await one.claim([1, 2]) == [True, True]
    assert await two.claim([2, 3]) == [False, True]
    assert await one.claim([1, 2, 3]) == [True, True, False]


async def test_every_share_is_free_when_all_claims_are_released(client, redis_url):
    one, two = subscriptions(client), subscriptions(client)
    await one.heartbeat()
    await one.claim(range(SHARES))
    await release_all_claims(redis_url)
    assert set(await two.claim(range(SHARES))) == {True}
    _, hubs = await two.heartbeat()
    assert hubs == 1


async def test_a_share_that_was_nobodys_meanwhile_is_not_renewed(client):
    store = subscriptions(client)
    await store.claim([1, 2])
    await client.delete(keys.of_share(1, "owner"))
    assert await store.renew([1, 2]) == [False, True]


async def test_a_share_that_was_released_is_free(client):
    one, two = subscriptions(client), subscriptions(client)
    await one.claim([1])
    await two.release([1])
    assert await two.claim([1]) == [False]
    await one.release([1])
    assert await two.claim([1]) == [True]


class Hours:
    """A monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_claim_ends_when_its_owner_shows_no_sign_of_life(client):
    hours = Hours()
    one = subscriptions(client, clock=hours)
    two = subscriptions(client, clock=hours)
    await one.heartbeat()
    assert await one.claim([1]) == [True]
    assert (await two.heartbeat())[1] == 2
    hours.now = CLAIM_SECONDS - 0.001
    assert await two.claim([1]) == [False]
    assert (await two.heartbeat())[1] == 2
    hours.now = CLAIM_SECONDS
    assert (await two.heartbeat())[1] == 1
    assert await two.claim([1]) == [True]
    assert await one.claim([1]) == [False]


async def test_an_owner_that_was_only_frozen_keeps_what_it_has_renewed(client):
    hours = Hours()
    one, two = subscriptions(client, clock=hours), subscriptions(client, clock=hours)
    for store in (one, two):
        await store.heartbeat()
    assert await one.claim([1, 2]) == [True, True]
    hours.now = CLAIM_SECONDS
    await two.heartbeat()  # and counts it as gone
    assert (await one.heartbeat())[1] == 2
    assert await one.claim([1]) == [True]
    assert await two.claim([1, 2]) == [False, True]
    assert await one.claim([2]) == [False]


async def test_a_claim_of_a_hub_before_this_one_ends_by_its_own_time_limit(client):
    hours = Hours()
    store = subscriptions(client, clock=hours)
    await client.set(keys.of_share(1, "owner"), "host:1:abc", px=15_000)
    hours.now = 1000.0
    assert await store.claim([1]) == [False]
    await client.delete(keys.of_share(1, "owner"))
    assert await store.claim([1]) == [True]


@pytest.mark.parametrize("hours_moved", [-1, 48])
async def test_a_clock_of_redis_that_jumps_ends_no_claim_and_keeps_none(
    moved_redis, clock, hours_moved
):
    hours = Hours()
    client = connect(moved_redis.url)
    one, two = subscriptions(client, clock=hours), subscriptions(client, clock=hours)
    await one.heartbeat()
    await one.claim([1])
    await two.heartbeat()
    clock.move(hours_moved * HOUR)
    assert (await two.heartbeat())[1] == 2
    assert await two.claim([1]) == [False]
    hours.now = CLAIM_SECONDS
    assert (await two.heartbeat())[1] == 1
    assert await two.claim([1]) == [True]
    await client.aclose()


async def test_whoever_has_lost_a_share_can_write_nothing_of_it(client):
    one, two = subscriptions(client), subscriptions(client)
    await one.claim([SHARE])
    await one.ask(request())
    (id_,) = await pending(one)
    await one.finish_request(id_, request(), keep=STORED)
    await client.delete(keys.of_share(SHARE, "owner"))
    await two.claim([SHARE])
    subscription = request().subscription_id
    assert await one.write_progress({SHARE: {subscription: Progress(99)}}) == {SHARE}
    assert not await one.forget(SHARE, {subscription: STORED.subscription})
    await one.ask(request("unsubscribe"))
    (id_,) = await pending(one)
    assert not await one.finish_request(id_, request("unsubscribe"), drop=True)
    assert await two.all() == {subscription: STORED}


async def test_progress_of_what_has_gone_is_not_written(client):
    store = subscriptions(client)
    await store.claim([SHARE])
    assert await store.write_progress({SHARE: {"gone": Progress(1)}}) == set()
    assert await client.hlen(keys.of_share(SHARE, "progress")) == 0


async def test_a_renewal_leaves_the_progress_as_it_is(client):
    store = subscriptions(client)
    await store.claim([SHARE])
    for progress in (Progress(7), Progress(99)):
        await store.ask(request())
        (id_,) = await pending(store)
        await store.finish_request(id_, request(), keep=Stored(STORED.subscription, progress))
    assert [stored.progress for stored in (await store.all()).values()] == [Progress(7)]


async def test_the_same_request_is_pending_once_until_it_is_settled(client):
    store = subscriptions(client)
    await store.claim([SHARE])
    for address in ("1.1.1.1", "2.2.2.2"):
        await store.ask(request(client_address=address))
    (id_,) = await pending(store)
    await store.finish_request(id_, request(client_address="1.1.1.1"))
    await store.ask(request())
    assert len(await pending(store)) == 1


async def test_subscribing_again_after_unsubscribing_is_another_request(client):
    store = subscriptions(client)
    for order in ("subscribe", "unsubscribe", "subscribe"):
        await store.ask(request(order))
    assert [each.order for each in (await pending(store)).values()] == [
        *("subscribe", "unsubscribe", "subscribe")
    ]


async def test_a_settled_request_no_longer_counts(client):
    store = subscriptions(client, per_host=1, per_address=1)
    await store.claim([SHARE])
    await store.ask(request(client_address="1.1.1.1"))
    with pytest.raises(TooMany, match=r"callback\.test:80"):
        await store.ask(request(callback=CALLBACK + "2", client_address="2.2.2.2"))
    with pytest.raises(TooMany, match="your requests"):
        await store.ask(request(callback="http://other.test/", client_address="1.1.1.1"))
    (id_,) = await pending(store)
    await store.finish_request(id_, request(client_address="1.1.1.1"))
    await store.ask(request(callback=CALLBACK + "2", client_address="1.1.1.1"))


async def test_the_limit_of_a_client_address_holds_for_requests_that_come_together(client):
    store = subscriptions(client, per_address=3)
    wanted = [request(callback=f"http://{number}.test/") for number in range(20)]
    answers = await asyncio.gather(*map(store.ask, wanted), return_exceptions=True)
    assert answers.count(None) == 3
    assert [type(answer) for answer in answers if answer is not None] == [TooMany] * 17


async def test_a_request_that_was_not_stored_does_not_count_for_its_client_address(client):
    store = subscriptions(client, per_address=1)
    await client.set(keys.of_share(SHARE, "latest"), "no hash")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await store.ask(request())
    await store.ask(request(callback="http://other.test/"))


async def test_a_request_that_may_have_been_stored_counts_for_its_client_address(
    client, monkeypatch
):
    store = subscriptions(client, per_address=1)
    durably = client.durably

    async def lose_answer(commands: Any) -> None:
        await durably(commands)
        raise Unanswered("the connection was lost")

    monkeypatch.setattr(client, "durably", lose_answer)
    with pytest.raises(Unanswered):
        await store.ask(request())
    with pytest.raises(TooMany, match="your requests"):
        await store.ask(request(callback="http://other.test/"))


async def test_a_request_that_too_few_replicas_have_counts_for_its_client_address(
    client, redis_url
):
    async with connect(redis_url, replicas=Replicas(1, wait_milliseconds=1)) as careful:
        store = subscriptions(careful, per_address=1)
        with pytest.raises(TooFewReplicas):
            await store.ask(request())
        assert len(await pending(store)) == 1
        with pytest.raises(TooMany, match="your requests"):
            await store.ask(request(callback="http://other.test/"))


@pytest.mark.parametrize("answer_of", ["pending:192.0.2.1", '"client_address":"192.0.2.1"'])
async def test_a_request_whose_answer_was_lost_is_counted_once(way, answer_of):
    """Redis is asked again whether it may be pending, or to let it be."""
    async with connect(way.url) as client:
        store = subscriptions(client, per_host=2, per_address=1)
        await store.ask(request(client_address="192.0.2.2"))  # Redis knows the scripts from now on
        way.lose_next_answer(answer_of)
        await store.ask(request("unsubscribe", client_address="192.0.2.1"))
        assert way.lost == 1
        assert len(await pending(store)) == 2
        with pytest.raises(TooMany, match="your requests"):
            await store.ask(request(callback="http://other.test/", client_address="192.0.2.1"))


@pytest.mark.parametrize("hours_moved", [-1, 1])
async def test_a_request_counts_for_its_client_address_only_for_its_time(
    moved_redis, clock, hours_moved
):
    async with connect(moved_redis.url) as client:
        store = subscriptions(client, per_address=1)
        await store.ask(request())
        clock.move(hours_moved * HOUR)
        await store.ask(request(callback="http://other.test/"))


async def test_a_subscription_is_remembered_as_soon_as_it_is_stored(client):
    """Whatever fails after that: else nobody could put it back after a failover."""
    store = subscriptions(client)
    await store.claim([SHARE])
    await store.ask(request(client_address="1.1.1.1"))
    (id_,) = await pending(store)
    await client.set(keys.pending_of("1.1.1.1"), "no set of requests")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await store.finish_request(id_, request(client_address="1.1.1.1"), keep=STORED)
    kept, _ = store.remembered()
    assert list(kept.values()) == list((await store.all()).values()) == [STORED]


async def test_what_the_operator_wants_is_never_too_much(client):
    store = subscriptions(client, per_host=1, per_address=1)
    await store.ask(request())
    await store.retry(STORED.subscription)
    await store.deny(STORED.subscription, "because")
    assert len(await pending(store)) == 3


async def test_hub_processes_are_counted_while_they_live(client):
    one, two = subscriptions(client), subscriptions(client)
    assert (await one.heartbeat())[1] == 1
    assert (await two.heartbeat())[1] == 2
    await two.claim(range(SHARES))
    await two.leave(range(SHARES))
    assert (await one.heartbeat())[1] == 1
    assert all(await one.claim(range(SHARES)))


async def test_a_redis_that_has_forgotten_the_script_is_told_again(client):
    store = subscriptions(client)
    await store.claim([1])
    await client.script_flush()
    assert await store.claim([1]) == [True]


async def test_one_is_found_without_reading_the_others(client):
    store = subscriptions(client)
    await store.claim([SHARE])
    await store.ask(request())
    (id_,) = await pending(store)
    await store.finish_request(id_, request(), keep=STORED)
    await client.hset(keys.of_share(SHARE, "records"), "another", "unreadable")
    await client.hset(keys.of_share(SHARE, "progress"), "another", "unreadable")
    assert await store.find(request().subscription_id) == STORED
    assert await store.find("nothing") is None
