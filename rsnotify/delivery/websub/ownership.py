"""Which callbacks this process looks after: shares, claimed in Redis for a few seconds at a time.

Rules that hold here: every process claims its part and renews it; what a dead one leaves is claimed
by the others when its claims end; what would be more than its part it gives back, once nobody of it
is being called. So a callback has one caller at any time, and a host's limits hold for all hubs.
Nothing here calls a callback.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from time import monotonic

from rsnotify.core.clock import BELIEVED_AFTER_SECONDS
from rsnotify.core.websub.subscription import SHARES, Request, fair_part
from rsnotify.delivery.websub.followers import Followers
from rsnotify.delivery.websub.queue import Queue
from rsnotify.delivery.websub.rights import Rights
from rsnotify.delivery.websub.state import Clock, Errand, Share
from rsnotify.delivery.websub.verification import Verification
from rsnotify.errors import TryAgain
from rsnotify.storage.bell import Bell
from rsnotify.storage.subscriptions import CLAIM_SECONDS, ShareContent, Subscriptions

log = logging.getLogger(__name__)

Claim = Callable[[Sequence[int]], Awaitable[list[bool]]]

RENEW_SECONDS = 2.0
END_SECONDS = 1.0  # and a subscription ends with its token within two of them
RECORD_SECONDS = 0.2  # a crash repeats the deliveries of this long
DRAIN_SECONDS = 3.0


class Ownership:
    """The shares of this process."""

    def __init__(
        self,
        store: Subscriptions,
        bell: Bell,
        clock: Clock,
        rights: Rights,
        queue: Queue,
        followers: Followers,
        verification: Verification,
    ) -> None:
        self._store = store
        self._bell = bell
        self._clock = clock
        self._rights = rights
        self._queue = queue
        self._followers = followers
        self._verification = verification
        self._shares: dict[int, Share] = {}
        self._rung: set[int] = set()
        self._woken = asyncio.Event()

    def loops(self) -> dict[str, Coroutine[None, None, None]]:
        """What looks after a part of the subscriptions for as long as the hub lives, by name."""
        return {
            "keep shares of the subscriptions": self._keep(),
            "listen for requests to subscribe": self._listen(),
            "take in requests to subscribe": self._take_in(),
            "record the progress of subscriptions": self._record(),
            "end subscriptions": self._end(),
        }

    async def drain(self) -> None:
        """Call nobody any more, write down how far all have come, and let others go on."""
        for share in self._shares.values():
            share.leaving = True
        tasks = [task for share in self._shares.values() for task in share.tasks]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
            for task in late:
                task.cancel()
        with suppress(TryAgain):  # then the claims end by themselves
            await self._record_all()
            await self._store.leave(self._shares)

    # --- claims ----------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            try:
                await self._round()
            except TryAgain as error:
                log.warning("subscriptions wait: %s", error.detail)
            until_end = self._store.seconds_to_next_end()
            await asyncio.sleep(
                RENEW_SECONDS if until_end is None else min(RENEW_SECONDS, until_end)
            )

    async def _round(self) -> None:
        now, hubs = await self._store.attend()
        _say_leap(self._clock.look(now))
        await self._renew()
        part = fair_part(hubs)
        await self._claim_up_to(part)
        await self._give_back(part)
        self._ring(self._shares)

    async def _renew(self) -> None:
        for number, until in await self._claimed(list(self._shares), self._store.renew):
            share = self._shares.get(number)
            if share is not None:  # lost while it was claimed: it is read anew, as any free one
                share.until = until
                self._queue.unpark(share)

    async def _claimed(self, numbers: Sequence[int], claim: Claim) -> list[tuple[int, float]]:
        """Those of the shares that are ours now, and until when; the others are not any more."""
        until = monotonic() + CLAIM_SECONDS  # Redis begins to count a little later
        owned = await claim(numbers)
        for number, is_ours in zip(numbers, owned, strict=True):
            if not is_ours:
                self._lose(number)
        return [(number, until) for number, is_ours in zip(numbers, owned, strict=True) if is_ours]

    def _lose(self, number: int) -> None:
        share = self._shares.pop(number, None)
        if share is not None:
            log.warning(
                "%r is not ours any more: another hub process has it, or Redis has lost it", share
            )
            self._followers.abandon(share)

    async def _claim_up_to(self, part: int) -> None:
        free = [number for number in range(SHARES) if number not in self._shares]
        while free and len(self._shares) < part:
            wanted = part - len(self._shares)
            asked, free = free[:wanted], free[wanted:]
            for number, until in await self._claimed(asked, self._store.claim):
                (content,) = await self._store.read([number])  # one at a time: it may be large
                self._begin(Share(number, until), content)

    def _begin(self, share: Share, content: ShareContent) -> None:
        self._shares[share.number] = share
        for id_, stored in content.subscriptions.items():
            self._followers.keep(share, id_, *stored)
        self._add_errands(share, content.requests)

    async def _give_back(self, part: int) -> None:
        """Let go of what is more than our part, a share only when nobody of it is being called."""
        staying = [share for share in self._shares.values() if not share.leaving]
        for share in staying[part:]:
            share.leaving = True
        left = [share for share in self._shares.values() if share.leaving and not share.tasks]
        if left:
            await self._record_all()
            for share in left:
                self._shares.pop(share.number, None)
                self._followers.abandon(share)
            await self._store.release([share.number for share in left])

    # --- requests --------------------------------------------------------------------------------

    def _ring(self, numbers: Iterable[int]) -> None:
        self._rung.update(numbers)
        self._woken.set()

    async def _listen(self) -> None:
        async for stroke in self._bell.strokes():
            self._ring([int(stroke)])

    async def _take_in(self) -> None:
        """Read what is asked of our shares, whenever one rings."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            rung, self._rung = self._rung, set()
            shares = [self._shares[number] for number in rung if number in self._shares]
            settled = [share.settled.copy() for share in shares]
            try:
                pending = await self._store.requests([share.number for share in shares])
            except TryAgain:
                continue  # the next round rings again
            for share, before, requests in zip(shares, settled, pending, strict=True):
                self._add_errands(share, requests)
                share.settled -= before  # no later reading can bring them again

    def _add_errands(self, share: Share, requests: dict[str, Request]) -> None:
        for id_, request in requests.items():
            if id_ not in share.errands and id_ not in share.settled:
                errand = share.errands[id_] = Errand(share, id_, request, self._verification.settle)
                self._queue.add(errand)

    # --- what ends -------------------------------------------------------------------------------

    async def _end(self) -> None:
        """A loop of its own: a large set that is removed must not cost the others their claims."""
        while True:
            await asyncio.sleep(END_SECONDS)
            try:
                await self._expel()
            except TryAgain as error:
                log.warning("ending subscriptions waits: %s", error.detail)

    async def _expel(self) -> None:
        """Forget those whose lease has ended (WEBSUB 18); deny those who may not stay (15)."""
        for share in list(self._shares.values()):
            await self._rights.ask({each.record.token for each in share.subscribers.values()})
            ended = share.ended(self._clock.now())
            await self._followers.forget(share, ended, "its lease has ended")
            self._followers.take_back(share)
            for subscriber in list(share.subscribers.values()):
                if share.leaving:
                    break  # whoever has it next sees to the rest
                reason = None if subscriber.gone else self._rights.why_not(subscriber.record)
                if reason is not None:
                    await self._store.expel(subscriber.record, reason)
            await asyncio.sleep(0)  # a hundred thousand must not be looked at in one turn

    # --- progress --------------------------------------------------------------------------------

    async def _record(self) -> None:
        while True:
            await asyncio.sleep(RECORD_SECONDS)
            with suppress(TryAgain):  # kept until Redis answers again
                await self._record_all()

    async def _record_all(self) -> None:
        """One journey for all shares: Redis syncs its file once for it."""
        shares = [share for share in self._shares.values() if share.unrecorded]
        progress = {share.number: share.unrecorded for share in shares}
        for share in shares:
            share.unrecorded = {}
        try:
            for number in await self._store.record(progress) if progress else ():
                self._lose(number)
        except BaseException:  # also when the loop is stopped: `drain` writes it down then
            for share in shares:
                share.unrecorded = progress[share.number] | share.unrecorded
            raise


def _say_leap(seconds: float) -> None:
    if seconds:
        log.warning(
            "the clock of Redis has leapt %.0f s %s: if that was wrong, set it right within %d min,"
            " and no lease will have ended by it",
            *(abs(seconds), "ahead" if seconds > 0 else "back", BELIEVED_AFTER_SECONDS / 60),
        )
