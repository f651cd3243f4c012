"""The snapshots of every set in Redis, and the Resource Lists made of them.

One hub process at a time takes a snapshot of a set; it renews its claim while it works. The parts
of an unfinished snapshot expire. A new snapshot replaces the old one at once; the old parts stay
for those who are still reading them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, NamedTuple

from rsnotify.coordination import keys
from rsnotify.coordination.claims import Claim, Claims
from rsnotify.documents.documents import Snapshot, StoredResource, render_resources
from rsnotify.errors import NoSuchSet, TryAgain
from rsnotify.journal.gzip_parts import PackedEntries, Packer
from rsnotify.journal.usage import WALK_SECONDS
from rsnotify.journal.windows import FORGET, Windows
from rsnotify.redis_client import Client, Script, each
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName

_BEGIN, _PUBLISH = Script("documents/begin_snapshot.lua"), Script("documents/snapshot.lua")

CLAIM_SECONDS = 25  # with the next round, it is taken over within 30 s
JOURNEY_RESOURCES = 2_000  # to be read from Redis at once, about
SCANNED_RESOURCES = 1_000  # of one shard: publishers wait for Redis, then for the hub
PART_RESOURCES = 50_000
PART_BYTES = 50_000_000  # leaves room for what stands around the entries
SLICE_RESOURCES = 500  # two milliseconds of the event loop
SLICE_BYTES = 256 * 1024


class Beginning(NamedTuple):
    """The position of a snapshot that was begun, when, and when its set was created; and how many
    changes the open window had."""

    at: Position
    created: Position
    begun: Position
    counted: int


class Snapshots:
    """The snapshots of every set, in one Redis."""

    def __init__(
        self,
        client: Client,
        *,
        part_resources: int = PART_RESOURCES,
        slice_resources: int = SLICE_RESOURCES,
        scanned_resources: int = SCANNED_RESOURCES,
    ) -> None:
        self._client = client
        self._claims = Claims(client)
        self._part_resources, self._slice_resources = part_resources, slice_resources
        self._scanned_resources = scanned_resources

    # --- reading -------------------------------------------------------------------------------

    async def newest(self, set_name: str) -> Snapshot | None:
        return Snapshot.from_fields(await self._client.hgetall(keys.snapshot(set_name)))

    async def newest_of(self, set_names: Sequence[str]) -> dict[str, Snapshot | None]:
        """The newest snapshot of each set, in one round trip, without unreadable ones."""
        pipeline = self._client.pipeline(transaction=False)
        for name in set_names:
            pipeline.hgetall(keys.snapshot(name))
        found = each(await pipeline.execute(raise_on_error=False), Snapshot.from_fields)
        for newest in found:
            if isinstance(newest, TryAgain):  # its part of Redis is away
                raise newest
        pairs = zip(set_names, found, strict=True)
        return {name: newest for name, newest in pairs if not isinstance(newest, Exception)}

    async def named(self, set_name: str, name: str) -> Snapshot | None:
        """The newest snapshot, or a replaced one as long as somebody still reads it."""
        fields = await self._client.hgetall(keys.snapshot(set_name, name))
        return Snapshot.from_fields(fields)

    async def part(self, set_name: str, snapshot: Snapshot, number: int) -> PackedEntries | None:
        key = keys.snapshot_part(set_name, snapshot.name, number)
        data = await self._client.get(key)
        return None if data is None else PackedEntries.from_bytes(data)

    async def keep_walkable(self, set_name: str, snapshot: Snapshot) -> None:
        """Keep a replaced snapshot, since somebody still reads it; archived ones stay anyway."""
        pipeline = self._client.pipeline(transaction=False)
        for key in _keys_of(set_name, snapshot):
            pipeline.expire(key, WALK_SECONDS, xx=True)
        await pipeline.execute()

    # --- the archive ---------------------------------------------------------------------------

    async def archived(self, set_name: str) -> list[Snapshot]:
        """The replaced snapshots that are kept, oldest first."""
        names = await self._client.zrange(keys.archive(set_name), 0, -1)
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.hgetall(keys.snapshot(set_name, name.decode()))
        found = map(Snapshot.from_fields, await pipeline.execute())
        return [snapshot for snapshot in found if snapshot is not None]

    async def has_archive(self, set_name: str) -> bool:
        return bool(await self._client.exists(keys.archive(set_name)))

    async def expire_surplus(self, set_name: str, keep: int, begun_after: Position) -> None:
        """Let replaced snapshots expire, but for the newest `keep` that were begun after this."""
        archived = await self.archived(set_name)
        surplus = len(archived) - keep
        for number, snapshot in enumerate(archived):
            if number < surplus or snapshot.begun <= begun_after:
                await self._forget(set_name, snapshot)

    async def _forget(self, set_name: str, snapshot: Snapshot) -> None:
        names = [keys.archive(set_name), *_keys_of(set_name, snapshot)]
        await FORGET.run(self._client, names, snapshot.name, WALK_SECONDS)

    # --- taking --------------------------------------------------------------------------------

    @asynccontextmanager
    async def claim(self, set_name: str) -> AsyncIterator[Claim | None]:
        """The claim to the set's next snapshot; None if another hub process has it."""
        claim = await self._claims.take(keys.claim(set_name, "snapshot"), CLAIM_SECONDS)
        try:
            yield claim
        finally:
            if claim is not None:
                await claim.release()

    async def begin(self, set_name: str, claim: Claim) -> Beginning:
        """Begin at a position after the newest change, where no later change will be.

        The claim does not outlive a Redis that loses what was changed before.
        """
        names = [keys.record(ChannelName(set_name, "change")), claim.key]
        found = await _BEGIN.run(self._client, names, *claim.begun())
        if found is None:
            raise NoSuchSet(set_name)
        claim.check(found)
        at, created, begun, counted = found
        return Beginning(Position(at), Position(created), Position(begun), counted)

    async def resources(self, set_name: str, claim: Claim) -> AsyncIterator[list[StoredResource]]:
        """The current state, some thousand resources at a time, each once."""
        shard, at_once = 0, 1
        while shard < keys.STATE_SHARDS:
            shards = range(shard, min(shard + at_once, keys.STATE_SHARDS))
            answers = await self._scan(set_name, claim, dict.fromkeys(shards, 0))
            shard += at_once
            at_once = max(1, JOURNEY_RESOURCES // max(1, *(len(found) for _, found in answers)))
            for number, (cursor, found) in zip(shards, answers, strict=True):
                yield sorted(found.items())
                async for rest in self._rest(set_name, claim, number, cursor, found):
                    yield rest

    async def _rest(
        self, set_name: str, claim: Claim, shard: int, cursor: int, first: Iterable[bytes]
    ) -> AsyncIterator[list[StoredResource]]:
        """The rest of a large shard; Redis may return some twice while it makes room for more."""
        seen = set(first) if cursor else set()
        while cursor:
            ((cursor, found),) = await self._scan(set_name, claim, {shard: cursor})
            yield sorted(each for each in found.items() if each[0] not in seen)
            seen.update(found)

    async def _scan(
        self, set_name: str, claim: Claim, cursors: Mapping[int, int]
    ) -> list[tuple[int, dict[bytes, bytes]]]:
        """Some resources of each of these shards, from these cursors on."""
        pipeline = self._client.pipeline(transaction=False)
        claim.keep_up(pipeline)
        for shard, cursor in cursors.items():
            pipeline.hscan(keys.state(set_name, shard), cursor, count=self._scanned_resources)
        answers: list[Any] = await pipeline.execute()
        claim.check(answers[0])
        return answers[1:]

    async def packed_parts(
        self, set_name: str, claim: Claim
    ) -> AsyncIterator[tuple[PackedEntries, int]]:
        """Each part, and how many resources it has; at least one part."""
        packer, count = Packer(), 0
        async for some in self.resources(set_name, claim):
            for resources in _slices(some, self._slice_resources):
                began = monotonic()
                entries = render_resources(resources)
                fits = count + len(resources) <= self._part_resources
                if not fits or packer.length + len(entries) > PART_BYTES:
                    yield packer.packed(), count
                    packer, count = Packer(), 0
                packer.add(entries)
                count += len(resources)
                await asyncio.sleep(monotonic() - began)  # leave as much time to everything else
        yield packer.packed(), count

    async def write_part(
        self, set_name: str, name: str, number: int, packed: PackedEntries
    ) -> None:
        key = keys.snapshot_part(set_name, name, number)
        await self._client.write_in_pieces(key, packed.to_bytes(), seconds=WALK_SECONDS)

    async def confirm(self, set_name: str) -> None:
        """Where replicas confirm: wait until they have all that was read so far."""
        if self._client.confirms:
            await self._client.durably([("EXISTS", keys.never(set_name))])

    async def publish(
        self,
        set_name: str,
        created: Position,
        claim: Claim,
        snapshot: Snapshot,
        *,
        keep_old: bool = False,
    ) -> bool:
        """Make the snapshot the newest, unless the claim was lost; the old one may be kept."""
        names = [
            keys.claim(set_name, "snapshot"),
            keys.record(ChannelName(set_name, "change")),
            keys.snapshot(set_name),
            keys.snapshot(set_name),
            keys.archive(set_name),
            keys.never(set_name),
        ]
        fields = [text for field in snapshot.to_fields().items() for text in field]
        arguments = (claim.token, int(created), WALK_SECONDS, int(keep_old), *fields)
        return bool(await _PUBLISH.run(self._client, names, *arguments))


def _keys_of(set_name: str, snapshot: Snapshot) -> list[str]:
    parts = range(1, snapshot.parts + 1)
    of_parts = (keys.snapshot_part(set_name, snapshot.name, number) for number in parts)
    return [keys.snapshot(set_name, snapshot.name), *of_parts]


async def take_snapshot(
    snapshots: Snapshots, windows: Windows, set_name: str, *, keep_old: bool = False
) -> Snapshot | None:
    """Take a snapshot now; the one before it may be kept.

    None if another hub process takes one, or has taken the claim on the way.
    """
    async with snapshots.claim(set_name) as claim:
        if claim is None:
            return None
        at, created, begun, counted = await snapshots.begin(set_name, claim)
        name, parts, resources = str(int(begun)), 0, 0
        async for packed, count in snapshots.packed_parts(set_name, claim):
            parts, resources = parts + 1, resources + count
            await snapshots.write_part(set_name, name, parts, packed)
        completed = max(at, await windows.now())
        await snapshots.confirm(set_name)  # it holds what no replica may have yet
        taken = Snapshot(name, at, completed, parts, resources, counted)
        is_newest = await snapshots.publish(set_name, created, claim, taken, keep_old=keep_old)
        return taken if is_newest else None


def _slices(
    some: list[StoredResource], most_resources: int = SLICE_RESOURCES
) -> Iterator[list[StoredResource]]:
    size = sum([len(kept) for _, kept in some])
    most = min(most_resources, 1 + SLICE_BYTES * len(some) // max(1, size))
    for start in range(0, len(some), most):
        yield some[start : start + most]
