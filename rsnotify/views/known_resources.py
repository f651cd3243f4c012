"""The resources that a set has now, as harvests read them: by their shard, and by their names.

What has ended is read with them, where a set keeps its tombstones.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from rsnotify.coordination import keys
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Position
from rsnotify.views.listing import Replaced

BROUGHT = b"brought:"  # in the moments of loads, as loads.lua has them
Key = Callable[[str, int], str]


def _keys(and_ended: bool) -> tuple[Key, ...]:
    return (keys.state, keys.tombstones) if and_ended else (keys.state,)


class KnownResources:
    """The states of all sets, in one Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def count(self, set_name: str, *, and_ended: bool) -> int:
        """How many resources there are, and of how many it is kept that they have ended."""
        pipeline = self._client.pipeline(transaction=False)
        for key in _keys(and_ended):
            for shard in range(keys.STATE_SHARDS):
                pipeline.hlen(key(set_name, shard))
        return sum(await pipeline.execute())

    async def names(
        self, set_name: str, shards: Sequence[int], *, and_ended: bool
    ) -> list[list[bytes]]:
        """The escaped locs in each of these shards, sorted."""
        of_each: list[set[bytes]] = [set() for _ in shards]
        pipeline = self._client.pipeline(transaction=False)
        for key in _keys(and_ended):
            for shard in shards:
                pipeline.hkeys(key(set_name, shard))
        for number, locs in enumerate(await pipeline.execute()):
            of_each[number % len(shards)].update(locs)
        return [sorted(locs) for locs in of_each]

    async def kept(
        self, set_name: str, locs: Iterable[bytes], *, and_ended: bool
    ) -> dict[bytes, bytes]:
        """What is kept of those of these resources that there are; of those that have ended, where
        they did."""
        by_shard = defaultdict(list)
        for loc in dict.fromkeys(locs):
            by_shard[keys.shard_of(loc)].append(loc)
        pipeline = self._client.pipeline(transaction=False)
        for key in _keys(and_ended):
            for shard, some in by_shard.items():
                pipeline.hmget(key(set_name, shard), some)
        asked = [*by_shard.values()] * len(_keys(and_ended))
        found: dict[bytes, bytes] = {}
        for some, values in zip(asked, await pipeline.execute(), strict=True):
            pairs = zip(some, values, strict=True)
            found |= {loc: value for loc, value in pairs if value is not None}
        return found

    async def replaced(self, set_name: str) -> Replaced:
        moments = await self._client.hgetall(keys.load(set_name, "moment"))
        moved = {
            Position(int(name.removeprefix(BROUGHT))): Position(int(at))
            for name, at in moments.items()
            if name.startswith(BROUGHT)
        }
        return Replaced(Position(int(moments.get(b"replaced", 0))), moved)
