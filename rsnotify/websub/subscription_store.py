"""The subscriptions in Redis, by share: claim a share, read it, write what changed.

The script lets only the owner of a share write to it: a process that froze and lost its share can
spoil nothing. Moments are by the clock of Redis.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from rsnotify.coordination import keys
from rsnotify.coordination.clock import redis_now
from rsnotify.errors import TooFewReplicas, TooMany, TryAgain, Unanswered
from rsnotify.recent import Recent
from rsnotify.redis_client import Client, Script, connect
from rsnotify.resourcesync.change import Position
from rsnotify.websub.heartbeats import Heartbeats
from rsnotify.websub.rules import authority
from rsnotify.websub.subscription import (
    SHARES,
    Order,
    PendingRequest,
    Progress,
    Subscription,
    share_of,
)
from rsnotify.websub.subscription_counts import UNLIMITED, SubscriptionCounts

SCRIPT, _ADMIT = Script("websub/subscriptions.lua"), Script("websub/admit.lua")

RECORDED_AT_ONCE = 2_000  # Lua's unpack takes no more than some 8,000 values

ADDRESS_SECONDS = 600  # a request that is still pending after this no longer counts for its address

PROGRESS = msgspec.json.Decoder(Progress)
SUBSCRIPTION = msgspec.json.Decoder(Subscription)
REQUEST = msgspec.json.Decoder(PendingRequest)


class Stored(NamedTuple):
    """A subscription as Redis has it."""

    subscription: Subscription
    progress: Progress


class ShareContent(NamedTuple):
    """What is in one share."""

    subscriptions: dict[str, Stored]
    requests: dict[str, PendingRequest]  # by id, oldest first


class Subscriptions:
    """Every subscription of a hub, and who is looking after it."""

    def __init__(
        self,
        client: Client,
        process: str,  # the machine and the number: for who looks at what is stored
        *,
        pending_per_host: int,
        pending_per_address: int,
        per_host: int = UNLIMITED,
        per_address: int = UNLIMITED,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._client = client
        self.heartbeats = Heartbeats(client, process, clock)
        self._me = self.heartbeats.me
        self._pending_per_host = pending_per_host
        self._pending_per_address = pending_per_address
        self.counts = SubscriptionCounts(client, per_host=per_host, per_address=per_address)
        self._clock = clock
        self._kept: Recent[Stored] = Recent()  # verified by this process
        self._ended: Recent[Subscription] = Recent()

    # --- for administration ----------------------------------------------------------------------

    async def ask(self, request: PendingRequest) -> None:
        """Leave a request for the owner of the callback; `TooMany` if too many are pending."""
        id_ = secrets.token_hex(8)
        if request.order in ("remove", "retry"):  # the hub asks itself
            await self._put(request, id_, UNLIMITED)
        else:
            await self._admit(request.client_address, id_)
            await self._put_admitted(request, id_)
        await self._client.publish(keys.SUBSCRIPTIONS_BELL, str(share_of(request.callback)))

    async def _admit(self, address: str, id_: str) -> None:
        limits = self._pending_per_address, ADDRESS_SECONDS
        if not await _ADMIT.run(self._client, [keys.pending_of(address)], id_, *limits):
            raise TooMany("too many of your requests are waiting for their verification")

    async def _put_admitted(self, request: PendingRequest, id_: str) -> None:
        """Store it; it goes on counting for its address only if it is pending."""
        is_counted = False
        try:
            if request.order == "subscribe":
                is_counted = await self.counts.admit(request)
            is_new = await self._put(request, id_, self._pending_per_host)
        except (Unanswered, TooFewReplicas):  # it may be pending
            raise
        except Exception:
            await self._dismiss(request.client_address, id_)
            if is_counted:
                self.counts.end(request.subscription_id, request)
            raise
        if not is_new:
            await self._dismiss(request.client_address, id_)

    async def _put(self, request: PendingRequest, id_: str, limit: int) -> bool:
        """Store it; False if the same request is pending already."""
        share, host = share_of(request.callback), authority(request.callback)
        content = msgspec.json.encode(request)
        act = ("ask", request.subscription_id, digest(request), id_, content, limit)
        (done,) = await self._client.durably([SCRIPT.command(share_keys(share, host), *act)])
        if done == -1:
            raise TooMany(f"too many verifications are pending for {host}")
        return bool(done)

    async def _dismiss(self, address: str, id_: str) -> None:
        with suppress(TryAgain):  # then it counts until its time is over
            await self._client.zrem(keys.pending_of(address), id_)

    async def now(self) -> Position:
        return await redis_now(self._client)

    async def all(self) -> dict[str, Stored]:
        """Every subscription of every share."""
        shares = await self.read(range(SHARES))
        return {id_: each for share in shares for id_, each in share.subscriptions.items()}

    async def find(self, id_: str) -> Stored | None:
        """This one, whichever share it is in: its id does not say which."""
        pipeline = self._client.pipeline(transaction=False)
        for share in range(SHARES):
            pipeline.hget(keys.of_share(share, "records"), id_)
            pipeline.hget(keys.of_share(share, "progress"), id_)
        replies = await pipeline.execute()
        found = map(read_one, replies[::2], replies[1::2])
        return next((stored for stored in found if stored is not None), None)

    async def deny(self, subscription: Subscription, reason: str) -> None:
        """End it, and notify its callback why."""
        await self.ask(_order("remove", subscription, reason))

    async def retry(self, subscription: Subscription) -> None:
        """Have the next attempt made now."""
        await self.ask(_order("retry", subscription))

    async def remove(self, subscription: Subscription, reason: str) -> None:
        """Like `deny`, but removed at once."""
        share = share_of(subscription.callback)
        id_ = subscription.id
        await self._client.durably([SCRIPT.command(share_keys(share), "remove", id_)])
        self.note_end(id_, subscription)
        await self.deny(subscription, reason)

    # --- for the owner of a share ----------------------------------------------------------------

    async def heartbeat(self) -> tuple[int, int]:
        """Show that this process is alive: the time of Redis, and how many processes are."""
        alive = await self.heartbeats.beat()
        return await self.now(), alive

    async def leave(self, shares: Iterable[int]) -> None:
        """Let others have these shares at once, and count this process no more."""
        await self.release(shares)
        await self.heartbeats.end()

    async def claim(self, shares: Sequence[int]) -> list[bool]:
        """Claim these shares for some seconds, but for those of a process that is alive."""
        gone = self.heartbeats.gone()
        claim = ("claim", self._me, self.heartbeats.number, *chain.from_iterable(gone.items()))
        replies = await self._act([(share, "", claim) for share in shares])
        return [self._owns(reply) for reply in replies]

    async def renew(self, shares: Sequence[int]) -> list[bool]:
        """Renew those that are still ours; what nobody owns any more must be claimed again."""
        act = ("renew", self._me, self.heartbeats.number)
        return [reply == 1 for reply in await self._act([(share, "", act) for share in shares])]

    def _owns(self, reply: int | bytes) -> bool:
        """Whether it is ours; if not, take note of its owner's heartbeat."""
        if isinstance(reply, bytes):
            name, _, beat = reply.decode().rpartition(" ")
            if name:
                self.heartbeats.look(name, int(beat))
        return reply == 1

    async def release(self, shares: Iterable[int]) -> None:
        await self._act([(share, "", ("release", self._me)) for share in shares])

    async def read(self, shares: Iterable[int]) -> list[ShareContent]:
        pipeline = self._client.pipeline(transaction=False)
        for share in shares:
            pipeline.hgetall(keys.of_share(share, "records"))
            pipeline.hgetall(keys.of_share(share, "progress"))
            pipeline.hgetall(keys.of_share(share, "requests"))
        replies = await pipeline.execute()
        return [
            ShareContent(read_subscriptions(records, progress), read_requests(requests))
            for records, progress, requests in zip(
                replies[::3], replies[1::3], replies[2::3], strict=True
            )
        ]

    async def requests(self, shares: Sequence[int]) -> list[dict[str, PendingRequest]]:
        """The pending requests of each of these shares, oldest first."""
        pipeline = self._client.pipeline(transaction=False)
        for share in shares:
            pipeline.hgetall(keys.of_share(share, "requests"))
        return [read_requests(reply) for reply in await pipeline.execute()]

    async def finish_request(
        self, id_: str, request: PendingRequest, *, keep: Stored | None = None, drop: bool = False
    ) -> bool:
        """Remove the request, and keep or drop its subscription; False if not ours any more."""
        outcome: tuple[object, ...] = ("drop",) if drop else ("nothing",)
        if keep is not None:
            outcome = ("keep", *map(msgspec.json.encode, keep))
        share, host = share_of(request.callback), authority(request.callback)
        act = ("finish", self._me, id_, request.subscription_id, *outcome)
        (done,) = await self._act([(share, host, act)])
        if done and keep is not None:  # before anything else can fail: it may be lost from now on
            self._kept.note(request.subscription_id, keep, self._clock())
            self._ended.forget(request.subscription_id)
            await self.counts.confirm(
                request.subscription_id, keep.subscription, request.lease_seconds
            )
        if request.client_address:
            await self._dismiss(request.client_address, id_)
        return bool(done)

    async def write_progress(self, progress: Mapping[int, Mapping[str, Progress]]) -> set[int]:
        """Write each share's progress; return the shares that are not ours any more."""
        acts = [
            (share, "", ("record", self._me, *pairs))
            for share, each in progress.items()
            for pairs in records_in_parts(each)
        ]
        done = await self._act(acts)
        return {share for (share, _, _), is_ours in zip(acts, done, strict=True) if not is_ours}

    async def forget(
        self, share: int, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Subscription | None]:
        """End these; for each, return None, or the one with another lease, which Redis keeps.

        The answer is empty if the share is not ours any more.
        """
        ends = [(id_, each.lease_end) for id_, each in subscriptions.items()]
        parts = [ends[at : at + RECORDED_AT_ONCE] for at in range(0, len(ends), RECORDED_AT_ONCE)]
        acts = [(share, "", ("forget", self._me, *chain.from_iterable(part))) for part in parts]
        return {
            id_: SUBSCRIPTION.decode(record) if record else None
            for part, records in zip(parts, await self._act(acts), strict=True)
            for (id_, _), record in zip(part, records, strict=False)
        }

    async def at(self, share: int, id_: str) -> Stored | None:
        """This subscription of the share, as it is in Redis."""
        pipeline = self._client.pipeline(transaction=False)
        for name in ("records", "progress"):
            pipeline.hget(keys.of_share(share, name), id_)
        return read_one(*await pipeline.execute())

    # --- what is remembered, see `ownership.settle_lost_subscriptions` ---------------------------

    def note_end(self, id_: str, subscription: Subscription) -> None:
        """Remember that it has ended, so that an older Redis does not bring it back."""
        self._ended.note(id_, subscription, self._clock())
        self._kept.forget(id_)
        self.counts.end(id_, subscription)

    def remembered(self) -> tuple[dict[str, Stored], dict[str, Subscription]]:
        """What this process has verified, and what it has ended, within the last minute."""
        return self._kept.at(self._clock()), self._ended.at(self._clock())

    async def records(self, wanted: Mapping[str, Subscription]) -> dict[str, Subscription]:
        """Of these, the ones that Redis has, as it has them."""
        pipeline = self._client.pipeline(transaction=False)
        for id_, subscription in wanted.items():
            pipeline.hget(keys.of_share(share_of(subscription.callback), "records"), id_)
        found = zip(wanted, await pipeline.execute(), strict=True)
        return {id_: SUBSCRIPTION.decode(text) for id_, text in found if text}

    # --- the script ------------------------------------------------------------------------------

    async def _act(self, acts: Sequence[tuple[int, str, Sequence[object]]]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for share, host, act in acts:
            SCRIPT.run(pipeline, share_keys(share, host), *act)
        replies: list[Any] = await pipeline.execute()
        return replies


def share_keys(share: int, host: str = "") -> list[str]:
    """As subscriptions.lua wants them; `host` is whose pending requests are counted."""
    names = [("owner",), ("records",), ("progress",), ("requests",), ("latest",), ("host", host)]
    return [keys.of_share(share, *name) for name in names]


def digest(request: PendingRequest) -> str:
    """Equal requests have equal digests: the same request again is nothing new."""
    same = msgspec.structs.replace(request, client_address="")
    return hashlib.sha256(msgspec.json.encode(same)).hexdigest()[:16]


def records_in_parts(progress: Mapping[str, Progress]) -> Iterator[list[str | bytes]]:
    """Each id with its progress, as many as one call of the script takes."""
    ids = list(progress)
    for at in range(0, len(ids), RECORDED_AT_ONCE):
        part = ids[at : at + RECORDED_AT_ONCE]
        yield [value for id_ in part for value in (id_, msgspec.json.encode(progress[id_]))]


def read_one(record: bytes | None, progress: bytes | None) -> Stored | None:
    if record is None or progress is None:
        return None
    return Stored(SUBSCRIPTION.decode(record), PROGRESS.decode(progress))


def read_subscriptions(
    records: Mapping[bytes, bytes], progress: Mapping[bytes, bytes]
) -> dict[str, Stored]:
    found = {id_.decode(): read_one(text, progress.get(id_)) for id_, text in records.items()}
    return {id_: stored for id_, stored in found.items() if stored is not None}


def read_requests(stored: Mapping[bytes, bytes]) -> dict[str, PendingRequest]:
    """The oldest first."""
    in_order = sorted(stored.items(), key=lambda item: int(item[1].partition(b" ")[0]))
    return {id_.decode(): REQUEST.decode(text.partition(b" ")[2]) for id_, text in in_order}


async def release_all_claims(url: str) -> None:
    """Release every share: only when all earlier hub processes are known to be dead."""
    owners = [keys.of_share(share, "owner") for share in range(SHARES)]
    async with connect(url) as client:
        await client.delete(*owners, keys.DELIVERERS)


def _order(order: Order, subscription: Subscription, reason: str = "") -> PendingRequest:
    return PendingRequest(
        order=order,
        topic=subscription.topic,
        callback=subscription.callback,
        set_name=subscription.set_name,
        kind=subscription.kind,
        reason=reason,
        wanted=subscription.wanted,
        created=subscription.created if order == "remove" else 0,
    )
