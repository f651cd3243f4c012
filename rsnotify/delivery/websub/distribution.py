"""Content distribution: every subscriber gets what follows its cursor, one request at a time.

Rules that hold here: a subscriber is in exactly one place: idle at the head, in line for a slot,
being called, or waiting for its next attempt; a notification is rendered once for all at a cursor;
only a few calls begin in one turn of the event loop, so that publishing never waits for them.
Nothing here knows why this process owns a share.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from functools import partial
from time import monotonic

import msgspec

from rsnotify.core.change import MICROSECONDS, Position
from rsnotify.core.notification import ChannelName, Interval, Notification
from rsnotify.core.slots import Slots
from rsnotify.core.subscription import PROMPT_SECONDS, Answer, Progress, Record, after_answer
from rsnotify.core.websub import CONTENT_TYPE, notification_id, render_links, signing_headers
from rsnotify.delivery.websub.dialler import KEEP_ALIVE_SECONDS, Dialler
from rsnotify.delivery.websub.share import Call, Clock, Share, Subscriber
from rsnotify.errors import Rejected, TryAgain
from rsnotify.feed import Feed
from rsnotify.hub import Hub
from rsnotify.storage.subscriptions import Subscriptions

log = logging.getLogger(__name__)

ROUSED_AT_ONCE = 100
BEGUN_AT_ONCE = 4  # calls that one turn of the event loop begins: half a millisecond
LONGEST_TIMER_SECONDS = 24 * 3600.0
BUG = Answer(0, "the hub failed: see its log")


class Following:
    """A channel's subscribers at its head."""

    def __init__(self, feed: Feed, distribution: "Distribution") -> None:
        self.feed = feed
        self.idle: set[Subscriber] = set()
        self.owed: list[Subscriber] = []  # were idle before the newest notification came
        self.ended = False
        self._distribution = distribution
        feed.watchers.add(self)

    def push(self, notification: Notification) -> None:  # noqa: ARG002
        self._distribution.wake(self)

    def turn_private(self) -> None:
        """Subscriptions that were made without a token are ended by their owner."""

    def end(self) -> None:
        self.ended = True
        self._distribution.wake(self)


class Distribution:
    """The slots, and who stands in line for them."""

    def __init__(
        self,
        hub: Hub,
        dialler: Dialler,
        store: Subscriptions,
        clock: Clock,
        slots: Slots[Call],
        *,
        algorithm: str,
    ) -> None:
        self._hub = hub
        self._dialler = dialler
        self._store = store
        self._clock = clock
        self._slots = slots
        self._algorithm = algorithm
        self._followings: dict[ChannelName, Following] = {}
        self._woken: set[Following] = set()
        self._pumping = False

    # --- where a subscriber stands ---------------------------------------------------------------

    def keep(self, share: Share, id_: str, record: Record, progress: Progress) -> None:
        """Look after this subscription; one that is known already keeps its progress."""
        subscriber = share.subscribers.get(id_)
        if subscriber is None:
            subscriber = Subscriber(share, id_, record, progress, self._deliver)
            share.subscribers[id_] = subscriber
            self.place(subscriber)
        else:
            subscriber.record = record
            self.retry(subscriber)

    def retry(self, subscriber: Subscriber) -> None:
        """There is a sign of life, or the operator wants it: no more waiting."""
        if subscriber.timer is not None:
            subscriber.advance(_attempted_now(subscriber.progress))
            self._stop_timer(subscriber)
            self.place(subscriber)

    def drop(self, share: Share, id_: str) -> None:
        subscriber = share.subscribers.pop(id_, None)
        share.unrecorded.pop(id_, None)
        if subscriber is not None:
            self._take_out(subscriber)

    def abandon(self, share: Share) -> None:
        """The share is another's from now on."""
        share.leaving = True
        for subscriber in share.subscribers.values():
            self._take_out(subscriber)
        for task in share.tasks:
            task.cancel()

    def _take_out(self, subscriber: Subscriber) -> None:
        subscriber.gone = True
        self._stop_timer(subscriber)
        following = self._followings.get(subscriber.channel)
        if following is not None:
            following.idle.discard(subscriber)

    def _stop_timer(self, subscriber: Subscriber) -> None:
        if subscriber.timer is not None:
            subscriber.timer.cancel()
            subscriber.timer = None

    def place(self, subscriber: Subscriber) -> None:
        """Put it where it belongs, now that nobody is calling it."""
        subscriber.timer = None
        following = self._following(subscriber.channel)
        if subscriber.gone or following is None:
            return  # a channel that has ended: `Ownership` sees to it that its peer is told
        wait = (subscriber.progress.next_attempt - self._clock.now()) / MICROSECONDS
        if wait > 0:
            loop = asyncio.get_running_loop()
            delay = min(wait, LONGEST_TIMER_SECONDS)
            subscriber.timer = loop.call_later(delay, self.place, subscriber)
        elif subscriber.progress.cursor < following.feed.tail.head:
            self.add(subscriber)
        else:
            following.idle.add(subscriber)

    def _following(self, channel: ChannelName) -> Following | None:
        following = self._followings.get(channel)
        if following is None or following.ended:
            try:
                following = self._followings[channel] = Following(self._hub.feed(channel), self)
            except Rejected:
                return None
        return following

    # --- the line and the slots ------------------------------------------------------------------

    def wake(self, following: Following) -> None:
        following.owed.extend(following.idle)
        following.idle.clear()
        self._woken.add(following)
        self._pump_soon()

    def add(self, call: Call) -> None:
        self._slots.add(call)
        self._pump_soon()

    def unpark(self, share: Share) -> None:
        parked, share.parked = share.parked, []
        for call in parked:
            self.add(call)

    def _pump_soon(self) -> None:
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        for following in tuple(self._woken):
            self._rouse(following)
        for _ in range(BEGUN_AT_ONCE):
            call = self._slots.take()
            if call is None:
                return
            self._begin(call)
        self._pump_soon()

    def _rouse(self, following: Following) -> None:
        """Everybody at the head is owed something, or must look for a new head."""
        for _ in range(min(ROUSED_AT_ONCE, len(following.owed))):
            self.place(following.owed.pop())
        if following.owed:
            self._pump_soon()
            return
        self._woken.discard(following)
        channel = following.feed.channel
        if following.ended and self._followings.get(channel) is following:
            del self._followings[channel]

    def _begin(self, call: Call) -> None:
        if call.share.may_call:
            task = asyncio.create_task(self._run(call))
            call.share.tasks.add(task)
            task.add_done_callback(partial(self._finish, call))
        else:
            call.share.parked.append(call)
            self._slots.done(call)

    async def _run(self, call: Call) -> None:
        try:
            await call.work(call)
        except TryAgain as error:
            log.warning("%r waits: %s", call, error.detail)
            call.share.parked.append(call)
        except Exception:
            log.exception("a bug while calling %s", call.callback)
            self._after_bug(call)

    def _after_bug(self, call: Call) -> None:
        """It may come again at every attempt: a delivery keeps to the schedule of failures."""
        if not isinstance(call, Subscriber):
            call.share.parked.append(call)
        elif not call.gone:
            self._heed(call, BUG, Position(call.progress.cursor))
            self.place(call)

    def _finish(self, call: Call, task: asyncio.Task[None]) -> None:
        call.share.tasks.discard(task)
        self._slots.done(call)
        self._pump_soon()

    # --- one delivery ----------------------------------------------------------------------------

    async def _deliver(self, subscriber: Subscriber) -> None:
        if subscriber.gone:
            return
        if subscriber.record.lease_end <= self._clock.now():  # WEBSUB 18
            await self.forget(subscriber.share, [subscriber], "its lease has ended")
            return
        owed = await self._owed(subscriber)
        if owed is not None and not await self._move(subscriber, owed):
            await self.forget(subscriber.share, [subscriber], "its callback is gone")
            return
        self.place(subscriber)

    async def _move(self, subscriber: Subscriber, owed: Notification) -> bool:
        """Deliver, and move on or wait as the answer says; False if it was the end."""
        answer = await self._send(subscriber, owed)
        subscriber.answered = monotonic()
        subscriber.prompt = answer.succeeded and answer.seconds < PROMPT_SECONDS
        return self._heed(subscriber, answer, owed.until)

    def _heed(self, subscriber: Subscriber, answer: Answer, until: Position) -> bool:
        now, chance = self._clock.now(), random.random()  # noqa: S311
        progress = after_answer(subscriber.progress, answer, until, now, chance)
        if progress is None:
            return False
        if not answer.succeeded:
            _log_failure(subscriber, answer, (progress.next_attempt - now) / MICROSECONDS)
        subscriber.advance(progress)
        return True

    async def forget(self, share: Share, subscribers: Sequence[Subscriber], reason: str) -> None:
        if not subscribers:
            return
        await self._store.forget(share.number, [subscriber.id for subscriber in subscribers])
        for subscriber in subscribers:
            log.info("%r is forgotten: %s", subscriber, reason)
            self.drop(share, subscriber.id)

    async def _owed(self, subscriber: Subscriber) -> Notification | None:
        """What follows its cursor; a cursor below what the journal keeps moves up to it."""
        following = self._following(subscriber.channel)
        if following is None:
            return None
        cursor = Position(subscriber.progress.cursor)
        try:
            return await self._hub.stretch_after(following.feed, cursor)
        except Rejected as error:
            if error.status != 410:
                return None
            log.warning("%r has missed changes: %s", subscriber, error.detail)
        first = (await self._hub.standing(subscriber.channel)).first
        subscriber.advance(msgspec.structs.replace(subscriber.progress, cursor=int(first)))
        return await self._hub.stretch_after(following.feed, first)

    async def _send(self, subscriber: Subscriber, owed: Notification) -> Answer:
        """WEBSUB 21, 22 and 25."""
        headers = self._headers_of(subscriber.channel, owed)
        timestamp = self._clock.now() // MICROSECONDS
        signing = signing_headers(
            subscriber.record.secret,
            owed.payload,
            algorithm=self._algorithm,
            webhook_id=headers["webhook-id"],
            timestamp=timestamp,
        )
        return await self._dialler.post(
            subscriber.url,
            owed.payload,
            headers | signing,
            maybe_stale=monotonic() - subscriber.answered < KEEP_ALIVE_SECONDS,
        )

    def _headers_of(self, channel: ChannelName, owed: Notification) -> dict[str, str]:
        def make(notification: Notification) -> dict[str, str]:
            interval = Interval(notification.from_, notification.until)
            return {
                "Content-Type": CONTENT_TYPE,
                "Link": render_links(channel, self._hub.base_url),
                "webhook-id": notification_id(channel, interval),
            }

        return owed.once("websub", make)


def _log_failure(subscriber: Subscriber, answer: Answer, wait_seconds: float) -> None:
    said = f"answered {answer.text}" if answer.status else f"failed: {answer.text}"
    log.warning(
        "callback %s %s; next attempt in %.0f s (subscription %s)",
        *(subscriber.callback, said, wait_seconds, subscriber.id),
    )


def _attempted_now(progress: Progress) -> Progress:
    return msgspec.structs.replace(progress, next_attempt=0)
