"""WebSub in one hub process, with a real Redis whose commands may fail, and scripted callbacks.

No loop runs: each test takes the one step that it is about.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from time import monotonic
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from yarl import URL

from rsnotify.access.tokens import Tokens
from rsnotify.errors import NoSuchSet, TryAgain
from rsnotify.live.feed import Feed
from rsnotify.outbound.answer import CallAnswer
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import ChannelName, Notification
from rsnotify.websub.call_queue import BEGUN_AT_ONCE, Queue
from rsnotify.websub.call_slots import Slots
from rsnotify.websub.delivery import Deliverer
from rsnotify.websub.lease_clock import LeaseClock
from rsnotify.websub.ownership import Ownership
from rsnotify.websub.rights import Rights
from rsnotify.websub.share import Share, Subscriber
from rsnotify.websub.subscribers import Subscribers
from rsnotify.websub.subscription import PendingRequest, Progress, Subscription, share_of
from rsnotify.websub.subscription_store import Stored, Subscriptions
from rsnotify.websub.verification import Verifier
from rsnotify_client.notification import read_notification
from tests.support.hubs import started
from tests.support.pulling import CHANGES, SET, Pulling, loc
from tests.support.running import PATIENT_SECONDS, until

CHANNEL = ChannelName("dataset1", "change")
CALLBACK = "http://callback.test/1"
SHARE = share_of(CALLBACK)
REQUEST = PendingRequest("subscribe", "http://t/", CALLBACK, "dataset1", lease_seconds=60)
ID = REQUEST.subscription_id
HEAD = Position(7)
CLAIMED_SECONDS = 900  # nobody is called at its end, which no test is to reach


class Hiccups(Subscriptions):
    """The acts named in `failing` fail once each; `before` is called when an act begins, `after`
    when Redis has done it."""

    failing: list[str] = []  # noqa: RUF012

    async def before(self, act: str) -> None:
        if act in self.failing:
            self.failing.remove(act)
            raise TryAgain("Redis hiccups")

    async def after(self, act: str) -> None: ...

    async def claim(self, shares: Any) -> list[bool]:
        await self.before("claim")
        return await super().claim(shares)

    async def renew(self, shares: Any) -> list[bool]:
        await self.before("renew")
        return await super().renew(shares)

    async def write_progress(self, progress: Any) -> set[int]:
        await self.before("write_progress")
        return await super().write_progress(progress)

    async def finish_request(self, *args: Any, **options: Any) -> bool:
        await self.before("finish_request")
        done = await super().finish_request(*args, **options)
        await self.after("finish_request")
        return done

    async def forget(self, *args: Any) -> Any:
        await self.before("forget")
        done = await super().forget(*args)
        await self.after("forget")
        return done

    async def deny(self, subscription: Subscription, reason: str) -> None:
        await self.before("deny")
        await super().deny(subscription, reason)


class Callbacks:
    """A dialler whose peers confirm everything and answer deliveries with `answer`."""

    def __init__(self) -> None:
        self.gets: list[str] = []
        self.posts = 0
        self.sent: list[tuple[bytes, Mapping[str, str]]] = []
        self.answer: CallAnswer | Exception = CallAnswer(204)
        self.under_way = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def get(self, url: str) -> CallAnswer:
        self.gets.append(url)
        _, _, challenge = url.partition("hub.challenge=")
        return CallAnswer(200, body=challenge.partition("&")[0].encode())

    async def post(
        self, _: URL, body: bytes, headers: Mapping[str, str], **__: object
    ) -> CallAnswer:
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
        self.reading = self

    def feed(self, channel: ChannelName) -> Feed:
        if channel not in self.feeds:
            raise NoSuchSet(channel.set_name)
        return self.feeds[channel]

    async def learn_of(self, *_: str) -> None: ...

    async def head(self, _: ChannelName) -> Position:
        return HEAD

    async def known_filter(self, filter_: None, _: Sequence[ChannelName]) -> None:
        return filter_  # nobody here has one

    async def matching_after(self, _: Feed, cursor: Position, __: None) -> Notification | None:
        return Notification(cursor, HEAD, 1, b"<urlset/>", slice(0)) if cursor < HEAD else None

    def remove(self) -> None:
        self.sets.clear()
        self.feeds.pop(CHANNEL).end()


class HubProcess:
    """What looks after the one share of these tests."""

    def __init__(self, client: Client, hub: Any = None) -> None:
        self.store = Hiccups(client, "here:1", pending_per_host=10, pending_per_address=10)
        self.store.failing = []
        self.hub: Any = hub or OneSet()
        self.callbacks: Any = Callbacks()
        self.clock = LeaseClock()
        self.queue = Queue(Slots[Any](100, 100))
        rights = Rights(self.hub, Tokens(client))
        deliverer = Deliverer(self.hub, self.callbacks, self.clock, rights, algorithm="sha256")
        self.subscribers = Subscribers(self.hub, self.store, self.clock, self.queue, deliverer)
        verifier = Verifier(
            self.hub, self.callbacks, self.store, self.clock, rights, self.queue, self.subscribers
        )
        bell: Any = None
        self.ownership = Ownership(
            self.store, bell, self.clock, rights, self.queue, self.subscribers, verifier
        )

    @property
    def share(self) -> Share:
        return self.ownership.shares[SHARE]

    @property
    def subscriber(self) -> Subscriber:
        return self.share.subscribers[ID]

    async def begin(self, *, cursor: int | None = None, **of_record: Any) -> None:
        """Own the share; with a cursor, of one subscriber."""
        self.clock.look(await self.store.now())
        await self.store.claim([SHARE])
        (content,) = await self.store.read([SHARE])
        self.ownership.begin(Share(SHARE, monotonic() + CLAIMED_SECONDS), content)
        if cursor is not None:
            stored = Stored(self.subscription(**of_record), Progress(int(cursor)))
            await self.settled(REQUEST, keep=stored)
            self.subscribers.keep(self.share, ID, *stored)

    def subscription(self, *, lease_seconds: int = 3600, **others: Any) -> Subscription:
        end = self.clock.now() + lease_seconds * MICROSECONDS
        of = {"created": 1, "lease_end": end} | others
        return Subscription("dataset1", "change", "http://t/", CALLBACK, **of)

    async def settled(self, request: PendingRequest, **outcome: Any) -> None:
        await self.store.ask(request)
        ((id_, _),) = (await self.store.requests([SHARE]))[0].items()
        await self.store.finish_request(id_, request, **outcome)

    async def take_in(self) -> None:
        """What was asked, up to the answers of the callbacks."""
        (requests,) = await self.store.requests([SHARE])
        self.ownership.add_requests(self.share, requests)
        await self.rest()

    async def rest(self) -> None:
        """Wait until nobody is being called, nor about to be."""

        async def rests() -> bool:
            return not self.share.tasks and self.queue.is_idle and not self.subscribers.are_waking

        await until(rests)


@pytest.fixture
def process(client: Client) -> HubProcess:
    return HubProcess(client)


# --- claims --------------------------------------------------------------------------------------


async def test_a_share_that_is_lost_while_it_is_claimed_again_stays_lost(process):
    await process.begin()

    async def lose(_: str) -> None:
        process.ownership.lose(SHARE)

    process.store.before = lose
    await process.ownership.renew()
    assert process.ownership.shares == {}


async def test_a_share_that_was_nobodys_meanwhile_is_read_anew(process, client):
    await process.begin(cursor=HEAD)
    await client.flushall()
    await process.ownership.renew()
    assert process.ownership.shares == {}
    await process.ownership.round()
    assert process.share.subscribers == {}


async def test_a_round_does_not_wait_until_all_subscribers_of_a_removed_set_are_told(process):
    await process.begin(cursor=HEAD)
    process.hub.remove()
    asked = asyncio.Event()

    async def hang(act: str) -> None:
        if act == "deny":
            asked.set()
            await asyncio.Event().wait()

    process.store.before = hang
    async with asyncio.timeout(PATIENT_SECONDS):
        await process.ownership.round()
    loops = process.ownership.loops()
    (ending,) = [loops[name] for name in loops if name == "end subscriptions"]
    for name, other in loops.items():
        if name != "end subscriptions":
            other.close()
    task = asyncio.create_task(ending)
    async with asyncio.timeout(PATIENT_SECONDS):
        await asked.wait()
    task.cancel()
    process.subscribers.abandon(process.share)


# --- progress ------------------------------------------------------------------------------------


async def test_progress_whose_recording_is_cancelled_is_recorded_by_the_drain(process):
    await process.begin(cursor=HEAD)
    process.subscriber.advance(Progress(99))
    begun = asyncio.Event()

    async def hang(_: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    process.store.before, before = hang, process.store.before
    task = asyncio.create_task(process.ownership.record_progress())
    await begun.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    process.store.before = before
    await process.ownership.drain()
    assert (await process.store.all())[ID].progress == Progress(99)


# --- verification --------------------------------------------------------------------------------


async def test_a_subscription_to_a_set_that_another_process_has_just_made_begins_there(client):
    """It was taken by that process, and this one looks after its callback."""
    hub, other = await started(client), await started(client)
    process = HubProcess(client, hub)
    await process.begin()
    record, _ = await other.add_set("dataset1")
    await process.store.ask(REQUEST)
    await process.take_in()
    assert str(process.subscriber.progress.begin) == record.created


@pytest.mark.parametrize("order", ["subscribe", "unsubscribe", "denied", "remove"])
async def test_a_callback_is_asked_once_though_redis_hiccups(process, order):
    await process.begin(cursor=None if order == "subscribe" else HEAD)
    request = PendingRequest(order, "http://t/", CALLBACK, "dataset1", lease_seconds=60)
    process.store.failing = ["finish_request"]
    await process.store.ask(request)
    await process.take_in()
    process.queue.requeue(process.share)
    await process.rest()
    assert len(process.callbacks.gets) == 1
    assert process.share.verifications == {}
    assert (ID in await process.store.all()) == (order in ("subscribe", "denied"))


async def test_what_was_confirmed_later_is_settled_later(process):
    await process.begin(cursor=HEAD)
    process.store.failing = ["finish_request"]
    for order in ("unsubscribe", "subscribe"):
        request = PendingRequest(order, "http://t/", CALLBACK, "dataset1", lease_seconds=60)
        await process.store.ask(request)
        await process.take_in()
    process.queue.requeue(process.share)
    await process.rest()
    assert process.share.verifications == {}
    assert ID in await process.store.all()


async def test_whoever_is_confirmed_is_served_though_its_client_address_is_not_dismissed(
    process, client, monkeypatch
):
    async def is_away(*_: object) -> None:
        raise TryAgain("the node of the address is away")

    await process.begin()
    monkeypatch.setattr(client, "zrem", is_away)
    await process.store.ask(msgspec.structs.replace(REQUEST, client_address="192.0.2.1"))
    await process.take_in()
    assert list(process.share.subscribers) == [ID]


async def test_a_late_denial_does_not_end_what_its_callback_has_confirmed_since(
    process, monkeypatch
):
    """It could not be reached, was started again, and subscribed before it was told."""
    confirm = process.callbacks.get

    async def is_down(_: str) -> CallAnswer:
        return CallAnswer(0, "nothing listens there", reached=False)

    await process.begin(cursor=HEAD)
    monkeypatch.setattr(process.callbacks, "get", is_down)
    await process.store.remove(process.subscriber.subscription, "the operator has removed it")
    await process.take_in()
    assert process.share.subscribers == {}
    monkeypatch.setattr(process.callbacks, "get", confirm)
    await begin_to_renew(process)

    async def is_settled() -> bool:
        return not process.share.verifications

    await until(is_settled)
    assert list(await process.store.all()) == list(process.share.subscribers) == [ID]
    assert [url for url in process.callbacks.gets if "denied" in url] == []


async def test_a_callback_whose_renewal_is_lost_is_told_of_its_end(process):
    """Though the subscription has another lease by now: that of before the renewal."""
    await process.begin(cursor=HEAD)
    lost = process.subscription(lease_seconds=7200)
    await process.store.deny(lost, "the hub has lost this subscription")
    await process.take_in()
    (denial,) = process.callbacks.gets
    assert "hub.mode=denied" in denial
    assert process.share.subscribers == await process.store.all() == {}


# --- deliveries ----------------------------------------------------------------------------------


async def test_a_bug_in_a_delivery_counts_as_a_failure_of_the_callback(process):
    process.callbacks.answer = ZeroDivisionError("a bug")
    await process.begin(cursor=0)
    await process.rest()
    process.queue.requeue(process.share)
    await process.rest()
    assert process.callbacks.posts == 1
    assert process.subscriber.progress.failures == 1
    assert process.subscriber.progress.next_attempt > process.clock.now()
    process.subscribers.abandon(process.share)


async def test_a_removed_set_is_followed_no_more(process):
    await process.begin(cursor=HEAD)
    process.hub.remove()
    await process.rest()
    assert process.subscribers.watchers == {}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (CallAnswer(500, "Oh"), "answered 500 Oh"),
        (CallAnswer(0, "no answer within 10 s"), "failed: no answer within 10 s"),
    ],
)
async def test_the_log_says_which_callback_failed_and_when_it_is_called_again(
    process, caplog, answer, said
):
    process.callbacks.answer = answer
    await process.begin(cursor=0)
    await process.rest()
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    message, _, rest = record.getMessage().partition("; next attempt in ")
    assert message == f"callback {CALLBACK} {said}"
    assert rest in (f"5 s (subscription {ID})", f"6 s (subscription {ID})")
    process.subscribers.abandon(process.share)


# --- the right to it -----------------------------------------------------------------------------


async def test_what_waits_in_the_queue_is_not_delivered_once_the_set_is_private(process):
    await process.begin(cursor=0)
    process.hub.sets["dataset1"] = SimpleNamespace(private=True)  # before its turn comes
    await process.rest()
    assert process.callbacks.posts == 0
    await process.take_in()
    (denial,) = process.callbacks.gets
    assert "hub.mode=denied" in denial
    assert "become+private" in denial
    assert await process.store.all() == {}


async def test_what_was_confirmed_with_a_token_meanwhile_is_not_denied(process):
    """The denial was asked for before, and comes to its turn after."""
    await process.begin(cursor=HEAD)
    process.hub.sets["dataset1"] = SimpleNamespace(private=True)
    await process.ownership.end_subscriptions()
    process.subscribers.keep(
        process.share, ID, process.subscription(by_token=True), process.subscriber.progress
    )
    await process.take_in()
    assert process.callbacks.gets == []
    assert list(process.share.subscribers) == list(await process.store.all()) == [ID]
    assert process.share.verifications == {}


async def test_what_turns_private_while_it_is_read_is_not_delivered(process):
    matching_after = process.hub.reading.matching_after

    async def meanwhile(feed: Feed, cursor: Position, filter_: None) -> Notification | None:
        process.hub.sets["dataset1"] = SimpleNamespace(private=True)
        return await matching_after(feed, cursor, filter_)

    process.hub.reading.matching_after = meanwhile
    await process.begin(cursor=0)
    await process.rest()
    assert process.callbacks.posts == 0


async def test_a_retry_is_not_made_once_the_set_is_private(process):
    process.callbacks.answer = CallAnswer(500)
    await process.begin(cursor=0)
    await process.rest()
    process.hub.sets["dataset1"] = SimpleNamespace(private=True)
    process.subscribers.retry(process.subscriber)
    await process.rest()
    assert process.callbacks.posts == 1


async def test_whoever_subscribed_with_a_token_goes_on_when_the_set_turns_private(process):
    await process.begin(cursor=0, by_token=True)
    process.hub.sets["dataset1"] = SimpleNamespace(private=True)
    await process.rest()
    assert process.callbacks.posts == 1


# --- leases and clocks ---------------------------------------------------------------------------


TWO_DAYS = 48 * 3600


async def leap(process: HubProcess, seconds: float) -> float:
    """Redis's clock leaps while this process looks at it."""
    now = process.clock.now()
    return process.clock.look(round(now + seconds * MICROSECONDS))


async def test_a_clock_that_leaps_ahead_ends_no_lease(process):
    await process.begin(cursor=0)
    assert await leap(process, TWO_DAYS) > TWO_DAYS - 1
    await process.ownership.end_subscriptions()
    await process.rest()
    assert process.callbacks.posts == 1
    assert ID in await process.store.all()


async def test_a_lease_that_is_over_when_it_is_first_seen_is_kept_until_that_is_certain(process):
    await process.begin(cursor=0, lease_seconds=-1)
    await process.ownership.end_subscriptions()
    await process.rest()
    assert process.callbacks.posts == 0, "WEBSUB 18"
    assert ID in await process.store.all()
    await leap(process, -3600)  # the clock was wrong
    await process.ownership.end_subscriptions()
    await process.rest()
    assert process.callbacks.posts == 1


async def test_a_lease_that_stays_over_ends_in_the_end(process, monkeypatch):
    monkeypatch.setattr("rsnotify.websub.subscribers.BELIEVED_AFTER_SECONDS", 0.0)
    await process.begin(cursor=0, lease_seconds=-1)
    await process.ownership.end_subscriptions()
    assert await process.store.all() == {}


async def begin_with_a_lease_that_is_over(process: HubProcess) -> None:
    await process.begin(cursor=0, lease_seconds=-1)
    process.subscriber.patient_until = 0.0


async def begin_to_renew(process: HubProcess) -> None:
    await process.store.ask(REQUEST)
    (requests,) = await process.store.requests([SHARE])
    process.ownership.add_requests(process.share, requests)


async def renew(process: HubProcess) -> None:
    await begin_to_renew(process)

    async def is_renewed() -> bool:
        return not process.share.verifications

    await until(is_renewed)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_lease_that_is_renewed_while_it_ends_goes_on(process, moment):
    """Whether Redis writes down the renewal before the end or after it."""
    await begin_with_a_lease_that_is_over(process)

    async def meanwhile(act: str) -> None:
        if act == "forget":
            await renew(process)

    setattr(process.store, moment, meanwhile)
    await process.ownership.end_subscriptions()
    await process.rest()
    stored = (await process.store.all())[ID]
    assert stored.subscription == process.subscriber.subscription
    assert process.callbacks.posts == 1


@pytest.mark.parametrize(("answer", "posts"), [(200, 1), (404, 0)])
async def test_a_lease_that_ends_while_its_callback_is_asked_goes_on_if_it_says_yes(
    process, monkeypatch, answer, posts
):
    """With what it was owed: a new subscription would begin at the newest change."""
    confirm, may_answer = process.callbacks.get, asyncio.Event()

    async def slowly(url: str) -> CallAnswer:
        await may_answer.wait()
        return (await confirm(url))._replace(status=answer)

    monkeypatch.setattr(process.callbacks, "get", slowly)
    await begin_with_a_lease_that_is_over(process)
    await begin_to_renew(process)
    await process.ownership.end_subscriptions()
    assert process.callbacks.posts == 0, "WEBSUB 18"
    may_answer.set()
    await process.rest()
    await process.ownership.end_subscriptions()
    assert process.callbacks.posts == posts
    assert list(await process.store.all()) == [ID] * posts


async def test_a_renewal_that_is_being_written_while_a_lease_ends_is_remembered(process):
    await begin_with_a_lease_that_is_over(process)
    is_written, may_go_on = asyncio.Event(), asyncio.Event()

    async def after(act: str) -> None:
        if act == "forget":
            await begin_to_renew(process)
            await is_written.wait()
        else:
            is_written.set()
            await may_go_on.wait()

    process.store.after = after
    async with asyncio.timeout(PATIENT_SECONDS):
        await process.ownership.end_subscriptions()
    may_go_on.set()
    await process.rest()
    kept, ended = process.store.remembered()
    assert (list(kept), list(ended)) == ([ID], [])
    assert kept[ID].subscription == process.subscriber.subscription


async def is_gone_before_its_answer_is_written(process: HubProcess) -> None:
    """It is asked for a renewal, and what it answers is written down once Redis is back."""
    process.callbacks.answer = CallAnswer(500)
    await process.begin(cursor=0)
    await process.rest()
    process.store.failing = ["finish_request"]
    await begin_to_renew(process)
    await process.rest()
    process.callbacks.answer = CallAnswer(410)
    process.subscribers.end_wait(process.subscriber)
    await process.rest()
    process.callbacks.answer = CallAnswer(204)
    process.queue.requeue(process.share)
    await process.rest()


async def test_a_callback_that_is_gone_before_its_no_is_written_has_ended(process, monkeypatch):
    async def says_no(_: str) -> CallAnswer:
        return CallAnswer(404)

    monkeypatch.setattr(process.callbacks, "get", says_no)
    await is_gone_before_its_answer_is_written(process)
    assert process.callbacks.posts == 2
    assert process.share.unwritten == process.share.subscribers == {}
    assert await process.store.all() == {}


async def test_a_callback_that_is_gone_before_its_yes_is_written_is_called_again(process):
    await is_gone_before_its_answer_is_written(process)
    assert process.callbacks.posts == 3
    assert list(await process.store.all()) == list(process.share.subscribers) == [ID]


async def redis_has(process: HubProcess, subscription: Subscription) -> None:
    """And this process has not noticed."""
    await process.settled(REQUEST, keep=Stored(subscription, Progress(0)))


async def test_a_callback_that_is_gone_ends_though_redis_has_lost_its_renewal(process):
    process.callbacks.may_answer.clear()
    process.callbacks.answer = CallAnswer(410)
    await process.begin(cursor=0)
    await redis_has(process, process.subscription(lease_seconds=60))
    process.callbacks.may_answer.set()
    await process.rest()
    process.queue.requeue(process.share)
    await process.rest()
    assert process.callbacks.posts == 2
    assert process.share.postponed == []
    assert process.share.subscribers == await process.store.all() == {}


@pytest.mark.parametrize("seconds_left", [3600, -1])
async def test_a_lease_ends_when_it_does_in_redis(process, seconds_left):
    """Its renewal was put back there by another process; or the renewal that is known was lost."""
    await begin_with_a_lease_that_is_over(process)
    await redis_has(process, process.subscription(lease_seconds=seconds_left))
    for _ in range(2):
        await process.ownership.end_subscriptions()
    await process.rest()
    is_left = seconds_left > 0
    assert process.callbacks.posts == is_left
    assert (ID in await process.store.all()) == (ID in process.share.subscribers) == is_left


async def test_a_renewal_that_another_process_puts_back_is_taken_over(process):
    await process.begin(cursor=HEAD)
    renewed = process.subscription(lease_seconds=7200)
    await redis_has(process, renewed)
    await process.store.retry(renewed)
    await process.take_in()
    assert process.subscriber.subscription == renewed


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_what_is_tried_again_while_its_lease_ends_has_ended(process, moment):
    await begin_with_a_lease_that_is_over(process)
    await process.rest()

    async def meanwhile(act: str) -> None:
        if act == "forget":
            await process.store.retry(process.subscriber.subscription)
            await process.take_in()

    setattr(process.store, moment, meanwhile)
    await process.ownership.end_subscriptions()
    assert process.share.subscribers == await process.store.all() == {}


async def test_a_clock_that_goes_back_keeps_no_retry_waiting(process):
    process.callbacks.answer = CallAnswer(503, retry_after="1")
    await process.begin(cursor=0)
    await process.rest()
    await leap(process, -3600)
    process.callbacks.answer = CallAnswer(204)
    assert process.subscriber.timer is not None
    process.subscribers.end_wait(process.subscriber)
    await process.rest()
    assert process.callbacks.posts == 2


async def test_a_leap_of_the_clock_is_said(process, caplog):
    await process.begin(cursor=HEAD)
    await leap(process, -TWO_DAYS)  # so that the true time is ahead
    await process.ownership.round()
    (seconds,) = re.findall(r"the clock of Redis has jumped (\d+) s ahead", caplog.text)
    assert int(seconds) == pytest.approx(TWO_DAYS, abs=60)  # a look at it may take a moment
    process.subscribers.abandon(process.share)


# --- whoever was away for long -------------------------------------------------------------------


async def away_for_long(pulling: Pulling) -> Position:
    """Ten changes in four windows, of which the stream still has the last."""
    begin = pulling.hub.feed(CHANGES).tail.head
    for number in range(10):
        await pulling.update(str(number))
    await pulling.keep_windows()
    await pulling.let_go_of_all()
    return begin


async def caught_up(client: Client, begin: Position) -> list[tuple[bytes, Mapping[str, str]]]:
    """What a subscriber at that position gets from a hub that has just begun."""
    fresh = Pulling(client, changes=3)
    await fresh.hub.start()
    process = HubProcess(client, fresh.hub)
    await process.begin(cursor=begin)
    await process.rest()
    return process.callbacks.sent


async def test_whoever_is_away_longer_than_the_stream_is_kept_loses_nothing(pulling, client):
    begin = await away_for_long(pulling)
    ((body, headers),) = await caught_up(client, begin)
    told = read_notification(body)
    assert told.from_ == begin
    assert [change.loc for change in told.changes] == [loc(str(number)) for number in range(10)]
    assert 'rel="index"' not in headers["Link"]


async def test_whoever_is_away_longer_than_history_is_kept_is_told_so(pulling, client):
    begin = await away_for_long(pulling)
    windows = (await pulling.windows.span(SET)).windows
    await pulling.windows.forget(SET, windows[:1])
    ((body, headers),) = await caught_up(client, begin)
    told = read_notification(body)
    assert told.from_ == windows[1].from_ > begin
    assert [change.loc for change in told.changes] == [loc(str(number)) for number in range(3, 10)]
    assert f'<{pulling.hub.base_url}/{SET}/changelist-index.xml>; rel="index"' in headers["Link"]


# --- how many at once ----------------------------------------------------------------------------


async def many_subscribers(process: HubProcess, count: int) -> None:
    for number in range(count):
        callback = f"{CALLBACK}/{number}"
        subscription = msgspec.structs.replace(process.subscription(), callback=callback)
        process.subscribers.keep(process.share, f"{number}", subscription, Progress(0))
        process.share.subscribers[f"{number}"].prompt = True


async def test_distance_costs_no_slots(process):
    """However long they take: as many calls are under way as are allowed, and soon."""
    process.callbacks.may_answer.clear()
    await process.begin()
    await many_subscribers(process, 150)
    for _ in range(3 * 100 // BEGUN_AT_ONCE):  # turns of the loop: some milliseconds in all
        await asyncio.sleep(0)
    assert process.callbacks.under_way == 50, "who has never been called gets half of the slots"
    process.callbacks.may_answer.set()
    await process.rest()
    assert process.callbacks.posts == 150


async def test_few_calls_begin_in_one_turn_of_the_loop(process):
    process.callbacks.may_answer.clear()
    await process.begin()
    await many_subscribers(process, 20)
    begun = [0]
    while process.callbacks.under_way < 20:
        await asyncio.sleep(0)
        begun.append(len(process.share.tasks))
    assert max(later - earlier for earlier, later in pairwise(begun)) == BEGUN_AT_ONCE
    process.callbacks.may_answer.set()
    await process.rest()
