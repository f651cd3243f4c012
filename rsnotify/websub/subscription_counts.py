"""How many subscriptions a stranger may have: each makes the hub call somebody at each change."""

from collections.abc import Iterator
from contextlib import suppress

from rsnotify.coordination import keys
from rsnotify.errors import TooMany, TryAgain
from rsnotify.redis_client import Client, Script
from rsnotify.websub.rules import LEASE_MAX_SECONDS, authority
from rsnotify.websub.subscription import PendingRequest, Subscription

_COUNTED = Script("websub/counted.lua")

UNLIMITED = 1_000_000_000
PENDING_SECONDS = 600  # for which a request counts if nobody says what became of it
AGAIN_SECONDS = 600
MOST_OVER = 100_000  # kept while Redis does not answer
_KNOWN = 1  # an answer of the script


class SubscriptionCounts:
    """The limits for strangers: a subscription makes the hub call somebody at each change."""

    def __init__(self, client: Client, *, per_host: int, per_address: int) -> None:
        self._client = client
        self._per_host = per_host
        self._per_address = per_address
        self._over: list[tuple[str, str]] = []  # keys and ids of those that have ended

    async def admit(self, request: PendingRequest) -> bool:
        """Count a request to subscribe; False if it counts already, as a renewal does.

        `TooMany` if its host or its address has too many.
        """
        id_, host = request.subscription_id, authority(request.callback)
        of_host = keys.counted("host", host)
        known = await self._count(of_host, id_, self._per_host, PENDING_SECONDS)
        if not known:
            raise _too_many(f"{host} has {self._per_host}", "HOST")
        of_address = keys.counted("address", request.client_address)
        if not await self._count(of_address, id_, self._per_address, PENDING_SECONDS):
            if known != _KNOWN:
                self._over.append((of_host, id_))
            raise _too_many(f"your address has {self._per_address}", "ADDRESS")
        return known != _KNOWN

    async def confirm(self, id_: str, subscription: Subscription, seconds: int) -> None:
        """Count it for as long as its lease; if Redis is away, for `PENDING_SECONDS`."""
        with suppress(TryAgain):
            for key in _keys(subscription):
                await self._count(key, id_, UNLIMITED, seconds, is_confirmed=True)

    def end(self, id_: str, counted: PendingRequest | Subscription) -> None:
        """Count it no longer; `settle` writes that down."""
        self._over += [(key, id_) for key in _keys(counted)]

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
        arguments = (id_, limit, seconds, LEASE_MAX_SECONDS, int(is_confirmed))
        return int(await _COUNTED.run(self._client, [key], *arguments))


def _keys(counted: PendingRequest | Subscription) -> Iterator[str]:
    yield keys.counted("host", authority(counted.callback))
    if counted.client_address:
        yield keys.counted("address", counted.client_address)


def _too_many(who: str, setting: str) -> TooMany:
    return TooMany(
        f"{who} subscriptions, as many as this hub allows: end some, or ask its operator to raise "
        f"RSNOTIFY_SUBSCRIPTIONS_PER_{setting}",
        retry_after_seconds=AGAIN_SECONDS,
    )
