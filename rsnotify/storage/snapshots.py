"""Snapshots of sets: the current state shard by shard, and the Resource Lists made of it.

Rules that hold here: one hub process at a time takes a snapshot of a set, by a claim that it keeps
up while it works; parts that no snapshot came of expire by themselves; a new snapshot takes the
place of the old one at once, whose parts stay for those who are still walking them.
Nothing here knows how a part is made.
"""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, NamedTuple, Self

from rsnotify.core.change import Position
from rsnotify.core.notification import ChannelName
from rsnotify.core.packing import Packed
from rsnotify.core.state import Resource
from rsnotify.errors import TryAgain
from rsnotify.storage import keys
from rsnotify.storage.conditional import IfEquals
from rsnotify.storage.connection import Client, failures_translated, write_in_pieces

CLAIM_SECONDS = 30
JOURNEY_RESOURCES = 4_000  # to be read from Redis at once, about
WALK_SECONDS = 3600  # how long a replaced part stays after it was asked for last


class Snapshot(NamedTuple):
    """What is known of a snapshot; its parts are numbered from 1."""

    name: str
    at: Position
    completed: Position
    parts: int
    resources: int

    @property
    def begun(self) -> Position:
        """When it was begun, by the clock of Redis; snapshots are named after that."""
        return Position(int(self.name))

    @classmethod
    def from_fields(cls, fields: dict[bytes, bytes]) -> Self | None:
        if not fields:
            return None
        at, completed, parts, resources = (int(fields[name.encode()]) for name in cls._fields[1:])
        name = fields[b"name"].decode()
        return cls(name, Position(at), Position(completed), parts, resources)

    def to_fields(self) -> dict[str, str | int]:
        return {
            name: int(value) if isinstance(value, int) else value
            for name, value in self._asdict().items()
        }


class Claim:
    """The right to take a snapshot of a set, for as long as it is kept up."""

    def __init__(self, client: Client, if_equals: IfEquals, set_name: str) -> None:
        self.token = secrets.token_hex(8)
        self._client = client
        self._if_equals = if_equals
        self._key = keys.claim(set_name, "snapshot")

    async def take(self) -> bool:
        return bool(await self._client.set(self._key, self.token, nx=True, ex=CLAIM_SECONDS))

    def keep_up(self, pipeline: Client) -> None:
        """To be kept up with the journey that this begins; its first two answers are for us."""
        pipeline.get(self._key)
        pipeline.expire(self._key, CLAIM_SECONDS)

    def check(self, answers: Sequence[Any]) -> None:
        if answers[0] != self.token.encode():
            raise TryAgain("another hub process has taken over the snapshot")

    async def let_go(self) -> None:
        await self._if_equals(self._key, self.token, "DEL")


class Snapshots:
    """The snapshots of every set, in one Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._if_equals = IfEquals(client)
        script = files("rsnotify.storage").joinpath("snapshot.lua").read_text()
        self._publish = client.register_script(script)

    # --- reading -------------------------------------------------------------------------------

    async def newest(self, set_name: str) -> Snapshot | None:
        with failures_translated():
            return Snapshot.from_fields(await self._client.hgetall(keys.snapshot(set_name)))

    async def newest_of(self, set_names: Sequence[str]) -> dict[str, Snapshot | None]:
        """The newest of each set, in one journey."""
        pipeline = self._client.pipeline(transaction=False)
        for name in set_names:
            pipeline.hgetall(keys.snapshot(name))
        with failures_translated():
            found = await pipeline.execute()
        return dict(zip(set_names, map(Snapshot.from_fields, found), strict=True))

    async def named(self, set_name: str, name: str) -> Snapshot | None:
        """A snapshot that has been replaced too, as long as somebody walks it."""
        with failures_translated():
            fields = await self._client.hgetall(keys.snapshot(set_name, name))
        return Snapshot.from_fields(fields)

    async def part(self, set_name: str, snapshot: Snapshot, number: int) -> Packed | None:
        key = keys.snapshot_part(set_name, snapshot.name, number)
        with failures_translated():
            data = await self._client.get(key)
        return None if data is None else Packed.from_bytes(data)

    async def keep_walkable(self, set_name: str, snapshot: Snapshot) -> None:
        """Somebody still reads a snapshot that has been replaced."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.expire(keys.snapshot(set_name, snapshot.name), WALK_SECONDS)
        for number in range(1, snapshot.parts + 1):
            key = keys.snapshot_part(set_name, snapshot.name, number)
            pipeline.expire(key, WALK_SECONDS)
        with failures_translated():
            await pipeline.execute()

    # --- taking --------------------------------------------------------------------------------

    @asynccontextmanager
    async def claim(self, set_name: str) -> AsyncIterator[Claim | None]:
        """The claim to the set's next snapshot; None if another hub process has it."""
        claim = Claim(self._client, self._if_equals, set_name)
        with failures_translated():
            if not await claim.take():
                yield None
                return
            try:
                yield claim
            finally:
                await claim.let_go()

    async def shards(self, set_name: str, claim: Claim) -> AsyncIterator[list[Resource]]:
        """The current state: each shard is one moment, the shards follow one another."""
        shard, at_once = 0, 1
        while shard < keys.STATE_SHARDS:
            pipeline = self._client.pipeline(transaction=False)
            claim.keep_up(pipeline)
            for number in range(shard, min(shard + at_once, keys.STATE_SHARDS)):
                pipeline.hgetall(keys.state(set_name, number))
            answers = await pipeline.execute()
            claim.check(answers)
            shard += at_once
            at_once = max(1, JOURNEY_RESOURCES // max(1, *map(len, answers[2:])))
            for found in answers[2:]:
                yield sorted(found.items())

    async def write_part(self, set_name: str, name: str, number: int, packed: Packed) -> None:
        key = keys.snapshot_part(set_name, name, number)
        await write_in_pieces(self._client, key, packed.to_bytes(), seconds=WALK_SECONDS)

    async def publish(
        self, set_name: str, created: Position, claim: Claim, snapshot: Snapshot
    ) -> bool:
        """Make it the newest, unless the claim was lost meanwhile."""
        names = [
            keys.claim(set_name, "snapshot"),
            keys.record(ChannelName(set_name, "change")),
            keys.snapshot(set_name),
            keys.snapshot(set_name),
        ]
        fields = [text for field in snapshot.to_fields().items() for text in field]
        arguments = [claim.token, int(created), WALK_SECONDS, *fields]
        return bool(await self._publish(keys=names, args=arguments))
