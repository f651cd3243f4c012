"""Sets, tokens and subscriptions that Redis has lost, put back by the processes that know them."""

import pytest

from rsnotify.errors import NoSuchSet
from rsnotify.journal import keys
from rsnotify.journal.set_options import SetOptions
from rsnotify.journal.sets import Sets
from rsnotify.redis_client import Client
from rsnotify.registry.tokens import Token, Tokens
from rsnotify.resourcesync.change import Position
from rsnotify.websub.ownership import put_subscriptions_back
from rsnotify.websub.subscription import PendingRequest, Progress, Subscription, share_of
from rsnotify.websub.subscription_store import Stored, Subscriptions
from tests.integration.test_repairs import CHANNEL, names
from tests.support.faults import Losing
from tests.support.hubs import started, submission


@pytest.fixture
def losing(client: Client) -> Losing:
    return Losing(client)


async def stored(client: Client) -> dict[str, bool]:
    """The sets that Redis has, and whether each is private."""
    return {name: record.private for name, record in (await Sets(client).all()).items()}


# --- sets ----------------------------------------------------------------------------------------


async def test_a_lost_set_is_put_back_with_its_changes(client, losing):
    hub = await started(client)
    async with losing:
        record, _ = await hub.add_set("a", SetOptions(private=True))
        await hub.publish(CHANNEL, submission("1"))
        other = await started(client)
    await other.start()  # it did not make the set, but knows it
    assert other.record("a") == record
    await hub.start()
    assert await names(client) == ["1"]
    assert not hub.known.lost.is_set()


async def test_a_set_that_had_become_private_is_so_again(client, losing):
    hub = await started(client)
    await hub.add_set("a")
    async with losing:
        await hub.edit_set("a", {"private": True})
    await hub.start()
    assert await stored(client) == {"a": True}
    assert hub.record("a").private


async def test_a_set_that_had_been_removed_is_removed_again(client, losing):
    hub = await started(client)
    await hub.add_set("a")
    async with losing:
        await hub.remove_set("a")
    await hub.start()
    assert await stored(client) == {}
    assert not await client.keys("rsnotify:{a}*")


async def test_a_set_that_had_been_made_anew_is_the_new_one(client, losing):
    hub = await started(client)
    await hub.add_set("a")
    await hub.publish(CHANNEL, submission("of the old one".replace(" ", "-")))
    async with losing:
        await hub.remove_set("a")
        record, _ = await hub.add_set("a")
        await hub.publish(CHANNEL, submission("1"))
    await hub.start()
    assert hub.record("a") == record
    assert await names(client) == ["1"]


async def test_a_set_that_another_process_has_removed_is_not_put_back(client, losing):
    hub, other = await started(client), await started(client)
    await hub.add_set("a")
    await other.start()
    await other.remove_set("a")  # `hub` has not noticed when Redis starts again
    async with losing:
        pass
    await hub.start()
    assert await stored(client) == {}
    with pytest.raises(NoSuchSet):
        hub.record("a")


async def test_every_process_notices_although_the_version_is_as_high_again(client, losing):
    hub, other = await started(client), await started(client)
    async with losing:
        await other.add_set("of-the-dead")
    await hub.add_set("a")
    await hub.start()
    await other.start()
    await hub.start()
    assert set(hub.sets) == set(other.sets) == {"a", "of-the-dead"}


async def test_a_redis_that_was_emptied_stays_empty(client):
    hub = await started(client)
    await hub.add_set("a")
    async with Losing(client):
        pass
    await hub.start()
    await client.flushall()
    await hub.start()
    assert await stored(client) == {}
    assert hub.known.lost.is_set()


# --- tokens --------------------------------------------------------------------------------------

TOKEN = Token("id", ("a",), "now")


async def test_a_lost_token_is_put_back(client, losing):
    tokens = Tokens(client)
    async with losing:
        await tokens.create("secret", TOKEN)
    await tokens.put_back()
    assert await tokens.find("secret") == TOKEN


async def test_a_token_that_had_been_revoked_is_revoked_again(client, losing):
    tokens = Tokens(client)
    await tokens.create("secret", TOKEN)
    async with losing:
        await tokens.revoke("id")
    await tokens.put_back()
    assert await tokens.find("secret") is None


async def test_a_token_that_another_process_has_revoked_is_not_put_back(client):
    maker, revoker = Tokens(client), Tokens(client)
    await maker.create("secret", TOKEN)
    await revoker.revoke("id")
    await maker.put_back()
    assert await maker.find("secret") is None


async def test_a_token_that_had_ended_has_ended_again(client, losing):
    maker, tokens = Tokens(client), Tokens(client)
    await maker.create("secret", TOKEN)
    async with losing:
        await tokens.end("id", Position(1))
    for each in (tokens, maker):
        await each.put_back()
        assert (await tokens.find("secret")).is_expired()


async def test_a_token_whose_making_is_lost_too_has_ended_again(client, losing):
    tokens = Tokens(client)
    async with losing:
        await tokens.create("secret", TOKEN)
        await tokens.end("id", Position(1))
    await tokens.put_back()
    assert (await tokens.find("secret")).is_expired()


async def test_a_token_never_ends_later_than_it_was_told_first(client):
    tokens = Tokens(client)
    await tokens.create("secret", TOKEN)
    for end in (2, 1, 3):
        await tokens.end("id", Position(end))
    assert (await tokens.find("secret")).expires == str(Position(1))


async def test_a_token_that_ended_and_was_revoked_by_another_process_is_not_put_back(client):
    tokens = Tokens(client)
    await tokens.create("secret", TOKEN)
    await tokens.end("id", Position(1))
    await Tokens(client).revoke("id")
    await tokens.put_back()
    assert await tokens.find("secret") is None


# --- subscriptions -------------------------------------------------------------------------------

CALLBACK = "http://callback.test/1"
SHARE = share_of(CALLBACK)
REQUEST = PendingRequest("subscribe", "http://t/", CALLBACK, "a", lease_seconds=60)


def subscription(lease_end: int = 10) -> Subscription:
    return Subscription("a", "change", "http://t/", CALLBACK, created=1, lease_end=lease_end)


class Deliverer:
    """A process that verifies and ends subscriptions."""

    def __init__(self, client: Client) -> None:
        self.store = Subscriptions(client, "here:1", pending_per_host=10, pending_per_address=10)

    async def puts_back(self) -> None:
        await put_subscriptions_back(self.store)

    async def verifies(self, subscription: Subscription) -> None:
        await self.store.heartbeat()
        await self.store.claim([SHARE])
        keep = Stored(subscription, Progress(7))
        assert await self.store.finish_request("1", REQUEST, keep=keep)

    async def ends(self, subscription: Subscription) -> None:
        assert await self.store.finish_request("1", REQUEST, drop=True)
        self.store.note_end(REQUEST.subscription_id, subscription)


async def kept(client: Client) -> list[Subscription]:
    return [each.subscription for each in (await Deliverer(client).store.all()).values()]


async def test_a_lost_subscription_is_put_back_and_taken_in(client, losing):
    one = Deliverer(client)
    async with losing:
        await one.verifies(subscription())
    await one.puts_back()
    assert await kept(client) == [subscription()]
    (asked,) = await one.store.requests([SHARE])
    assert [each.order for each in asked.values()] == ["retry"]
    assert (await one.store.at(SHARE, REQUEST.subscription_id)).progress == Progress(7)


async def test_a_lost_renewal_is_put_back_unless_a_later_one_is_there(client, losing):
    one = Deliverer(client)
    await one.verifies(subscription(10))
    async with losing:
        await one.verifies(subscription(20))
    await one.puts_back()
    assert await kept(client) == [subscription(20)]
    two = Deliverer(client)
    await client.delete(keys.of_share(SHARE, "owner"))
    await two.verifies(subscription(30))
    await one.puts_back()
    assert await kept(client) == [subscription(30)]


async def test_a_subscription_that_had_ended_ends_again(client, losing):
    one = Deliverer(client)
    await one.verifies(subscription())
    async with losing:
        await one.ends(subscription())
    assert await kept(client) == [subscription()]
    await one.puts_back()
    assert await kept(client) == []


async def test_a_subscription_that_another_process_has_ended_is_not_put_back(client):
    one, two = Deliverer(client), Deliverer(client)
    await one.verifies(subscription())
    await client.delete(keys.of_share(SHARE, "owner"))
    await two.store.claim([SHARE])
    await two.ends(subscription())
    await one.puts_back()
    assert await kept(client) == []
