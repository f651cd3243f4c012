"""A WebSub subscription: who is called, its position, and what an answer changes.

A subscription is a position, never a queue. Only a verification changes `Subscription`; `Progress`
changes with an answer, with history that is lost, or when an operator says "now". Times are whole
microseconds of the clock of Redis.

Nothing here reads a clock.
"""

import hashlib
from typing import Literal
from urllib.parse import parse_qs
from zlib import crc32

import msgspec

from rsnotify.outbound.answer import CallAnswer
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.change_filter import Filter, parse_filter
from rsnotify.resourcesync.notification import ChannelName, Kind
from rsnotify.resourcesync.retry import retry_after_seconds
from rsnotify.websub.rules import LONGEST_RETRY_AFTER, authority, wait_seconds

SHARES = 64  # the parts in which hub processes divide the callbacks
PROMPT_SECONDS = 1.0  # a slower answer counts as slow

Order = Literal["subscribe", "unsubscribe", "denied", "remove", "retry"]


class PendingRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to the hub, kept until the callback has answered."""

    order: Order
    topic: str  # exactly as requested: the callback compares it
    callback: str
    set_name: str = ""
    kind: Kind = "change"
    secret: str | None = None
    lease_seconds: int = 0
    reason: str = ""
    by_token: bool = False
    token: str = ""
    client_address: str = ""
    wanted: str = ""  # which changes: a filter as its canonical query; empty if all
    created: int = 0  # of the subscription that is to be removed; else 0

    @property
    def channel(self) -> ChannelName:
        return ChannelName(self.set_name, self.kind)

    @property
    def subscription_id(self) -> str:
        return subscription_id(self.channel, self.callback, self.wanted)


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the callback has confirmed, and keeps until its lease ends."""

    set_name: str
    kind: Kind
    topic: str
    callback: str
    created: int
    lease_end: int
    secret: str | None = None
    by_token: bool = False  # the subscriber may read the set if it is private
    token: str = ""  # the key of its token: the subscription ends when that is revoked
    client_address: str = ""  # that of its request, for which it counts
    wanted: str = ""  # as in its request

    @property
    def channel(self) -> ChannelName:
        return ChannelName(self.set_name, self.kind)

    @property
    def id(self) -> str:
        return subscription_id(self.channel, self.callback, self.wanted)

    @property
    def filter(self) -> Filter | None:
        """Which changes it is for; None if all."""
        return parse_filter(parse_qs(self.wanted)) if self.wanted else None

    def is_over(self, now: int) -> bool:
        """WEBSUB 18: whether its lease has ended."""
        return self.lease_end <= now

    def is_later_than(self, removal: PendingRequest) -> bool:
        """Whether its callback has subscribed anew since the one was there that this is to remove.
        A renewal is no new one; and Redis may have lost renewals, so leases say nothing."""
        return self.created > removal.created > 0


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """The position of a subscription, and the last answer of its callback."""

    cursor: int
    failures: int = 0  # in a row
    next_attempt: int = 0  # 0: as soon as there is something
    answer: str = ""
    answered_at: int = 0
    missed: bool = False  # deleted changes: the next notification has a gap before it
    told: int = 0  # up to where its callback was called, if it has moved on since; else 0

    @property
    def begin(self) -> Position:
        """Where the next notification begins, so that it joins the one before."""
        return Position(self.told or self.cursor)

    def moved_on(self, until: Position) -> "Progress":
        """Nothing up to here is for the callback, which is not called."""
        return msgspec.structs.replace(self, cursor=int(until), told=int(self.begin))


def subscription_id(channel: ChannelName, callback: str, wanted: str = "") -> str:
    """WEBSUB 6: the key is the topic and the callback."""
    key = f"{channel}\n{callback}" + (f"\n{wanted}" if wanted else "")
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def share_of(callback: str) -> int:
    """All callbacks of a host are in one share, so that one process keeps the limits per host."""
    return crc32(authority(callback).encode()) % SHARES


def fair_part(hubs: int) -> int:
    """How many shares each hub process owns, of so many processes."""
    return -(-SHARES // max(1, hubs))


def confirmed(
    request: PendingRequest, verified_at: int, before: Subscription | None
) -> Subscription:
    """WEBSUB 18: the lease counts from the verification request."""
    return Subscription(
        set_name=request.set_name,
        kind=request.kind,
        topic=request.topic,
        callback=request.callback,
        created=verified_at if before is None else before.created,
        lease_end=verified_at + request.lease_seconds * MICROSECONDS,
        secret=request.secret,
        by_token=request.by_token,
        token=request.token,
        client_address=request.client_address,
        wanted=request.wanted,
    )


def after_answer(
    progress: Progress, answer: CallAnswer, until: Position, now: int, chance: float
) -> Progress | None:
    """The progress after a delivery was answered; None: the subscription has ended.

    2xx advances it (WEBSUB 23), 410 ends it, anything else is tried again later (WEBSUB 24).
    """
    if answer.succeeded:
        return Progress(int(until), 0, 0, answer.text, now)
    if answer.status == 410:
        return None
    failures = progress.failures + 1
    wait = wait_seconds(failures, chance)
    if answer.status in (429, 503):
        asked = retry_after_seconds(answer.retry_after, now / MICROSECONDS, LONGEST_RETRY_AFTER)
        if asked is not None:
            wait, failures = max(1, asked), progress.failures
    return msgspec.structs.replace(
        progress,
        failures=failures,
        next_attempt=now + round(wait * MICROSECONDS),
        answer=answer.text,
        answered_at=now,
    )


def seconds_left(progress: Progress, now: int) -> float:
    """Until the next attempt: never longer than the wait that was set, even if the clock jumped."""
    wait = min(progress.next_attempt - now, progress.next_attempt - progress.answered_at)
    return wait / MICROSECONDS
