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
from rsnotify.journal.journals import Journals
from rsnotify.resourcesync.change import Position
from rsnotify.websub.dialler import Dialler
from rsnotify.websub.rules import VERIFICATION_WAITS, authority, denial_url, verification_url
from rsnotify.websub.state import Call, Clock, Share
from rsnotify.websub.subscribers import Queue, Subscribers
from rsnotify.websub.subscription import CallbackAnswer, PendingRequest, Progress, confirmed
from rsnotify.websub.subscription_store import Stored, Subscriptions

log = logging.getLogger(__name__)


class VerificationResult(NamedTuple):
    """What the callback answered; for a subscription also when it was asked, and the head then."""

    confirms: bool
    verified_at: int = 0
    head: int = 0


class Verification(Call):
    """The call that asks a callback to confirm a request, or notifies it of a denial."""

    __slots__ = ("_verifier", "attempt", "id", "request", "result")

    def __init__(
        self, share: Share, id_: str, request: PendingRequest, verifier: "Verifier"
    ) -> None:
        super().__init__(share, request.callback, authority(request.callback))
        self.id = id_
        self.request = request
        self.attempt = 0
        self.result: VerificationResult | None = None
        self._verifier = verifier

    @property
    def has_confirmed(self) -> bool:
        is_yes = self.result is not None and self.result.confirms
        return is_yes and self.request.order == "subscribe"

    async def make(self) -> None:
        await self._verifier.verify(self)

    def __repr__(self) -> str:
        return f"<Verification {self.request.order} {self.callback}>"


class Verifier:
    """Asks callbacks, and writes down what follows from their answers."""

    def __init__(
        self,
        journals: Journals,
        dialler: Dialler,
        store: Subscriptions,
        clock: Clock,
        queue: Queue,
        subscribers: Subscribers,
    ) -> None:
        self._journals = journals
        self._dialler = dialler
        self._store = store
        self._clock = clock
        self._queue = queue
        self._subscribers = subscribers

    async def verify(self, verification: Verification) -> None:
        """Call the callback once, and write down the result; only the writing is repeated."""
        unwritten, id_ = verification.share.unwritten, verification.request.subscription_id
        if unwritten.get(id_, verification) is not verification:
            raise TryAgain("what its callback answered before is not yet written down")
        if verification.result is None:
            verification.result = await self._call(verification)
        if verification.result is not None:
            unwritten[id_] = verification
            await self._write(verification, verification.result)

    # --- the call --------------------------------------------------------------------------------

    async def _call(self, verification: Verification) -> VerificationResult | None:
        """What the callback answers; None if it will be asked again."""
        match verification.request.order:
            case "subscribe":
                head = await self._head(verification.request)
                verified_at = self._clock.now()  # WEBSUB 18: before the request goes out
                confirms = await self._ask(verification)
                if confirms is None:
                    return None
                return VerificationResult(confirms, verified_at, int(head))
            case "unsubscribe":
                confirms = await self._ask(verification)
                return None if confirms is None else VerificationResult(confirms)
            case "remove" | "denied":
                return await self._notify_of_denial(verification)
            case "retry":
                return VerificationResult(confirms=True)

    async def _head(self, request: PendingRequest) -> Position:
        """Where a new subscriber begins: it misses no change published from now on."""
        try:
            return (await self._journals.reading.standing(request.channel)).head
        except Rejected:  # the set has been removed: `Ownership` will deny what is confirmed
            return Position(0)

    async def _ask(self, verification: Verification) -> bool | None:
        """WEBSUB 16 and 17: whether the callback confirms; None if it will be asked again."""
        request = verification.request
        challenge = secrets.token_urlsafe(32)  # single use: every request has its own
        url = verification_url(
            request.callback, request.order, request.topic, challenge, request.lease_seconds
        )
        answer = await self._dialler.get(url)
        if self._is_asked_again(verification, answer):
            return None
        confirms = answer.succeeded and hmac.compare_digest(answer.body, challenge.encode())
        if not confirms:
            wrong = "another body than the challenge" if answer.succeeded else answer.text
            log.info("%s does not confirm: %s", request.callback, wrong)
        return confirms

    async def _notify_of_denial(self, verification: Verification) -> VerificationResult | None:
        """WEBSUB 15: the callback is notified, whatever it answers."""
        request = verification.request
        if request.order == "remove":
            self._subscribers.drop(verification.share, request.subscription_id)
        answer = await self._dialler.get(
            denial_url(request.callback, request.topic, request.reason)
        )
        if self._is_asked_again(verification, answer):
            return None
        return VerificationResult(confirms=True)

    def _is_asked_again(self, verification: Verification, answer: CallbackAnswer) -> bool:
        """If nothing accepted the connection: the receiver may be starting."""
        attempt = verification.attempt
        if answer.reached or answer.refused or attempt >= len(VERIFICATION_WAITS):
            return False
        wait = VERIFICATION_WAITS[attempt]
        log.info("%s is asked again in %d s: %s", verification.callback, wait, answer.text)
        verification.attempt += 1
        asyncio.get_running_loop().call_later(wait, self._queue.add, verification)
        return True

    # --- what follows from the answer ------------------------------------------------------------

    async def _write(self, verification: Verification, result: VerificationResult) -> None:
        match verification.request.order:
            case "subscribe" if result.confirms:
                await self._subscribe(verification, result)
            case "unsubscribe" if result.confirms:  # WEBSUB 7
                if await self._finish(verification, drop=True):
                    self._subscribers.drop(verification.share, verification.request.subscription_id)
            case "remove":
                await self._finish(verification, drop=True)
            case "retry":
                await self._retry(verification)
            case _:
                await self._finish(verification)

    async def _subscribe(self, verification: Verification, result: VerificationResult) -> None:
        request, share = verification.request, verification.share
        known = share.subscribers.get(request.subscription_id)
        before = None if known is None else known.subscription
        subscription = confirmed(request, result.verified_at, before)
        new = Progress(result.head, answered_at=result.verified_at)
        progress = known.progress if known else new
        if await self._finish(verification, keep=Stored(subscription, progress)):
            self._subscribers.keep(share, request.subscription_id, subscription, progress)

    async def _retry(self, verification: Verification) -> None:
        """Retry with what Redis has: another process may have put it back."""
        share, id_ = verification.share, verification.request.subscription_id
        known = share.subscribers.get(id_)
        stored = await self._store.at(share.number, id_)
        await self._finish(verification)
        if stored is not None and share.subscribers.get(id_) is known:  # else it has ended
            self._subscribers.keep(share, id_, *stored)

    async def _finish(
        self, verification: Verification, *, keep: Stored | None = None, drop: bool = False
    ) -> bool:
        """Write the result to Redis; False if another process owns the share by now."""
        id_, request, share = verification.id, verification.request, verification.share
        done = await self._store.finish_request(id_, request, keep=keep, drop=drop)
        is_unwanted = request.order == "subscribe" and keep is None
        if is_unwanted and request.subscription_id not in share.subscribers:
            self._store.counts.end(request.subscription_id, request)
        share.verifications.pop(id_, None)
        share.unwritten.pop(request.subscription_id, None)
        share.finished.add(id_)
        return done
