"""One hub process's part in WebSub, over a Redis that hiccups and callbacks that are played.

Nothing listens and no clock runs: each test takes the one step that it speaks of.
"""

import asyncio
import logging
from contextlib import suppress
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from rsnotify.core.change import MICROSECONDS, Position
from rsnotify.core.notification import ChannelName, Notification
from rsnotify.core.slots import Slots
from rsnotify.core.subscription import Answer, Progress, Record, Request, share_of
from rsnotify.delivery.websub.delivery import Delivery
from rsnotify.delivery.websub.followers import Followers
from rsnotify.delivery.websub.ownership import Ownership
from rsnotify.delivery.websub.queue import Queue
from rsnotify.delivery.websub.rights import Rights
from rsnotify.delivery.websub.share import Clock, Share, Subscriber
from rsnotify.delivery.websub.verification import Verification
from rsnotify.errors import TryAgain, no_such_set
from rsnotify.feed import Feed
from rsnotify.storage.connection import Client
from rsnotify.storage.subscriptions import Stored, Subscriptions
from rsnotify.storage.tokens import Tokens
from tests.running import until

CHANNEL = ChannelName("dataset1", "change")
CALLBACK = "http://callback.test/1"
SHARE = share_of(CALLBACK)
REQUEST = Request("subscribe", "http://t/", CALLBACK, "dataset1", lease_seconds=60)
ID = REQUEST.subscription_id
HEAD = Position(7)


class Hiccups(Subscriptions):
    """The acts named in `failing` fail once each; `before` is called when an act begins."""

    failing: list[str] = []  # noqa: RUF012

    async def before(self, act: str) -> None:
        if act in self.failing:
            self.failing.remove(act)
            raise TryAgain("Redis hiccups")

    async def claim(self, shares: Any) -> list[bool]:
        await self.before("claim")
        return await super().claim(shares)

    async def record(self, progress: Any) -> set[int]:
        await self.before("record")
        return await super().record(progress)

    async def settle(self, *args: Any, **options: Any) -> bool:
        await self.before("settle")
        return await super().settle(*args, **options)

    async def expel(self, record: Record, reason: str) -> None:
        await self.before("expel")
        await super().expel(record, reason)


class Callbacks:
    """A dialler whose peers confirm everything and answer deliveries with `answer`."""

    def __init__(self) -> None:
        self.gets: list[str] = []
        self.posts = 0
        self.answer: Answer | Exception = Answer(204)

    async def get(self, url: str) -> Answer:
        self.gets.append(url)
        _, _, challenge = url.partition("hub.challenge=")
        return Answer(200, body=challenge.partition("&")[0].encode())

    async def post(self, *_: object, **__: object) -> Answer:
        self.posts += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class OneSet:
    """A hub with one set, which may be removed."""

    base_url = "http://t"

    def __init__(self) -> None:
        self.sets = {"dataset1": SimpleNamespace(private=False)}
        self.feeds = {CHANNEL: Feed(CHANNEL, "now", HEAD)}

    def feed(self, channel: ChannelName) -> Feed:
        if channel not in self.feeds:
            raise no_such_set(channel.set_name)
        return self.feeds[channel]

    async def standing(self, _: ChannelName) -> Any:
        return SimpleNamespace(head=HEAD, first=Position(0))

    async def stretch_after(self, _: Feed, cursor: Position) -> Notification | None:
        return Notification(cursor, HEAD, 1, b"<urlset/>", slice(0)) if cursor < HEAD else None

    def remove(self) -> None:
        self.sets.clear()
        self.feeds.pop(CHANNEL).end()


class Deliverer:
    """What looks after the one share of these tests."""

    def __init__(self, client: Client) -> None:
        self.store = Hiccups(client, pending_per_host=10, pending_per_asker=10)
        self.store.failing = []
        self.hub: Any = OneSet()
        self.callbacks: Any = Callbacks()
        self.clock = Clock()
        self.queue = Queue(Slots[Any](100, 100))
        rights = Rights(self.hub, Tokens(client))
        delivery = Delivery(self.hub, self.callbacks, self.clock, rights, algorithm="sha256")
        self.followers = Followers(self.hub, self.store, self.clock, self.queue, delivery)
        verification = Verification(
            *(self.hub, self.callbacks, self.store, self.clock, self.queue, self.followers)
        )
        bell: Any = None
        self.ownership = Ownership(
            *(self.store, bell, self.clock, rights, self.queue, self.followers, verification)
        )

    @property
    def share(self) -> Share:
        return self.ownership._shares[SHARE]

    @property
    def subscriber(self) -> Subscriber:
        return self.share.subscribers[ID]

    async def begin(self, *, cursor: int | None = None) -> None:
        """Own the share; with a cursor, of one subscriber."""
        self.clock.look(await self.store.now())
        await self.store.claim([SHARE])
        (content,) = await self.store.read([SHARE])
        self.ownership._begin(Share(SHARE, monotonic() + 15), content)
        if cursor is not None:
            await self.settled(REQUEST, keep=Stored(self.record(), Progress(int(cursor))))
            self.followers.keep(self.share, ID, self.record(), Progress(int(cursor)))

    def record(self) -> Record:
        end = self.clock.now() + 3600 * MICROSECONDS
        return Record("dataset1", "change", "http://t/", CALLBACK, created=1, lease_end=end)

    async def settled(self, request: Request, **outcome: Any) -> None:
        await self.store.ask(request)
        ((id_, _),) = (await self.store.requests([SHARE]))[0].items()
        await self.store.settle(id_, request, **outcome)

    async def take_in(self) -> None:
        """What was asked, up to the answers of the callbacks."""
        (requests,) = await self.store.requests([SHARE])
        self.ownership._add_errands(self.share, requests)
        await self.rest()

    async def rest(self) -> None:
        """Wait until nobody is being called, nor about to be."""

        async def rests() -> bool:
            return not self.share.tasks and self.queue.rests and not self.followers.are_roused

        await until(rests)


@pytest.fixture
def deliverer(client: Client) -> Deliverer:
    return Deliverer(client)


# --- claims --------------------------------------------------------------------------------------


async def test_a_share_that_is_lost_while_it_is_claimed_again_stays_lost(
    deliverer: Deliverer,
) -> None:
    await deliverer.begin()

    async def lose(_: str) -> None:
        deliverer.ownership._lose(SHARE)

    deliverer.store.before = lose
    await deliverer.ownership._renew()
    assert deliverer.ownership._shares == {}


async def test_a_round_does_not_wait_until_all_subscribers_of_a_removed_set_are_told(
    deliverer: Deliverer,
) -> None:
    await deliverer.begin(cursor=HEAD)
    deliverer.hub.remove()
    asked = asyncio.Event()

    async def hang(act: str) -> None:
        if act == "expel":
            asked.set()
            await asyncio.Event().wait()

    deliverer.store.before = hang
    async with asyncio.timeout(5):
        await deliverer.ownership._round()
    loops = deliverer.ownership.loops()
    (ending,) = [loops[name] for name in loops if name == "end subscriptions"]
    for name, other in loops.items():
        if name != "end subscriptions":
            other.close()
    task = asyncio.create_task(ending)
    async with asyncio.timeout(5):
        await asked.wait()
    task.cancel()
    deliverer.followers.abandon(deliverer.share)


# --- progress ------------------------------------------------------------------------------------


async def test_progress_whose_recording_is_cancelled_is_recorded_by_the_drain(
    deliverer: Deliverer,
) -> None:
    await deliverer.begin(cursor=HEAD)
    deliverer.subscriber.advance(Progress(99))
    begun = asyncio.Event()

    async def hang(_: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    deliverer.store.before, before = hang, deliverer.store.before
    task = asyncio.create_task(deliverer.ownership._record_all())
    await begun.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    deliverer.store.before = before
    await deliverer.ownership.drain()
    assert (await deliverer.store.all())[ID].progress == Progress(99)


# --- verification --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["subscribe", "unsubscribe", "denied", "remove"])
async def test_a_callback_is_asked_once_though_redis_hiccups(
    deliverer: Deliverer, order: Any
) -> None:
    await deliverer.begin(cursor=None if order == "subscribe" else HEAD)
    request = Request(order, "http://t/", CALLBACK, "dataset1", lease_seconds=60)
    deliverer.store.failing = ["settle"]
    await deliverer.store.ask(request)
    await deliverer.take_in()
    deliverer.queue.unpark(deliverer.share)
    await deliverer.rest()
    assert len(deliverer.callbacks.gets) == 1
    assert deliverer.share.errands == {}
    assert (ID in await deliverer.store.all()) == (order in ("subscribe", "denied"))


async def test_what_was_confirmed_later_is_settled_later(deliverer: Deliverer) -> None:
    await deliverer.begin(cursor=HEAD)
    deliverer.store.failing = ["settle"]
    for order in ("unsubscribe", "subscribe"):
        request = Request(order, "http://t/", CALLBACK, "dataset1", lease_seconds=60)
        await deliverer.store.ask(request)
        await deliverer.take_in()
    deliverer.queue.unpark(deliverer.share)
    await deliverer.rest()
    assert deliverer.share.errands == {}
    assert ID in await deliverer.store.all()


# --- deliveries ----------------------------------------------------------------------------------


async def test_a_bug_in_a_delivery_counts_as_a_failure_of_the_callback(
    deliverer: Deliverer,
) -> None:
    deliverer.callbacks.answer = ZeroDivisionError("a bug")
    await deliverer.begin(cursor=0)
    await deliverer.rest()
    deliverer.queue.unpark(deliverer.share)
    await deliverer.rest()
    assert deliverer.callbacks.posts == 1
    assert deliverer.subscriber.progress.failures == 1
    assert deliverer.subscriber.progress.next_attempt > deliverer.clock.now()
    deliverer.followers.abandon(deliverer.share)


async def test_a_removed_set_is_followed_no_more(deliverer: Deliverer) -> None:
    await deliverer.begin(cursor=HEAD)
    deliverer.hub.remove()
    await deliverer.rest()
    assert deliverer.followers._heads == {}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(500, "Oh"), "answered 500 Oh"),
        (Answer(0, "no answer within 10 s"), "failed: no answer within 10 s"),
    ],
)
async def test_the_log_says_which_callback_failed_and_when_it_is_called_again(
    deliverer: Deliverer, caplog: pytest.LogCaptureFixture, answer: Answer, said: str
) -> None:
    deliverer.callbacks.answer = answer
    await deliverer.begin(cursor=0)
    await deliverer.rest()
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    message, _, rest = record.getMessage().partition("; next attempt in ")
    assert message == f"callback {CALLBACK} {said}"
    assert rest in (f"5 s (subscription {ID})", f"6 s (subscription {ID})")
    deliverer.followers.abandon(deliverer.share)
