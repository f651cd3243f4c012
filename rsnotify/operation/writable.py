"""Whether Redis takes writes, found out by writing: at most once a second, whoever asks.

A small write still succeeds now and then where Redis is full and refuses nearly all changes. So one
that has hardly any memory left counts as full.

Of a Cluster that is the node with the list of the sets; `WritableParts` tells of all.
"""

import asyncio
from collections.abc import Collection, Mapping
from time import monotonic
from typing import Any

from rsnotify.errors import TryAgain
from rsnotify.journal import keys
from rsnotify.redis_client.connection import Client
from rsnotify.single_flight import SingleFlight

KNOWN_SECONDS = 1.0
KEPT_SECONDS = 60
LEFT_PERCENT = 1  # of `maxmemory`
TAGS = [str(number) for number in range(256)]  # so many that each node has one of them


class Writable:
    """Asks Redis, and remembers its answer for a moment."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asking: SingleFlight[str, str | None] = SingleFlight("write to Redis")
        self.seconds = 0.0  # that Redis took to write at last
        self._known: tuple[float, str | None] = (float("-inf"), None)

    async def why_not(self) -> str | None:
        """What keeps Redis from writing; None if nothing does."""
        until, answer = self._known
        if monotonic() < until:
            return answer
        return await self._asking.result("", self._ask)

    async def _ask(self) -> str | None:
        answer, began = None, monotonic()
        try:
            await self._client.set(keys.WRITABLE, 1, ex=KEPT_SECONDS)
            if not self._client.is_cluster:
                answer = why_full(await self._client.info("memory"))
        except TryAgain as error:
            answer = error.detail
        else:
            self.seconds = monotonic() - began
        self._known = (monotonic() + KNOWN_SECONDS, answer)
        return answer


def why_full(memory: Mapping[str, Any]) -> str | None:
    """What INFO says of the memory, in words; None if there is room."""
    limit = memory["maxmemory"]
    used = memory["used_memory"] - memory.get("mem_not_counted_for_evict", 0)
    if not limit or limit - used >= limit * LEFT_PERCENT / 100:
        return None
    return (
        f"Redis has less than {LEFT_PERCENT} % of its memory left (maxmemory is {limit:,} bytes): "
        "give it more, or remove what is not needed"
    )


class WritableParts:
    """Which sets a Cluster takes no writes for, found out by one small write to each node, and by
    the memory that it has left."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def away(self, set_names: Collection[str]) -> Mapping[str, list[str]]:
        """Why a node takes none -> these sets, as far as they are there. Of one server, nothing."""
        if not self._client.is_cluster:
            return {}
        tags = {self._client.lane(tag): tag for tag in TAGS}  # one for each node
        pipeline = self._client.pipeline(transaction=False)
        for tag in tags.values():
            pipeline.set(keys.writable(tag), 1, ex=KEPT_SECONDS)
        answers = await pipeline.execute(raise_on_error=False)
        reasons = {
            node: answer.detail
            for node, answer in zip(tags, answers, strict=True)
            if isinstance(answer, TryAgain)
        }
        reasons = await self._full() | reasons
        return self._by_reason(set_names, reasons) if reasons else {}

    async def _full(self) -> dict[str, str]:
        """Which nodes have hardly any memory left."""
        masters = await self._client.masters()
        asked = (each.info("memory") for each in masters.values())
        memories = await asyncio.gather(*asked, return_exceptions=True)
        found = zip(masters, memories, strict=True)
        reasons = {node: why_full(each) for node, each in found if isinstance(each, Mapping)}
        return {node: why for node, why in reasons.items() if why is not None}

    def _by_reason(
        self, set_names: Collection[str], reasons: Mapping[str, str]
    ) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in sorted(set_names):
            reason = reasons.get(self._client.lane(name))
            if reason is not None:
                found.setdefault(reason, []).append(name)
        return found
