"""A journal that has lost its newest changes: what it still has, and the repair in one atom.

What the repair is, `rsnotify.journal.healing` decides.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from time import monotonic
from typing import Any, NamedTuple

from rsnotify.errors import NoSuchSet
from rsnotify.journal import keys
from rsnotify.journal.appends import (
    KEY_SECONDS,
    change_arguments,
    channel_arguments,
    channel_keys,
    parse_known,
    remembered_key,
    rows_of,
)
from rsnotify.journal.clock_watch import redis_now
from rsnotify.journal.healing import Repair, Repaired, StoredKeys, UsedKey
from rsnotify.journal.sets import new_data_id
from rsnotify.journal.submission import Fragment
from rsnotify.redis_client import Client, Script
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Row

_REPAIR = Script("journal/journal.lua", "journal/repair.lua")
_GAP = Script("journal/journal.lua", "journal/gap.lua")
_PASS = Script("journal/pass.lua")

PAGE = 1000
HOLD_SECONDS = 5  # a repair takes far less, and nobody publishes meanwhile
LOOK_SECONDS = 0.05
REMEMBERED_SECONDS = 24 * 3600  # far longer than a process remembers changes


class Lineage(NamedTuple):
    """Which server has a journal differs after it has been started again, or another has taken
    over; `data` after Redis has been emptied."""

    servers: Any  # of a `Client`
    data: bytes

    def server_of(self, channel: ChannelName) -> str:
        return str(self.servers.of_key(keys.record(channel)))


class Remains(NamedTuple):
    """What a journal has left."""

    rows: Sequence[Row]
    last: Position
    begin: Position  # of the stream, or behind its newest gap: nothing is missing before it
    repaired: Repaired
    is_held: bool


class Repairs:
    """Looks at journals after a loss, and repairs them."""

    def __init__(self, client: Client, window: tuple[int, int, int]) -> None:
        self._client = client
        self._window = window

    async def lineage(self) -> Lineage:
        """Which Redis this is, and which data."""
        servers = await self._client.servers()
        data = await self._client.get(keys.DATA_ID)
        return Lineage(servers, data or await new_data_id(self._client))

    async def note_servers(self, servers: Collection[str], channels: Sequence[ChannelName]) -> bool:
        """If another Redis has these data now, or it was started again, they may be older than
        what readers know: nothing gets a position before this moment any more."""
        name = blake2b(" ".join(sorted(set(servers))).encode(), digest_size=12).hexdigest()
        if await self._client.get(keys.SERVERS) == name.encode():
            return False
        now = int(await redis_now(self._client))
        for start in range(0, len(channels), PAGE):
            async with self._client.pipeline(transaction=False) as pipeline:
                for each in channels[start : start + PAGE]:
                    _PASS.run(pipeline, [keys.record(each)], now, "floor")
                await pipeline.execute()
        await self._client.set(keys.SERVERS, name)
        return True

    @asynccontextmanager
    async def held(self, channel: ChannelName) -> AsyncIterator[str]:
        """Nobody appends to the journal meanwhile, and nobody else repairs it."""
        key, me = keys.hold(channel), secrets.token_hex(8)
        await self._take(key, me)
        try:
            yield me
        finally:
            await self._client.if_equals(key, me, "DEL")

    async def released(self, channel: ChannelName) -> None:
        """Wait until nobody holds the journal."""
        async with self.held(channel):
            pass

    async def _take(self, key: str, me: str) -> None:
        """Take the hold, also of a process that has died with it: by our own clock, not Redis's."""
        holder, until = None, monotonic() + HOLD_SECONDS
        while not await self._client.set(key, me, nx=True, ex=HOLD_SECONDS):
            found = await self._client.get(key)
            if found != holder:
                holder, until = found, monotonic() + HOLD_SECONDS
            elif found is not None and monotonic() > until:
                await self._client.if_equals(key, found, "DEL")
            await asyncio.sleep(LOOK_SECONDS)

    async def remains(self, channel: ChannelName, created: Position, after: Position) -> Remains:
        """What the journal of the set created then holds after this position; `last` is read before
        the rows."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.exists(keys.hold(channel))
        pipeline.hmget(keys.record(channel), "created", "last", "first", "gaps")
        self._page(pipeline, channel, after)
        pipeline.hgetall(keys.repaired(channel))
        is_held, (made, last, first, gaps), page, marks = await pipeline.execute()
        if made is None or int(made) != created:
            raise NoSuchSet(channel.set_name)
        rows = rows_of(page)
        while len(page) == PAGE:
            page = await self._page(self._client, channel, rows[-1][0])
            rows += rows_of(page)
        begin = Position(max(map(int, [first, *(gaps or b"").split()])))
        return Remains(rows, Position(int(last)), begin, _repaired(marks), bool(is_held))

    async def stored_keys(
        self, channel: ChannelName, created: Position, wanted: Iterable[UsedKey]
    ) -> StoredKeys:
        """What the journal of the set created then remembers of these keys."""
        digests = list({key.digest for key in wanted})
        pipeline = self._client.pipeline(transaction=False)
        for digest in digests:
            pipeline.get(remembered_key(channel, created, digest))
        found = zip(digests, await pipeline.execute() if digests else (), strict=True)
        return {digest: parse_known(known)[1:] for digest, known in found if known is not None}

    async def is_moved(self, channel: ChannelName, position: Position) -> bool:
        """Whether the change that was there stands elsewhere now."""
        mark = await self._client.hget(keys.repaired(channel), str(int(position)))
        return bool(mark == b"a")

    def _page(self, client: Client, channel: ChannelName, after: Position) -> Any:
        return client.xrange(keys.stream(channel), f"({after.stream_id}", "+", PAGE)

    async def leave_gap(self, channel: ChannelName, lost: Position, holder: str) -> bool:
        """What was there up to `lost` is not known to anybody; False if it is not held.

        The version of the sets moves before anything can be appended: so no process reads on behind
        the gap before it has compared its journals.
        """
        common = channel_arguments(channel, self._window, lost)
        done = await _GAP.run(self._client, channel_keys(channel), *common, holder, int(lost))
        if done:
            await self._client.incr(keys.SETS_VERSION)
        return bool(done)

    async def repair(
        self, channel: ChannelName, repair: Repair, *, last: Position, seen: Position, holder: str
    ) -> bool:
        """Do it; False if the journal has changed since its `last` was read, or is not held.

        If something is removed, the version of the sets moves: so every process looks at its
        journals, and drops what it has made of those rows.
        """
        common = channel_arguments(channel, self._window, seen)
        arguments = [int(last), REMEMBERED_SECONDS, *_counts(repair, holder)]
        arguments += _arguments(repair, channel.kind == "change")
        names = (*channel_keys(channel), keys.repaired(channel), keys.packed(channel))
        done = await _REPAIR.run(self._client, names, *common, *arguments)
        if done is None:
            raise NoSuchSet(channel.set_name)
        if done and repair.removed:
            await self._client.incr(keys.SETS_VERSION)
        return bool(done)


def _counts(repair: Repair, holder: str) -> list[object]:
    return [len(repair.put_back), len(repair.again), holder, len(repair.keys), KEY_SECONDS]


def _arguments(repair: Repair, of_changes: bool) -> list[object]:
    rows, removed = [*repair.put_back, *repair.again], set(repair.removed)
    found: list[object] = []
    for row in rows:
        found += change_arguments(Fragment.of_row(*row), of_changes)
    found += [repair.notes.get(row, b"") for row in rows]
    found += [int(row in removed) for row in repair.again]
    for key in repair.keys:
        found += [key.digest, f"{key.fingerprint} {int(key.from_)} {int(key.until)}"]
    found += map(int, repair.elsewhere)
    return found


def _repaired(marks: dict[bytes, bytes]) -> Repaired:
    put_back = {Position(int(at)) for at, mark in marks.items() if mark == b"b"}
    return Repaired(
        put_back, {Position(int(at)) for at in marks if Position(int(at)) not in put_back}
    )
