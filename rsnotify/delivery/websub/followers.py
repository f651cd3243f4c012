"""Where each subscriber stands: at its channel's head, in line, waiting, or aside.

Rules that hold here: a subscriber is in exactly one place. At the head it waits for the next
notification; in line, for a slot, while it is owed something; it waits for a time when its callback
failed; it stands aside when its lease seems to be over or its set to be removed, until that is
certain. Once `gone` it is nowhere.
Nothing here knows why this process owns a share, or what is sent.
"""

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic

import msgspec

from rsnotify.core.clock import BELIEVED_AFTER_SECONDS
from rsnotify.core.websub.subscription import Progress, Record, seconds_left
from rsnotify.delivery.websub.delivery import Delivery, Denied, Gone
from rsnotify.delivery.websub.queue import Queue
from rsnotify.delivery.websub.state import Clock, Share, Subscriber
from rsnotify.errors import Rejected, TryAgain
from rsnotify.feed import Feed
from rsnotify.hub import Hub
from rsnotify.resourcesync.notification import ChannelName, Notification
from rsnotify.storage.subscriptions import Subscriptions

log = logging.getLogger(__name__)

ROUSED_AT_ONCE = 100


class Head:
    """A channel's subscribers at its head, and those whom its newest notification has roused."""

    def __init__(self, feed: Feed, followers: "Followers") -> None:
        self.feed = feed
        self.idle: set[Subscriber] = set()
        self.roused: list[Subscriber] = []
        self.ended = False
        self._followers = followers
        self._is_woken = False
        feed.watchers.add(self)

    def push(self, notification: Notification) -> None:  # noqa: ARG002
        self._rouse()

    def turn_private(self) -> None:
        """Each delivery looks at the right to it."""

    def end(self) -> None:
        self.ended = True
        self._followers.forget_head(self)
        self._rouse()

    def _rouse(self) -> None:
        self.roused.extend(self.idle)
        self.idle.clear()
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._place_some)

    def _place_some(self) -> None:
        """A hundred thousand in one turn of the event loop would keep a Source waiting."""
        for _ in range(min(ROUSED_AT_ONCE, len(self.roused))):
            self._followers.place(self.roused.pop())
        self._is_woken = bool(self.roused)
        if self._is_woken:
            asyncio.get_running_loop().call_soon(self._place_some)


class Followers:
    """Every subscriber that this process looks after."""

    def __init__(
        self, hub: Hub, store: Subscriptions, clock: Clock, queue: Queue, delivery: Delivery
    ) -> None:
        self._hub = hub
        self._store = store
        self._clock = clock
        self._queue = queue
        self._delivery = delivery
        self._heads: dict[ChannelName, Head] = {}

    @property
    def are_roused(self) -> bool:
        """Somebody is about to stand in line."""
        return any(head.roused for head in self._heads.values())

    # --- coming and going ------------------------------------------------------------------------

    def keep(self, share: Share, id_: str, record: Record, progress: Progress) -> None:
        """Look after this subscription; one that is known already keeps its progress."""
        subscriber = share.subscribers.get(id_)
        if subscriber is None:
            subscriber = Subscriber(share, id_, record, progress, self._deliver)
            if self._is_over(subscriber):  # we have not seen it grow old
                subscriber.patient_until = monotonic() + BELIEVED_AFTER_SECONDS
            share.subscribers[id_] = subscriber
            self.place(subscriber)
        else:
            subscriber.record = record
            self.retry(subscriber)

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
        subscriber.stop_timer()
        subscriber.share.aside.discard(subscriber)
        head = self._heads.get(subscriber.channel)
        if head is not None:
            head.idle.discard(subscriber)

    async def forget(self, share: Share, subscribers: Sequence[Subscriber], reason: str) -> None:
        if not subscribers:
            return
        await self._store.forget(share.number, [subscriber.id for subscriber in subscribers])
        for subscriber in subscribers:
            log.info("%r is forgotten: %s", subscriber, reason)
            self.drop(share, subscriber.id)

    # --- from place to place ---------------------------------------------------------------------

    def place(self, subscriber: Subscriber) -> None:
        """Put it where it belongs, now that nobody is calling it."""
        if subscriber.gone:
            return
        head = self._head(subscriber.channel)
        wait = seconds_left(subscriber.progress, self._clock.now())
        if head is None or self._is_over(subscriber):
            subscriber.share.aside.add(subscriber)
        elif wait > 0 and not subscriber.has_waited:
            subscriber.start_timer(wait, self._end_wait)
        elif subscriber.progress.cursor < head.feed.tail.head:
            self._queue.add(subscriber)
        else:
            head.idle.add(subscriber)

    def _end_wait(self, subscriber: Subscriber) -> None:
        subscriber.stop_timer()
        subscriber.has_waited = True  # by our own clock, whatever that of Redis says by now
        self.place(subscriber)

    def retry(self, subscriber: Subscriber) -> None:
        """There is a sign of life, or the operator wants it: no more waiting."""
        if subscriber.timer is not None:
            now = msgspec.structs.replace(subscriber.progress, next_attempt=0)
            subscriber.advance(now)
            subscriber.stop_timer()
            self.place(subscriber)
        self.take_back(subscriber.share)

    def take_back(self, share: Share) -> None:
        """Look again at those aside: a lease may be renewed, a clock set right, a set made anew."""
        for subscriber in list(share.aside):
            if subscriber.record.set_name in self._hub.sets and not self._is_over(subscriber):
                share.aside.discard(subscriber)
                self.place(subscriber)

    def _is_over(self, subscriber: Subscriber) -> bool:
        return subscriber.record.lease_end <= self._clock.now()

    def _head(self, channel: ChannelName) -> Head | None:
        head = self._heads.get(channel)
        if head is None:
            try:
                head = self._heads[channel] = Head(self._hub.feed(channel), self)
            except Rejected:
                return None
        return head

    def forget_head(self, head: Head) -> None:
        if self._heads.get(head.feed.channel) is head:
            del self._heads[head.feed.channel]

    # --- its turn --------------------------------------------------------------------------------

    async def _deliver(self, subscriber: Subscriber) -> None:
        """WEBSUB 18 and 23: whose lease is over is told nothing, and a 410 is the end."""
        subscriber.has_waited = False
        if not subscriber.gone and not self._is_over(subscriber):
            try:
                await self._delivery.deliver(subscriber)
            except Denied as denial:
                await self._store.expel(subscriber.record, str(denial))
                return
            except Gone as end:
                await self.forget(subscriber.share, [subscriber], str(end))
                return
            except TryAgain:
                raise
            except Exception:
                log.exception("a bug while delivering to %s", subscriber.callback)
                self._delivery.fail(subscriber)
        self.place(subscriber)
