"""A journal that has lost its newest changes is repaired by those who remember them."""

import pytest

from rsnotify.journal.healing import (
    MEMORY_BYTES,
    REMEMBERED_MICROSECONDS,
    ROW_BYTES,
    Memory,
    Repair,
    Repaired,
    UsedKey,
    lost_until,
    plan_repair,
)
from rsnotify.resourcesync.change import Position


def row(position: int, loc: str = "a", note: str = "") -> tuple[Position, bytes]:
    return Position(position), f"<url><loc>{loc}</loc>{note or position}".encode()


def memory_of(*rows: tuple[Position, bytes], unread: int = 0) -> Memory:
    """A memory that began at 0 and has read all but the last `unread` rows."""
    memory = Memory(Position(0))
    read = rows[: len(rows) - unread]
    memory.read(read, read[-1][0] if read else Position(0))
    memory.appended(rows[len(read) :], rows[-1][0])
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
    "some below, some above": (memory_of(A1, B2, A3), [row(2, "c")], (), Repair([], [
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


def test_what_readers_have_passed_is_appended_again_although_a_poller_was_told():
    memory = memory_of(A1, A3)
    assert memory.served([A1, B2, A3])
    assert not memory.served([A1, B2, A3])
    assert plan_repair(memory, [A1, B2, A3], Position(3), Repaired()).again == [B2]


@pytest.mark.parametrize("journal", [[A1, B2, A3], [A1]], ids=["stored", "lost with A3"])
def test_what_readers_have_passed_is_appended_again_although_an_append_brought_it(journal):
    memory = memory_of(A1, A3)
    memory.appended([B2], B2[0])  # another process has put it back, before the append
    plan = plan_repair(memory, journal, journal[-1][0], Repaired())
    assert plan.again == [B2]
    assert list(plan.put_back) == ([] if A3 in journal else [A3])


def test_what_is_read_where_another_row_was_is_not_that_row():
    """A Source's own datetime may give a position a second time, after a loss."""
    memory = memory_of(A1)
    memory.appended([B2], B2[0])
    other = row(2, "c")
    memory.read([other], other[0])
    assert plan_repair(memory, [A1], A1[0], Repaired()).again == [B2]


def test_a_request_of_which_some_rows_are_below_the_end_is_appended_again_whole():
    request = [row(2, "x"), row(4, "y"), row(6, "z")]
    memory = memory_of(A1)
    memory.appended(
        request, Position(6), UsedKey("digest--of-k", "finger", Position(1), Position(6), 3)
    )
    foreign = row(5, "b")
    plan = plan_repair(memory, [A1, foreign], foreign[0], Repaired())
    assert (list(plan.put_back), plan.again, list(plan.keys)) == ([], request, [])
    assert plan.notes == {request[-1]: b"digest--of-kfinger.3:3"}


def test_what_a_poller_was_told_and_readers_then_read_is_theirs_as_well():
    memory = memory_of(A1)
    assert memory.served([A1, B2])
    memory.read([B2, A3], Position(3))
    assert not plan_repair(memory, [A1, B2, A3], Position(3), Repaired())
    assert plan_repair(memory, [A1], Position(1), Repaired()).put_back == [B2, A3]


def test_what_is_released_is_not_missed():
    memory = memory_of(A1, B2, A3)
    memory.release()
    assert not plan_repair(memory, [], Position(0), Repaired())
    assert memory.newest == 3


def test_what_was_skipped_was_not_passed_by_anybody():
    memory = memory_of(A1)
    memory.skip_to(Position(4))
    assert not plan_repair(memory, [A1, B2, A3, B4], B4[0], Repaired())


def test_a_minute_is_remembered():
    memory = memory_of(A1)
    late = row(1 + REMEMBERED_MICROSECONDS - 1, "b")
    memory.appended([late], late[0])
    assert A1[0] in memory.rows
    later = row(1 + REMEMBERED_MICROSECONDS, "c")
    memory.appended([later], later[0])
    assert A1[0] not in memory.rows


def test_a_key_is_forgotten_with_the_last_row_of_its_request():
    memory = Memory(Position(0))
    memory.appended([A1], A1[0], UsedKey("digest--of-k", "finger", Position(0), A1[0]))
    later = row(1 + REMEMBERED_MICROSECONDS, "b")
    memory.appended([later], later[0])
    assert memory.keys_of([A1]) == []
    assert memory.size == len(later[1]) + ROW_BYTES


def test_a_repetition_of_what_is_long_past_is_not_remembered():
    memory = memory_of(row(2 + REMEMBERED_MICROSECONDS))
    memory.appended([A1, B2], B2[0])
    assert set(memory.rows) == {2 + REMEMBERED_MICROSECONDS}


def test_the_oldest_are_forgotten_when_there_are_too_many_bytes():
    half = MEMORY_BYTES // 2 - ROW_BYTES
    memory = Memory(Position(0))
    memory.appended([(Position(1), bytes(half)), (Position(2), bytes(half))], Position(2))
    assert set(memory.rows) == {1, 2}
    memory.appended([(Position(3), b"")], Position(3))
    assert set(memory.rows) == {2, 3}
    assert memory.size <= MEMORY_BYTES


def test_keys_of_lost_appends_are_put_back():
    memory = Memory(Position(0))
    key = UsedKey("digest--of-k", "finger", Position(0), Position(2), changes=2)
    memory.appended([A1, B2], B2[0], key)
    assert plan_repair(memory, [], Position(0), Repaired()).keys == [key]
    assert plan_repair(memory, [A1, B2], Position(2), Repaired()).keys == ()


def test_the_key_of_a_request_is_put_back_in_whatever_order_its_rows_were_met():
    memory = Memory(Position(0))
    key = UsedKey("digest--of-k", "finger", Position(0), Position(2), changes=2)
    memory.appended([B2, A3], A3[0])  # another request, and the row before it
    memory.appended([A1, B2], B2[0], key)
    assert plan_repair(memory, [], Position(0), Repaired()).keys == [key]


@pytest.mark.parametrize("last_put_back", [(), (3,)], ids=["nobody knew", "one knew its last row"])
def test_a_request_whose_last_row_another_has_put_back_stays_together(last_put_back):
    """…and its Source, who has no answer, repeats it: it is known."""
    key = UsedKey("digest--of-k", "finger", Position(1), Position(3), changes=2)
    memory = memory_of(A1)
    memory.appended([B2, A3], A3[0], key)
    there = [A3] if last_put_back else []
    journal, since = [A1, *there, row(4, "c")], Position(4)
    found = plan_repair(memory, journal, since, Repaired(put_back=last_put_back))
    assert (found.again, found.removed, found.put_back) == ([B2, A3], there, [])
    assert found.notes == {A3: key._replace(from_=Position(1)).note}


def test_a_request_that_was_lost_again_with_its_repetition_comes_back_once_and_as_old_as_it_is():
    memory, newer = Memory(Position(0)), row(2, "a", "newer")
    first = UsedKey("digest--of-k", "finger", Position(0), Position(1), changes=1)
    again = first._replace(from_=Position(2), until=Position(3))
    memory.appended([A1], A1[0], first)
    memory.appended([newer], newer[0])
    memory.appended([A3], A3[0], again)
    repair = plan_repair(memory, [], Position(0), Repaired())
    assert (repair.put_back, repair.again) == ([A3], [newer])
    assert (repair.keys, repair.elsewhere) == ([again], [A1[0]])


def test_a_repaired_journal_needs_no_repair():
    memory = memory_of(A1, B2, A3)
    repair = plan_repair(memory, [A1], A1[0], Repaired())
    assert not plan_repair(memory, [A1, *repair.put_back], A3[0], Repaired())


def witness(*rows: tuple[Position, bytes], begin: int) -> Memory:
    """A memory that has read nothing; its one append found the journal at `begin`."""
    memory = Memory(Position(0))
    memory.appended(rows, rows[-1][0], begin=Position(begin))
    return memory


def released(memory: Memory) -> Memory:
    memory.release()
    return memory


LOSSES = {
    "nothing": (memory_of(A1, B2), [A1, B2], 0, Repaired(), None),
    "what is remembered": (memory_of(A1, B2), [], 0, Repaired(), None),
    "what was before an append": (witness(A3, begin=2), [A1], 0, Repaired(), 2),
    "what was before it, and is there": (witness(A3, begin=2), [A1, B2], 0, Repaired(), None),
    "what another has put back": (witness(A3, begin=2), [A1], 0, Repaired(put_back={2}), None),
    "what another has appended again": (witness(A3, begin=2), [B4], 0, Repaired(again={2}), None),
    "what the stream no longer has": (witness(A3, begin=2), [], 2, Repaired(), None),
    "what is just behind its beginning": (witness(A3, begin=2), [], 1, Repaired(), 2),
    "what was released": (released(memory_of(A1, B2)), [A1], 0, Repaired(), 2),
    "what was skipped": (Memory(Position(4)), [], 0, Repaired(), 4),
}


@pytest.mark.parametrize(
    ("memory", "journal", "begin", "repaired", "lost"), LOSSES.values(), ids=LOSSES
)
def test_what_is_lost_that_nobody_here_remembers(memory, journal, begin, repaired, lost):
    assert lost_until(memory, journal, Position(begin), repaired) == lost


def test_what_is_forgotten_because_it_is_too_much_is_missed():
    memory = Memory(Position(0))
    memory.appended([A1, (Position(2), bytes(MEMORY_BYTES))], Position(2), begin=Position(0))
    memory.appended([A3], A3[0], begin=Position(2))
    assert set(memory.rows) == {3}
    assert lost_until(memory, [], Position(0), Repaired()) == 2


@pytest.mark.parametrize("count", [1, 2])
def test_rows_that_another_primary_has_stored_between_are_of_no_request(count):
    """A primary that was frozen woke up, and stored a request from where it had stood."""
    until, between = Position(9), row(5, "z")
    rows = [row(at, str(at)) for at in range(10 - count, 10)]
    memory = memory_of(A1, between)
    key = UsedKey("digest--of-k", "finger", Position(1), until, count)
    memory.appended(rows, until, key)
    lost = plan_repair(memory, [A1], A1[0], Repaired())
    assert (list(lost.put_back), list(lost.keys)) == ([between, *rows], [key])
    elsewhere = {"digest--of-k": (Position(1), Position(4))}
    found = plan_repair(memory, [A1, row(4)], Position(4), Repaired(), elsewhere)
    assert (list(found.put_back), list(found.elsewhere)) == ([between], [at for at, _ in rows])


def test_the_rows_of_a_request_are_known_by_their_number_or_not_at_all():
    memory = memory_of(A1, B2, A3, B4)
    for from_, until, changes, known in (
        (0, 2, 2, [1, 2]),
        (0, 4, 2, [3, 4]),  # they stand together, whatever lies before them
        (0, 9, 4, [1, 2, 3, 4]),  # put back: with a gap behind them
        (0, 9, 3, []),  # one of the four is another's
    ):
        key = UsedKey("digest--of-k", "finger", Position(from_), Position(until), changes=changes)
        assert list(memory.positions_of(key)) == known
