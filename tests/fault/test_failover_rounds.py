"""Primaries that are killed under load, one after the other, under three Sentinels.

With a replica's confirmation nothing that was acknowledged is lost, and there is no gap. Without,
each loss is said to everybody who had begun before it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from tests.support.amount import amount
from tests.support.lossy_failover import (
    Book,
    Follower,
    Outcome,
    followed,
    let_replicate,
    running,
    settled,
    stop_replication,
)
from tests.support.redis_replicas import Replicated
from tests.support.redis_sentinels import Watched, primary_of, watched
from tests.support.redis_server import RedisServer
from tests.support.running import RunningHub, until
from tests.support.stories import lost

ROUNDS = amount(2, evidence=10)
PUBLISHERS, MORE = 4, 200


class Rounds:
    """Two hubs, two readers of each, and publishers that never stop."""

    def __init__(self, redis: Watched, hubs: Sequence[RunningHub], *, is_cut_off: bool) -> None:
        self._redis, self._hubs, self._is_cut_off = redis, hubs, is_cut_off
        self._servers = [redis.redis.primary, *redis.redis.replicas]
        self._primary = redis.redis.primary
        self._book = Book()
        self.followers = [Follower(hub, f"reader{n}") for n, hub in enumerate((*hubs, *hubs))]

    async def run(self, rounds: int) -> list[Outcome]:
        async with followed(self.followers):
            await until(self._have_begun)
            return [await self._round(number) for number in range(rounds)]

    async def _have_begun(self) -> bool:
        return all(each.story.began for each in self.followers)

    async def _round(self, number: int) -> Outcome:
        others = [each for each in self._servers if each is not self._primary]
        async with self._publishing(number):
            await self._more()
            if self._is_cut_off:
                now = Replicated(self._primary, others)
                await stop_replication(self._redis._replace(redis=now))
                await self._more()
            began = monotonic()
            await self._primary.kill()
            await self._more()
        back = self._book.longest_pause(began)
        journal, gaps = await settled(
            self._hubs, self._book, self.followers, may_lose=self._is_cut_off
        )
        await self._bring_back(others)
        times = [told.when for each in self.followers for told in each.story.told]
        told = [each - began for each in times if each > began]
        missing = len(lost(journal, self._book.answers))
        return Outcome(self._book.size, missing, gaps, len(self.followers), told, back)

    @asynccontextmanager
    async def _publishing(self, number: int) -> AsyncIterator[None]:
        async def publish(name: str) -> None:
            n = 0
            while not is_over.is_set():
                n += 1
                await self._book.publish(self._hubs[n % 2], [f"{name}-{n}"])

        is_over = asyncio.Event()
        async with asyncio.TaskGroup() as publishers:
            for each in range(PUBLISHERS):
                publishers.create_task(publish(f"{number}-{each}"))
            yield
            is_over.set()

    async def _more(self) -> None:
        """Until some more have been acknowledged."""
        enough = self._book.size + MORE

        async def are_there() -> bool:
            return self._book.size >= enough

        await until(are_there)

    async def _bring_back(self, others: Sequence[RedisServer]) -> None:
        """The one that was killed is a replica of its successor."""
        await let_replicate(others)
        was, self._primary = self._primary, await primary_of(others, replicas=len(others) - 1)
        await was.start()
        await primary_of(others, replicas=len(others))


@pytest.mark.evidence
@pytest.mark.timeout(600)
async def test_with_a_replicas_confirmation_nothing_is_lost_and_there_is_no_gap(tmp_path):
    async with watched(tmp_path) as redis, running(redis, tmp_path, 2, replicas="1") as hubs:
        for outcome in await Rounds(redis, hubs, is_cut_off=False).run(ROUNDS):
            print(outcome)
            assert outcome.lost == outcome.gaps == len(outcome.told) == 0


@pytest.mark.evidence
@pytest.mark.timeout(600)
async def test_without_each_loss_is_said_to_every_reader_once(tmp_path):
    async with watched(tmp_path) as redis, running(redis, tmp_path, 2, replicas="0") as hubs:
        rounds = Rounds(redis, hubs, is_cut_off=True)
        for number, outcome in enumerate(await rounds.run(ROUNDS)):
            print(outcome)
            assert outcome.lost >= MORE * (number + 1)
            assert outcome.gaps == number + 1
            assert len(outcome.told) == len(rounds.followers)
