"""Two hubs, four changes, a lossy failover and a crash, in every order in which they can happen;
and three changes, one of which a Source repeats with its key.

The hubs decide with the real rules; the journal, its clock and the readers are a model. Each hub
has one reader, who stays with it. A step is: a hub appends the next change, a hub reads on, Redis
loses the end of its journal, a hub dies. After each order the hubs go on until nothing changes any
more, and then the promises are checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from rsnotify.journal.healing import KeyedRow, Memory, Repaired, UsedKey, loc_of, plan_repair
from rsnotify.journal.submission import PRINT_LENGTH
from rsnotify.resourcesync.change import Position
from tests.support.amount import amount

CHANGES = [f"<url><loc>{loc}</loc>{n}".encode() for n, loc in enumerate("xyxx")]
HUBS = (0, 1)


def digest_of(xml: bytes) -> str:
    """Of the key of the change."""
    return f"{CHANGES.index(xml):012}"


@dataclass
class Journal:
    """The journal as Redis keeps it, with what must be atomic about it."""

    clock: int = 0
    last: Position = Position(0)
    rows: list[KeyedRow] = field(default_factory=list)
    put_back: set[Position] = field(default_factory=set)
    again: set[Position] = field(default_factory=set)
    keys: dict[str, tuple[Position, Position]] = field(default_factory=dict)

    @property
    def head(self) -> Position:
        return self.rows[-1][0] if self.rows else Position(0)

    def copy(self) -> "Journal":
        marks = self.put_back.copy(), self.again.copy(), self.keys.copy()
        return Journal(self.clock, self.last, self.rows.copy(), *marks)

    def append(self, xml: bytes) -> KeyedRow:
        """Store it under its key, which was not known."""
        self.clock += 1
        position = Position(max(self.last + 1, self.clock))
        self.last = position
        key = UsedKey(digest_of(xml), "0" * PRINT_LENGTH, Position(position - 1), position)
        self.keys[key.digest] = key.from_, key.until
        self.rows.append(KeyedRow(position, xml, key.note))
        return self.rows[-1]

    def lose(self, count: int, clock_behind: int) -> None:
        del self.rows[len(self.rows) - count :]
        self.keys = {digest_of(xml): (Position(at - 1), at) for at, xml in self.rows}
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
        notes = {key.until: key.note for key in self.memory.keys_of(self.memory.rows.items())}
        rows = [KeyedRow(*row, notes[row[0]]) for row in self.memory.rows.items()]
        memory.read([row for row in rows if self.memory.was_read(row)], self.memory.read_until)
        memory.appended(rows, self.memory.newest)
        memory.newest = self.memory.newest
        return hub

    def append(self, journal: Journal, xml: bytes, *, is_late: bool = False) -> None:
        """Its key may be known: then it was stored before, and is answered as then. If it was sent
        before all else that the hub has seen, the journal does not look as if it were behind."""
        if journal.last < self.memory.newest and not is_late:
            self.repair(journal)
        if digest_of(xml) not in journal.keys:
            before, row = journal.rows[-1:], journal.append(xml)
            self.memory.appended([*before, row], row[0])

    def read_on(self, journal: Journal) -> None:
        self.repair(journal)
        cursor = self.memory.read_until
        assert cursor in {0, *(at for at, _ in journal.rows), *journal.again}, "it never goes on"
        rows = [row for row in journal.rows if row[0] > cursor]
        self.told += rows
        self.memory.read(rows, max(journal.head, self.memory.read_until))

    def repair(self, journal: Journal) -> None:
        known = [row for row in journal.rows if row[0] > self.memory.begins]
        repaired = Repaired(journal.put_back, journal.again)
        repair = plan_repair(self.memory, known, journal.head, repaired, journal.keys)
        for row in repair.put_back:
            journal.put_back.add(row[0])
            journal.rows.append(KeyedRow(*row, repair.notes[row]))
        for key in repair.keys:
            journal.keys.setdefault(key.digest, (key.from_, key.until))
        journal.last = max(journal.last, journal.head, self.memory.newest)
        for row in repair.again:
            if row in repair.removed:
                journal.rows.remove(row)
            journal.again.add(row[0])
            journal.append(row[1])
        journal.again.update(repair.elsewhere)


@dataclass
class World:
    journal: Journal = field(default_factory=Journal)
    hubs: dict[int, Hub] = field(default_factory=lambda: {number: Hub() for number in HUBS})
    acknowledged: list[tuple[bytes, int]] = field(default_factory=list)  # and by which hub
    has_failed_over: bool = False
    clock_went_back: bool = False
    has_crashed: bool = False
    has_repeated: bool = False
    changes: int = len(CHANGES)
    repeats: bool = False

    def steps(self) -> Iterator[tuple[object, ...]]:
        for number in self.hubs if self.acknowledged else (0,):  # the hubs are alike
            if self.acknowledged:
                yield "read on", number
            if len(self.acknowledged) < self.changes:
                yield "append", number
                if self.has_failed_over and not self.clock_went_back:
                    yield "append late", number
            if self.has_failed_over and self.repeats and not self.has_repeated:
                for n in range(len(self.acknowledged)):
                    yield "repeat", number, n
        if not self.has_failed_over:
            for count in range(1, len(self.journal.rows) + 1):
                yield "fail over", count, 0
                yield "fail over", count, 3
        if self.acknowledged and not self.has_crashed and len(self.hubs) > 1:
            yield from (("crash", number) for number in self.hubs)

    def copy(self) -> "World":
        hubs = {number: hub.copy() for number, hub in self.hubs.items()}
        flags = (
            self.has_failed_over,
            self.clock_went_back,
            self.has_crashed,
            self.has_repeated,
            self.changes,
            self.repeats,
        )
        return World(self.journal.copy(), hubs, self.acknowledged.copy(), *flags)

    def after(self, step: tuple[object, ...]) -> "World":
        world = self.copy()
        match step:
            case "read on", int(number):
                world.hubs[number].read_on(world.journal)
            case "append" | "append late" as how, int(number):
                xml = CHANGES[len(world.acknowledged)]
                world.hubs[number].append(world.journal, xml, is_late=how == "append late")
                world.acknowledged.append((xml, number))
            case "repeat", int(number), int(n):
                world.hubs[number].append(world.journal, CHANGES[n])
                world.has_repeated = True
            case "fail over", int(count), int(clock_behind):
                world.journal.lose(count, clock_behind)
                world.has_failed_over = True
                world.clock_went_back = clock_behind > 0
            case "crash", int(number):
                del world.hubs[number]
                world.has_crashed = True
        return world

    @property
    def key(self) -> object:
        hubs = [
            (
                n,
                tuple(hub.told),
                *((*row, hub.memory.was_read(row)) for row in hub.memory.rows.items()),
                hub.memory.read_until,
            )
            for n, hub in self.hubs.items()
        ]
        journal = (tuple(self.journal.rows), self.journal.last, self.journal.clock)
        flags = (
            self.has_failed_over,
            self.clock_went_back,
            self.has_crashed,
            self.has_repeated,
            tuple(self.acknowledged),
            tuple(self.journal.keys.items()),
        )
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
    assert sorted(stored) == sorted(set(stored)), path  # nothing is stored twice
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
    # By a clock that is behind, a repetition may get the very position that its change had before.
    if not world.has_crashed and not (world.has_repeated and world.clock_went_back):
        newest = {loc_of(xml): xml for xml, _ in world.acknowledged}
        assert {loc_of(xml): xml for xml in stored} == newest, path


def worlds(first: World, steps: int) -> list[tuple[World, tuple[object, ...]]]:
    """Every state that can be reached from here in so many steps, with one way to it."""
    seen, queue = {first.key}, [(first, ())]
    for world, path in queue:
        for step in world.steps():
            following = world.after(step)
            if following.key not in seen and len(path) < steps:
                seen.add(following.key)
                queue.append((following, (*path, step)))
    return queue


FIRST = {"four changes": World(), "three, and one again": World(changes=3, repeats=True)}
STEPS = amount(6, evidence=7)  # nine in `make soak SOAK_ARGS=healing`


@pytest.mark.evidence
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_whatever_happens_the_promises_hold(first):
    found = worlds(first, STEPS)
    assert len(found) > 4_000
    for world, path in found:
        check(world, path)
