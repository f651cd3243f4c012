"""The resources that a set has now, as harvests read them: by their shard, and by their names."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rsnotify.coordination import keys
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Position
from rsnotify.views.listing import Replaced


class KnownResources:
    """The states of all sets, in one Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def count(self, set_name: str) -> int:
        """How many resources there are."""
        pipeline = self._client.pipeline(transaction=False)
        for shard in range(keys.STATE_SHARDS):
            pipeline.hlen(keys.state(set_name, shard))
        return sum(await pipeline.execute())

    async def names(self, set_name: str, shards: Sequence[int]) -> list[list[bytes]]:
        """The escaped locs in each of these shards, sorted."""
        pipeline = self._client.pipeline(transaction=False)
        for shard in shards:
            pipeline.hkeys(keys.state(set_name, shard))
        return [sorted(locs) for locs in await pipeline.execute()]

    async def kept(self, set_name: str, locs: Iterable[bytes]) -> dict[bytes, bytes]:
        """What is kept of those of these resources that there are."""
        by_shard = defaultdict(list)
        for loc in dict.fromkeys(locs):
            by_shard[keys.shard_of(loc)].append(loc)
        pipeline = self._client.pipeline(transaction=False)
        for shard, some in by_shard.items():
            pipeline.hmget(keys.state(set_name, shard), some)
        found: dict[bytes, bytes] = {}
        for some, values in zip(by_shard.values(), await pipeline.execute(), strict=True):
            pairs = zip(some, values, strict=True)
            found |= {loc: value for loc, value in pairs if value is not None}
        return found

    async def replaced(self, set_name: str) -> Replaced:
        moment = keys.load(set_name, "moment")
        at, brought = await self._client.hmget(moment, "replaced", "brought")
        return Replaced(Position(int(at or 0)), Position(int(brought or 0)))
