"""A journal that has lost its newest changes is repaired by those who remember them."""

import pytest

from rsnotify.core.healing import Memory, Repair, Repaired, plan_repair
from rsnotify.resourcesync.change import Position


def row(position: int, loc: str = "a", note: str = "") -> tuple[Position, bytes]:
    return Position(position), f"<url><loc>{loc}</loc>{note or position}".encode()


def memory_of(*rows: tuple[Position, bytes], unread: int = 0) -> Memory:
    """A memory that began at 0 and has read all but the last `unread` rows."""
    memory = Memory(Position(0))
    read = rows[: len(rows) - unread]
    memory.read(read, read[-1][0] if read else Position(0))
    memory.appended(rows[len(read) :])
    return memory


A1, B2, A3, B4 = row(1, "a"), row(2, "b"), row(3, "a"), row(4, "b")

CASES = {
    "nothing lost": (memory_of(A1, B2), [A1, B2], (), Repair([], [])),
    "the journal has gone on": (memory_of(A1), [A1, B2], (), Repair([], [])),
    "the end lost": (memory_of(A1, B2, A3), [A1], (), Repair([B2, A3], [])),
    "everything lost": (memory_of(A1, B2), [], (), Repair([A1, B2], [])),
    "lost before it was read": (memory_of(A1, B2, unread=1), [A1], (), Repair([B2], [])),
    "lost below what came since": (memory_of(A1, B2), [A1, row(9)], (), Repair([], [B2])),
    "below, repaired by another": (memory_of(A1, B2), [A1, row(9)], {2}, Repair([], [])),
    "some below, some above": (memory_of(A1, B2, A3), [row(2, "c")], (), Repair([A3], [
        A1, B2, row(2, "c"), A3
    ])),
    "passed by readers": (memory_of(A1, A3), [A1, B2, A3], (), Repair([], [B2])),
    "not passed: never read": (memory_of(A1, A3, unread=1), [A1, B2, A3], (), Repair([], [])),
    "a newer change of the same stays newest": (
        memory_of(A1, B2), [A1, row(9, "b")], (), Repair([], [B2, row(9, "b")]),
    ),
    "put back behind a newer change of the same": (
        memory_of(A1, B2, A3), [A1, row(2, "a", "new")], (),
        Repair([A3], [B2, row(2, "a", "new")]),
    ),
    "put back behind an older one that another process had appended": (
        memory_of(A1, A3, unread=1), [A1, row(2, "a", "old")], (), Repair([A3], []),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("memory", "journal", "repaired", "wanted"), CASES.values(), ids=CASES)
def test_a_repair(memory, journal, repaired, wanted):
    head = journal[-1][0] if journal else Position(0)
    found = plan_repair(memory, journal, head, Repaired(again=repaired))
    assert (list(found.put_back), list(found.again)) == (list(wanted.put_back), list(wanted.again))


def test_what_is_forgotten_is_not_missed():
    memory = memory_of(A1, B2, A3)
    memory.forget_until(Position(2))
    assert dict(memory.rows) == dict([A3])
    assert not plan_repair(memory, [A3], A3[0], Repaired())


def test_a_repaired_journal_needs_no_repair():
    memory = memory_of(A1, B2, A3)
    repair = plan_repair(memory, [A1], A1[0], Repaired())
    assert not plan_repair(memory, [A1, *repair.put_back], A3[0], Repaired())
