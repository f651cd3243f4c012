"""How many subscriptions each callback host and each asker has, and may have.

A request counts from the beginning, so that many at once cannot pass the limit. It ceases to count
when its callback does not confirm it, when the subscription ends, or at the latest with its lease:
whatever fails here mends itself.
"""

from collections.abc import Iterator
from contextlib import suppress

from rsnotify.errors import TooMany, TryAgain
from rsnotify.journal import keys
from rsnotify.redis_client.connection import Client
from rsnotify.redis_client.script import Script
from rsnotify.websub.rules import LEASE_MAX_SECONDS, authority
from rsnotify.websub.subscription import PendingRequest, Subscription

_COUNTED = Script("websub/counted.lua")

PENDING_SECONDS = 600  # a request counts no longer than this if nobody says what became of it
AGAIN_SECONDS = 600
UNLIMITED = 1_000_000_000
MOST_OVER = 100_000  # kept while Redis does not answer
_KNOWN = 1  # an answer of the script


class SubscriptionCounts:
    """The limits for strangers: a subscription makes the hub call somebody at each change."""

    def __init__(self, client: Client, *, per_host: int, per_asker: int) -> None:
        self._client = client
        self._per_host = per_host
        self._per_asker = per_asker
        self._over: list[tuple[str, str]] = []  # keys and ids of those that have ended

    async def admit(self, request: PendingRequest) -> bool:
        """Count a request to subscribe; False if it counts already, as a renewal does.

        `TooMany` if its host or its asker has too many.
        """
        id_, host, asker = request.subscription_id, authority(request.callback), request.asker
        of_host = keys.counted("host", host)
        known = await self._count(of_host, id_, self._per_host, PENDING_SECONDS)
        if not known:
            raise _too_many(f"{host} has {self._per_host}", "HOST")
        of_asker = keys.counted("asker", asker)
        if not await self._count(of_asker, id_, self._per_asker, PENDING_SECONDS):
            if known != _KNOWN:
                self._over.append((of_host, id_))
            raise _too_many(f"your address has {self._per_asker}", "ASKER")
        return known != _KNOWN

    async def confirm(self, id_: str, subscription: Subscription, seconds: int) -> None:
        """It counts for as long as its lease; if this is not written, until `PENDING_SECONDS`."""
        with suppress(TryAgain):
            for key in _keys(subscription.callback, subscription.asker):
                await self._count(key, id_, UNLIMITED, seconds, is_confirmed=True)

    def end(self, id_: str, callback: str, asker: str) -> None:
        """It counts no longer; written by `settle`."""
        self._over += [(key, id_) for key in _keys(callback, asker)]

    async def settle(self) -> None:
        """Write down which ones count no longer."""
        over, self._over = self._over, []
        if not over:
            return
        pipeline = self._client.pipeline(transaction=False)
        for key, id_ in over:
            pipeline.zrem(key, id_)
        try:
            await pipeline.execute()
        except TryAgain:
            self._over = [*over, *self._over][-MOST_OVER:]
            raise

    async def _count(
        self, key: str, id_: str, limit: int, seconds: int, *, is_confirmed: bool = False
    ) -> int:
        self._over = [each for each in self._over if each != (key, id_)]
        told = (id_, limit, seconds, LEASE_MAX_SECONDS, int(is_confirmed))
        return int(await _COUNTED.run(self._client, [key], *told))


def _keys(callback: str, asker: str) -> Iterator[str]:
    yield keys.counted("host", authority(callback))
    if asker:
        yield keys.counted("asker", asker)


def _too_many(who: str, setting: str) -> TooMany:
    return TooMany(
        f"{who} subscriptions, as many as this hub allows: end some, or ask its operator to raise "
        f"RSNOTIFY_SUBSCRIPTIONS_PER_{setting}",
        retry_after_seconds=AGAIN_SECONDS,
    )
