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
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.evidence.soak.footprint import Watch
from tests.evidence.soak.lists import Archivist
from tests.evidence.soak.peers import LOST, Poller, Publisher, Reader
from tests.evidence.soak.troubles import SETTLE_SECONDS, Stage, Troubles, TroublesOfRedis
from tests.fault.test_workers import workers_of
from tests.support.disks import Disk
from tests.support.faults import OwnRedis
from tests.support.lossy_failover import INDEX_LINK, all_lists, ends_with_410, gaps_in_redis
from tests.support.receivers import Receiver, subscribe
from tests.support.running import RunningHub, until
from tests.support.stories import Ends, Row, Story, lost, story_of_deliveries, wrong

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
    may_lose = True

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
            Reader(*common, self._story(f"reader{number}"), by_stream=number % 2 == 1)
            for number in range(size.readers)
        ]
        self._pollers = [Poller(*common, self._story(f"poller{n}")) for n in range(size.pollers)]
        self._archivist = Archivist(*common)
        self._publishers = [
            Publisher(*common, f"publisher{number}", keyed=number % 2 == 0)
            for number in range(size.publishers)
        ]

    def _story(self, name: str) -> Story:
        """It begins behind the first change."""
        return Story(name, self._begin, self._begin, roams=True)

    async def _run_peers(self) -> Report:
        stage = Stage(self._troubled, self._chance, self._until_said, self._size.pace)
        troubles, watch = self._troubles(stage), Watch(self._untroubled)
        peers = (*self._readers, *self._pollers)
        besides = (*peers, self._archivist, watch)
        self._reading = [asyncio.create_task(each.run()) for each in besides]
        try:
            return await self._run_troubles(troubles, watch)
        finally:
            for task in self._reading:
                task.cancel()
            await asyncio.gather(*self._reading, return_exceptions=True)

    async def _run_troubles(self, troubles: Troubles, watch: Watch) -> Report:
        async with asyncio.TaskGroup() as publishing:
            for publisher in self._publishers:
                publishing.create_task(publisher.run())
            await troubles.run(self._size.seconds)
            for publisher in self._publishers:
                publisher.is_ending = True
        await self._publish_last()
        await self._settle()
        journal = await self._judge()
        await self._archivist.check(journal)
        footprint = _footprint(self._troubled, self._size.readers)
        if self.is_long:
            footprint += watch.rows()
        return [*sorted(troubles.done.items()), *footprint, *self._sums(journal)]

    @property
    def _answers(self) -> dict[str, list[Ends]]:
        return {loc: ends for each in self._publishers for loc, ends in each.answers.items()}

    @property
    def _stories(self) -> list[Story]:
        return [each.story for each in (*self._readers, *self._pollers)]

    async def _until_said(self) -> None:
        """Wait until all that is lost now has been said: then whoever knows of it may die."""
        answers = {loc: [*ends] for loc, ends in self._answers.items()}

        async def is_said() -> bool:
            journal = await self._journal()
            begins = max((ends[0] for _, ends in lost(journal, answers)), default=None)
            asked = [] if begins is None else [await ends_with_410(h, begins) for h in self._hubs]
            heard = {row for each in self._stories for row in each.rows}
            return all(asked) and heard <= {*await self._journal()}

        await until(is_said, SETTLE_SECONDS)

    async def _judge(self) -> list[Row]:
        """Wait until nothing is wrong; what all Change Lists hold then."""
        found: list[str] = []

        async def is_right() -> list[Row] | None:
            journal, gaps = await self._journal(), await gaps_in_redis(self._url)
            stories = [*self._stories, *map(self._story_of, self._callbacks)]
            answers, may_lose = self._answers, self.may_lose
            found[:] = wrong(journal, answers, stories, gaps=gaps, may_lose=may_lose)
            return journal if not found else None

        try:
            journal: list[Row] = await until(is_right, SETTLE_SECONDS)
        except TimeoutError:
            raise AssertionError("\n".join(found)) from None
        return journal

    def _story_of(self, receiver: Receiver) -> Story:
        sent = [(each.body, INDEX_LINK in each.headers["link"]) for each in receiver.deliveries]
        return story_of_deliveries(receiver.callback, self._begin, sent)

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
            told = all(each.has(LAST) or _began_behind(each) for each in self._stories)
            return told and all(end in each.deliveries[-1].body for each in self._callbacks)

        await until(all_have_it, SETTLE_SECONDS)

    async def _journal(self) -> list[Row]:
        """What all Change Lists hold now."""

        async def found() -> tuple[list[Row]] | None:
            with suppress(*LOST, aiohttp.ClientError):
                return (await all_lists(self._untroubled),)
            return None

        (journal,) = await until(found, SETTLE_SECONDS)
        return journal

    def _sums(self, journal: Sequence[Row]) -> Report:
        receivers = self._callbacks
        return [
            ("changes in the journal", len(journal)),
            ("acknowledged", len(self._answers)),
            ("of these, lost and said to be", len(lost(journal, self._answers))),
            ("readers told of a loss, in all", sum(len(each.told) for each in self._stories)),
            (
                "requests refused or without answer",
                sum(each.refused for each in self._publishers),
            ),
            ("acknowledged, and repeated", sum(each.repeated for each in self._publishers)),
            ("connections of readers", sum(each.connections for each in self._readers)),
            ("Change Lists that were closed", len(self._archivist.kept)),
            ("of these, closed otherwise after a loss", self._archivist.closed_again),
            ("deliveries to callbacks", sum(len(each.deliveries) for each in receivers)),
            ("stories equal to the journal", len(self._stories) + len(receivers)),
        ]


def _began_behind(story: Story) -> bool:
    """Told of a loss, it has begun anew behind the last change."""
    return bool(story.told) and story.began is not None and not story.rows


def _footprint(hubs: Sequence[RunningHub], readers: int) -> Report:
    """Memory and open files of each worker: the largest, which must be in bounds."""
    workers = [Path("/proc", str(pid)) for hub in hubs for pid in workers_of(hub)]
    resident = [each.joinpath("statm").read_text().split()[1] for each in workers]
    memory = max(map(int, resident)) * os.sysconf("SC_PAGE_SIZE") / 2**20
    files = max(len(list(each.joinpath("fd").iterdir())) for each in workers)
    assert memory < RSS_MIB, memory
    assert files < readers + SPARE_FILES, files
    return [("MiB of the largest worker", round(memory)), ("open files of it at most", files)]


def tracebacks(log: str) -> list[str]:
    """Where a log tells of something that nobody has foreseen, with the line before it."""
    return re.findall(r"[^\n]*\nTraceback.*?(?=\n\d{4}-|\Z)", log, re.DOTALL)


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
