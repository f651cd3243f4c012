"""What this process knows of a share that it owns: its subscribers and its pending requests.

Everything here is in Redis as well, except what is still to be written there (`unrecorded`,
`unwritten`). Nobody may be called for a share whose claim could end during the call.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from yarl import URL

from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.websub.rules import authority
from rsnotify.websub.subscription import Progress, Subscription

SAFE_SECONDS = 10.5  # a call and a little: so much of the claim must be left when a call begins


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
        """The subscribers whose lease is certainly over, and whose callbacks are not being asked
        whether they renew it: those are told nothing until they have answered."""
        over = [each for each in self.subscribers.values() if each.subscription.is_over(now)]
        asked = {call.asked_to_confirm for call in self.verifications.values()} if over else ()
        certain = [each for each in over if each.patient_until <= monotonic()]
        return [each for each in certain if each.id not in asked]

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

    @property
    def asked_to_confirm(self) -> str:
        """The subscription that its callback is to confirm; empty if none."""
        return ""

    @abstractmethod
    async def make(self) -> None: ...


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Subscriber:
    """A subscription whose callback this process calls."""

    share: Share
    id: str
    subscription: Subscription
    progress: Progress
    channel: ChannelName = field(init=False)
    host: str = field(init=False)
    url: URL = field(init=False)
    filter: Filter | None = field(init=False)  # of the changes that it is for
    passed: int = 0  # changes that were not for it, since it was called or moved on
    prompt: bool = False
    gone: bool = False
    timer: asyncio.TimerHandle | None = None
    has_waited: bool = False  # for its next attempt
    patient_until: float = 0.0  # its lease does not end before this, by our own clock
    answered: float = float("-inf")

    def __post_init__(self) -> None:
        self.channel = self.subscription.channel
        self.host = authority(self.subscription.callback)
        self.url = URL(self.subscription.callback, encoded=True)
        self.filter = self.subscription.filter

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
