"""How much of Redis each set takes, and may take, so that no Source fills it for all.

A set may take `max_bytes`, or half of `maxmemory` where Redis has one. What it takes stands in the
record of its change journal: bytes as they were counted last, and an estimate of what was stored
since. append.lua and loads.lua compare, and add to the estimate; a chore counts the sets of which
much was stored since, and those that were full. What frees room, and what the hub itself has to
store so that a set can be kept in order, is never refused.
"""

from collections.abc import Sequence

from rsnotify.coordination import keys
from rsnotify.errors import SetFull
from rsnotify.redis_client import Client, Script
from rsnotify.resourcesync.notification import KINDS, ChannelName

DEFAULT_PERCENT = 50  # of `maxmemory`, for a set without `max_bytes`
COUNTED_AFTER_BYTES = 8 * 1024 * 1024  # that a set grows, or an eighth of what it may take
SLICE = 500  # keys that are counted in one step
KEY_SECONDS = 24 * 3600  # for which an idempotency key is remembered
WALK_SECONDS = 3600  # for which a replaced Resource List stays after it was asked for last

_COUNT, _MEMORY = Script("journal/count.lua"), Script("journal/memory.lua")


class Usage:
    """What the sets take of one Redis, as far as this process has to know."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.maxmemory = 0  # of Redis, as far as it is known; in a Cluster the smallest
        self._to_count: set[str] = set()

    def max_bytes(self, chosen: int | None) -> int:
        """So much may a set take for which so much was chosen; 0: as much as there is."""
        if chosen is not None:
            return chosen
        return self.maxmemory * DEFAULT_PERCENT // 100

    def has_grown(self, set_name: str, grown: int, max_bytes: int) -> None:
        """By so many bytes since it was counted; a negative number means that it was never counted,
        or that it is full."""
        some = min(COUNTED_AFTER_BYTES, max_bytes // 8 or COUNTED_AFTER_BYTES)
        if not 0 <= grown <= some:
            self.count_soon(set_name)

    def count_soon(self, set_name: str) -> None:
        self._to_count.add(set_name)

    def take(self, most: int) -> list[str]:
        """Some sets that are to be counted."""
        taken = list(self._to_count)[:most]
        self._to_count.difference_update(taken)
        return taken

    async def count(self, set_name: str) -> int | None:
        """Count what the set takes, and let its record say so; None if there is no such set."""
        beside = await self._bytes_of(await self._strings_of(set_name))
        change = ChannelName(set_name, "change")
        names = [keys.record(change), keys.state(set_name), keys.staged(set_name)]
        channels = [ChannelName(set_name, kind) for kind in KINDS]
        names += [keys.stream(channel) for channel in channels]
        names += [keys.windows(change), keys.record(ChannelName(set_name, "framework"))]
        names += [keys.load(set_name), *(keys.load(set_name, each) for each in keys.OF_LOADS)]
        arguments = (keys.STATE_SHARDS, beside, KEY_SECONDS, WALK_SECONDS)
        counted: int | None = await _COUNT.run(self._client, names, *arguments)
        return counted

    async def require_room(self, set_name: str, max_bytes: int) -> None:
        """`SetFull` if it takes more than it may."""
        record = keys.record(ChannelName(set_name, "change"))
        sizes = await self._client.hmget(record, "counted", "grown")
        if 0 < max_bytes < sum(int(size or 0) for size in sizes):
            self.count_soon(set_name)
            raise SetFull(set_name, max_bytes)

    async def _strings_of(self, set_name: str) -> list[str]:
        """The keys of its packed windows and of its Resource Lists."""
        change = ChannelName(set_name, "change")
        pipeline = self._client.pipeline(transaction=False)
        pipeline.zrange(keys.windows(change), 0, -1)
        pipeline.hget(keys.snapshot(set_name), "name")
        pipeline.zrange(keys.archive(set_name), 0, -1)
        windows, newest, archived = await pipeline.execute()
        found = [keys.packed(change, int(window.split()[0])) for window in windows]
        names = [name.decode() for name in (*archived, newest) if name]
        for name in names:
            pipeline.hget(keys.snapshot(set_name, name), "parts")
        for name, parts in zip(names, await pipeline.execute(), strict=True):
            numbers = range(1, int(parts or 0) + 1)
            found += [keys.snapshot_part(set_name, name, number) for number in numbers]
        return found

    async def _bytes_of(self, strings: Sequence[str]) -> int:
        total = 0
        for begin in range(0, len(strings), SLICE):
            total += await _MEMORY.run(self._client, strings[begin : begin + SLICE])
        return total
