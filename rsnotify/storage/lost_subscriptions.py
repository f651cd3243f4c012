"""Puts back subscriptions that Redis has lost: what this process has verified and ended of late."""

import logging
from collections.abc import Mapping

import msgspec

from rsnotify.core.recall import plan_recall
from rsnotify.core.websub.subscription import Subscription, share_of
from rsnotify.storage import keys
from rsnotify.storage.connection import Client
from rsnotify.storage.subscriptions import SCRIPT, Stored, Subscriptions, subscription_keys

log = logging.getLogger(__name__)

_decoder = msgspec.json.Decoder(Subscription)


class LostSubscriptions:
    """Compares what the store remembers with Redis."""

    def __init__(self, client: Client, store: Subscriptions) -> None:
        self._client = client
        self._store = store

    async def put_back(self) -> None:
        """Whoever owns a share takes in what is put back there."""
        kept, ended = self._store.remembered()
        known = {id_: stored.subscription for id_, stored in kept.items()}
        records = await self._records(known | ended)
        found = {id_: _decoder.decode(record) for id_, record in records.items()}
        plan = plan_recall(known, ended, found, lambda subscription: subscription.lease_end)
        for id_ in plan.put_back:
            await self._put_back(id_, records.get(id_, b""), kept[id_])
        for id_ in plan.remove:
            await self._store.remove(ended[id_], "it has ended before")
        if plan.put_back or plan.remove:
            log.error(
                "Redis had lost changes of WebSub subscriptions: %d were put back, %d ended again",
                *(len(plan.put_back), len(plan.remove)),
            )

    async def _put_back(self, id_: str, before: bytes, stored: Stored) -> None:
        share = share_of(stored.subscription.callback)
        arguments = ("put_back", id_, before, *map(msgspec.json.encode, stored))
        await self._client.durably([SCRIPT.command(subscription_keys(share, ""), *arguments)])
        await self._store.retry(stored.subscription)

    async def _records(self, wanted: Mapping[str, Subscription]) -> dict[str, bytes]:
        pipeline = self._client.pipeline(transaction=False)
        for id_, subscription in wanted.items():
            pipeline.hget(keys.of_share(share_of(subscription.callback), "records"), id_)
        found = zip(wanted, await pipeline.execute(), strict=True)
        return {id_: record for id_, record in found if record is not None}
