"""Two hubs, four changes, a lossy failover and a crash, in every order in which they can happen.

The hubs decide with the real rules; the journal, its clock and the readers are a model. Each hub
has one reader, who stays with it. A step is: a hub appends the next change, a hub reads on, Redis
loses the end of its journal, a hub dies. After each order the hubs go on until nothing changes any
more, and then the promises are checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from rsnotify.core.healing import Memory, Repaired, loc_of, plan_repair
from rsnotify.resourcesync.change import Position

CHANGES = [f"<url><loc>{loc}</loc>{n}".encode() for n, loc in enumerate("xyxx")]
HUBS = (0, 1)


@dataclass
class Journal:
    """The journal as Redis keeps it, with what must be atomic about it."""

    clock: int = 0
    last: Position = Position(0)
    rows: list[tuple[Position, bytes]] = field(default_factory=list)
    put_back: set[Position] = field(default_factory=set)
    again: set[Position] = field(default_factory=set)

    @property
    def head(self) -> Position:
        return self.rows[-1][0] if self.rows else Position(0)

    def copy(self) -> "Journal":
        return Journal(
            self.clock, self.last, self.rows.copy(), self.put_back.copy(), self.again.copy()
        )

    def append(self, xml: bytes) -> tuple[Position, bytes]:
        self.clock += 1
        self.last = Position(max(self.last + 1, self.clock))
        self.rows.append((self.last, xml))
        return self.rows[-1]

    def lose(self, count: int, clock_behind: int) -> None:
        del self.rows[len(self.rows) - count :]
        self.last = self.head
        self.put_back, self.again = set(), set()
        self.clock -= clock_behind


class Hub:
    """One process: what it remembers, and what its reader was told."""

    def __init__(self) -> None:
        self.memory = Memory(Position(0))
        self.told: list[tuple[Position, bytes]] = []

    def copy(self) -> "Hub":
        hub = Hub()
        hub.told = self.told.copy()
        memory = hub.memory
        memory.appended(self.memory.rows.items(), self.memory.newest)
        memory.newest, memory.read_until = self.memory.newest, self.memory.read_until
        return hub

    def append(self, journal: Journal, xml: bytes) -> None:
        self.repair(journal)
        row = journal.append(xml)
        self.memory.appended([row], row[0])

    def read_on(self, journal: Journal) -> None:
        self.repair(journal)
        cursor = self.memory.read_until
        assert cursor in {0, *(at for at, _ in journal.rows), *journal.again}, "it never goes on"
        rows = [row for row in journal.rows if row[0] > cursor]
        self.told += rows
        self.memory.read(rows, max(journal.head, self.memory.read_until))

    def repair(self, journal: Journal) -> None:
        known = [row for row in journal.rows if row[0] > self.memory.begins]
        repair = plan_repair(
            self.memory, known, journal.head, Repaired(journal.put_back, journal.again)
        )
        for row in repair.put_back:
            journal.put_back.add(row[0])
            journal.rows.append(row)
        journal.last = max(journal.last, journal.head, self.memory.newest)
        for position, xml in repair.again:
            journal.again.add(position)
            journal.append(xml)


@dataclass
class World:
    journal: Journal = field(default_factory=Journal)
    hubs: dict[int, Hub] = field(default_factory=lambda: {number: Hub() for number in HUBS})
    acknowledged: list[tuple[bytes, int]] = field(default_factory=list)  # and by which hub
    has_failed_over: bool = False
    has_crashed: bool = False

    def steps(self) -> Iterator[tuple[object, ...]]:
        for number in self.hubs if self.acknowledged else (0,):  # the hubs are alike
            if self.acknowledged:
                yield "read on", number
            if len(self.acknowledged) < len(CHANGES):
                yield "append", number
        if not self.has_failed_over:
            for count in range(1, len(self.journal.rows) + 1):
                yield "fail over", count, 0
                yield "fail over", count, 3
        if self.acknowledged and not self.has_crashed and len(self.hubs) > 1:
            yield from (("crash", number) for number in self.hubs)

    def copy(self) -> "World":
        hubs = {number: hub.copy() for number, hub in self.hubs.items()}
        flags = (self.has_failed_over, self.has_crashed)
        return World(self.journal.copy(), hubs, self.acknowledged.copy(), *flags)

    def after(self, step: tuple[object, ...]) -> "World":
        world = self.copy()
        match step:
            case "read on", int(number):
                world.hubs[number].read_on(world.journal)
            case "append", int(number):
                xml = CHANGES[len(world.acknowledged)]
                world.hubs[number].append(world.journal, xml)
                world.acknowledged.append((xml, number))
            case "fail over", int(count), int(clock_behind):
                world.journal.lose(count, clock_behind)
                world.has_failed_over = True
            case "crash", int(number):
                del world.hubs[number]
                world.has_crashed = True
        return world

    @property
    def key(self) -> object:
        hubs = [
            (n, tuple(hub.told), tuple(hub.memory.rows.items()), hub.memory.read_until)
            for n, hub in self.hubs.items()
        ]
        journal = (tuple(self.journal.rows), self.journal.last, self.journal.clock)
        flags = (self.has_failed_over, self.has_crashed, tuple(self.acknowledged))
        return (
            tuple(hubs),
            journal,
            flags,
            frozenset(self.journal.put_back),
            frozenset(self.journal.again),
        )

    def settled(self) -> "World":
        world = self.copy()
        for _ in range(2):
            for hub in world.hubs.values():
                hub.read_on(world.journal)
        return world


def check(world: World, path: tuple[object, ...]) -> None:
    before = world.settled()
    again = before.settled()
    stored = [xml for _, xml in before.journal.rows]
    positions = [position for position, _ in before.journal.rows]
    assert again.journal.rows == before.journal.rows, path  # repairs come to an end
    assert positions == sorted(set(positions)), path
    for hub in before.hubs.values():
        told = [position for position, _ in hub.told]
        assert told == sorted(set(told)), path  # positions never repeat, nor go back
        assert {xml for _, xml in hub.told} >= set(stored), path  # all that is kept was told
        assert {xml for _, xml in hub.told} <= set(stored), path  # what was told is kept
    alive = set(before.hubs)
    for xml, number in world.acknowledged:
        assert number not in alive or xml in stored, path
    if not world.has_crashed:
        newest = {loc_of(xml): xml for xml, _ in world.acknowledged}
        assert {loc_of(xml): xml for xml in stored} == newest, path


@pytest.fixture(scope="module")
def worlds() -> list[tuple[World, tuple[object, ...]]]:
    """Every state that can be reached, with one way to it."""
    first = World()
    seen, queue = {first.key}, [(first, ())]
    for world, path in queue:
        for step in world.steps():
            following = world.after(step)
            if following.key not in seen and len(path) < 9:
                seen.add(following.key)
                queue.append((following, (*path, step)))
    return queue


def test_whatever_happens_the_promises_hold(worlds):
    assert len(worlds) > 1_000
    for world, path in worlds:
        check(world, path)
