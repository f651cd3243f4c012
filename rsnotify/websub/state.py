"""What this process knows of a share that it owns: its subscribers and its pending requests.

Everything here is in Redis as well, except what is still to be written there (`unrecorded`,
`unwritten`). Nobody may be called for a share whose claim could end during the call.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from time import monotonic

from yarl import URL

from rsnotify.journal.feed import Feed
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.websub.rules import authority
from rsnotify.websub.subscription import Progress, SteadyClock, Subscription

SAFE_SECONDS = 10.5  # a call and a little: so much of the claim must be left when a call begins


class Clock:
    """The clock of Redis, carried on by our own between two looks at it."""

    def __init__(self) -> None:
        self._steady = SteadyClock()

    def look(self, redis_time: int) -> float:
        """By how many seconds it has jumped since the last look; 0 if it has not."""
        return self._steady.look(redis_time, monotonic())

    def now(self) -> int:
        return self._steady.at(monotonic())


class Share:
    """One of the parts in which the hub processes divide the callbacks."""

    def __init__(self, number: int, until: float) -> None:
        self.number = number
        self.until = until  # the end of the claim, on this process's monotonic clock
        self.leaving = False
        self.subscribers: dict[str, Subscriber] = {}
        self.verifications: dict[str, Call] = {}  # by request, until the result is in Redis
        self.unwritten: dict[str, Call] = {}  # by subscription: answered, but not yet in Redis
        self.finished: set[str] = set()  # requests that a read in progress may still return
        self.unrecorded: dict[str, Progress] = {}
        self.suspended: set[Subscriber] = set()  # lease seems over, or set removed
        self.postponed: list[Call] = []  # until the claim is renewed
        self.tasks: set[asyncio.Task[None]] = set()

    def is_confirmed(self, id_: str) -> bool:
        """Whether its callback has confirmed this subscription and Redis does not have that yet."""
        return id_ in self.unwritten and self.unwritten[id_].has_confirmed

    @property
    def may_call(self) -> bool:
        return not self.leaving and monotonic() + SAFE_SECONDS < self.until

    def ended(self, now: int) -> list["Subscriber"]:
        """The subscribers whose lease is certainly over."""
        over = [each for each in self.subscribers.values() if each.subscription.is_over(now)]
        return [each for each in over if each.patient_until <= monotonic()]

    def __repr__(self) -> str:
        return f"<Share {self.number}: {len(self.subscribers)} subscribers>"


class Call(ABC):
    """A call to a callback that waits in the queue: a `Delivery` or a `Verification`."""

    __slots__ = ("callback", "host", "prompt", "share")

    def __init__(self, share: Share, callback: str, host: str, *, prompt: bool = False) -> None:
        self.share = share
        self.callback = callback
        self.host = host
        self.prompt = prompt  # whether the callback answered quickly last time

    @property
    def has_confirmed(self) -> bool:
        """Whether its callback has confirmed a subscription."""
        return False

    @abstractmethod
    async def make(self) -> None: ...


class Subscriber:
    """A subscription whose callback this process calls."""

    __slots__ = (
        "__weakref__",
        "answered",
        "channel",
        "gone",
        "has_waited",
        "host",
        "id",
        "patient_until",
        "progress",
        "prompt",
        "share",
        "subscription",
        "timer",
        "url",
    )

    def __init__(
        self, share: Share, id_: str, subscription: Subscription, progress: Progress
    ) -> None:
        self.share = share
        self.id = id_
        self.subscription = subscription
        self.progress = progress
        self.channel: ChannelName = subscription.channel
        self.host = authority(subscription.callback)
        self.url = URL(subscription.callback, encoded=True)
        self.prompt = False
        self.gone = False
        self.timer: asyncio.TimerHandle | None = None
        self.has_waited = False  # for its next attempt
        self.patient_until = 0.0  # its lease does not end before this, by our own clock
        self.answered = float("-inf")

    def advance(self, progress: Progress) -> None:
        """Note it in memory; many are written to Redis together a moment later."""
        self.progress = progress
        self.share.unrecorded[self.id] = progress

    def start_timer(self, seconds: float, ring: Callable[["Subscriber"], None]) -> None:
        self.timer = asyncio.get_running_loop().call_later(seconds, ring, self)

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def __repr__(self) -> str:
        return f"<Subscriber {self.id} to {self.channel}>"


class Survey:
    """How many subscribers are up to date, behind and so on; and the oldest change not yet sent."""

    def __init__(self) -> None:
        self.places = {"up to date": 0, "behind": 0, "failing": 0, "suspended": 0}
        self.owed_since: Position | None = None

    def add(self, subscriber: Subscriber, feed: Feed | None) -> None:
        if feed is None or subscriber in subscriber.share.suspended:
            self.places["suspended"] += 1
            return
        owed = feed.owed_since(Position(subscriber.progress.cursor))
        if owed is None:
            self.places["up to date"] += 1
            return
        self.places["failing" if subscriber.progress.failures else "behind"] += 1
        self.owed_since = owed if self.owed_since is None else min(self.owed_since, owed)


async def survey(shares: Iterable[Share], feeds: Mapping[ChannelName, Feed]) -> Survey:
    """Count all subscribers; the event loop serves others between two shares."""
    found = Survey()
    for share in shares:
        for subscriber in list(share.subscribers.values()):
            found.add(subscriber, feeds.get(subscriber.channel))
        await asyncio.sleep(0)
    return found
