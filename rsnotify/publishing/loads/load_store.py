"""Loads of the whole state of a set: staged beside the state, compared, and put in its place.

One hub process at a time loads a set; it keeps up its claim while it works. Nothing of a load is
visible before it is decided, and what is decided is done to its end by whichever process lives.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

import msgspec

from rsnotify.coordination import keys
from rsnotify.coordination.claims import Claim, Claims
from rsnotify.errors import NoSuchSet, SetFull, TryAgain
from rsnotify.journal.usage import KEY_SECONDS, Usage
from rsnotify.publishing.loads.load import Difference, LoadCounts, is_same
from rsnotify.publishing.loads.moment import LoadStanding
from rsnotify.redis_client import Client, Script, connect
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName

GATHERED_RESOURCES = 8_000  # some thirty in each shard
GATHERED_BYTES = 4 * 1024 * 1024
PART_RESOURCES = 1_000  # Redis is busy with them for some milliseconds
PART_BYTES = 512 * 1024

Brought = tuple[bytes, bytes]  # the escaped loc of a resource, and the rest of its fragment

_shard_in = itemgetter(0)

CLAIM_SECONDS = 20  # after which a load of a process that is gone is taken over
SETTLED_AT_ONCE = 1_000  # resources that one step of the script settles


class Part(NamedTuple):
    """Resources that are staged in one step."""

    brought: Sequence[Brought]
    packed: bytes


class Gathered:
    """Resources that are staged together, as soon as there are enough of them."""

    def __init__(
        self,
        *,
        most_resources: int = GATHERED_RESOURCES,
        most_bytes: int = GATHERED_BYTES,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._most_resources, self._most_bytes = most_resources, most_bytes
        self._part_bytes = part_bytes
        self._held: list[tuple[int, Brought]] = []
        self._bytes = 0

    def add(self, brought: Iterable[Brought]) -> None:
        added = [(keys.shard_of(each[0]), each) for each in brought]
        self._held += added
        self._bytes += sum([len(loc) + len(rest) for _, (loc, rest) in added])

    @property
    def is_full(self) -> bool:
        return len(self._held) >= self._most_resources or self._bytes >= self._most_bytes

    def parts(self) -> Iterator[Part]:
        """All parts, shard by shard."""
        self._held.sort(key=_shard_in)
        start = size = 0
        for number, (_, (loc, rest)) in enumerate(self._held):
            size += len(loc) + len(rest)
            if number + 1 - start == PART_RESOURCES or size >= self._part_bytes:
                yield _part(self._held[start : number + 1])
                start, size = number + 1, 0
        if start < len(self._held):
            yield _part(self._held[start:])


def _part(sorted_: Sequence[tuple[int, Brought]]) -> Part:
    return Part([brought for _, brought in sorted_], _packed(sorted_))


def _packed(sorted_: Iterable[tuple[int, Brought]]) -> bytes:
    """As the scripts read them: Redis knows texts in MessagePack, but no bytes."""
    packed: list[int | list[str]] = []
    for shard, group in groupby(sorted_, _shard_in):
        texts = [text.decode() for _, brought in group for text in brought]
        packed += (shard, texts)
    return msgspec.msgpack.encode(packed)


def pack(brought: Iterable[Brought]) -> bytes:
    """So many that they are one part."""
    return _packed(sorted([(keys.shard_of(each[0]), each) for each in brought], key=_shard_in))


_LOADS = Script("publishing/loads/loads.lua")

UNCOUNTED = {"differ", "since", "finish", "discard"}  # see loads.lua


class Load(NamedTuple):
    """A load that is under way."""

    set_name: str
    token: str
    at: Position  # everything after it is newer than what is loaded
    stage: str = "staging"  # or publishing, listing
    found: LoadCounts = LoadCounts()
    key: str = ""
    fingerprint: str = ""
    as_of: Position | None = None  # the moment of what is loaded, if its Source has named it
    max_bytes: int = 0  # that the set may take of Redis; 0: any number

    @property
    def is_decided(self) -> bool:
        return self.stage != "staging"


class Comparison(NamedTuple):
    """What a load comes to in some shards, and some of the differences."""

    next_shard: int
    found: LoadCounts
    named: list[Difference]


class Loads:
    """The loads of every set, in one Redis."""

    def __init__(self, client: Client, usage: Usage | None = None) -> None:
        self._client = client
        self._usage = usage or Usage(client)
        self._claims = Claims(client)
        self._answered: dict[str, int] = {}  # acts of each load, by its token

    # --- who does it ---------------------------------------------------------------------------

    async def claim(self, set_name: str) -> Claim | None:
        """The right to load this set; None while another has it."""
        return await self._claims.take(keys.claim(set_name, "load"), CLAIM_SECONDS)

    async def keep_up(self, claim: Claim) -> None:
        pipeline = self._client.pipeline(transaction=False)
        claim.keep_up(pipeline)
        (answer,) = await pipeline.execute()
        claim.check(answer)

    async def under_way(self) -> list[str]:
        """The sets that may have a load under way."""
        return [name.decode() for name in await self._client.hkeys(keys.LOADS)]

    async def current(self, set_name: str) -> Load | None:
        fields = await self._client.hgetall(keys.load(set_name))
        if not fields:
            return None
        texts = {name.decode(): value.decode() for name, value in fields.items()}
        for of_script in ("bytes", "buried"):
            texts.pop(of_script, None)
        self._answered.setdefault(texts["token"], int(texts.pop("acts", "0")))
        found = msgspec.json.decode(texts.pop("found", "{}"), type=LoadCounts)
        at, as_of = Position(int(texts.pop("at"))), texts.pop("as_of", "")
        moment = Position(int(as_of)) if as_of else None
        return Load(set_name=set_name, at=at, as_of=moment, found=found, **texts)

    # --- what it brings ------------------------------------------------------------------------

    async def begin(self, set_name: str, token: str, key: str = "") -> Load | None:
        """Begin a load; None while one that is decided is not finished."""
        await self._client.hset(keys.LOADS, set_name, token)
        at = await self._run(set_name, "begin", token, key)
        if at is None:
            await self._client.hdel(keys.LOADS, set_name)
            raise NoSuchSet(set_name)
        return Load(set_name, token, Position(at), key=key) if isinstance(at, int) else None

    async def stage(self, load: Load, part: Part) -> None:
        """Stage these resources; `SetFull` if there is no room for them."""
        answer = await self._act(load, "stage", load.max_bytes, part.packed)
        grown, *different = answer or self._refuse(load)
        self._usage.has_grown(load.set_name, grown, load.max_bytes)
        if different:
            same = await asyncio.to_thread(_same, part.brought, different)
            if same:
                await self._act(load, "keep", pack(same))

    # --- what it comes to ----------------------------------------------------------------------

    async def differences(self, load: Load, shard: int, most: int) -> Comparison:
        """What the load comes to from this shard on, as far as is looked at in one go."""
        next_, *counts, named = await self._act(load, "differ", shard, most)
        triples = zip(named[::3], named[1::3], named[2::3], strict=True)
        rows = [Difference(how.decode(), loc, rest) for how, loc, rest in triples]
        return Comparison(next_, LoadCounts(*counts), rows)

    async def note_newer(self, load: Load, locs: Iterable[bytes]) -> None:
        """What was published after the moment of the load stays as it is."""
        await self._note(load, "newer", locs)

    async def note_taken_back(self, load: Load, locs: Iterable[bytes]) -> list[tuple[str, bytes]]:
        """What the load would do with what was published before it began; of each but once."""
        found = await self._note(load, "older", locs)
        return [(how.decode(), loc) for how, loc in zip(found[::2], found[1::2], strict=True)]

    async def _note(self, load: Load, which: str, locs: Iterable[bytes]) -> list[bytes]:
        by_shard = groupby(sorted([(keys.shard_of(loc), loc) for loc in locs]), _shard_in)
        packed: list[int | list[str]] = []
        for shard, group in by_shard:
            packed += (shard, [loc.decode() for _, loc in group])
        found: list[bytes] = await self._act(load, "note", which, msgspec.msgpack.encode(packed))
        return found

    async def published_before(self, load: Load) -> AsyncIterator[set[bytes]]:
        """What was published while the load before this one was under way."""
        cursor = b"0"
        while True:
            cursor, found = await self._act(load, "since", cursor)
            yield {member.partition(b" ")[2] for member in found}
            if cursor == b"0":
                return

    async def standing(self, set_name: str) -> LoadStanding:
        """Where the journal and the loads before stand."""
        found = await self._run(set_name, "standing", "")
        if found is None:
            raise NoSuchSet(set_name)
        created, head, gaps, until, replaced = found
        ends = [Position(int(end)) for end in (gaps or b"").split()]
        begun = Position(int(created))
        return LoadStanding(
            begun, Position(int(head)), ends, Position(int(until or begun)),
            Position(int(replaced or 0)),
        )  # fmt: skip

    async def decide(self, load: Load) -> None:
        """Decide the load: its differences will be published, even if this process dies. `SetFull`
        if there is no room for them."""
        if not await self._act(load, "decide", *_decided(load), is_confirmed=True):
            self._refuse(load)

    def _refuse(self, load: Load) -> NoReturn:
        self._usage.count_soon(load.set_name)
        raise SetFull(load.set_name, load.max_bytes)

    async def replace(self, load: Load) -> None:
        """Replace the state by what was staged."""
        if load.found.unchanged:
            for shard in range(keys.STATE_SHARDS):
                await self._act(load, "complete", shard)
        is_replaced = False
        while not is_replaced:
            decided = _decided(load)
            is_replaced = await self._act(
                load, "replace", SETTLED_AT_ONCE, *decided, is_confirmed=True
            )
            if isinstance(is_replaced, bytes):
                is_replaced = await self.bury(load, since=is_replaced)
            elif not is_replaced:
                await self._act(load, "settle", SETTLED_AT_ONCE)

    async def bury(self, load: Load, since: bytes) -> bool:
        """Give what the load deletes its tombstones, as they will stand beside the state."""
        for shard in range(keys.STATE_SHARDS if since else 0):
            await self._act(load, "bury", shard)
        await self._act(load, "buried", since)
        return False

    # --- how it ends ---------------------------------------------------------------------------

    async def finish(self, load: Load, outcome: bytes) -> None:
        """The load is finished: keep its outcome, and nothing else."""
        remembered = (await self._outcome_of(load.set_name, load.key), KEY_SECONDS)
        remember = remembered if load.key else ()
        await self._act(load, "finish", outcome, *remember, is_confirmed=True)
        await self._forget(load)

    async def discard(self, load: Load) -> None:
        """Leave nothing of a load that was not decided."""
        if await self._run(load.set_name, "discard", load.token, 0):
            await self._forget(load)

    async def _forget(self, load: Load) -> None:
        self._answered.pop(load.token, None)
        self._usage.count_soon(load.set_name)
        await self.forget(load.set_name)

    async def forget(self, set_name: str) -> None:
        """There is no load of this set."""
        await self._client.hdel(keys.LOADS, set_name)

    async def outcome(self, set_name: str, key: str) -> tuple[str, dict[str, Any]] | None:
        """The fingerprint of what was sent with this key, and what became of it."""
        kept = await self._client.get(await self._outcome_of(set_name, key))
        if kept is None:
            return None
        fingerprint, _, outcome = kept.partition(b" ")
        return fingerprint.decode(), _read_outcome(outcome)

    async def _outcome_of(self, set_name: str, key: str) -> str:
        """The key under which that is kept, for this set and no later one of the same name."""
        created = await self._client.hget(keys.record(ChannelName(set_name, "change")), "created")
        return keys.load(set_name, "key", (created or b"").decode(), key)

    async def last_outcome(self, set_name: str) -> dict[str, Any] | None:
        kept = await self._client.get(keys.load(set_name, "last"))
        return None if kept is None else _read_outcome(kept)

    # --- the state -----------------------------------------------------------------------------

    async def known(self, set_name: str, loc: bytes) -> bytes | None:
        """What is kept of the resource with this escaped loc."""
        found: bytes | None = await self._client.hget(keys.state(set_name, keys.shard_of(loc)), loc)
        return found

    async def count(self, set_name: str) -> int:
        """How many resources are known."""
        counted: int = await self._run(set_name, "count", "")
        return counted

    # --- scripts -------------------------------------------------------------------------------

    async def _act(
        self, load: Load, act: str, *arguments: object, is_confirmed: bool = False
    ) -> Any:
        answered = self._answered.get(load.token, 0)
        answer = await self._run(
            load.set_name, act, load.token, answered, *arguments, is_confirmed=is_confirmed
        )
        if answer is None:
            await self._raise_lost(load)
        if act not in UNCOUNTED:
            self._answered[load.token] = answered + 1
        return answer

    async def _run(
        self, set_name: str, act: str, *arguments: object, is_confirmed: bool = False
    ) -> Any:
        channel = ChannelName(set_name, "change")
        names = [
            keys.record(channel),
            keys.load(set_name),
            keys.load(set_name, "newer"),
            keys.staged(set_name),
            keys.state(set_name),
            keys.claim(set_name, "snapshot"),
            keys.load(set_name, "last"),
            keys.load(set_name, "moment"),
            keys.load(set_name, "since"),
            keys.load(set_name, "settled"),
            keys.load(set_name, "older"),
        ]
        if not is_confirmed:
            return await _LOADS.run(self._client, names, act, *arguments)
        (answer,) = await self._client.durably([_LOADS.command(names, act, *arguments)])
        return answer

    async def _raise_lost(self, load: Load) -> None:
        if not await self._client.exists(keys.record(ChannelName(load.set_name, "change"))):
            raise NoSuchSet(load.set_name)
        raise TryAgain("the load was lost: it took too long, or Redis lost data; send it again")


async def release_claims(url: str) -> None:
    """Release the claims of all loads: only when all earlier hub processes are known to be dead."""
    async with connect(url) as client:
        for name in await client.hkeys(keys.LOADS):
            acts = (keys.claim(name.decode(), act) for act in ("load", "snapshot"))
            await client.delete(*acts)


def _read_outcome(kept: bytes) -> dict[str, Any]:
    """What has come of a load; whether it published was kept as `told` once."""
    outcome: dict[str, Any] = msgspec.json.decode(kept)
    return {"published" if name == "told" else name: each for name, each in outcome.items()}


def _same(brought: Sequence[Brought], different: Sequence[Any]) -> list[Brought]:
    """What is the same although its bytes are not."""
    found = []
    for index, kept in zip(different[::2], different[1::2], strict=True):
        loc, rest = brought[index]
        if is_same(loc, kept, rest):
            found.append((loc, b""))
    return found


def _decided(load: Load) -> tuple[str, bytes, str, str, int]:
    as_of = "" if load.as_of is None else str(int(load.as_of))
    most = load.max_bytes if load.stage == "publishing" else 0
    return load.stage, msgspec.json.encode(load.found), load.fingerprint, as_of, most
