"""WebSub: the transport that Change Notification 1.0.1 and Framework Notification 1.0.1 prescribe.

A subscription is a cursor over the hub, as every reader is. `ownership` decides which process looks
after it, and `share` is what that process knows of it; `followers` tells where it stands, `queue`
whose turn it is. Two kinds of call are made, both by the `dialler`, which alone speaks to
callbacks: a `verification` asks one, a `delivery` tells it, if its `rights` allow.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rsnotify.core.websub.slots import Slots
from rsnotify.delivery.websub.delivery import Delivery
from rsnotify.delivery.websub.dialler import Dialler
from rsnotify.delivery.websub.followers import Followers
from rsnotify.delivery.websub.ownership import Ownership
from rsnotify.delivery.websub.queue import Queue
from rsnotify.delivery.websub.rights import Rights
from rsnotify.delivery.websub.state import Call, Clock
from rsnotify.delivery.websub.verification import Verification
from rsnotify.hub import Hub
from rsnotify.storage.bell import Bell
from rsnotify.storage.subscriptions import Subscriptions
from rsnotify.storage.tokens import Tokens


@asynccontextmanager
async def websub(
    hub: Hub,
    store: Subscriptions,
    tokens: Tokens,
    bell: Bell,
    dialler: Dialler,
    *,
    deliveries: int,
    deliveries_per_host: int,
    algorithm: str,
) -> AsyncIterator[Ownership]:
    """The loops that look after subscriptions, drained when this block ends."""
    clock, rights = Clock(), Rights(hub, tokens)
    queue = Queue(Slots[Call](deliveries, deliveries_per_host))
    async with dialler:
        delivery = Delivery(hub, dialler, clock, rights, algorithm=algorithm)
        followers = Followers(hub, store, clock, queue, delivery)
        verification = Verification(hub, dialler, store, clock, queue, followers)
        ownership = Ownership(store, bell, clock, rights, queue, followers, verification)
        yield ownership
        await ownership.drain()
