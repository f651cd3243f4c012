"""WebSub: the transport that Change Notification 1.0.1 and Framework Notification 1.0.1 prescribe.

A subscription is a position in a channel, as every reader's is.

`ownership`      which process looks after which share of the callbacks; `share` is what it knows
`subscribers`    where each subscriber stands (drawn in `docs/design.md`)
`call_queue`     who is called when; `call_slots` says how many at the same time
`delivery`       what a subscriber is sent, what its answer means
`rights`         whether a subscriber may still read
`verification`   what a callback is asked, and what its answer means

A delivery: a notification is pushed to the feed; `ChannelWatcher.push` finds the idle subscribers,
and `Subscribers.place` gives each a `Delivery` in the `Queue`, which makes it when a slot is free.
The `Deliverer` reads what is owed, checks the right to it, has the dialler post it, and notes what
the answer means; `Ownership.record_progress` writes that to Redis.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rsnotify.access.tokens import Tokens
from rsnotify.coordination.bell import Bell
from rsnotify.live.journals import Journals
from rsnotify.loops import Loop
from rsnotify.outbound.dialler import Dialler
from rsnotify.websub.call_queue import Queue
from rsnotify.websub.call_slots import Slots
from rsnotify.websub.delivery import Deliverer
from rsnotify.websub.lease_clock import LeaseClock
from rsnotify.websub.ownership import Ownership
from rsnotify.websub.rights import Rights
from rsnotify.websub.share import Call
from rsnotify.websub.subscribers import Subscribers
from rsnotify.websub.subscription_store import Subscriptions
from rsnotify.websub.verification import Verifier


class WebSub:
    """Looks after the subscriptions of one hub process."""

    def __init__(
        self,
        journals: Journals,
        store: Subscriptions,
        tokens: Tokens,
        bell: Bell,
        dialler: Dialler,
        *,
        deliveries: int,
        deliveries_per_host: int,
        algorithm: str,
    ) -> None:
        clock, rights = LeaseClock(), Rights(journals, tokens)
        queue = Queue(Slots[Call](deliveries, deliveries_per_host))
        deliverer = Deliverer(journals, dialler, clock, rights, algorithm=algorithm)
        subscribers = Subscribers(journals, store, clock, queue, deliverer)
        verifier = Verifier(journals, dialler, store, clock, rights, queue, subscribers)
        self._dialler = dialler
        self.ownership = Ownership(store, bell, clock, rights, queue, subscribers, verifier)
        journals.after_another_server.append(self.ownership.redis_went_back)

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[dict[str, Loop]]:
        """The loops that look after subscriptions; what they have begun is finished when this block
        ends."""
        async with self._dialler:
            yield self.ownership.loops()
            await self.ownership.drain()
