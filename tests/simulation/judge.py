"""What must be true of every history, once its faults have ended and all is calm again."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.simulation.peers import (
    DATETIME,
    ENTRY,
    Reader,
    Receiver,
    Source,
    Unreachable,
    ask,
    resources,
)
from tests.simulation.world import World

CALM_SECONDS = 30.0  # by then everybody has everything


GAPS = re.compile(rb"^rsnotify_gaps_total\{[^}]*\} 0\.0$", re.MULTILINE)

GAPS_LINE = re.compile(rb"^rsnotify_gaps.*$", re.MULTILINE)


class Wrong(Exception):
    """Something that may not be."""


async def listed(
    hub: str, set_name: str = "dataset1", *, after: str = ""
) -> tuple[list[str], list[str]]:
    """What the open Change List holds, or all that came after a position; and the datetimes."""
    query = f"?from={after}" if after else ""
    answer = await ask(hub, "GET", f"/{set_name}/changelist.xml{query}")
    if answer.status != 200:
        raise Unreachable(f"status {answer.status}")
    locs = [each.decode() for each in ENTRY.findall(answer.body)]
    times = [each.decode() for each in DATETIME.findall(answer.body)]
    return locs, times


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

    async def no_gaps(self) -> None:
        """No hub has said that changes are lost for good."""
        for hub in self._hubs:
            said = (await ask(hub, "GET", "/metrics")).body
            if not GAPS.search(said):
                raise Wrong(f"{hub} tells of gaps: {GAPS_LINE.findall(said)}")

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
                lists.append((hub, *await listed(hub, after=self._after)))
            except Unreachable as error:
                found.append(f"{hub} has no list: {error}")
        for hub, locs, times in lists:
            counts = Counter(locs)
            found += [f"{hub} lists {loc} {n} times" for loc, n in counts.items() if n > 1]
            if missing := acknowledged - counts.keys():
                found.append(f"{hub} does not list {sorted(missing)}")
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
        for receiver in self._receivers:
            if missing := acknowledged - set(receiver.locs):
                found.append(f"{receiver.name} was not sent {sorted(missing)}")
            found += self._order(receiver, lists)
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
        changes = zip(*await listed(hub, after=self._after), strict=True)
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
        return [] if self._may_lose else found

    def _order(
        self, receiver: Receiver, lists: Sequence[tuple[str, list[str], list[str]]]
    ) -> list[str]:
        """What is sent again may come twice, but nothing before what precedes it."""
        first = {loc: number for number, loc in reversed([*enumerate(receiver.locs)])}
        came = [first[loc] for loc in (lists[0][1] if lists else ()) if loc in first]
        if came == sorted(came) or self._may_lose:
            return []
        return [f"{receiver.name} was sent changes out of order"]

    def _story(
        self, reader: Reader, lists: Sequence[tuple[str, list[str], list[str]]]
    ) -> list[str]:
        found = [f"{reader.name}: {fault}" for fault in reader.faults]
        heard = Counter(loc for each in reader.story for loc in each.locs)
        began = reader.began
        for hub, locs, times in lists[:1]:
            pairs = zip(locs, times, strict=False)
            expected = [loc for loc, when in pairs if began is not None and when > began]
            if missing := set(expected) - heard.keys():
                found.append(f"{reader.name} was not told {sorted(missing)} that {hub} lists")
        if not self._may_lose:
            found += [
                f"{reader.name} was told {loc} {n} times" for loc, n in heard.items() if n > 1
            ]
        return found
