"""What the operator is shown of a subscription whose changes cannot be counted."""

import msgspec
import pytest
from starlette.requests import Request as HttpRequest

from rsnotify.errors import HistoryDeleted, NoSuchSet
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Position
from rsnotify.websub.subscribe_endpoint import SubscriptionAdmin
from rsnotify.websub.subscription_store import Subscriptions
from tests.integration.test_subscriptions import SHARE, STORED, pending, request, subscriptions


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

    async def stretch_after(self, *_):
        raise HistoryDeleted("see the archive")


@pytest.fixture
async def store(client: Client) -> Subscriptions:
    """One with one subscription."""
    kept = subscriptions(client)
    await kept.claim([SHARE])
    await kept.ask(request())
    (id_,) = await pending(kept)
    await kept.finish_request(id_, request(), keep=STORED)
    return kept


@pytest.mark.parametrize("hub", [RemovedSet(), ShortJournal()])
async def test_what_cannot_be_counted_is_shown_as_null(store, hub):
    subscribers = SubscriptionAdmin(hub, Admin(), store)
    id_ = request().subscription_id
    asked = HttpRequest({"type": "http", "path_params": {"subscription": id_}})
    shown = msgspec.json.decode((await subscribers.show(asked)).body)
    assert (shown["id"], shown["behind_changes"]) == (id_, None)
