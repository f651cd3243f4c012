"""One hub process's part in WebSub, over a Redis that hiccups and callbacks that are played.

Nothing listens and no clock runs: each test takes the one step that it speaks of.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from itertools import pairwise
from time import monotonic
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from yarl import URL

from rsnotify.core.websub.slots import Slots
from rsnotify.core.websub.subscription import Answer, Progress, Record, Request, share_of
from rsnotify.delivery.websub.delivery import Delivery
from rsnotify.delivery.websub.followers import Followers
from rsnotify.delivery.websub.ownership import Ownership
from rsnotify.delivery.websub.queue import BEGUN_AT_ONCE, Queue
from rsnotify.delivery.websub.rights import Rights
from rsnotify.delivery.websub.state import Clock, Share, Subscriber
from rsnotify.delivery.websub.verification import Verification
from rsnotify.errors import TryAgain, no_such_set
from rsnotify.feed import Feed
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import ChannelName, Notification
from rsnotify.storage.connection import Client
from rsnotify.storage.subscriptions import Stored, Subscriptions
from rsnotify.storage.tokens import Token, Tokens, new_secret, token_key
from rsnotify_client.notification import read_notification
from tests.pulling import CHANGES, SET, Pulling, loc
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

    async def renew(self, shares: Any) -> list[bool]:
        await self.before("renew")
        return await super().renew(shares)

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
        self.sent: list[tuple[bytes, Mapping[str, str]]] = []
        self.answer: Answer | Exception = Answer(204)
        self.under_way = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def get(self, url: str) -> Answer:
        self.gets.append(url)
        _, _, challenge = url.partition("hub.challenge=")
        return Answer(200, body=challenge.partition("&")[0].encode())

    async def post(self, _: URL, body: bytes, headers: Mapping[str, str], **__: object) -> Answer:
        self.posts += 1
        self.sent.append((body, headers))
        self.under_way += 1
        await self.may_answer.wait()
        self.under_way -= 1
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

    def __init__(self, client: Client, hub: Any = None) -> None:
        self.store = Hiccups(client, pending_per_host=10, pending_per_asker=10)
        self.store.failing = []
        self.hub: Any = hub or OneSet()
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

    async def begin(self, *, cursor: int | None = None, **of_record: Any) -> None:
        """Own the share; with a cursor, of one subscriber."""
        self.clock.look(await self.store.now())
        await self.store.claim([SHARE])
        (content,) = await self.store.read([SHARE])
        self.ownership._begin(Share(SHARE, monotonic() + 15), content)
        if cursor is not None:
            stored = Stored(self.record(**of_record), Progress(int(cursor)))
            await self.settled(REQUEST, keep=stored)
            self.followers.keep(self.share, ID, *stored)

    def record(self, *, lease_seconds: int = 3600, **others: Any) -> Record:
        end = self.clock.now() + lease_seconds * MICROSECONDS
        of = {"created": 1, "lease_end": end} | others
        return Record("dataset1", "change", "http://t/", CALLBACK, **of)

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


async def test_a_share_that_was_nobodys_meanwhile_is_read_anew(
    deliverer: Deliverer, client: Client
) -> None:
    await deliverer.begin(cursor=HEAD)
    await client.flushall()
    await deliverer.ownership._renew()
    assert deliverer.ownership._shares == {}
    await deliverer.ownership._round()
    assert deliverer.share.subscribers == {}


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


# --- the right to it -----------------------------------------------------------------------------


async def test_what_waits_in_the_queue_is_not_delivered_once_the_set_is_private(
    deliverer: Deliverer,
) -> None:
    await deliverer.begin(cursor=0)
    deliverer.hub.sets["dataset1"] = SimpleNamespace(private=True)  # before its turn comes
    await deliverer.rest()
    assert deliverer.callbacks.posts == 0
    await deliverer.take_in()
    (denial,) = deliverer.callbacks.gets
    assert "hub.mode=denied" in denial
    assert "become+private" in denial
    assert await deliverer.store.all() == {}


async def test_what_turns_private_while_it_is_read_is_not_delivered(deliverer: Deliverer) -> None:
    stretch_after = deliverer.hub.stretch_after

    async def meanwhile(feed: Feed, cursor: Position) -> Notification | None:
        deliverer.hub.sets["dataset1"] = SimpleNamespace(private=True)
        return await stretch_after(feed, cursor)  # type: ignore[no-any-return]

    deliverer.hub.stretch_after = meanwhile
    await deliverer.begin(cursor=0)
    await deliverer.rest()
    assert deliverer.callbacks.posts == 0


async def test_a_retry_is_not_made_once_the_set_is_private(deliverer: Deliverer) -> None:
    deliverer.callbacks.answer = Answer(500)
    await deliverer.begin(cursor=0)
    await deliverer.rest()
    deliverer.hub.sets["dataset1"] = SimpleNamespace(private=True)
    deliverer.followers.retry(deliverer.subscriber)
    await deliverer.rest()
    assert deliverer.callbacks.posts == 1


async def test_whoever_subscribed_with_a_token_goes_on_when_the_set_turns_private(
    deliverer: Deliverer,
) -> None:
    await deliverer.begin(cursor=0, by_token=True)
    deliverer.hub.sets["dataset1"] = SimpleNamespace(private=True)
    await deliverer.rest()
    assert deliverer.callbacks.posts == 1


async def test_another_hub_process_knows_that_a_set_is_private_with_the_next_change(
    client: Client,
) -> None:
    async with Pulling(client) as pulling:
        other = Pulling(client)
        await other.hub.start()  # and it hears no bell
        deliverer = Deliverer(client, other.hub)
        await deliverer.begin(cursor=other.hub.feed(CHANGES).tail.head)
        await pulling.hub.edit_set(SET, {"private": True})
        await pulling.update("secret")
        other.hub._ring(CHANGES, (await other.hub.standing(CHANGES)).head)
        await other.hub._advance()
        assert other.hub.feed(CHANGES).tail.newest is not None
        await deliverer.rest()
        assert deliverer.callbacks.posts == 0


async def test_a_subscription_ends_with_the_token_that_made_it(
    deliverer: Deliverer, client: Client
) -> None:
    tokens = Tokens(client)
    secret = new_secret()
    await tokens.create(secret, Token("id", ("dataset1",), "now", ("read",)))
    await deliverer.begin(cursor=HEAD, by_token=True, token=token_key(secret))
    await deliverer.ownership._expel()
    assert (await deliverer.store.requests([SHARE]))[0] == {}
    await tokens.revoke("id")
    await deliverer.ownership._expel()
    await deliverer.take_in()
    (denial,) = deliverer.callbacks.gets
    assert "hub.mode=denied" in denial
    assert "revoked" in denial
    assert await deliverer.store.all() == {}


# --- leases and clocks ---------------------------------------------------------------------------


TWO_DAYS = 48 * 3600


async def leap(deliverer: Deliverer, seconds: float) -> float:
    """Redis's clock leaps while this process looks at it."""
    now = deliverer.clock.now()
    return deliverer.clock.look(round(now + seconds * MICROSECONDS))


async def test_a_clock_that_leaps_ahead_ends_no_lease(deliverer: Deliverer) -> None:
    await deliverer.begin(cursor=0)
    assert await leap(deliverer, TWO_DAYS) > TWO_DAYS - 1
    await deliverer.ownership._expel()
    await deliverer.rest()
    assert deliverer.callbacks.posts == 1
    assert ID in await deliverer.store.all()


async def test_a_lease_that_is_over_when_it_is_first_seen_is_kept_until_that_is_certain(
    deliverer: Deliverer,
) -> None:
    await deliverer.begin(cursor=0, lease_seconds=-1)
    await deliverer.ownership._expel()
    await deliverer.rest()
    assert deliverer.callbacks.posts == 0, "WEBSUB 18"
    assert ID in await deliverer.store.all()
    await leap(deliverer, -3600)  # the clock was wrong
    await deliverer.ownership._expel()
    await deliverer.rest()
    assert deliverer.callbacks.posts == 1


async def test_a_lease_that_stays_over_ends_in_the_end(
    deliverer: Deliverer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rsnotify.delivery.websub.followers.BELIEVED_AFTER_SECONDS", 0.0)
    await deliverer.begin(cursor=0, lease_seconds=-1)
    await deliverer.ownership._expel()
    assert await deliverer.store.all() == {}


async def test_a_clock_that_goes_back_keeps_no_retry_waiting(deliverer: Deliverer) -> None:
    deliverer.callbacks.answer = Answer(503, retry_after="1")
    await deliverer.begin(cursor=0)
    await deliverer.rest()
    await leap(deliverer, -3600)
    deliverer.callbacks.answer = Answer(204)
    assert deliverer.subscriber.timer is not None
    deliverer.followers._end_wait(deliverer.subscriber)
    await deliverer.rest()
    assert deliverer.callbacks.posts == 2


async def test_a_leap_of_the_clock_is_said(
    deliverer: Deliverer, caplog: pytest.LogCaptureFixture
) -> None:
    await deliverer.begin(cursor=HEAD)
    await leap(deliverer, -TWO_DAYS)  # so that the true time is ahead
    await deliverer.ownership._round()
    assert "the clock of Redis has leapt 172800 s ahead" in caplog.text
    deliverer.followers.abandon(deliverer.share)


# --- whoever was away for long -------------------------------------------------------------------


@pytest.fixture
async def pulling(client: Client) -> AsyncIterator[Pulling]:
    async with Pulling(client, changes=3) as running:
        yield running


async def away_for_long(pulling: Pulling) -> Position:
    """Ten changes in four windows, of which the stream still has the last."""
    begin = pulling.hub.feed(CHANGES).tail.head
    for number in range(10):
        await pulling.update(str(number))
    await pulling.upkeep.keep_windows()
    await pulling.let_go_of_all()
    return begin


async def caught_up(client: Client, begin: Position) -> list[tuple[bytes, Mapping[str, str]]]:
    """What a subscriber at that position gets from a hub that has just begun."""
    fresh = Pulling(client, changes=3)
    await fresh.hub.start()
    deliverer = Deliverer(client, fresh.hub)
    await deliverer.begin(cursor=begin)
    await deliverer.rest()
    return deliverer.callbacks.sent  # type: ignore[no-any-return]


async def test_whoever_is_away_longer_than_the_stream_is_kept_loses_nothing(
    pulling: Pulling, client: Client
) -> None:
    begin = await away_for_long(pulling)
    ((body, headers),) = await caught_up(client, begin)
    told = read_notification(body)
    assert told.from_ == begin
    assert [change.loc for change in told.changes] == [loc(str(number)) for number in range(10)]
    assert 'rel="index"' not in headers["Link"]


async def test_whoever_is_away_longer_than_history_is_kept_is_told_so(
    pulling: Pulling, client: Client
) -> None:
    begin = await away_for_long(pulling)
    windows = (await pulling.windows.span(SET)).windows
    await pulling.windows.forget(SET, windows[:1])
    ((body, headers),) = await caught_up(client, begin)
    told = read_notification(body)
    assert told.from_ == windows[1].from_ > begin
    assert [change.loc for change in told.changes] == [loc(str(number)) for number in range(3, 10)]
    assert f'<{pulling.hub.base_url}/{SET}/changelist-index.xml>; rel="index"' in headers["Link"]


# --- how many at once ----------------------------------------------------------------------------


async def many_subscribers(deliverer: Deliverer, count: int) -> None:
    for number in range(count):
        callback = f"{CALLBACK}/{number}"
        record = msgspec.structs.replace(deliverer.record(), callback=callback)
        deliverer.followers.keep(deliverer.share, f"{number}", record, Progress(0))
        deliverer.share.subscribers[f"{number}"].prompt = True


async def test_distance_costs_no_slots(deliverer: Deliverer) -> None:
    """However long they take: as many calls are under way as are allowed, and soon."""
    deliverer.callbacks.may_answer.clear()
    await deliverer.begin()
    deliverer.queue._slots = Slots(100, 100)
    await many_subscribers(deliverer, 150)
    for _ in range(3 * 100 // BEGUN_AT_ONCE):  # turns of the loop: some milliseconds in all
        await asyncio.sleep(0)
    assert deliverer.callbacks.under_way == 50, "who has never been called gets half of the slots"
    deliverer.callbacks.may_answer.set()
    await deliverer.rest()
    assert deliverer.callbacks.posts == 150


async def test_few_calls_begin_in_one_turn_of_the_loop(deliverer: Deliverer) -> None:
    deliverer.callbacks.may_answer.clear()
    await deliverer.begin()
    await many_subscribers(deliverer, 20)
    begun = [0]
    while deliverer.callbacks.under_way < 20:
        await asyncio.sleep(0)
        begun.append(len(deliverer.share.tasks))
    assert max(later - earlier for earlier, later in pairwise(begun)) == BEGUN_AT_ONCE
    deliverer.callbacks.may_answer.set()
    await deliverer.rest()
