"""Which callbacks this process looks after: shares, claimed in Redis for some seconds at a time.

Every process claims its part and renews its claims. When a process dies, the others claim its
shares once its claims have ended. A process gives back what is more than its part, when no call of
it is in progress. So a callback has one caller at any time, and limits per host hold for the hub.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from time import monotonic

from rsnotify.coordination.bell import Bell
from rsnotify.errors import TryAgain
from rsnotify.loops import repeat
from rsnotify.websub.call_queue import Queue
from rsnotify.websub.delivery import Deliverer
from rsnotify.websub.heartbeats import CLAIM_SECONDS
from rsnotify.websub.lease_clock import BELIEVED_AFTER_SECONDS, LeaseClock
from rsnotify.websub.rights import Rights
from rsnotify.websub.share import Share
from rsnotify.websub.subscribers import Subscribers
from rsnotify.websub.subscription import SHARES, PendingRequest, fair_part
from rsnotify.websub.subscription_store import ShareContent, Subscriptions
from rsnotify.websub.survey import Survey
from rsnotify.websub.verification import Verification, Verifier

log = logging.getLogger(__name__)

ClaimShares = Callable[[Sequence[int]], Awaitable[list[bool]]]

RENEW_SECONDS = 2.0
END_SECONDS = 1.0  # a subscription ends within two of these after its token
RECORD_SECONDS = 0.2  # a crash repeats what was delivered in this time
DRAIN_SECONDS = 3.0


class Ownership:
    """The shares of this process."""

    def __init__(
        self,
        store: Subscriptions,
        bell: Bell,
        clock: LeaseClock,
        rights: Rights,
        queue: Queue,
        subscribers: Subscribers,
        verifier: Verifier,
    ) -> None:
        self._store = store
        self._bell = bell
        self._clock = clock
        self._rights = rights
        self._queue = queue
        self._subscribers = subscribers
        self._verifier = verifier
        self.shares: dict[int, Share] = {}
        self._are_claims_old = False
        self._rung: set[int] = set()
        self._woken = asyncio.Event()

    def loops(self) -> dict[str, Coroutine[None, None, None]]:
        """The loops that run as long as the hub, by name."""
        return {
            "keep shares of the subscriptions": self._keep(),
            "listen for requests to subscribe": self._listen(),
            "take in requests to subscribe": self._take_in(),
            # What cannot be written is kept until Redis answers again.
            "write the progress of subscriptions": repeat(self.record_progress, RECORD_SECONDS),
            # A loop of its own: ending many must not delay the renewal of claims.
            "end subscriptions": repeat(self.end_subscriptions, END_SECONDS),
        }

    @property
    def deliverer(self) -> Deliverer:
        return self._subscribers.deliverer

    @property
    def calls(self) -> int:
        """How many callbacks are being called."""
        return self._queue.calls

    async def survey(self) -> Survey:
        """Where all subscribers of this process stand; others are served between two shares."""
        found, watchers = Survey(), self._subscribers.watchers
        for share in list(self.shares.values()):
            for subscriber in share.subscribers.values():
                watcher = watchers.get(subscriber.channel)
                found.add(subscriber, None if watcher is None else watcher.feed)
            await asyncio.sleep(0)
        return found

    async def drain(self) -> None:
        """Begin no more calls, write all progress to Redis, and release the shares."""
        for share in self.shares.values():
            share.leaving = True
        tasks = [task for share in self.shares.values() for task in share.tasks]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
            for task in late:
                task.cancel()
        with suppress(TryAgain):  # then the claims end by themselves
            await self.record_progress()
            await self._store.leave(self.shares)

    # --- claims ----------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            try:
                await self.round()
            except TryAgain as error:
                log.debug("subscriptions wait: %s", error.detail)
            except Exception as error:  # a bug, or data that cannot be read: the hub goes on
                log.warning("subscriptions wait", exc_info=error)
            until_end = self._store.heartbeats.seconds_to_next_end()
            await asyncio.sleep(
                RENEW_SECONDS if until_end is None else min(RENEW_SECONDS, until_end)
            )

    async def round(self) -> None:
        now, hubs = await self._store.heartbeat()
        _warn_of_jump(self._clock.look(now))
        await self.renew()
        await self._release_old_claims()
        part = fair_part(hubs)
        await self._claim_up_to(part)
        await self._give_back(part)
        self._note_message(self.shares)

    async def renew(self) -> None:
        for number, until in await self._claimed(list(self.shares), self._store.renew):
            share = self.shares.get(number)
            if share is not None:  # else it was lost meanwhile; it is read again like any free one
                share.until = until
                self._queue.requeue(share)

    async def redis_went_back(self) -> None:
        """Redis may have claims again that we had given back: nobody else could take them."""
        self._are_claims_old = True

    async def _release_old_claims(self) -> None:
        if self._are_claims_old:
            await self._store.release(set(range(SHARES)) - set(self.shares))
            self._are_claims_old = False

    async def _claimed(self, numbers: Sequence[int], claim: ClaimShares) -> list[tuple[int, float]]:
        """The shares that are ours now, and until when; the others are lost."""
        until = monotonic() + CLAIM_SECONDS  # Redis begins to count a little later
        owned = await claim(numbers)
        self.lose(*(number for number, is_ours in zip(numbers, owned, strict=True) if not is_ours))
        return [(number, until) for number, is_ours in zip(numbers, owned, strict=True) if is_ours]

    def lose(self, *numbers: int) -> None:
        lost = [self.shares.pop(number) for number in numbers if number in self.shares]
        if lost:
            log.warning(
                "%d shares of the WebSub subscriptions are lost: another hub process has claimed "
                "them, or Redis has lost the claims",
                len(lost),
            )
        for share in lost:
            self._subscribers.abandon(share)

    async def _claim_up_to(self, part: int) -> None:
        free = [number for number in range(SHARES) if number not in self.shares]
        while free and len(self.shares) < part:
            wanted = part - len(self.shares)
            asked, free = free[:wanted], free[wanted:]
            for number, until in await self._claimed(asked, self._store.claim):
                (content,) = await self._store.read([number])  # one at a time: it may be large
                self.begin(Share(number, until), content)

    def begin(self, share: Share, content: ShareContent) -> None:
        self.shares[share.number] = share
        for id_, stored in content.subscriptions.items():
            self._subscribers.keep(share, id_, *stored)
        self.add_requests(share, content.requests)

    async def _give_back(self, part: int) -> None:
        """Release what is more than our part, each share when no call of it is in progress."""
        staying = [share for share in self.shares.values() if not share.leaving]
        for share in staying[part:]:
            share.leaving = True
        left = [share for share in self.shares.values() if share.leaving and not share.tasks]
        if left:
            await self.record_progress()
            for share in left:
                self.shares.pop(share.number, None)
                self._subscribers.abandon(share)
            await self._store.release([share.number for share in left])

    # --- requests --------------------------------------------------------------------------------

    def _note_message(self, numbers: Iterable[int]) -> None:
        self._rung.update(numbers)
        self._woken.set()

    async def _listen(self) -> None:
        await self._bell.listen(lambda message: self._note_message([int(message)]))

    async def _take_in(self) -> None:
        """Read the pending requests of our shares whenever their bell rings."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            rung, self._rung = self._rung, set()
            shares = [self.shares[number] for number in rung if number in self.shares]
            finished = [share.finished.copy() for share in shares]
            try:
                pending = await self._store.requests([share.number for share in shares])
            except TryAgain:
                continue  # the next round tries again
            except Exception as error:  # a bug, or data that cannot be read
                log.warning("pending requests cannot be read", exc_info=error)
                continue
            for share, before, requests in zip(shares, finished, pending, strict=True):
                self.add_requests(share, requests)
                share.finished -= before  # no later read can return them again

    def add_requests(self, share: Share, requests: dict[str, PendingRequest]) -> None:
        for id_, request in requests.items():
            if id_ not in share.verifications and id_ not in share.finished:
                verification = share.verifications[id_] = Verification(
                    share, id_, request, self._verifier
                )
                self._queue.add(verification)

    # --- what ends -------------------------------------------------------------------------------

    async def end_subscriptions(self) -> None:
        """End those whose lease is over (WEBSUB 18); deny those that may not read any more (15)."""
        await self._store.counts.settle()
        shares = list(self.shares.values())
        await self._rights.ask(
            {each.subscription.token for share in shares for each in share.subscribers.values()}
        )
        for share in shares:
            ended = share.ended(self._clock.now())
            await self._subscribers.forget(share, ended, "its lease has ended")
            self._subscribers.resume_suspended(share)
            for subscriber in list(share.subscribers.values()):
                if share.leaving:
                    break  # the next owner of the share does the rest
                reason = None if subscriber.gone else self._rights.why_not(subscriber.subscription)
                if reason is not None:
                    await self._store.deny(subscriber.subscription, reason)
            await asyncio.sleep(0)  # others need turns of the event loop too

    # --- progress --------------------------------------------------------------------------------

    async def record_progress(self) -> None:
        """Write the progress of all shares in one round trip: Redis syncs its file once."""
        shares = [share for share in self.shares.values() if share.unrecorded]
        progress = {share.number: share.unrecorded for share in shares}
        for share in shares:
            share.unrecorded = {}
        try:
            self.lose(*(await self._store.write_progress(progress) if progress else ()))
        except BaseException:  # also when the loop is cancelled: `drain` writes it later
            for share in shares:
                share.unrecorded = progress[share.number] | share.unrecorded
            raise


def _warn_of_jump(seconds: float) -> None:
    if seconds:
        log.warning(
            "the clock of Redis has jumped %.0f s %s: if that is wrong, correct it within %d min,"
            " and no lease ends because of it",
            abs(seconds),
            "ahead" if seconds > 0 else "back",
            BELIEVED_AFTER_SECONDS / 60,
        )


ENDED = "it has ended before"
LOST = "the hub has lost this subscription: subscribe again"


async def settle_lost_subscriptions(store: Subscriptions) -> None:
    """Where Redis has lost what this process knows of the last minute: the callback of a
    subscription that is lost, or whose renewal is, is notified, and one that had ended ends again.
    """
    kept, ended = store.remembered()
    known = {id_: stored.subscription for id_, stored in kept.items()}
    found = await store.records(known | ended)
    lost = [
        subscription
        for id_, subscription in known.items()
        if id_ not in found or found[id_].lease_end < subscription.lease_end
    ]
    again = [
        subscription
        for id_, subscription in ended.items()
        if id_ in found and found[id_].lease_end <= subscription.lease_end
    ]
    for subscription in lost:
        await store.deny(subscription, LOST)
    for subscription in again:
        await store.remove(subscription, ENDED)
    if lost or again:
        log.error(
            "Redis had lost changes of WebSub subscriptions: the callbacks of %d are notified that "
            "they are lost, %d ended again",
            len(lost),
            len(again),
        )
