"""Puts back subscriptions that Redis has lost: what this process has verified and ended of late."""

import logging

from rsnotify.journal.recall import plan_recall
from rsnotify.websub.subscription_store import Subscriptions

log = logging.getLogger(__name__)

ENDED = "it has ended before"


async def put_subscriptions_back(store: Subscriptions) -> None:
    """Whoever owns a share takes in what is put back there."""
    kept, ended = store.remembered()
    known = {id_: stored.subscription for id_, stored in kept.items()}
    records = await store.records(known | ended)
    found = {id_: subscription for id_, (_, subscription) in records.items()}
    plan = plan_recall(known, ended, found, lambda subscription: subscription.lease_end)
    for id_ in plan.put_back:
        before, _ = records.get(id_, (b"", None))
        await store.put_back(id_, before, kept[id_])
    for id_ in plan.remove:
        await store.remove(ended[id_], ENDED)
    if plan.put_back or plan.remove:
        log.error(
            "Redis had lost changes of WebSub subscriptions: %d were put back, %d ended again",
            len(plan.put_back),
            len(plan.remove),
        )
