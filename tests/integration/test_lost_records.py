"""Sets, tokens and subscriptions that Redis has lost: what was closed stays closed, the rest is
logged, and whoever has a subscription that is lost is notified."""

import pytest

from rsnotify.access.tokens import Token, Tokens
from rsnotify.coordination import keys
from rsnotify.errors import NoSuchSet
from rsnotify.live.journals import Journals
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Position
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets
from rsnotify.websub.ownership import ENDED, LOST, settle_lost_subscriptions
from rsnotify.websub.subscription import PendingRequest, Progress, Subscription, share_of
from rsnotify.websub.subscription_store import Stored, Subscriptions
from tests.integration.test_losses import CHANNEL, names
from tests.support.faults import Losing
from tests.support.hubs import started, submission


@pytest.fixture
def losing(client: Client) -> Losing:
    return Losing(client)


@pytest.fixture
async def hub(client: Client) -> Journals:
    return await started(client)


async def stored(client: Client) -> dict[str, bool]:
    """The sets that Redis has, and whether each is private."""
    return {name: record.private for name, record in (await Sets(client).all()).items()}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]


# --- sets ----------------------------------------------------------------------------------------


async def test_a_set_that_had_become_private_is_so_again(hub, client, losing, caplog):
    other = await started(client)
    await hub.add_set("a")
    async with losing:
        await hub.edit_set("a", {"private": True})
        await other.start()
    await other.start()  # also a process that has not edited it
    assert await stored(client) == {"a": True}
    assert said(caplog) == ["Redis has lost the last change of the set 'a', or the set itself"]
    await hub.start()
    assert hub.record("a").private
    assert other.record("a").private


async def test_a_set_that_was_made_private_is_private_although_it_was_public_before(
    hub, client, losing
):
    """It was removed and made anew, and both is lost: the one that is there is the old one."""
    await hub.add_set("a")
    async with losing:
        await hub.remove_set("a")
        await hub.add_set("a", SetOptions(private=True))
    await hub.start()
    assert await stored(client) == {"a": True}


async def test_a_set_that_had_become_public_is_private_and_that_is_said(
    hub, client, losing, caplog
):
    await hub.add_set("a", SetOptions(private=True))
    async with losing:
        await hub.edit_set("a", {"private": False})
    await hub.start()
    assert await stored(client) == {"a": True}
    assert said(caplog) == ["Redis has lost the last change of the set 'a', or the set itself"]


async def test_a_set_that_is_edited_since_stays_as_it_is(hub, client, losing, caplog):
    other = await started(client)
    await hub.add_set("a", SetOptions(private=True))
    await other.start()
    async with losing:
        pass
    await other.edit_set("a", {"private": False})
    await hub.start()
    assert await stored(client) == {"a": False}
    assert said(caplog) == []


async def test_a_lost_set_is_lost_and_said(hub, client, losing, caplog):
    async with losing:
        await hub.add_set("a", SetOptions(private=True))
        await hub.publish(CHANNEL, submission("1"))
    await hub.start()
    assert await stored(client) == {}
    with pytest.raises(NoSuchSet):
        hub.record("a")
    assert said(caplog)[0] == "Redis has lost the set 'a'"


async def test_a_set_whose_removal_is_lost_is_there_again_and_that_is_said(
    hub, client, losing, caplog
):
    other = await started(client)
    await hub.add_set("a")
    await hub.publish(CHANNEL, submission("1"))
    await other.start()
    async with losing:
        await hub.remove_set("a")
        await other.start()
    for each in (hub, other):
        await each.start()
        assert "a" in each.sets
    assert await names(client) == ["1"]
    again = "Redis has lost that the set 'a' was removed: it is there again"
    assert said(caplog).count(again) == 2, "once for each process"


async def test_a_set_of_which_nothing_is_lost_is_not_named(hub, client, losing, caplog):
    for name in ("a", "b"):
        await hub.add_set(name)
    async with losing:
        await hub.remove_set("b")
    await hub.start()
    assert set(hub.sets) == {"a", "b"}
    assert [each for each in said(caplog) if "'a'" in each] == []


async def test_every_process_notices_although_the_version_is_as_high_again(client, losing):
    hub, other = await started(client), await started(client)
    async with losing:
        await other.add_set("of-the-dead")
    await hub.add_set("a")
    await hub.start()
    await other.start()
    await hub.start()
    assert set(hub.sets) == set(other.sets) == {"a"}


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


async def test_a_lost_token_is_refused(client, losing):
    tokens = Tokens(client)
    async with losing:
        await tokens.create("secret", TOKEN)
    await tokens.close_again()
    assert await tokens.find("secret") is None


@pytest.mark.parametrize("by_another", [False, True])
async def test_a_token_that_had_been_revoked_is_revoked_again(client, losing, caplog, by_another):
    """The bell has said it to every process."""
    tokens = Tokens(client)
    await tokens.create("secret", TOKEN)
    async with losing:
        await (revoker := Tokens(client)).revoke("id")
    if by_another:
        key, _ = await tokens.of_id("id")
        tokens.hear("revoked", key.decode())
        assert tokens.is_revoked("secret"), "until it is"
    else:
        tokens = revoker
    await tokens.close_again()
    assert await tokens.find("secret") is None
    (line,) = said(caplog)
    assert "0 were ended again, 1 were revoked again" in line
    await tokens.close_again()
    assert len(said(caplog)) == 1, "nothing was lost since"


async def test_a_token_that_was_revoked_and_made_again_stays(client):
    tokens = Tokens(client)
    await tokens.create("secret", TOKEN)
    await tokens.revoke("id")
    await tokens.create("secret", TOKEN)
    await tokens.close_again()
    assert await tokens.find("secret") == TOKEN


async def test_a_token_that_had_ended_has_ended_again(client, losing, caplog):
    tokens = Tokens(client)
    await tokens.create("secret", TOKEN)
    async with losing:
        await tokens.end("id", Position(1))
    assert not (await tokens.find("secret")).is_expired()
    await tokens.close_again()
    assert (await tokens.find("secret")).is_expired()
    (line,) = said(caplog)
    assert "1 were ended again, 0 were revoked again" in line


async def test_a_token_whose_making_is_lost_too_is_not_there(client, losing):
    tokens = Tokens(client)
    async with losing:
        await tokens.create("secret", TOKEN)
        await tokens.end("id", Position(1))
    await tokens.close_again()
    assert await tokens.find("secret") is None


async def test_a_token_never_ends_later_than_it_was_told_first(client):
    tokens = Tokens(client)
    await tokens.create("secret", TOKEN)
    for end in (2, 1, 3):
        await tokens.end("id", Position(end))
    assert (await tokens.find("secret")).expires == str(Position(1))


async def test_a_token_that_ended_and_was_revoked_by_another_process_does_not_come_back(client):
    tokens = Tokens(client)
    await tokens.create("secret", TOKEN)
    await tokens.end("id", Position(1))
    await Tokens(client).revoke("id")
    await tokens.close_again()
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

    async def settles(self) -> None:
        await settle_lost_subscriptions(self.store)

    async def asked(self) -> list[tuple[str, str]]:
        """What the owner of the share has to do, and why."""
        (found,) = await self.store.requests([SHARE])
        return [(each.order, each.reason) for each in found.values()]

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


async def test_the_callback_of_a_lost_subscription_is_denied(client, losing, caplog):
    one = Deliverer(client)
    async with losing:
        await one.verifies(subscription())
    await one.settles()
    assert await kept(client) == []
    assert await one.asked() == [("remove", LOST)]
    (line,) = said(caplog)
    assert "the callbacks of 1 are notified that they are lost, 0 ended again" in line


@pytest.mark.parametrize(("since", "is_lost"), [(19, True), (20, False), (21, False)])
async def test_the_callback_of_a_lost_renewal_is_denied_unless_a_later_one_is_there(
    client, losing, since, is_lost
):
    """Its subscriber counts on the lease that it was told; an earlier end would be silent."""
    one, two = Deliverer(client), Deliverer(client)
    await one.verifies(subscription(10))
    async with losing:
        await one.verifies(subscription(20))
    await client.delete(keys.of_share(SHARE, "owner"))
    await two.verifies(subscription(since))
    await one.settles()
    assert await one.asked() == ([("remove", LOST)] if is_lost else [])


async def test_a_subscription_that_is_there_is_left_alone(client, losing, caplog):
    one = Deliverer(client)
    await one.verifies(subscription())
    async with losing:
        pass
    await one.settles()
    assert (await kept(client), await one.asked()) == ([subscription()], [])
    assert said(caplog) == []


async def test_a_subscription_that_had_ended_ends_again(client, losing, caplog):
    one = Deliverer(client)
    await one.verifies(subscription())
    async with losing:
        await one.ends(subscription())
    assert await kept(client) == [subscription()]
    await one.settles()
    assert await kept(client) == []
    assert await one.asked() == [("remove", ENDED)]
    (line,) = said(caplog)
    assert "of 0 are notified that they are lost, 1 ended again" in line


async def test_a_subscription_that_was_made_again_since_it_ended_stays(client, losing):
    one, two = Deliverer(client), Deliverer(client)
    await one.verifies(subscription(10))
    await one.ends(subscription(10))
    await client.delete(keys.of_share(SHARE, "owner"))
    await two.verifies(subscription(11))
    await one.settles()
    assert (await kept(client), await one.asked()) == ([subscription(11)], [])
