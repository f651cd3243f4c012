"""Every subscriber that this process looks after, and where each stands.

A subscriber is in exactly one place. It is idle while it has everything that was published; in the
queue, then being called, while something is owed to it; waiting for a time after its callback
failed; suspended while its lease seems to be over or its set removed, until that is certain; gone
once its subscription has ended. `docs/design.md` has a drawing of it.
"""

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.live.feed import Feed
from rsnotify.live.filter_counts import FILTERS, FilterCounts
from rsnotify.live.journals import Journals
from rsnotify.live.reading import PASSED_CHANGES, PASSED_SECONDS
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Notification
from rsnotify.websub.call_queue import Queue
from rsnotify.websub.delivery import Deliverer, Delivery
from rsnotify.websub.lease_clock import BELIEVED_AFTER_SECONDS, LeaseClock
from rsnotify.websub.rules import hostname_of
from rsnotify.websub.share import Share, Subscriber
from rsnotify.websub.subscription import PendingRequest, Progress, Subscription, seconds_left
from rsnotify.websub.subscription_store import Subscriptions

log = logging.getLogger(__name__)

WOKEN_AT_ONCE = 100


class ChannelWatcher:
    """A channel's idle subscribers, and those that its newest notification has woken. Those who
    want a part are idle, too, while nothing comes for them; they move on now and then."""

    writes = 0  # a push only wakes subscribers

    def __init__(self, feed: Feed, subscribers: "Subscribers") -> None:
        self.feed = feed
        self._idle: set[Subscriber] = set()
        self._idle_in_part: dict[Subscriber, None] = {}
        self._timer: asyncio.TimerHandle | None = None  # until the latter move on
        self.woken: list[Subscriber] = []
        self.ended = False
        self._subscribers = subscribers
        self._is_scheduled = False
        feed.watch(self)

    def rest(self, subscriber: Subscriber) -> None:
        """It has everything."""
        if subscriber.filter is None:
            self._idle.add(subscriber)
        else:
            self._idle_in_part[subscriber] = None

    def leave(self, subscriber: Subscriber) -> None:
        self._idle.discard(subscriber)
        self._idle_in_part.pop(subscriber, None)

    def push(self, notification: Notification | None = None) -> None:
        """Wake the idle subscribers: they read what they are owed when it is their turn."""
        self.woken.extend(self._idle)
        self._idle.clear()
        for subscriber in [*self._idle_in_part]:
            if notification is None or _is_for(subscriber, notification):
                del self._idle_in_part[subscriber]
                self.woken.append(subscriber)
        if self._idle_in_part and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PASSED_SECONDS, self._move_on)
        self._schedule()

    def _move_on(self) -> None:
        """Wake those who have passed something over, so that their positions are not left behind
        what is kept."""
        self._timer = None
        passed = [each for each in self._idle_in_part if each.passed]
        for subscriber in passed:
            del self._idle_in_part[subscriber]
        self.woken.extend(passed)
        self._schedule()

    def _schedule(self) -> None:
        if self.woken and not self._is_scheduled:
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


def _is_for(subscriber: Subscriber, notification: Notification) -> bool:
    """Whether it is to be called with this, or to move on."""
    if subscriber.filter is None or subscriber.filter.pick(notification) is not None:
        return True
    subscriber.passed += notification.count
    return subscriber.passed >= PASSED_CHANGES


def _counted(subscription: PendingRequest | Subscription) -> tuple[ChannelName, str]:
    """Where its filter counts: the port is left out, for one host has many."""
    return subscription.channel, hostname_of(subscription.callback)


class Subscribers:
    """Every subscriber that this process looks after."""

    def __init__(
        self,
        journals: Journals,
        store: Subscriptions,
        clock: LeaseClock,
        queue: Queue,
        deliverer: Deliverer,
    ) -> None:
        self._journals = journals
        self._store = store
        self._clock = clock
        self._queue = queue
        self.deliverer = deliverer
        self.watchers: dict[ChannelName, ChannelWatcher] = {}
        self._wanted = FilterCounts[str]()

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
            self.hold_filter(subscription)
            self.place(subscriber)
        else:
            subscriber.subscription = subscription
            self.retry(subscriber)

    def refusal(self, request: PendingRequest) -> str | None:
        """Why there is no room for a subscription: its filter would be one too many."""
        if not request.wanted:
            return None
        channel, host = _counted(request)
        if (found := self._wanted.too_many_of(channel, host, request.wanted)) is not None:
            return f"callbacks at {host} have {found}: end one, or take all of it"
        if self._wanted.is_full(channel, request.wanted):
            return f"{channel} has subscribers with {FILTERS} different filters: take all of it"
        return None

    def hold_filter(self, subscription: PendingRequest | Subscription) -> None:
        """Count its filter, if it has one."""
        if subscription.wanted:
            self._wanted.take(*_counted(subscription), subscription.wanted)

    def let_go_of_filter(self, subscription: PendingRequest | Subscription) -> None:
        if subscription.wanted:
            self._wanted.give_back(*_counted(subscription), subscription.wanted)

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
            watcher.leave(subscriber)
        self.let_go_of_filter(subscriber.subscription)

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
            self._queue.add(Delivery(subscriber, self.deliverer, self))
        else:
            watcher.rest(subscriber)

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
