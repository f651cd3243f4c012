"""Three hubs on one Redis, with publishers and readers of every kind, while processes are killed,
frozen and replaced, and Redis is full or loses its newest changes. One checker reads every history.

Two of the hubs have two workers, which are killed and frozen. The third is one process that nobody
touches: what it takes of memory and of open files must stay the same.

`SOAK_SECONDS=3600 make soak SOAK_ARGS=storm` makes it last; `SOAK_SEED` chooses another order.
"""

import asyncio
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.fault.test_workers import workers_of
from tests.soak.footprint import Watch
from tests.soak.histories import check, tracebacks
from tests.soak.lists import Archivist
from tests.soak.peers import Poller, Publisher, Reader, Row
from tests.soak.troubles import SETTLE_SECONDS, Stage, Troubles, TroublesOfRedis
from tests.support.disks import Disk
from tests.support.faults import OwnRedis
from tests.support.receivers import Receiver, subscribe
from tests.support.running import RunningHub, until

SECONDS = 600
RSS_MIB = 250
SPARE_FILES = 300  # of a process, besides its readers
LAST = "http://example.com/last"

Report = list[tuple[str, object]]


@dataclass
class Size:
    """How many of each take part."""

    seconds: float
    readers: int = 200
    callbacks: int = 50
    publishers: int = 6
    pollers: int = 3
    changes: int = 50  # of a Change List, so that many close
    pace: float = 1.0  # how much shorter its moments are


class Storm:
    """Everything at once."""

    names = "abc"  # of the hubs
    settings: Mapping[str, str] = {}
    is_long = True  # enough to say whether memory and files grow

    def __init__(self, folder: Path, size: Size, seed: int) -> None:
        self._folder = folder
        self._size = size
        self._chance = random.Random(seed)

    async def run(self) -> Report:
        """Run it until everybody has the last change, and check what each was told."""
        async with AsyncExitStack() as stack:
            self._url = await self._start_redis(stack)
            hubs = [self._hub(name, "--workers", "2") for name in self.names[:-1]]
            self._troubled, self._untroubled = hubs, self._hub(self.names[-1])
            self._hubs = [*hubs, self._untroubled]
            for hub in self._hubs:
                await stack.enter_async_context(hub)
            self._begin = (await self._hubs[0].publish("http://example.com/first"))["until"]
            await self._make_peers(stack)
            rows = await self._run_peers()
        unforeseen = [each for hub in self._hubs for each in tracebacks(hub.log.read_text())]
        assert not unforeseen, "\n".join(unforeseen)
        return rows

    async def _start_redis(self, stack: AsyncExitStack) -> str:
        """Its address."""
        self._disk = stack.enter_context(Disk(self._folder / "own-redis"))
        redis = OwnRedis(self._folder, "--appendfsync", "always")
        self._redis = await stack.enter_async_context(redis)
        return self._redis.url

    def _troubles(self, stage: Stage) -> Troubles:
        return TroublesOfRedis(stage, self._redis, self._disk)

    def _hub(self, name: str, *options: str) -> RunningHub:
        return RunningHub(
            self._folder / name,
            "--redis",
            self._url,
            *options,
            drain_seconds="1",
            callback_private="allow",
            changelist_max=str(self._size.changes),
            **self.settings,
        )

    async def _make_peers(self, stack: AsyncExitStack) -> None:
        size, common = self._size, (self._hubs, self._chance)
        self._callbacks = [
            await stack.enter_async_context(Receiver()) for _ in range(size.callbacks)
        ]
        for receiver in self._callbacks:
            await subscribe(self._hubs[0], receiver)
        self._readers = [
            Reader(*common, self._begin, by_stream=number % 2 == 1)
            for number in range(size.readers)
        ]
        self._pollers = [Poller(*common, self._begin) for _ in range(size.pollers)]
        self._archivist = Archivist(*common)
        self._publishers = [
            Publisher(*common, f"publisher{number}", keyed=number % 2 == 0)
            for number in range(size.publishers)
        ]

    async def _run_peers(self) -> Report:
        stage = Stage(self._troubled, self._chance, self._until_whole, self._size.pace)
        troubles, watch = self._troubles(stage), Watch(self._untroubled)
        peers = (*self._readers, *self._pollers)
        besides = (*peers, self._archivist, watch)
        self._reading = [asyncio.create_task(each.run()) for each in besides]
        try:
            return await self._run_troubles(troubles, watch, peers)
        finally:
            for task in self._reading:
                task.cancel()
            await asyncio.gather(*self._reading, return_exceptions=True)

    async def _run_troubles(
        self, troubles: Troubles, watch: Watch, peers: Sequence[Reader | Poller]
    ) -> Report:
        async with asyncio.TaskGroup() as publishing:
            for publisher in self._publishers:
                publishing.create_task(publisher.run())
            await troubles.run(self._size.seconds)
            for publisher in self._publishers:
                publisher.is_ending = True
        await self._publish_last()
        await self._settle()
        journal = await self._journal({LAST})
        histories = [each.found for each in peers]
        deliveries = [[each.body for each in receiver.deliveries] for receiver in self._callbacks]
        check(journal, self._publishers, histories, deliveries, was_lossy=True)
        await self._archivist.check(journal, self._publishers)
        footprint = _footprint(self._troubled, self._size.readers)
        if self.is_long:
            footprint += watch.rows()
        return [*sorted(troubles.done.items()), *footprint, *self._sums(journal)]

    async def _until_whole(self) -> None:
        """Wait until the journal has all that was acknowledged until now."""
        await self._journal({loc for each in self._publishers for loc in each.acknowledged})

    async def _publish_last(self) -> None:
        """Publish the change after all others, as soon as that is possible."""
        body, headers = {"loc": LAST, "change": "updated"}, {"Idempotency-Key": "last"}

        async def accepted() -> bool:
            path = "/api/sets/dataset1/changes"
            return (await self._hubs[0].ask("POST", path, json=body, headers=headers))[0] == 201

        await until(accepted, SETTLE_SECONDS)

    async def _settle(self) -> None:
        """Wait until everybody has got the last change."""
        end = LAST.encode()

        async def all_have_it() -> bool:
            for task in self._reading:
                if task.done():
                    task.result()
            found = [each.found[-1:] for each in (*self._readers, *self._pollers)]
            told = all(LAST in row for rows in found for row in rows or [()])
            return told and all(end in each.deliveries[-1].body for each in self._callbacks)

        await until(all_have_it, SETTLE_SECONDS)

    async def _journal(self, wanted: set[str]) -> list[Row]:
        """What is in it now, read from its beginning until all of these were found."""
        poller = Poller(self._hubs, self._chance, self._begin)
        task = asyncio.create_task(poller.run())

        async def whole() -> bool:
            if task.done():
                task.result()
            return wanted <= {loc for _, loc in poller.found}

        try:
            await until(whole, SETTLE_SECONDS)
        except TimeoutError:
            missing = sorted(wanted - {loc for _, loc in poller.found})
            raise AssertionError(f"acknowledged, but not in the journal: {missing}") from None
        finally:
            task.cancel()
        return poller.found

    def _sums(self, journal: Sequence[Row]) -> Report:
        receivers, histories = self._callbacks, len(self._readers) + len(self._pollers)
        return [
            ("changes in the journal", len(journal)),
            ("acknowledged, all there", sum(len(each.acknowledged) for each in self._publishers)),
            (
                "requests refused or without answer",
                sum(each.refused for each in self._publishers),
            ),
            ("acknowledged, and repeated", sum(each.repeated for each in self._publishers)),
            ("connections of readers", sum(each.connections for each in self._readers)),
            ("of these, told again what was lost", sum(each.sent_back for each in self._readers)),
            ("Change Lists that were closed", len(self._archivist.kept)),
            ("of these, closed otherwise after a loss", self._archivist.closed_again),
            ("deliveries to callbacks", sum(len(each.deliveries) for each in receivers)),
            ("histories equal to the journal", histories + len(receivers)),
        ]


def _footprint(hubs: Sequence[RunningHub], readers: int) -> Report:
    """Memory and open files of each worker: the largest, which must be in bounds."""
    workers = [Path("/proc", str(pid)) for hub in hubs for pid in workers_of(hub)]
    resident = [each.joinpath("statm").read_text().split()[1] for each in workers]
    memory = max(map(int, resident)) * os.sysconf("SC_PAGE_SIZE") / 2**20
    files = max(len(list(each.joinpath("fd").iterdir())) for each in workers)
    assert memory < RSS_MIB, memory
    assert files < readers + SPARE_FILES, files
    return [("MiB of the largest worker", round(memory)), ("open files of it at most", files)]


def table(rows: Report) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value:>9}" for name, value in rows)


def prove(kind: type[Storm], size: Size) -> None:
    """Run it, as long and in the order that the environment says; print its report."""
    size.seconds = float(os.environ.get("SOAK_SECONDS", size.seconds))
    seed = int(os.environ.get("SOAK_SEED", random.randrange(1_000_000)))
    print(f"SOAK_SEED={seed}", flush=True)
    folder = Path(tempfile.mkdtemp())
    logging.basicConfig(
        filename=folder / "troubles.log", level=logging.INFO, format="%(asctime)s %(message)s"
    )
    try:
        print(table(asyncio.run(kind(folder, size, seed).run())))
    except BaseException:
        print(f"the logs, and what is left, are in {folder}", flush=True)
        raise
    shutil.rmtree(folder)


def main() -> None:
    prove(Storm, Size(SECONDS))
