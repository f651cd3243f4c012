"""WebSub: the transport that Change Notification 1.0.1 and Framework Notification 1.0.1 prescribe.

A subscription is a position in a channel, as every reader's is.

`ownership`      which process looks after which share of the callbacks; `state` is what it knows
`subscribers`    where each subscriber stands (drawn in `docs/design.md`); who is called when
`delivery`       whether a subscriber may still read, what it is sent, what its answer means
`verification`   what a callback is asked, and what its answer means
`dialler`        makes the calls: nobody else connects to a callback; caps the answers

A delivery: a notification is pushed to the feed; `ChannelWatcher.push` finds the idle subscribers,
and `Subscribers.place` gives each a `Delivery` in the `Queue`, which makes it when a slot is free.
The `Deliverer` reads what is owed, checks the right to it, has the dialler post it, and notes what
the answer means; `Ownership.record_progress` writes that to Redis.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rsnotify.access.tokens import Tokens
from rsnotify.journal.coordination import Bell
from rsnotify.journal.journals import Journals
from rsnotify.websub.call_slots import Slots
from rsnotify.websub.delivery import Deliverer, Rights
from rsnotify.websub.dialler import Dialler
from rsnotify.websub.ownership import Ownership
from rsnotify.websub.state import Call, Clock
from rsnotify.websub.subscribers import Queue, Subscribers
from rsnotify.websub.subscription_store import Subscriptions
from rsnotify.websub.verification import Verifier


@asynccontextmanager
async def websub(
    journals: Journals,
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
    clock, rights = Clock(), Rights(journals, tokens)
    queue = Queue(Slots[Call](deliveries, deliveries_per_host))
    async with dialler:
        deliverer = Deliverer(journals, dialler, clock, rights, algorithm=algorithm)
        subscribers = Subscribers(journals, store, clock, queue, deliverer)
        verifier = Verifier(journals, dialler, store, clock, queue, subscribers)
        ownership = Ownership(store, bell, clock, rights, queue, subscribers, verifier)
        yield ownership
        await ownership.drain()
