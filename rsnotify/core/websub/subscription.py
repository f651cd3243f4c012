"""A WebSub subscription: who is called, how far it has come, and what an answer does to it.

Rules that hold here: a subscription is a cursor, never a queue; `Record` changes by verification
alone, `Progress` by answers alone; times are whole microseconds of Redis's clock.
Nothing here calls anyone.
"""

import hashlib
from typing import Literal, NamedTuple
from zlib import crc32

import msgspec

from rsnotify.core.websub.protocol import authority
from rsnotify.core.websub.retry_schedule import retry_after_seconds, wait_seconds
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import ChannelName, Kind

SHARES = 64  # the pieces in which hub processes divide the callbacks among themselves
PROMPT_SECONDS = 1.0  # who answers later than this competes with the slow

Order = Literal["subscribe", "unsubscribe", "denied", "remove", "retry"]


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked of the hub, until the callback has had its say."""

    order: Order
    topic: str  # as asked: the callback recognises it by its letters
    callback: str
    set_name: str = ""
    kind: Kind = "change"
    secret: str | None = None
    lease_seconds: int = 0
    reason: str = ""
    by_token: bool = False
    token: str = ""
    asker: str = ""

    @property
    def channel(self) -> ChannelName:
        return ChannelName(self.set_name, self.kind)

    @property
    def subscription_id(self) -> str:
        return subscription_id(self.channel, self.callback)


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the callback has confirmed."""

    set_name: str
    kind: Kind
    topic: str
    callback: str
    created: int
    lease_end: int
    secret: str | None = None
    by_token: bool = False  # whoever asked may read the set if it is private
    token: str = ""  # the key of the token that gave the right, which ends with it; not the admin's

    @property
    def channel(self) -> ChannelName:
        return ChannelName(self.set_name, self.kind)


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """How far it has come, and what the callback said last."""

    cursor: int
    failures: int = 0  # in a row
    next_attempt: int = 0  # 0: as soon as there is something
    answer: str = ""
    answered_at: int = 0
    missed: bool = False  # changes that are kept no more: what it gets next does not join


class Answer(NamedTuple):
    """What came back from a callback; status 0 if nothing did."""

    status: int
    note: str = ""
    retry_after: str | None = None
    body: bytes = b""
    seconds: float = 0.0
    reached: bool = True  # False: no connection was made, so nothing was heard of us
    refused: bool = False  # by us: the address may not be called

    @property
    def succeeded(self) -> bool:
        """WEBSUB 23: 2xx is success whatever the body; a redirect is not."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return f"{self.status} {self.note}".rstrip() if self.status else self.note


def subscription_id(channel: ChannelName, callback: str) -> str:
    """WEBSUB 6: the key is the topic and the callback."""
    return hashlib.sha256(f"{channel}\n{callback}".encode()).hexdigest()[:16]


def share_of(callback: str) -> int:
    """All callbacks of a host belong to one share, so its limits hold across hub processes."""
    return crc32(authority(callback).encode()) % SHARES


def fair_part(hubs: int) -> int:
    """How many shares each of so many hub processes looks after."""
    return -(-SHARES // max(1, hubs))


def confirmed(request: Request, verified_at: int, before: Record | None) -> Record:
    """WEBSUB 18: the lease counts from the verification request."""
    return Record(
        set_name=request.set_name,
        kind=request.kind,
        topic=request.topic,
        callback=request.callback,
        created=verified_at if before is None else before.created,
        lease_end=verified_at + request.lease_seconds * MICROSECONDS,
        secret=request.secret,
        by_token=request.by_token,
        token=request.token,
    )


def after_answer(
    progress: Progress, answer: Answer, until: Position, now: int, chance: float
) -> Progress | None:
    """Where the subscription stands after a delivery was answered; None: it has ended.

    2xx moves the cursor (WEBSUB 23), 410 ends it, all else waits (WEBSUB 24).
    """
    if answer.succeeded:
        return Progress(int(until), 0, 0, answer.text, now)
    if answer.status == 410:
        return None
    failures = progress.failures + 1
    wait = wait_seconds(failures, chance)
    if answer.status in (429, 503):
        asked = retry_after_seconds(answer.retry_after, now / MICROSECONDS)
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
    """Until the next attempt: never longer than the wait that was set, whatever the clock did."""
    wait = min(progress.next_attempt - now, progress.next_attempt - progress.answered_at)
    return wait / MICROSECONDS
