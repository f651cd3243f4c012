"""Fifty publishers at once, repeating themselves, while the hub and its Redis are killed.

What was acknowledged is there exactly once, in a strict order, and a Destination that was there
from the start has exactly the journal.
"""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, count, pairwise

import pytest

from rsnotify.errors import TryAgain
from rsnotify.resourcesync.change import Change, Position
from rsnotify_client.asyncpublisher import AsyncPublisher
from rsnotify_client.follower import Follower
from rsnotify_client.notification import Received
from tests.support.amount import amount
from tests.support.running import PATIENT_SECONDS, TOKEN, RunningHub, until

PUBLISHERS = 50
REQUESTS = 6
KILLS = amount(4, evidence=10)  # every other one of Redis too


class Destination:
    """Follows the change channel from before the first change, through every restart."""

    def __init__(self, hub: RunningHub, cursor: Position) -> None:
        self.received: list[Received] = []
        self._follower = Follower(hub.channel(), cursor=cursor)
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for received in self._follower:
            self.received.append(received)

    async def has_reached(self, position: Position) -> None:
        async with asyncio.timeout(PATIENT_SECONDS):
            while not self.received or self.received[-1].until < position:
                await asyncio.sleep(0.01)
        self._task.cancel()

    @property
    def changes(self) -> list[Change]:
        return [change for received in self.received for change in received.changes]


async def publish_repeatedly(hub: RunningHub, who: int, chance: random.Random) -> list[str]:
    """Some requests twice at once, some again later: each under one key."""
    acknowledged = []
    async with AsyncPublisher(hub.url, TOKEN) as publisher:
        for number in range(REQUESTS):
            locs = [f"http://example.com/{who}/{number}/{n}" for n in range(chance.randint(1, 5))]
            changes = [Change(loc, "created") for loc in locs]
            times = chance.choice((1, 1, 2, 3))
            answers = await asyncio.gather(
                *(
                    publisher.publish("dataset1", changes, key=f"{who}-{number}")
                    for _ in range(times)
                )
            )
            assert len(set(answers)) == 1
            acknowledged += locs
    return acknowledged


async def journal_of(hub: RunningHub, after: str, until: Position) -> list[Change]:
    destination = Destination(hub, Position.parse(after))
    await destination.has_reached(until)
    return destination.changes


def intervals(received: list[Received]) -> Iterator[tuple[Position, Position]]:
    return ((one.until, other.from_) for one, other in pairwise(received))


async def created(hub: RunningHub) -> str:
    _, sets = await hub.ask("GET", "/api/sets")
    return sets[0]["created"]


def check_order(changes: list[Change]) -> None:
    datetimes = [change.datetime or "" for change in changes]
    assert all(one < other for one, other in pairwise(datetimes))


@pytest.mark.evidence
async def test_fifty_publishers_that_repeat_themselves_are_each_heard_once(hub):
    chance = random.Random(20261120)
    began = await created(hub)
    destination = Destination(hub, Position.parse(began))
    acknowledged = await asyncio.gather(
        *(publish_repeatedly(hub, who, chance) for who in range(PUBLISHERS))
    )
    last = Position.parse((await hub.publish("http://example.com/last"))["until"])
    await destination.has_reached(last)
    changes = destination.changes
    assert sorted(change.loc for change in changes[:-1]) == sorted(
        chain.from_iterable(acknowledged)
    )
    check_order(changes)
    assert all(until == from_ for until, from_ in intervals(destination.received))
    assert changes == await journal_of(hub, began, last)


async def test_kills_lose_nothing_that_was_acknowledged(tmp_path):
    chance = random.Random(9)
    async with RunningHub(tmp_path / "data") as hub:
        began = await created(hub)
        destination = Destination(hub, Position.parse(began))
        stop, acknowledged = asyncio.Event(), list[str]()
        publishers = [publish_until(hub, who, stop, acknowledged) for who in range(8)]
        async with asyncio.TaskGroup() as publishing:
            for publisher in publishers:
                publishing.create_task(publisher)
            for kill in range(KILLS):
                await grows(acknowledged)
                await asyncio.sleep(chance.uniform(0, 0.4))  # the random moment itself
                await kill_both(hub, redis_too=kill % 2 == 0)
                await hub.start()
            stop.set()
        last = Position.parse((await hub.publish("http://example.com/last"))["until"])
        await destination.has_reached(last)
        journal = await journal_of(hub, began, last)
    assert sorted(change.loc for change in journal[:-1]) == sorted(acknowledged)
    check_order(journal)
    assert destination.changes == journal
    assert all(until == from_ for until, from_ in intervals(destination.received))


async def publish_until(
    hub: RunningHub, who: int, stop: asyncio.Event, acknowledged: list[str]
) -> None:
    """Every request is repeated until acknowledged, so in the end all of them are."""
    async with AsyncPublisher(hub.url, TOKEN) as publisher:
        for number in count():
            if stop.is_set():
                return
            loc = f"http://example.com/{who}/{number}"
            while not await is_published(publisher, loc):
                pass
            acknowledged.append(loc)


async def is_published(publisher: AsyncPublisher, loc: str) -> bool:
    """Its own patience may end between the kills."""
    with suppress(TryAgain):
        await publisher.publish("dataset1", [Change(loc, "created")], key=loc)
        return True
    return False


async def grows(acknowledged: list[str]) -> None:
    before = len(acknowledged)

    async def has_grown() -> bool:
        return len(acknowledged) > before

    await until(has_grown)


async def kill_both(hub: RunningHub, *, redis_too: bool) -> None:
    """kill -9 of the hub, and every other time of its Redis at the same moment."""
    if redis_too:
        os.kill(int((hub.data / "redis.lock").read_text()), signal.SIGKILL)
    await hub.kill()
