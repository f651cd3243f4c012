"""What the operator is shown of a subscription whose changes cannot be counted."""

import asyncio

import msgspec
import pytest
from starlette.requests import Request as HttpRequest

from rsnotify.coordination import keys
from rsnotify.errors import HistoryDeleted, NoSuchSet, TryAgain
from rsnotify.loops import end
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Position
from rsnotify.websub.subscribe_endpoint import SubscriptionAdmin
from rsnotify.websub.subscription import Progress
from rsnotify.websub.subscription_store import Subscriptions
from tests.integration.test_subscriptions import SHARE, STORED, pending, request, subscriptions
from tests.support.hubs import hub_on, submission


class Admin:
    async def require_admin(self, _: HttpRequest) -> None:
        pass


class RemovedSet:
    def feed(self, channel):
        raise NoSuchSet(channel.set_name)


class ShortJournal:
    """It no longer holds what follows the subscription's position."""

    def __init__(self) -> None:
        self.reading = self

    def feed(self, _):
        return type("Feed", (), {"tail": type("Tail", (), {"head": Position(99)})})

    async def catch_up(self, _):
        pass

    async def batch_after(self, *_):
        raise HistoryDeleted("see the archive")


class StuckJournal(ShortJournal):
    """What it has in Redis cannot be followed, as while it waits for its repair."""

    async def catch_up(self, _):
        raise TryAgain("see the hub's log")


@pytest.fixture
async def store(client: Client) -> Subscriptions:
    """One with one subscription."""
    kept = subscriptions(client)
    await kept.claim([SHARE])
    await kept.ask(request())
    (id_,) = await pending(kept)
    await kept.finish_request(id_, request(), keep=STORED)
    return kept


@pytest.mark.parametrize("hub", [RemovedSet(), ShortJournal(), StuckJournal()])
async def test_what_cannot_be_counted_is_shown_as_null(store, hub):
    subscribers = SubscriptionAdmin(hub, Admin(), store)
    id_ = request().subscription_id
    asked = HttpRequest({"type": "http", "path_params": {"subscription": id_}})
    shown = msgspec.json.decode((await subscribers.show(asked)).body)
    assert (shown["id"], shown["behind_changes"]) == (id_, None)


async def test_a_subscription_to_damaged_data_is_shown_all_the_same(client, store):
    hub = hub_on(client)
    channel = STORED.subscription.channel
    await hub.add_set(channel.set_name)
    await client.hset(keys.record(channel), "last", "not a position")
    (id_,) = await store.all()
    asked = HttpRequest({"type": "http", "path_params": {"subscription": id_}})
    shown = await SubscriptionAdmin(hub, Admin(), store).show(asked)
    assert msgspec.json.decode(shown.body)["behind_changes"] is None


async def test_what_another_process_has_published_counts_before_this_one_has_heard_of_it(
    client, store
):
    hub, other = hub_on(client), hub_on(client)
    channel = STORED.subscription.channel
    await hub.add_set(channel.set_name)
    await other.start()
    await other.publish(channel, submission("1", "2"))
    (id_,) = await store.all()
    cursor = int(hub.feed(channel).tail.head)
    assert await store.write_progress({SHARE: {id_: Progress(cursor)}}) == set()
    following = asyncio.create_task(hub.following.run())
    asked = HttpRequest({"type": "http", "path_params": {"subscription": id_}})
    shown = msgspec.json.decode((await SubscriptionAdmin(hub, Admin(), store).show(asked)).body)
    assert shown["behind_changes"] == 2
    assert shown["behind_seconds"] > 0
    await end([following])
