"""WebSub: the transport that Change Notification 1.0.1 and Framework Notification 1.0.1 prescribe.

`ownership` decides which process looks after a subscription, `verification` asks its callback,
`distribution` delivers, `dialler` is the only one that speaks to callbacks, `share` is what they
all look at. A subscription is a cursor over the hub, as every reader is.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rsnotify.core.slots import Slots
from rsnotify.delivery.websub.dialler import Dialler
from rsnotify.delivery.websub.distribution import Distribution
from rsnotify.delivery.websub.ownership import Ownership
from rsnotify.delivery.websub.share import Call, Clock
from rsnotify.delivery.websub.verification import Verification
from rsnotify.hub import Hub
from rsnotify.storage.bell import Bell
from rsnotify.storage.subscriptions import Subscriptions


@asynccontextmanager
async def websub(
    hub: Hub,
    store: Subscriptions,
    bell: Bell,
    dialler: Dialler,
    *,
    deliveries: int,
    deliveries_per_host: int,
    algorithm: str,
) -> AsyncIterator[Ownership]:
    """The loop that looks after subscriptions, drained when this block ends."""
    clock = Clock()
    slots = Slots[Call](deliveries, deliveries_per_host)
    async with dialler:
        distribution = Distribution(hub, dialler, store, clock, slots, algorithm=algorithm)
        verification = Verification(hub, dialler, store, clock, distribution)
        ownership = Ownership(hub, store, bell, clock, distribution, verification)
        yield ownership
        await ownership.drain()
