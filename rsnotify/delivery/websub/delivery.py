"""One delivery: what a subscriber is owed, sent with its signature, and what its answer means.

Rules that hold here: a notification is rendered once for all at a cursor; the right to it is looked
at after it has been read, and nothing is awaited between the look and the call.
Nothing here knows when it is a subscriber's turn.
"""

import logging
import random
from time import monotonic

import msgspec

from rsnotify.core.websub.protocol import (
    CONTENT_TYPE,
    notification_id,
    render_index_link,
    render_links,
    signing_headers,
)
from rsnotify.core.websub.subscription import PROMPT_SECONDS, Answer, after_answer
from rsnotify.delivery.websub.dialler import KEEP_ALIVE_SECONDS, Dialler
from rsnotify.delivery.websub.rights import Rights
from rsnotify.delivery.websub.state import Clock, Subscriber
from rsnotify.errors import HistoryGone, Rejected
from rsnotify.hub import Hub
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import ChannelName, Interval, Notification

log = logging.getLogger(__name__)

BUG = Answer(0, "the hub failed: see its log")


class Denied(Exception):
    """The subscriber may not be told any more."""


class Gone(Exception):
    """The callback has said that it is no more."""


class Delivery:
    """Delivers to one subscriber at a time; `Denied` or `Gone` is its end."""

    def __init__(
        self, hub: Hub, dialler: Dialler, clock: Clock, rights: Rights, *, algorithm: str
    ) -> None:
        self._hub = hub
        self._dialler = dialler
        self._clock = clock
        self._rights = rights
        self._algorithm = algorithm

    async def deliver(self, subscriber: Subscriber) -> None:
        """The next notification that it is owed, if any."""
        owed = await self._owed(subscriber)
        denial = self._rights.why_not(subscriber.record)
        if denial is not None:
            raise Denied(denial)
        if owed is None or subscriber.gone:
            return
        self._heed(subscriber, await self._send(subscriber, owed), owed.until)

    def fail(self, subscriber: Subscriber) -> None:
        """A bug may come again at every attempt: it keeps to the schedule of failures."""
        self._heed(subscriber, BUG, Position(subscriber.progress.cursor))

    async def _owed(self, subscriber: Subscriber) -> Notification | None:
        """What follows its cursor; of what is kept no more, what follows that."""
        try:
            feed = self._hub.feed(subscriber.channel)
            cursor = Position(subscriber.progress.cursor)
            try:
                return await self._hub.stretch_after(feed, cursor)
            except HistoryGone as error:
                log.warning("%r has missed changes: %s", subscriber, error.detail)
            kept_from = await self._hub.kept_from(subscriber.channel)
            moved = {"cursor": int(kept_from), "missed": True}
            subscriber.advance(msgspec.structs.replace(subscriber.progress, **moved))
            return await self._hub.stretch_after(feed, kept_from)
        except Rejected:  # the set has been removed: whoever owns the share tells the peer
            return None

    async def _send(self, subscriber: Subscriber, owed: Notification) -> Answer:
        """WEBSUB 21, 22 and 25."""
        headers = self._headers_of(subscriber.channel, owed)
        if subscriber.progress.missed and subscriber.channel.kind == "change":
            link = render_index_link(subscriber.channel, self._hub.base_url)
            headers = headers | {"Link": f"{headers['Link']}, {link}"}
        signing = signing_headers(
            subscriber.record.secret,
            owed.payload,
            algorithm=self._algorithm,
            webhook_id=headers["webhook-id"],
            timestamp=self._clock.now() // MICROSECONDS,
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

    def _heed(self, subscriber: Subscriber, answer: Answer, until: Position) -> None:
        subscriber.answered = monotonic()
        subscriber.prompt = answer.succeeded and answer.seconds < PROMPT_SECONDS
        now, chance = self._clock.now(), random.random()  # noqa: S311
        progress = after_answer(subscriber.progress, answer, until, now, chance)
        if progress is None:
            raise Gone("its callback is gone")
        if not answer.succeeded:
            _log_failure(subscriber, answer, (progress.next_attempt - now) / MICROSECONDS)
        subscriber.advance(progress)


def _log_failure(subscriber: Subscriber, answer: Answer, wait_seconds: float) -> None:
    said = f"answered {answer.text}" if answer.status else f"failed: {answer.text}"
    log.warning(
        "callback %s %s; next attempt in %.0f s (subscription %s)",
        *(subscriber.callback, said, wait_seconds, subscriber.id),
    )
