"""What must be true of every history, once its faults have ended and all is calm again."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.evidence.simulation.peers import (
    DATETIME,
    ENTRY,
    INTERVAL,
    Reader,
    Receiver,
    Source,
    Unreachable,
    ask,
    resources,
)
from tests.evidence.simulation.world import World

CALM_SECONDS = 30.0  # by then everybody has everything


GAPS = re.compile(rb"^rsnotify_gaps_total\{[^}]*\} (\S+)$", re.MULTILINE)
LIST = re.compile(rb"<loc>http://[^/]+(/[^<]+)</loc>")


class Wrong(Exception):
    """Something that may not be."""


async def listed(
    hub: str, set_name: str = "dataset1", *, after: str = ""
) -> tuple[list[str], list[str]]:
    """What the open Change List holds, or all that came after a position; and the datetimes."""
    query = f"?from={after}" if after else ""
    return await _read(hub, f"/{set_name}/changelist.xml{query}")


async def _read(hub: str, path: str) -> tuple[list[str], list[str]]:
    answer = await ask(hub, "GET", path)
    if answer.status != 200:
        raise Unreachable(f"status {answer.status}")
    locs = [each.decode() for each in ENTRY.findall(answer.body)]
    times = [each.decode() for each in DATETIME.findall(answer.body)]
    return locs, times


async def all_lists(hub: str, set_name: str = "dataset1") -> tuple[list[str], list[str]]:
    """What all Change Lists hold, which need not join."""
    index = await ask(hub, "GET", f"/{set_name}/changelist-index.xml")
    if index.status != 200:
        raise Unreachable(f"status {index.status}")
    locs, times = list[str](), list[str]()
    for path in LIST.findall(index.body):
        found = await _read(hub, path.decode())
        locs, times = locs + found[0], times + found[1]
    return locs, times


async def _ends_with_410(hub: str, cursor: str) -> bool:
    """Whether somebody who polls from there is told that something is gone."""
    while True:
        asked = await ask(hub, "GET", f"/dataset1/changelist.xml?from={cursor}")
        covered = INTERVAL.search(asked.body)
        if asked.status != 200 or covered is None:
            return asked.status == 410
        cursor = covered[2].decode()


class Judge:
    """Waits for calm, then compares all stories."""

    def __init__(
        self,
        world: World,
        hubs: Iterable[str],
        sources: Sequence[Source],
        readers: Sequence[Reader] = (),
        receivers: Sequence[Receiver] = (),
        *,
        may_lose: bool = False,
        after: str = "",
    ) -> None:
        self._world = world
        self._hubs = [*hubs]
        self._sources = sources
        self._readers = readers
        self._receivers = receivers
        self._may_lose = may_lose
        self._after = after

    async def judge(self, within: float = CALM_SECONDS) -> None:
        until = self._world.now() + within
        while True:
            wrong = await self._wrong() or await self._wrong_resources()
            if not wrong or self._world.now() > until:
                break
            await asyncio.sleep(0.5)
        wrong += self._world.errors
        if wrong:
            raise Wrong("\n".join(wrong))

    async def gaps(self, *, at_most: int) -> None:
        """So often has each hub said that changes are lost."""
        for hub in self._hubs:
            found = GAPS.search((await ask(hub, "GET", "/metrics")).body)
            if found is None or float(found[1]) > at_most:
                raise Wrong(f"{hub} tells of more gaps than {at_most}: {found and found[0]!r}")

    async def _wrong(self) -> list[str]:
        found: list[str] = []
        acknowledged = {
            loc
            for source in self._sources
            for key in source.acknowledged
            for loc in source.locs[key]
        }
        lists = []
        for hub in self._hubs:
            try:
                lists.append((hub, *await self._listed(hub)))
            except Unreachable as error:
                found.append(f"{hub} has no list: {error}")
        for hub, locs, times in lists:
            counts = Counter(locs)
            found += [f"{hub} lists {loc} {n} times" for loc, n in counts.items() if n > 1]
            if missing := acknowledged - counts.keys():
                found += await self._lost(hub, missing)
            if times != sorted(set(times)):
                found.append(f"{hub} lists positions out of order")
        found += [
            f"{hub} and {lists[0][0]} list different changes, or at different positions"
            for hub, *what in lists
            if what != [*lists[0][1:]]
        ]
        for source in self._sources:
            found += self._answers(source, lists)
        for reader in self._readers:
            found += self._story(reader, lists)
        left = acknowledged.intersection(*(locs for _, locs, _ in lists)) if lists else acknowledged
        for receiver in self._receivers:
            if missing := {loc for loc in left if loc.startswith(receiver.wants)} - {
                *receiver.locs
            }:
                found.append(f"{receiver.name} was not sent {sorted(missing)}")
            found += self._order(receiver, lists)
        return found

    async def _listed(self, hub: str) -> tuple[list[str], list[str]]:
        return await (all_lists(hub) if self._may_lose else listed(hub, after=self._after))

    async def _lost(self, hub: str, locs: set[str]) -> list[str]:
        """Why the loss of these, which were acknowledged, has not been said to everybody."""
        if not self._may_lose:
            return [f"{hub} does not list {sorted(locs)}"]
        found = []
        for source in self._sources:
            for key, (from_, until) in source.acknowledged.items():
                if locs.isdisjoint(source.locs[key]):
                    continue
                if not await _ends_with_410(hub, from_):
                    found.append(f"{hub} reads on from {from_}: {key} is lost behind it")
                found += [
                    f"{each.name}, which began at {each.began}, has not been told that {key} at "
                    f"{until} is lost"
                    for each in self._readers
                    if each.began is not None and each.began <= from_
                ]
        return found

    async def _wrong_resources(self) -> list[str]:
        """Why no Resource List can be had. One that is wrong is wrong for good: its readers follow
        from there. It is read as it was found, and as it is made now."""
        try:
            await self._check_resources(self._hubs[-1])
            taken = await ask(self._hubs[0], "POST", "/api/sets/dataset1/snapshot")
            if taken.status != 201:
                return [f"no Resource List can be made: {taken.status} {taken.body!r}"]
            for each in self._hubs:
                await self._check_resources(each, taken.json()["at"])
        except Unreachable as error:
            return [f"no Resource List can be had: {error}"]
        return []

    async def _check_resources(self, hub: str, at: str = "") -> None:
        changes = zip(*await self._listed(hub), strict=True)
        try:
            found = await resources(hub)
        except Unreachable:
            if not at:
                return  # there is none yet
            raise
        faults = found.faults(changes)
        if found.at < at:
            faults.append(f"it is of {found.at}, though that of {at} is made")
        if faults:
            raise Wrong("\n".join(f"{hub}'s Resource List: {fault}" for fault in faults))

    def _answers(
        self, source: Source, lists: Sequence[tuple[str, list[str], list[str]]]
    ) -> list[str]:
        """What a request was answered is where its changes are."""
        found = []
        for hub, locs, times in lists:
            at = dict(zip(locs, times, strict=False))
            for key, (from_, until) in source.acknowledged.items():
                found += [
                    f"{hub} lists {loc} at {at[loc]}, not in ({from_}, {until}]"
                    for loc in source.locs[key]
                    if loc in at and not from_ < at[loc] <= until
                ]
        return found

    def _order(
        self, receiver: Receiver, lists: Sequence[tuple[str, list[str], list[str]]]
    ) -> list[str]:
        """What is sent again may come twice, but nothing before what precedes it."""
        first = {loc: number for number, loc in reversed([*enumerate(receiver.locs)])}
        came = [first[loc] for loc in (lists[0][1] if lists else ()) if loc in first]
        if came == sorted(came) or self._may_lose:
            return []
        return [f"{receiver.name} was sent changes out of order"]

    def _order_of(
        self, reader: Reader, lists: Sequence[tuple[str, list[str], list[str]]]
    ) -> list[str]:
        """What is passed over puts nothing out of order."""
        heard = [loc for each in reader.story for loc in each.locs]
        listed = [loc for loc in (lists[0][1] if lists else ()) if loc in {*heard}]
        return [] if heard == listed else [f"{reader.name} was told {heard} out of order"]

    def _story(
        self, reader: Reader, lists: Sequence[tuple[str, list[str], list[str]]]
    ) -> list[str]:
        found = [f"{reader.name}: {fault}" for fault in reader.faults]
        if reader.told and not self._may_lose:
            found.append(f"{reader.name} was told of a loss: {reader.told}")
        heard = Counter(loc for each in reader.story for loc in each.locs)
        began = reader.began
        for hub, locs, times in lists[:1]:
            pairs = zip(locs, times, strict=False)
            expected = [
                loc
                for loc, when in pairs
                if began is not None and when > began and reader.takes(loc)
            ]
            if missing := set(expected) - heard.keys():
                found.append(f"{reader.name} was not told {sorted(missing)} that {hub} lists")
        found += [f"{reader.name} was told {loc} {n} times" for loc, n in heard.items() if n > 1]
        found += [f"{reader.name} was told {loc}" for loc in heard if not reader.takes(loc)]
        if reader.wants and not self._may_lose:
            found += self._order_of(reader, lists)
        return found
