"""Asks a callback whether it wants what was asked in its name, or tells it that it cannot have it.

Rules that hold here: nothing changes before the callback has confirmed (WEBSUB 6); it is asked
once, and again only if nothing accepted the connection, for some receivers deny a second time what
they confirmed the first: what it said is kept until it is written down, in the order of its saying.
Nothing here delivers.
"""

import asyncio
import hmac
import logging
import secrets

from rsnotify.core.websub.protocol import denial_url, verification_url
from rsnotify.core.websub.retry_schedule import VERIFICATION_WAITS
from rsnotify.core.websub.subscription import Answer, Progress, Request, confirmed
from rsnotify.delivery.websub.dialler import Dialler
from rsnotify.delivery.websub.followers import Followers
from rsnotify.delivery.websub.queue import Queue
from rsnotify.delivery.websub.state import Clock, Errand, Heard
from rsnotify.errors import Rejected, TryAgain
from rsnotify.hub import Hub
from rsnotify.resourcesync.change import Position
from rsnotify.storage.subscriptions import Stored, Subscriptions

log = logging.getLogger(__name__)


class Verification:
    """Settles requests with their callbacks."""

    def __init__(
        self,
        hub: Hub,
        dialler: Dialler,
        store: Subscriptions,
        clock: Clock,
        queue: Queue,
        followers: Followers,
    ) -> None:
        self._hub = hub
        self._dialler = dialler
        self._store = store
        self._clock = clock
        self._queue = queue
        self._followers = followers

    async def settle(self, errand: Errand) -> None:
        """One call to the callback, and what follows from its answer; only this is repeated."""
        unsettled, id_ = errand.share.unsettled, errand.request.subscription_id
        if unsettled.get(id_, errand) is not errand:
            raise TryAgain("what its callback said before is not yet written down")
        if errand.heard is None:
            errand.heard = await self._hear(errand)
        if errand.heard is not None:
            unsettled[id_] = errand
            await self._conclude(errand, errand.heard)

    async def _hear(self, errand: Errand) -> Heard | None:
        """What the callback says to it; None if it will be asked again."""
        match errand.request.order:
            case "subscribe":
                head = await self._head(errand.request)
                verified_at = self._clock.now()  # WEBSUB 18: before the request goes out
                confirms = await self._ask(errand)
                return None if confirms is None else Heard(confirms, verified_at, int(head))
            case "unsubscribe":
                confirms = await self._ask(errand)
                return None if confirms is None else Heard(confirms)
            case "remove" | "denied":
                return await self._deny(errand)
            case "retry":
                return Heard(confirms=True)

    async def _conclude(self, errand: Errand, heard: Heard) -> None:
        match errand.request.order:
            case "subscribe" if heard.confirms:
                await self._subscribe(errand, heard)
            case "unsubscribe" if heard.confirms:  # WEBSUB 7
                if await self._settled(errand, drop=True):
                    self._followers.drop(errand.share, errand.request.subscription_id)
            case "remove":
                await self._settled(errand, drop=True)
            case "retry":
                await self._retry(errand)
            case _:
                await self._settled(errand)

    async def _subscribe(self, errand: Errand, heard: Heard) -> None:
        request, share = errand.request, errand.share
        known = share.subscribers.get(request.subscription_id)
        record = confirmed(request, heard.verified_at, None if known is None else known.record)
        progress = known.progress if known else Progress(heard.head, answered_at=heard.verified_at)
        if await self._settled(errand, keep=Stored(record, progress)):
            self._followers.keep(share, request.subscription_id, record, progress)

    async def _retry(self, errand: Errand) -> None:
        subscriber = errand.share.subscribers.get(errand.request.subscription_id)
        await self._settled(errand)
        if subscriber is not None:
            self._followers.retry(subscriber)

    async def _deny(self, errand: Errand) -> Heard | None:
        """WEBSUB 15: the peer is told, whatever it answers."""
        request = errand.request
        if request.order == "remove":
            self._followers.drop(errand.share, request.subscription_id)
        answer = await self._dialler.get(
            denial_url(request.callback, request.topic, request.reason)
        )
        return None if self._comes_again(errand, answer) else Heard(confirms=True)

    async def _head(self, request: Request) -> Position:
        """Where a new subscriber begins: no change published from now on may pass it by."""
        try:
            return (await self._hub.standing(request.channel)).head
        except Rejected:  # the set has been removed: `Ownership` will deny what is confirmed
            return Position(0)

    async def _ask(self, errand: Errand) -> bool | None:
        """WEBSUB 16 and 17: whether the callback confirms; None if it will be asked again."""
        request = errand.request
        challenge = secrets.token_urlsafe(32)  # single use: every request has its own
        url = verification_url(
            request.callback, request.order, request.topic, challenge, request.lease_seconds
        )
        answer = await self._dialler.get(url)
        if self._comes_again(errand, answer):
            return None
        confirms = answer.succeeded and hmac.compare_digest(answer.body, challenge.encode())
        if not confirms:
            wrong = "another body than the challenge" if answer.succeeded else answer.text
            log.info("%s does not confirm: %s", request.callback, wrong)
        return confirms

    def _comes_again(self, errand: Errand, answer: Answer) -> bool:
        """Nothing accepted the connection: the receiver may be starting, and has heard nothing."""
        if answer.reached or answer.refused or errand.attempt >= len(VERIFICATION_WAITS):
            return False
        wait = VERIFICATION_WAITS[errand.attempt]
        log.info("%s is asked again in %d s: %s", errand.callback, wait, answer.text)
        errand.attempt += 1
        asyncio.get_running_loop().call_later(wait, self._queue.add, errand)
        return True

    async def _settled(
        self, errand: Errand, *, keep: Stored | None = None, drop: bool = False
    ) -> bool:
        """Write it down; False if the share is another's by now."""
        done = await self._store.settle(errand.id, errand.request, keep=keep, drop=drop)
        errand.share.errands.pop(errand.id, None)
        errand.share.unsettled.pop(errand.request.subscription_id, None)
        errand.share.settled.add(errand.id)
        return done
