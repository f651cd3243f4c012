"""The sets: the record of each in Redis, and the copy of all records that each process has.

A set is created or removed together with its journals, and every hub process is notified, in one
atomic step. In a Cluster these are two, for the records have a slot of their own: the journals come
first, and repeating the whole completes what a crash has left between them.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import Any, NamedTuple, Self

import msgspec

from rsnotify.coordination import keys
from rsnotify.coordination.clock import redis_now
from rsnotify.errors import NoSuchSet, Rejected, TryAgain
from rsnotify.recent import Recent
from rsnotify.redis_client import Client, Script, each
from rsnotify.resourcesync.change import MINUTE, Position
from rsnotify.resourcesync.notification import KINDS, ChannelName
from rsnotify.sets.options import TOPICS, SetOptions, SetRecord, check_name, check_together

log = logging.getLogger(__name__)


async def new_data_id(client: Client) -> bytes:
    """Name the data of an empty Redis, unless another process has done it just now."""
    await client.set(keys.DATA_ID, secrets.token_hex(8), nx=True)
    found: bytes = await client.get(keys.DATA_ID)
    return found


AHEAD = MINUTE  # of Redis's clock: a set must not begin in a far future because that was wrong

_SETS = Script("sets/set_keys.lua", "sets/sets.lua")
_IN_CLUSTER = Script("sets/set_keys.lua", "sets/set_in_cluster.lua")


class Version(NamedTuple):
    """Of the sets: which data they belong to, and a number that moves with every change of one."""

    data: bytes
    number: int
    changed: Position  # when it moved last, by the clock of Redis

    def is_behind(self, known: Self) -> bool:
        """Whether Redis has lost what was known: emptied, or gone back to older data."""
        return self.data != known.data or self.number < known.number

    def follows(self, known: Self) -> bool:
        """Whether it is exactly one change after `known`."""
        return self.data == known.data and self.number == known.number + 1


class Sets:
    """The records of all sets in Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def version(self) -> Version:
        """The version, which changes with every record, and when Redis has lost some."""
        names = keys.DATA_ID, keys.SETS_VERSION, keys.SETS_CHANGED
        data, number, changed = await self._client.mget(*names)
        return _version(data or await new_data_id(self._client), number, changed)

    async def all(self) -> dict[str, SetRecord]:
        records = await self._client.hgetall(keys.SETS)
        found = sorted(_whole(records), key=lambda record: record.name)
        return {record.name: record for record in found}

    async def former(self) -> dict[str, str]:
        """By name of removed sets: when the first set of that name was created."""
        found = await self._client.hgetall(keys.SETS_FORMER)
        return {name.decode(): created.decode() for name, created in found.items()}

    async def add(self, name: str, options: SetOptions) -> tuple[SetRecord, bool, Version]:
        """The set's record, whether it was made just now, and the version with it."""
        check_name(name)
        check_together(options)
        stored = None
        while stored is None:
            now = await self._next_begin()
            created = await self._begun(name, now) if self._client.is_cluster else now
            record = SetRecord(
                **msgspec.structs.asdict(options), name=name, created=str(created), edited=str(now)
            )
            made = msgspec.json.encode(record)
            free = await self._free_topics(name, msgspec.structs.asdict(options))
            stored, version = await self._act("add", name, made, int(created), free)
        return msgspec.json.decode(stored, type=SetRecord), stored == made, version

    async def _next_begin(self) -> Position:
        """Where a set begins that is made now: also where the clock is a little behind, after all
        that one of this name has had before."""
        changed, now = (await self.version()).changed, await redis_now(self._client)
        return Position(changed + 1) if now <= changed <= now + AHEAD else now

    async def edit(self, name: str, chosen: Mapping[str, object]) -> tuple[SetRecord, Version]:
        """Change what is in `chosen`; the rest stays, even if others change it meanwhile."""
        is_written = False
        while not is_written:
            stored = await self._client.hget(keys.SETS, name)
            if stored is None:
                raise NoSuchSet(name)
            before = msgspec.json.decode(stored, type=SetRecord)
            record = msgspec.structs.replace(
                before, **chosen, edited=str(await redis_now(self._client))
            )
            check_together(record)
            new = msgspec.json.encode(record)
            free = await self._free_topics(name, chosen)
            is_written, version = await self._act("edit", name, stored, new, free)
        return record, version

    async def _free_topics(self, name: str, chosen: Mapping[str, object]) -> str:
        """The version of the sets at which no other set has these topics; nothing if there are
        none: then any version will do."""
        topics = {topic for field in TOPICS if (topic := chosen.get(field)) is not None}
        if not topics:
            return ""
        version = await self.version()  # read first: what comes in between moves it
        for record in (await self.all()).values():
            taken = topics & {record.topic, record.framework_topic}
            if record.name != name and taken:
                detail = f"{min(map(str, taken))} is a topic of the set {record.name!r} already"
                raise Rejected(detail, status=409)
        return str(version.number)

    async def remove(self, name: str) -> Version:
        """Remove the set and all its changes: none can be appended in between."""
        documents = _keys_of_documents(name)
        if self._client.is_cluster:
            return await self._remove_in_cluster(name, *documents, *_other_keys(name))
        is_removed, version = await self._act("remove", name, *documents, *_other_keys(name))
        if not is_removed:
            raise NoSuchSet(name)
        return version

    # --- in a Cluster: what belongs to the set, before its record --------------------------------

    async def _begun(self, name: str, begin: Position) -> Position:
        """Begin the set's journals, if there are none; returns when they were begun."""
        return Position(int(await self._act_in_cluster("begin", name, int(begin))))

    async def _remove_in_cluster(self, name: str, *of_set: str) -> Version:
        """Remove only the set that is there now; one that is made meanwhile stays whole."""
        record = await self._client.hget(keys.SETS, name)
        if record is None:
            raise NoSuchSet(name)
        journal = keys.record(ChannelName(name, "change"))
        created = await self._client.hget(journal, "created") or b""
        reached = await self._act_in_cluster("remove", name, created, *of_set)
        if reached is not None:
            is_removed, version = await self._act("forget", name, record, reached)
            if is_removed:
                return version
        raise TryAgain(f"the set {name!r} was changed while it was removed")

    async def begin_lost_journals(self, records: Iterable[SetRecord]) -> None:
        """Begin the journals again, in a Cluster, of sets whose record is still there."""
        asked = list(records) if self._client.is_cluster else []
        pipeline = self._client.pipeline(transaction=False)
        for record in asked:
            pipeline.exists(keys.record(ChannelName(record.name, "change")))
        for record, is_there in zip(asked, await pipeline.execute(), strict=True):
            if not is_there:
                await self._begun(record.name, Position.parse(record.created))

    async def _act_in_cluster(self, act: str, name: str, *arguments: bytes | str | int) -> Any:
        names = [keys.record(ChannelName(name, kind)) for kind in KINDS]
        command = _IN_CLUSTER.command([*names, keys.never(name)], act, *arguments)
        (outcome,) = await self._client.durably([command])
        return outcome

    # --- after a loss ----------------------------------------------------------------------------

    async def raise_version(self, number: int) -> None:
        """Let every later version be higher than one that Redis has lost."""
        await self._act("raise", "", number)

    async def _act(self, act: str, name: str, *arguments: bytes | str | int) -> tuple[Any, Version]:
        """Do the act; what became of it, and the version afterwards."""
        names = [
            keys.SETS,
            keys.SETS_VERSION,
            keys.SETS_CHANGED,
            keys.DATA_ID,
            keys.SETS_FORMER,
        ]
        if not self._client.is_cluster:
            names += [keys.record(ChannelName(name, kind)) for kind in KINDS]
        command = _SETS.command(names, act, keys.BELL, name, *arguments)
        ((outcome, *version),) = await self._client.durably([command])
        return outcome, _version(*version)


def _version(data: bytes, number: bytes | None, changed: bytes | None) -> Version:
    return Version(data, int(number or 0), Position(int(changed or 0)))


def _record(stored: bytes) -> SetRecord:
    return msgspec.json.decode(stored, type=SetRecord)


def _whole(records: Mapping[bytes, bytes]) -> Iterator[SetRecord]:
    """The records that can be read; the others are logged."""
    for name, record in zip(records, each(records.values(), _record), strict=True):
        if isinstance(record, Exception):
            log.warning("the record of the set %r cannot be read", name.decode(), exc_info=record)
        else:
            yield record


def _keys_of_documents(name: str) -> tuple[str, str, str, str, str]:
    """The keys as sets.lua wants them, from which it finds all documents of the set."""
    channel = ChannelName(name, "change")
    newest = keys.snapshot(name)
    return keys.windows(channel), keys.packed(channel), newest, newest, keys.archive(name)


def _other_keys(name: str) -> list[str]:
    streams = [keys.stream(ChannelName(name, kind)) for kind in KINDS]
    shards = range(keys.STATE_SHARDS)
    states = [key(name, shard) for key in (keys.state, keys.staged) for shard in shards]
    states += [f"{each}:tombstones" for each in states]
    of_loads = [keys.load(name, *part) for part in ((), *((each,) for each in keys.OF_LOADS))]
    return [*streams, *states, *of_loads]


# --- the copy ------------------------------------------------------------------------------------


class KnownSets:
    """The copy of the records of all sets, and their version."""

    def __init__(self) -> None:
        self.records: dict[str, SetRecord] = {}
        self.former: dict[str, str] = {}  # when the first set of a removed one's name began
        self.version: Version | None = None  # None before the first read
        self.number = -1  # of the version
        self.revision = 0  # rises with every record that is known anew, and only here
        self._ahead: dict[int, tuple[Version, str]] = {}  # changes whose version is not the next
        self.removed: Recent[SetRecord] = Recent()
        self.lost = asyncio.Event()  # set when Redis has lost sets that it had

    @property
    def changed(self) -> Position:
        """When a set was changed last."""
        return Position(0) if self.version is None else self.version.changed

    def is_former(self, name: str, position: Position) -> bool:
        """Whether a position may be one of another set that had this name before."""
        former = self.former.get(name)
        record = self.records.get(name)
        if former is None or record is None:
            return False
        return Position.parse(former) <= position < Position.parse(record.created)

    def note_former(self, former: Mapping[str, str]) -> None:
        """Redis knows of these; what this process knows besides, Redis may have lost."""
        for name, created in former.items():
            self.former[name] = min(created, self.former.get(name, created))

    def replace(self, records: dict[str, SetRecord], version: Version) -> list[str]:
        """Take over what Redis has now; return the names of the sets that have become private."""
        before, known = self.records, self.version
        self.records, self.version, self.number = records, version, version.number
        self._ahead.clear()
        if known is not None and version.is_behind(known):
            self._report_loss(before)
        elif records is not before:
            self._note_removed(before)
        if records is before:
            return []
        self.revision += 1
        return [name for name, record in records.items() if _turns(before.get(name), record)]

    def has_seen(self, name: str, record: SetRecord | None, version: Version) -> bool:
        """Whether a check has read this change already: nothing is left to do."""
        known = self.version
        if known is None or version.data != known.data or version.number > known.number:
            return False
        return self.records.get(name) == record

    def can_apply(self, name: str, record: SetRecord | None, version: Version) -> bool:
        """Whether this change of one set is news. If not, a check has seen it, and perhaps newer
        changes too; or Redis went back; or a newer change of this set is known already."""
        before, known = self.records.get(name), self.version
        is_another = before and record and before.created != record.created
        is_old = any(name == other for _, other in self._ahead.values())
        is_later = known is not None and version.number > known.number
        return is_later and not is_another and not is_old

    def apply(self, name: str, record: SetRecord | None, version: Version) -> list[str]:
        """Take over a change of one set; returns its name if it has become private."""
        self._ahead[version.number] = version, name
        self._move_on()
        self.revision += 1
        before = self.records.get(name)
        if record is None:
            self._note_removed({name: removed} if (removed := self.records.pop(name, None)) else {})
            return []
        self.records[name] = record
        return [name] if _turns(before, record) else []

    def _move_on(self) -> None:
        """Changes that are made at the same moment come in any order. While one is missing, the
        version stays behind, and the next check reads all sets."""
        while self.version is not None and self.version.number + 1 in self._ahead:
            version, _ = self._ahead.pop(self.version.number + 1)
            if not version.follows(self.version):
                return
            self.version, self.number = version, version.number

    def _note_removed(self, before: Mapping[str, SetRecord]) -> None:
        for name, record in before.items():
            if name not in self.records:
                self.removed.note(name, record, monotonic())
                self.former.setdefault(name, record.created)

    def _report_loss(self, before: Mapping[str, SetRecord]) -> None:
        left = {(record.name, record.created) for record in self.records.values()}
        gone = [name for name, record in before.items() if (name, record.created) not in left]
        self.note_former({name: before[name].created for name in gone})
        log.error(
            "Redis has lost data: it was emptied, or started from an older copy; "
            "sets that are lost with their changes: %s",
            ", ".join(gone) or "none",
        )
        self.lost.set()


def _turns(before: SetRecord | None, record: SetRecord) -> bool:
    return before is not None and record.private > before.private
