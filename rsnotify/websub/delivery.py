"""One delivery: what a subscriber is owed, sent with its signature, and what the answer means.

The right to read is checked after the notification was read, and nothing is awaited between the
check and the call. Nothing here knows when it is a subscriber's turn.
"""

import logging
import random
from collections.abc import Sequence
from time import monotonic
from typing import Protocol, get_args

import msgspec

from rsnotify.errors import HistoryDeleted, Rejected, TryAgain
from rsnotify.live.journals import Journals
from rsnotify.outbound.answer import CallAnswer, CallOutcome
from rsnotify.outbound.dialler import KEEP_ALIVE_SECONDS, Dialler
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import Notification, begun_at
from rsnotify.websub.lease_clock import LeaseClock
from rsnotify.websub.rights import Rights
from rsnotify.websub.rules import delivery_headers, own_topic
from rsnotify.websub.share import Call, Share, Subscriber
from rsnotify.websub.subscription import PROMPT_SECONDS, after_answer

log = logging.getLogger(__name__)

BUG = CallAnswer(0, "the hub failed: see its log")


class RightLost(Exception):
    """The subscriber may not read the topic any more."""


class CallbackGone(Exception):
    """The callback has answered 410: it ends the subscription."""


class Deliverer:
    """Sends subscribers what they are owed, and notes what they answer."""

    def __init__(
        self,
        journals: Journals,
        dialler: Dialler,
        clock: LeaseClock,
        rights: Rights,
        *,
        algorithm: str,
    ) -> None:
        self._journals = journals
        self._dialler = dialler
        self._clock = clock
        self._rights = rights
        self._algorithm = algorithm
        self.outcomes: dict[str, int] = dict.fromkeys(get_args(CallOutcome), 0)  # of deliveries
        self.sent_bytes = 0

    async def deliver(self, subscriber: Subscriber) -> None:
        """WEBSUB 18, 21 and 23: one POST, if anything is owed and its lease has not ended.

        `RightLost` and `CallbackGone` end the subscription.
        """
        if subscriber.subscription.is_over(self._clock.now()):
            return
        owed = await self._owed(subscriber)
        lost = self._rights.why_not(subscriber.subscription)
        if lost is not None:
            raise RightLost(lost)
        if owed is None or subscriber.gone:
            return
        if not owed.count:  # nothing of it was for the subscriber: it only moves on
            subscriber.advance(subscriber.progress.moved_on(owed.until))
            return
        if subscriber.progress.told:
            owed = begun_at(owed, subscriber.progress.begin)
        headers = delivery_headers(
            owed,
            subscriber.channel,
            self._journals.base_url,
            secret=subscriber.subscription.secret,
            has_missed=subscriber.progress.missed,
            algorithm=self._algorithm,
            timestamp=self._clock.now() // MICROSECONDS,
            topic=own_topic(subscriber.channel, subscriber.subscription.topic),
            wanted=subscriber.subscription.wanted,
        )
        maybe_stale = monotonic() - subscriber.answered < KEEP_ALIVE_SECONDS
        answer = await self._dialler.post(
            subscriber.url, owed.payload, headers, maybe_stale=maybe_stale
        )
        self.sent_bytes += len(owed.payload)
        self._apply_answer(subscriber, answer, owed.until)

    def fail(self, subscriber: Subscriber) -> None:
        """Count a bug as a failure of the callback: it may occur at every attempt."""
        self._apply_answer(subscriber, BUG, Position(subscriber.progress.cursor))

    async def _owed(self, subscriber: Subscriber) -> Notification | None:
        """The changes after its position; if they have been deleted, the first that the hub has."""
        cursor = Position(subscriber.progress.cursor)
        try:
            feed = self._journals.feed(subscriber.channel)
            subscriber.passed = 0
            wanted = await self._journals.known_filter(subscriber.filter, [subscriber.channel])
            subscriber.filter = wanted
            try:
                return await self._journals.reading.matching_after(feed, cursor, wanted)
            except HistoryDeleted as error:
                log.warning("%r has missed changes: %s", subscriber, error.detail)
                begins = Position(error.begins)
            subscriber.advance(
                msgspec.structs.replace(
                    subscriber.progress, cursor=int(begins), missed=True, told=0
                )
            )
            return await self._journals.reading.matching_after(feed, begins, wanted)
        except Rejected:  # the set has been removed: the owner of the share notifies the peer
            return None

    def _apply_answer(self, subscriber: Subscriber, answer: CallAnswer, until: Position) -> None:
        self.outcomes[answer.outcome] += 1
        subscriber.answered = monotonic()
        subscriber.prompt = answer.succeeded and answer.seconds < PROMPT_SECONDS
        now, chance = self._clock.now(), random.random()  # noqa: S311
        progress = after_answer(subscriber.progress, answer, until, now, chance)
        if progress is None:
            raise CallbackGone("its callback is gone")
        if not answer.succeeded:
            _log_failure(subscriber, answer, (progress.next_attempt - now) / MICROSECONDS)
        subscriber.advance(progress)


class SubscriberPlaces(Protocol):
    """Where a subscriber goes after its turn: `Subscribers`."""

    def place(self, subscriber: Subscriber) -> None: ...

    async def deny(self, subscriber: Subscriber, reason: str) -> None: ...

    async def forget(
        self, share: Share, subscribers: Sequence[Subscriber], reason: str
    ) -> None: ...


class Delivery(Call):
    """A subscriber's turn: the call that sends it the next notification."""

    __slots__ = ("_deliverer", "_places", "subscriber")

    def __init__(
        self, subscriber: Subscriber, deliverer: Deliverer, places: SubscriberPlaces
    ) -> None:
        callback = subscriber.subscription.callback
        super().__init__(subscriber.share, callback, subscriber.host, prompt=subscriber.prompt)
        self.subscriber = subscriber
        self._deliverer = deliverer
        self._places = places

    async def make(self) -> None:
        """Deliver, and put the subscriber where it belongs then."""
        subscriber, places = self.subscriber, self._places
        subscriber.has_waited = False
        if subscriber.gone:
            return
        try:
            await self._deliverer.deliver(subscriber)
        except RightLost as lost:
            await places.deny(subscriber, str(lost))
            return
        except CallbackGone as end:  # WEBSUB 23
            await places.forget(subscriber.share, [subscriber], str(end))
            if not subscriber.gone:
                raise TryAgain("it may have been confirmed again meanwhile") from end
            return
        except TryAgain:
            raise
        except Exception:
            log.exception("a bug while delivering to %s", self.callback)
            self._deliverer.fail(subscriber)
        places.place(subscriber)

    def __repr__(self) -> str:
        return f"<Delivery to {self.subscriber!r}>"


def _log_failure(subscriber: Subscriber, answer: CallAnswer, wait_seconds: float) -> None:
    said = f"answered {answer.text}" if answer.status else f"failed: {answer.text}"
    log.warning(
        "callback %s %s; next attempt in %.0f s (subscription %s)",
        subscriber.subscription.callback,
        said,
        wait_seconds,
        subscriber.id,
    )
