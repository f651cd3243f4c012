"""One verification: a callback is asked to confirm a request, or notified of a denial.

Nothing changes before the callback has confirmed (WEBSUB 6). It is asked once, and again only if
nothing accepted the connection: some receivers deny a second time what they confirmed the first
time. So its answer is kept until it is in Redis, and answers are written in their order.
"""

import asyncio
import hmac
import logging
import secrets
from typing import NamedTuple

from rsnotify.errors import Rejected, TryAgain
from rsnotify.live.journals import Journals
from rsnotify.outbound.answer import CallAnswer
from rsnotify.outbound.dialler import Dialler
from rsnotify.resourcesync.change import Position
from rsnotify.websub.call_queue import Queue
from rsnotify.websub.lease_clock import LeaseClock
from rsnotify.websub.rights import Rights
from rsnotify.websub.rules import VERIFICATION_WAITS, authority, denial_url, verification_url
from rsnotify.websub.share import Call, Share
from rsnotify.websub.subscribers import Subscribers
from rsnotify.websub.subscription import PendingRequest, Progress, Subscription, confirmed
from rsnotify.websub.subscription_store import Stored, Subscriptions

log = logging.getLogger(__name__)


class VerificationResult(NamedTuple):
    """What the callback answered; for a subscription also when it was asked, and the head then."""

    confirms: bool
    verified_at: int = 0
    head: int = 0


class Verifier(NamedTuple):
    """What verifications work with."""

    journals: Journals
    dialler: Dialler
    store: Subscriptions
    clock: LeaseClock
    rights: Rights
    queue: Queue
    subscribers: Subscribers


class Verification(Call):
    """The call that asks a callback to confirm a request, or notifies it of a denial."""

    __slots__ = ("_holds_filter", "_verifier", "attempt", "id", "request", "result")

    def __init__(self, share: Share, id_: str, request: PendingRequest, verifier: Verifier) -> None:
        super().__init__(share, request.callback, authority(request.callback))
        self.id = id_
        self.request = request
        self.attempt = 0
        self.result: VerificationResult | None = None
        self._verifier = verifier
        self._holds_filter = False

    def __repr__(self) -> str:
        return f"<Verification {self.request.order} {self.callback}>"

    @property
    def has_confirmed(self) -> bool:
        is_yes = self.result is not None and self.result.confirms
        return is_yes and self.request.order == "subscribe"

    @property
    def asked_to_confirm(self) -> str:
        return self.request.subscription_id if self.request.order == "subscribe" else ""

    async def make(self) -> None:
        """Call the callback once, and write down the result; only the writing is repeated."""
        unwritten, id_ = self.share.unwritten, self.request.subscription_id
        if unwritten.get(id_, self) is not self:
            raise TryAgain("what its callback answered before is not yet written down")
        try:
            if self.result is None:
                self.result = await self._call()
            if self.result is not None:
                unwritten[id_] = self
                await self._write(self.result)
        finally:
            self._let_go_of_filter()

    # --- the call --------------------------------------------------------------------------------

    async def _call(self) -> VerificationResult | None:
        """What the callback answers; None if it will be asked again."""
        match self.request.order:
            case "subscribe":
                if (refusal := self._verifier.subscribers.refusal(self.request)) is not None:
                    return await self._refuse(refusal)
                self._hold_filter()
                head = await self._head()
                verified_at = self._verifier.clock.now()  # WEBSUB 18: before the request goes out
                confirms = await self._ask()
                if confirms is None:
                    return None
                return VerificationResult(confirms, verified_at, int(head))
            case "unsubscribe":
                confirms = await self._ask()
                return None if confirms is None else VerificationResult(confirms)
            case "remove" | "denied":
                return await self._notify_of_denial()
            case "retry":
                return VerificationResult(confirms=True)

    def _hold_filter(self) -> None:
        """Count it already: others may ask for as many at the same time."""
        self._verifier.subscribers.hold_filter(self.request)
        self._holds_filter = True

    def _let_go_of_filter(self) -> None:
        """A subscription that is kept has counted it by now."""
        if self._holds_filter:
            self._holds_filter = False
            self._verifier.subscribers.let_go_of_filter(self.request)

    async def _head(self) -> Position:
        """Where a new subscriber begins: it misses no change published from now on."""
        journals = self._verifier.journals
        try:
            await journals.learn_of(self.request.set_name)
            return await journals.head(self.request.channel)
        except Rejected:  # the set has been removed: `Ownership` will deny what is confirmed
            return Position(0)

    async def _ask(self) -> bool | None:
        """WEBSUB 16 and 17: whether the callback confirms; None if it will be asked again."""
        request = self.request
        challenge = secrets.token_urlsafe(32)  # single use: every request has its own
        url = verification_url(
            request.callback, request.order, request.topic, challenge, request.lease_seconds
        )
        answer = await self._verifier.dialler.get(url)
        if self._is_asked_again(answer):
            return None
        confirms = answer.succeeded and hmac.compare_digest(answer.body, challenge.encode())
        if not confirms:
            wrong = "another body than the challenge" if answer.succeeded else answer.text
            log.info("%s does not confirm: %s", request.callback, wrong)
        return confirms

    async def _refuse(self, reason: str) -> VerificationResult | None:
        """WEBSUB 15: there is no room for it."""
        request = self.request
        answer = await self._verifier.dialler.get(
            denial_url(request.callback, request.topic, reason)
        )
        return None if self._is_asked_again(answer) else VerificationResult(confirms=False)

    async def _notify_of_denial(self) -> VerificationResult | None:
        """WEBSUB 15: the callback is notified, whatever it answers. It may have subscribed anew
        since, as far as it could not be reached: what is meant has ended then."""
        request = self.request
        if request.order == "remove":
            known = self.share.subscribers.get(request.subscription_id)
            if known is not None and self._is_to_stay(known.subscription):
                return VerificationResult(confirms=False)
            self._verifier.subscribers.drop(self.share, request.subscription_id)
        answer = await self._verifier.dialler.get(
            denial_url(request.callback, request.topic, request.reason)
        )
        if self._is_asked_again(answer):
            return None
        return VerificationResult(confirms=True)

    def _is_to_stay(self, subscription: Subscription) -> bool:
        """Whether what was to be removed is another one by now, or may read again."""
        has_returned = self._verifier.rights.has_returned(subscription, self.request.reason)
        return has_returned or subscription.is_later_than(self.request)

    def _is_asked_again(self, answer: CallAnswer) -> bool:
        """If nothing accepted the connection: the receiver may be starting."""
        attempt = self.attempt
        if answer.reached or answer.refused or attempt >= len(VERIFICATION_WAITS):
            return False
        wait = VERIFICATION_WAITS[attempt]
        log.info("%s is asked again in %d s: %s", self.callback, wait, answer.text)
        self.attempt += 1
        asyncio.get_running_loop().call_later(wait, self._verifier.queue.add, self)
        return True

    # --- what follows from the answer ------------------------------------------------------------

    async def _write(self, result: VerificationResult) -> None:
        match self.request.order:
            case "subscribe" if result.confirms:
                await self._subscribe(result)
            case "unsubscribe" if result.confirms:  # WEBSUB 7
                if await self._finish(drop=True):
                    self._verifier.subscribers.drop(self.share, self.request.subscription_id)
            case "remove" if result.confirms:
                await self._finish(drop=True)
            case "retry":
                await self._retry()
            case _:
                await self._finish()

    async def _subscribe(self, result: VerificationResult) -> None:
        request, share = self.request, self.share
        known = share.subscribers.get(request.subscription_id)
        before = None if known is None else known.subscription
        subscription = confirmed(request, result.verified_at, before)
        new = Progress(result.head, answered_at=result.verified_at)
        progress = known.progress if known else new
        if await self._finish(keep=Stored(subscription, progress)):
            self._verifier.subscribers.keep(share, request.subscription_id, subscription, progress)

    async def _retry(self) -> None:
        """Retry with what Redis has."""
        share, id_ = self.share, self.request.subscription_id
        known = share.subscribers.get(id_)
        stored = await self._verifier.store.at(share.number, id_)
        await self._finish()
        if stored is not None and share.subscribers.get(id_) is known:  # else it has ended
            self._verifier.subscribers.keep(share, id_, *stored)

    async def _finish(self, *, keep: Stored | None = None, drop: bool = False) -> bool:
        """Write the result to Redis; False if another process owns the share by now."""
        id_, request, share = self.id, self.request, self.share
        done = await self._verifier.store.finish_request(id_, request, keep=keep, drop=drop)
        is_unwanted = request.order == "subscribe" and keep is None
        if is_unwanted and request.subscription_id not in share.subscribers:
            self._verifier.store.counts.end(request.subscription_id, request)
        share.verifications.pop(id_, None)
        share.unwritten.pop(request.subscription_id, None)
        share.finished.add(id_)
        return done
