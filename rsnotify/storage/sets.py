"""The sets of resources this hub serves, and the record of each.

Rules that hold here: a set and its journals come and go together, in one transaction. Nothing here
knows what is in a journal.
"""

import re
import secrets
from collections.abc import Mapping
from typing import NamedTuple, Self

import msgspec

from rsnotify.core.change import Position
from rsnotify.core.notification import KINDS, ChannelName
from rsnotify.errors import Rejected, no_such_set
from rsnotify.storage import keys
from rsnotify.storage.conditional import IfEquals
from rsnotify.storage.connection import Client, failures_translated

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
RESERVED = frozenset({"api", "channels", "hub", "health", "metrics", "static"})


class SetOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the operator may choose for a set."""

    private: bool = False  # whoever reads needs a token
    describedby: str | None = None  # a document that describes the set
    resourcelist: str | None = None  # the Source's own Resource List, instead of the hub's
    resourcedump: str | None = None
    changedump: str | None = None


class SetRecord(SetOptions, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What the hub knows of a set besides its journals."""

    name: str
    created: str
    edited: str = ""  # when its options were chosen, by the clock of Redis


class Version(NamedTuple):
    """Of the registry: which data it belongs to, and a number that moves with every change."""

    data: bytes
    number: int

    def is_behind(self, known: Self) -> bool:
        """Whether Redis has lost what was known: emptied, or gone back to older data."""
        return self.data != known.data or self.number < known.number


class Sets:
    """The registry of sets in Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._if_equals = IfEquals(client)

    async def version(self) -> Version:
        """What is different whenever any record is, and whenever Redis has lost some."""
        with failures_translated():
            data, number = await self._client.mget(keys.DATA_ID, keys.SETS_VERSION)
            if data is None:
                await self._client.set(keys.DATA_ID, secrets.token_hex(8), nx=True)
                data = await self._client.get(keys.DATA_ID)
        return Version(data, int(number or 0))

    async def changed(self) -> Position:
        """When any record moved last."""
        with failures_translated():
            return Position(int(await self._client.get(keys.SETS_CHANGED) or 0))

    async def all(self) -> dict[str, SetRecord]:
        with failures_translated():
            records = await self._client.hgetall(keys.SETS)
        found = (msgspec.json.decode(record, type=SetRecord) for record in records.values())
        return {record.name: record for record in sorted(found, key=lambda record: record.name)}

    async def add(self, name: str, options: SetOptions) -> tuple[SetRecord, bool]:
        """The set's record, and whether it was made just now."""
        check_name(name)
        with failures_translated():
            now = await self._now()
            record = SetRecord(
                **msgspec.structs.asdict(options), name=name, created=str(now), edited=str(now)
            )
            together = self._client.pipeline(transaction=True)
            for kind in KINDS:
                _begin_journal(together, ChannelName(name, kind), now)
            together.hsetnx(keys.SETS, name, msgspec.json.encode(record))
            together.hget(keys.SETS, name)
            *_, made, stored = await together.execute()
            if made:
                await self._announce()
        return msgspec.json.decode(stored, type=SetRecord), bool(made)

    async def edit(self, name: str, chosen: Mapping[str, object]) -> SetRecord:
        """Choose anew what is named in `chosen`; the rest stays, as others leave it meanwhile."""
        with failures_translated():
            is_written = False
            while not is_written:
                stored = await self._client.hget(keys.SETS, name)
                if stored is None:
                    raise no_such_set(name)
                before = msgspec.json.decode(stored, type=SetRecord)
                record = msgspec.structs.replace(before, **chosen, edited=str(await self._now()))
                new = msgspec.json.encode(record)
                is_written = await self._if_equals(keys.SETS, stored, "HSET", name, new, field=name)
            await self._announce()
        return record

    async def remove(self, name: str) -> None:
        """Forget the set and all its changes, at one moment: none can be appended in between."""
        with failures_translated():
            documents = await self._documents(name)
            together = self._client.pipeline(transaction=True)
            together.hdel(keys.SETS, name)
            together.unlink(*documents, *_all_keys(name))
            removed, _ = await together.execute()
            await self._announce()
        if not removed:
            raise no_such_set(name)

    async def _documents(self, name: str) -> list[str]:
        """The keys of what was made of its journal."""
        channel = ChannelName(name, "change")
        windows = await self._client.zrange(keys.windows(channel), 0, -1)
        packed = [keys.packed(channel, int(window.split()[0])) for window in windows]
        newest, parts = await self._client.hmget(keys.snapshot(name), "name", "parts")
        if newest is None:
            return packed
        numbers = range(1, int(parts) + 1)
        parts_of = [keys.snapshot_part(name, newest.decode(), number) for number in numbers]
        return [*packed, *parts_of, keys.snapshot(name, newest.decode()), keys.snapshot(name)]

    async def _now(self) -> Position:
        seconds, microseconds = await self._client.time()
        return Position(seconds * 1_000_000 + microseconds)

    async def _announce(self) -> None:
        await self._client.set(keys.SETS_CHANGED, int(await self._now()))
        await self._client.incr(keys.SETS_VERSION)
        await self._client.publish(keys.BELL, "sets")


def _begin_journal(pipeline: Client, channel: ChannelName, now: Position) -> None:
    """Unless there is one already."""
    begin: dict[str, int] = {"created": now, "first": now, "last": now, "head": now}
    begin |= {"window_from": now, "window_count": 0, "window_bytes": 0}
    begin |= {"changed": now, "settled": now, "told": now}
    for field, value in begin.items():
        pipeline.hsetnx(keys.record(channel), field, int(value))


def check_name(name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise Rejected(
            f"{name[:80]!r} is no name for a set: take 1 to 64 of a-z 0-9 - _ . "
            "beginning with a letter or digit"
        )
    if name in RESERVED:
        raise Rejected(f"the name {name!r} is taken by the hub itself; choose another")


def _all_keys(name: str) -> list[str]:
    channels = [ChannelName(name, kind) for kind in KINDS]
    return [
        *(keys.record(channel) for channel in channels),
        *(keys.stream(channel) for channel in channels),
        *(keys.windows(channel) for channel in channels),
        *(keys.state(name, shard) for shard in range(keys.STATE_SHARDS)),
    ]
