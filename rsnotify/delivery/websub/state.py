"""The state of a share that this process owns: its subscribers, and what is asked of them.

Rules that hold here: memory is a shortcut, Redis has all of it but the progress of the last moment
(`unrecorded`); nobody may be called for a share whose claim could end during the call.
Nothing here waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import NamedTuple

from yarl import URL

from rsnotify.core.clock import SteadyClock
from rsnotify.core.websub.protocol import authority
from rsnotify.core.websub.subscription import Progress, Record, Request
from rsnotify.resourcesync.notification import ChannelName

SAFE_SECONDS = 10.5  # a call and a little: so much of the claim must be left when one begins


class Clock:
    """Redis's clock, carried on by ours between two looks at it."""

    def __init__(self) -> None:
        self._steady = SteadyClock()

    def look(self, redis_time: int) -> float:
        """By how many seconds it has leapt since the last look; 0 if it has not."""
        return self._steady.look(redis_time, monotonic())

    def now(self) -> int:
        return self._steady.at(monotonic())


class Share:
    """One of the pieces in which the hub processes divide the callbacks."""

    def __init__(self, number: int, until: float) -> None:
        self.number = number
        self.until = until  # on this process's monotonic clock
        self.leaving = False
        self.subscribers: dict[str, Subscriber] = {}
        self.errands: dict[str, Errand] = {}
        self.unsettled: dict[str, Errand] = {}  # by subscription: heard, but not yet written down
        self.settled: set[str] = set()  # requests that a reading under way may still bring
        self.unrecorded: dict[str, Progress] = {}
        self.aside: set[Subscriber] = set()  # whose lease is over or whose set is gone, as it seems
        self.parked: list[Call] = []  # until the claim is renewed
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def may_call(self) -> bool:
        return not self.leaving and monotonic() + SAFE_SECONDS < self.until

    def ended(self, now: int) -> list["Subscriber"]:
        """Those whose lease is over, and has been seen to be."""
        over = [each for each in self.subscribers.values() if each.record.lease_end <= now]
        return [each for each in over if each.patient_until <= monotonic()]

    def __repr__(self) -> str:
        return f"<Share {self.number}: {len(self.subscribers)} subscribers>"


class Call:
    """Something that calls a callback, and can stand in line for it."""

    __slots__ = ("__weakref__", "callback", "host", "prompt", "share", "work")

    def __init__(
        self, share: Share, callback: str, host: str, work: Callable[..., Awaitable[None]]
    ) -> None:
        self.share = share
        self.callback = callback
        self.host = host
        self.prompt = False
        self.work = work


class Subscriber(Call):
    """A subscription whose callback this process calls."""

    __slots__ = (
        *("answered", "channel", "gone", "has_waited", "id", "patient_until"),
        *("progress", "record", "timer", "url"),
    )

    def __init__(
        self,
        share: Share,
        id_: str,
        record: Record,
        progress: Progress,
        work: Callable[..., Awaitable[None]],
    ) -> None:
        super().__init__(share, record.callback, authority(record.callback), work)
        self.id = id_
        self.record = record
        self.progress = progress
        self.channel: ChannelName = record.channel
        self.url = URL(record.callback, encoded=True)
        self.gone = False
        self.timer: asyncio.TimerHandle | None = None
        self.has_waited = False  # for its next attempt
        self.patient_until = 0.0  # a lease that is over does not end before, by our own clock
        self.answered = float("-inf")

    def advance(self, progress: Progress) -> None:
        """Only in memory; it is written down with many others a moment later."""
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


class Heard(NamedTuple):
    """What the callback said; for a subscription also when it was asked, and the head then."""

    confirms: bool
    verified_at: int = 0
    head: int = 0


class Errand(Call):
    """A request that is to be settled with its callback: verified, or denied."""

    __slots__ = ("attempt", "heard", "id", "request")

    def __init__(
        self, share: Share, id_: str, request: Request, work: Callable[..., Awaitable[None]]
    ) -> None:
        super().__init__(share, request.callback, authority(request.callback), work)
        self.id = id_
        self.request = request
        self.attempt = 0
        self.heard: Heard | None = None

    def __repr__(self) -> str:
        return f"<Errand {self.request.order} {self.callback}>"
