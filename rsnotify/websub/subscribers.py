"""Every subscriber that this process looks after, where each stands, and who is called when.

A subscriber is in exactly one place. It is idle while it has everything that was published; in the
queue, then being called, while something is owed to it; waiting for a time after its callback
failed; suspended while its lease seems to be over or its set removed, until that is certain; gone
once its subscription has ended. `docs/design.md` has a drawing of it.

Only a few calls begin in one turn of the event loop, so that publishers get their turns between
them. Nobody is called for a share whose claim could end during the call. The queue does not know
what a call sends.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from time import monotonic

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.journal.feed import Feed
from rsnotify.journal.journals import Journals
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Notification
from rsnotify.websub.call_slots import Slots
from rsnotify.websub.delivery import CallbackGone, Deliverer, RightLost
from rsnotify.websub.state import BELIEVED_AFTER_SECONDS, Call, Clock, Share, Subscriber
from rsnotify.websub.subscription import Progress, Subscription, seconds_left
from rsnotify.websub.subscription_store import Subscriptions

log = logging.getLogger(__name__)


# --- the queue -----------------------------------------------------------------------------------

BEGUN_AT_ONCE = 4  # calls that begin in one turn of the event loop: half a millisecond


class Queue:
    """The calls that wait, and those in progress."""

    def __init__(self, slots: Slots[Call]) -> None:
        self._slots = slots
        self._is_scheduled = False

    @property
    def is_idle(self) -> bool:
        """Whether no call is about to begin."""
        return not self._is_scheduled

    @property
    def calls(self) -> int:
        """How many are in progress."""
        return self._slots.running

    def add(self, call: Call) -> None:
        self._slots.add(call)
        self._schedule()

    def requeue(self, share: Share) -> None:
        """Add the calls again that were postponed until the claim was renewed."""
        postponed, share.postponed = share.postponed, []
        for call in postponed:
            self.add(call)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_some)

    def _begin_some(self) -> None:
        self._is_scheduled = False
        for _ in range(BEGUN_AT_ONCE):
            call = self._slots.take()
            if call is None:
                return
            if call.share.may_call:
                task = asyncio.create_task(call.make())
                call.share.tasks.add(task)
                task.add_done_callback(partial(self._end, call))
            else:
                call.share.postponed.append(call)
                self._slots.done(call)
        self._schedule()

    def _end(self, call: Call, task: asyncio.Task[None]) -> None:
        call.share.tasks.discard(task)
        self._slots.done(call)
        self._schedule()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._postpone(call, error)

    def _postpone(self, call: Call, error: BaseException) -> None:
        """Make the call again once the claim was renewed."""
        call.share.postponed.append(call)
        if isinstance(error, TryAgain):
            log.warning("%r waits: %s", call, error.detail)
        else:
            log.error("a bug while calling %s", call.callback, exc_info=error)


# --- where each stands ---------------------------------------------------------------------------

WOKEN_AT_ONCE = 100


class Delivery(Call):
    """A subscriber's turn: the call that sends it the next notification."""

    __slots__ = ("_subscribers", "subscriber")

    def __init__(self, subscriber: Subscriber, subscribers: "Subscribers") -> None:
        callback = subscriber.subscription.callback
        super().__init__(subscriber.share, callback, subscriber.host, prompt=subscriber.prompt)
        self.subscriber = subscriber
        self._subscribers = subscribers

    async def make(self) -> None:
        """Deliver, and put the subscriber where it belongs then."""
        subscriber, subscribers = self.subscriber, self._subscribers
        subscriber.has_waited = False
        if subscriber.gone:
            return
        try:
            await subscribers.deliverer.deliver(subscriber)
        except RightLost as lost:
            await subscribers.deny(subscriber, str(lost))
            return
        except CallbackGone as end:  # WEBSUB 23
            await subscribers.forget(subscriber.share, [subscriber], str(end))
            if not subscriber.gone:
                raise TryAgain("it may have been confirmed again meanwhile") from end
            return
        except TryAgain:
            raise
        except Exception:
            log.exception("a bug while delivering to %s", self.callback)
            subscribers.deliverer.fail(subscriber)
        subscribers.place(subscriber)

    def __repr__(self) -> str:
        return f"<Delivery to {self.subscriber!r}>"


class ChannelWatcher:
    """A channel's idle subscribers, and those that its newest notification has woken."""

    writes = 0  # a push only wakes subscribers

    def __init__(self, feed: Feed, subscribers: "Subscribers") -> None:
        self.feed = feed
        self.idle: set[Subscriber] = set()
        self.woken: list[Subscriber] = []
        self.ended = False
        self._subscribers = subscribers
        self._is_scheduled = False
        feed.watch(self)

    def push(self, notification: Notification | None = None) -> None:  # noqa: ARG002
        """Wake the idle subscribers: they read what they are owed when it is their turn."""
        self.woken.extend(self.idle)
        self.idle.clear()
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._place_some)

    def fall_behind(self, head: Position) -> None:  # noqa: ARG002
        """Wake the idle subscribers: each has a cursor of its own, and is told of the gap."""
        self.push()

    def turn_private(self) -> None:
        """Nothing to do: each delivery checks the right to read."""

    def end(self) -> None:
        self.ended = True
        self._subscribers.forget_watcher(self)
        self.push()

    def _place_some(self) -> None:
        """Place some: 100,000 in one turn of the event loop would keep publishers waiting."""
        for _ in range(min(WOKEN_AT_ONCE, len(self.woken))):
            self._subscribers.place(self.woken.pop())
        self._is_scheduled = bool(self.woken)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._place_some)


class Subscribers:
    """Every subscriber that this process looks after."""

    def __init__(
        self,
        journals: Journals,
        store: Subscriptions,
        clock: Clock,
        queue: Queue,
        deliverer: Deliverer,
    ) -> None:
        self._journals = journals
        self._store = store
        self._clock = clock
        self._queue = queue
        self.deliverer = deliverer
        self.watchers: dict[ChannelName, ChannelWatcher] = {}

    @property
    def are_waking(self) -> bool:
        """Whether woken subscribers are still to be placed."""
        return any(watcher.woken for watcher in self.watchers.values())

    # --- coming and going ------------------------------------------------------------------------

    def keep(self, share: Share, id_: str, subscription: Subscription, progress: Progress) -> None:
        """Look after this subscription; a known one keeps its progress."""
        subscriber = share.subscribers.get(id_)
        if subscriber is None:
            subscriber = Subscriber(share, id_, subscription, progress)
            if subscription.is_over(self._clock.now()):  # our clock has not seen it end
                subscriber.patient_until = monotonic() + BELIEVED_AFTER_SECONDS
            share.subscribers[id_] = subscriber
            self.place(subscriber)
        else:
            subscriber.subscription = subscription
            self.retry(subscriber)

    def drop(self, share: Share, id_: str) -> None:
        subscriber = share.subscribers.pop(id_, None)
        share.unrecorded.pop(id_, None)
        if subscriber is not None:
            self._store.note_end(id_, subscriber.subscription)
            self._remove(subscriber)

    def abandon(self, share: Share) -> None:
        """Another process owns the share from now on."""
        share.leaving = True
        for subscriber in share.subscribers.values():
            self._remove(subscriber)
        for task in share.tasks:
            task.cancel()

    def _remove(self, subscriber: Subscriber) -> None:
        subscriber.gone = True
        subscriber.stop_timer()
        subscriber.share.suspended.discard(subscriber)
        watcher = self.watchers.get(subscriber.channel)
        if watcher is not None:
            watcher.idle.discard(subscriber)

    async def forget(self, share: Share, subscribers: Sequence[Subscriber], reason: str) -> None:
        """End these, but for those whose callback has confirmed them again meanwhile.

        If Redis has one with another lease, that one goes on: its renewal was lost here.
        """
        if not subscribers:
            return
        judged = {each.id: each.subscription for each in subscribers}
        for id_, left in (await self._store.forget(share.number, judged)).items():
            subscriber = share.subscribers.get(id_)
            if subscriber is None or share.is_confirmed(id_):
                continue  # what its callback has answered counts
            if subscriber.subscription != judged[id_]:
                continue
            if left is None:
                log.info("%r has ended: %s", subscriber, reason)
                self.drop(share, id_)
            else:
                subscriber.subscription = left

    async def deny(self, subscriber: Subscriber, reason: str) -> None:
        """Notify the callback that it may not read any more, then end it (WEBSUB 15)."""
        await self._store.deny(subscriber.subscription, reason)

    # --- places ----------------------------------------------------------------------------------

    def place(self, subscriber: Subscriber) -> None:
        """Put it where it belongs, while no call to it is in progress."""
        if subscriber.gone:
            return
        now = self._clock.now()
        watcher = self.watchers.get(subscriber.channel) or self._watch(subscriber.channel)
        wait = seconds_left(subscriber.progress, now)
        if watcher is None or subscriber.subscription.is_over(now):
            subscriber.share.suspended.add(subscriber)
        elif wait > 0 and not subscriber.has_waited:
            subscriber.start_timer(wait, self.end_wait)
        elif subscriber.progress.cursor < watcher.feed.tail.head:
            self._queue.add(Delivery(subscriber, self))
        else:
            watcher.idle.add(subscriber)

    def end_wait(self, subscriber: Subscriber) -> None:
        subscriber.stop_timer()
        subscriber.has_waited = True  # by our own clock, whatever the clock of Redis says now
        self.place(subscriber)

    def retry(self, subscriber: Subscriber) -> None:
        """Wait no longer: the callback has shown that it lives, or the operator wants it."""
        if subscriber.timer is not None:
            now = msgspec.structs.replace(subscriber.progress, next_attempt=0)
            subscriber.advance(now)
            subscriber.stop_timer()
            self.place(subscriber)
        self.resume_suspended(subscriber.share)

    def resume_suspended(self, share: Share) -> None:
        """Place those again whose lease was renewed, or whose set was created again."""
        now = self._clock.now()
        for subscriber in list(share.suspended):
            subscription = subscriber.subscription
            if subscription.set_name in self._journals.sets and not subscription.is_over(now):
                share.suspended.discard(subscriber)
                self.place(subscriber)

    def _watch(self, channel: ChannelName) -> ChannelWatcher | None:
        try:
            watcher = self.watchers[channel] = ChannelWatcher(self._journals.feed(channel), self)
        except (Rejected, TryAgain):  # removed, or its data cannot be read now
            return None
        return watcher

    def forget_watcher(self, watcher: ChannelWatcher) -> None:
        if self.watchers.get(watcher.feed.channel) is watcher:
            del self.watchers[watcher.feed.channel]
