"""Two hubs of two workers on one Redis, with publishers and readers of every kind, while processes
are killed, frozen and replaced, and Redis is full. One checker reads every history.

`SOAK_SECONDS=3600 make soak SOAK_ARGS=storm` makes it last; `SOAK_SEED` chooses another order.
"""

import asyncio
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.fault.test_workers import workers_of
from tests.faults import OwnRedis, out_of_memory
from tests.receivers import Receiver, subscribe
from tests.running import RunningHub, until
from tests.soak.peers import INTERVAL, LOC, Poller, Publisher, Reader

SECONDS = 600
SETTLE_SECONDS = 180
RSS_MIB = 250
SPARE_FILES = 300  # of a process, besides its readers


@dataclass
class Size:
    """How many of each take part."""

    seconds: float
    readers: int = 200
    callbacks: int = 50
    publishers: int = 6
    pollers: int = 3


class Troubles:
    """What is done to hubs and Redis, one thing at a time."""

    def __init__(self, hubs: Sequence[RunningHub], redis: OwnRedis, chance: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._hubs = hubs
        self._redis = redis
        self._chance = chance
        self._acts: list[Callable[[], Awaitable[None]]] = [
            self.hub_killed,
            self.worker_killed,
            self.worker_frozen,
            self.redis_killed,
            self.redis_frozen,
            self.redis_full,
            self.workers_replaced,
        ]

    async def run(self, seconds: float) -> None:
        """All of them in one order after another, until the time is over; each at least once."""
        ends = time.monotonic() + seconds
        while not self.done or time.monotonic() < ends:
            for act in self._chance.sample(self._acts, len(self._acts)):
                await act()
                self.done[act.__name__.replace("_", " ")] += 1
                await self._moment(1)

    async def _moment(self, seconds: float) -> None:
        await asyncio.sleep(self._chance.uniform(0, seconds))

    async def hub_killed(self) -> None:
        hub = self._chance.choice(self._hubs)
        await hub.kill()
        await self._moment(1)
        await hub.start()

    async def worker_killed(self) -> None:
        os.kill(self._worker(), signal.SIGKILL)

    async def worker_frozen(self) -> None:
        worker = self._worker()
        os.kill(worker, signal.SIGSTOP)
        await self._moment(4)
        os.kill(worker, signal.SIGCONT)

    def _worker(self) -> int:
        found = workers_of(self._chance.choice(self._hubs))
        return self._chance.choice(sorted(found)) if found else self._worker()

    async def redis_killed(self) -> None:
        await self._redis.kill()
        await self._moment(2)
        await self._redis.start()

    async def redis_frozen(self) -> None:
        self._redis.signal(signal.SIGSTOP)
        await self._moment(8)
        self._redis.signal(signal.SIGCONT)

    async def redis_full(self) -> None:
        async with out_of_memory(self._redis.client):
            await self._moment(3)

    async def workers_replaced(self) -> None:
        hub = self._chance.choice(self._hubs)
        before = replaced(hub)
        hub.process.send_signal(signal.SIGHUP)

        async def is_over() -> bool:
            return replaced(hub) > before

        await until(is_over, SETTLE_SECONDS)


def replaced(hub: RunningHub) -> int:
    """How often its workers were, or could not be."""
    log = hub.log.read_text()
    return log.count("all workers are replaced") + log.count("the rest stay")


async def storm(folder: Path, size: Size, seed: int) -> list[tuple[str, object]]:
    """Everything at once; the rows of the report."""
    chance = random.Random(seed)
    async with AsyncExitStack() as started:
        redis = await started.enter_async_context(OwnRedis(folder, "--appendfsync", "always"))
        hubs = [await started.enter_async_context(_hub(folder / name, redis)) for name in "ab"]
        cursor = (await hubs[0].publish("http://example.com/first"))["until"]
        callbacks = [await started.enter_async_context(Receiver()) for _ in range(size.callbacks)]
        for receiver in callbacks:
            await subscribe(hubs[0], receiver)
        readers = [
            Reader(hubs, chance, cursor, by_stream=number % 2 == 1)
            for number in range(size.readers)
        ]
        pollers = [Poller(hubs, chance, cursor) for _ in range(size.pollers)]
        publishers = [
            Publisher(hubs, chance, f"publisher{number}", keyed=number % 2 == 0)
            for number in range(size.publishers)
        ]
        troubles = Troubles(hubs, redis, chance)
        reading = [asyncio.create_task(each.run()) for each in (*readers, *pollers)]
        async with asyncio.TaskGroup() as publishing:
            for publisher in publishers:
                publishing.create_task(publisher.run())
            await troubles.run(size.seconds)
            for publisher in publishers:
                publisher.is_ending = True
        last = await _last(hubs[0])
        histories = [each.found for each in (*readers, *pollers)]
        await _settled(reading, histories, callbacks, last)
        journal = await _journal(hubs, chance, cursor, last)
        check(journal, publishers, histories, callbacks)
        rows = [*troubles.done.items(), *_footprint(hubs, size.readers)]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    return [
        *rows,
        ("changes in the journal", len(journal)),
        ("acknowledged, each there once", sum(len(each.acknowledged) for each in publishers)),
        ("requests refused or without answer", sum(each.refused for each in publishers)),
        ("connections of readers", sum(each.connections for each in readers)),
        ("deliveries to callbacks", sum(len(each.deliveries) for each in callbacks)),
        ("histories equal to the journal", len(histories) + len(callbacks)),
    ]


def _hub(data: Path, redis: OwnRedis) -> RunningHub:
    options = ("--redis", redis.url, "--workers", "2")
    return RunningHub(data, *options, drain_seconds="1", callback_private="allow")


async def _last(hub: RunningHub) -> str:
    """Publish the change after all others, as soon as that is possible."""
    loc = "http://example.com/last"
    body, headers = {"loc": loc, "change": "updated"}, {"Idempotency-Key": "last"}

    async def accepted() -> bool:
        path = "/api/sets/dataset1/changes"
        return (await hub.ask("POST", path, json=body, headers=headers))[0] == 201

    await until(accepted, SETTLE_SECONDS)
    return loc


async def _settled(
    reading: Sequence[asyncio.Task[None]],
    histories: Sequence[Sequence[str]],
    callbacks: Sequence[Receiver],
    last: str,
) -> None:
    """Wait until everybody has got the last change."""
    end = last.encode()

    async def all_have_it() -> bool:
        for task in reading:
            if task.done():
                task.result()
        told = all(last in each[-1:] for each in histories)
        return told and all(end in each.deliveries[-1].body for each in callbacks)

    await until(all_have_it, SETTLE_SECONDS)


async def _journal(
    hubs: Sequence[RunningHub], chance: random.Random, cursor: str, last: str
) -> list[str]:
    """What is in it now, read from its beginning."""
    poller = Poller(hubs, chance, cursor)
    task = asyncio.create_task(poller.run())

    async def whole() -> bool:
        return last in poller.found

    await until(whole, SETTLE_SECONDS)
    task.cancel()
    return poller.found


def check(
    journal: Sequence[str],
    publishers: Sequence[Publisher],
    histories: Sequence[Sequence[str]],
    callbacks: Sequence[Receiver],
) -> None:
    """What was acknowledged is there, nothing is twice, and everybody has got all in order."""
    assert [loc for loc, count in Counter(journal).items() if count > 1] == []
    for publisher in publishers:
        own = [loc for loc in journal if loc.startswith(publisher.prefix)]
        assert [loc for loc in publisher.acknowledged if loc not in set(own)] == []
        assert [loc for loc in own if loc in {*publisher.acknowledged}] == publisher.acknowledged
    for history in histories:
        assert history == journal, difference(history, journal)
    for callback in callbacks:
        check_callback([each.body for each in callback.deliveries], journal)


def check_callback(told: Sequence[bytes], journal: Sequence[str]) -> None:
    """Some of it may be told twice; nothing is left out, and the intervals say so."""
    once = list(dict.fromkeys(loc.decode() for each in told for loc in LOC.findall(each)))
    reached = INTERVAL.search(told[0])[1]
    gaps = []
    for each in told:
        begins, ends = INTERVAL.search(each).groups()
        gaps += [(reached, begins)] if begins > reached else []
        reached = max(reached, ends)
    assert once == journal, f"{difference(once, journal)}; {gaps=}"
    assert gaps == []


def difference(found: Sequence[str], journal: Sequence[str]) -> str:
    """The first place where they differ, what is missing, what is too much."""
    places = (
        number
        for number, (one, other) in enumerate(zip(found, journal, strict=False))
        if one != other
    )
    at = next(places, min(len(found), len(journal)))
    missing, more = set(journal) - set(found), set(found) - set(journal)
    return f"at {at}: {found[at : at + 3]}, not {journal[at : at + 3]}; {missing=}, {more=}"


def _footprint(hubs: Sequence[RunningHub], readers: int) -> list[tuple[str, object]]:
    """Memory and open files of each worker: the largest, which must be in bounds."""
    workers = [Path("/proc", str(pid)) for hub in hubs for pid in workers_of(hub)]
    resident = [each.joinpath("statm").read_text().split()[1] for each in workers]
    memory = max(map(int, resident)) * os.sysconf("SC_PAGE_SIZE") / 2**20
    files = max(len(list(each.joinpath("fd").iterdir())) for each in workers)
    assert memory < RSS_MIB, memory
    assert files < readers + SPARE_FILES, files
    return [("MiB of the largest worker", round(memory)), ("open files of it at most", files)]


def main() -> None:
    size = Size(float(os.environ.get("SOAK_SECONDS", SECONDS)))
    seed = int(os.environ.get("SOAK_SEED", random.randrange(1_000_000)))
    print(f"SOAK_SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(storm(Path(folder), size, seed))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value:>9}")
