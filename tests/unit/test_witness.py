"""What a process knows of a journal, and when that is proved, said, or still to be looked for."""

import pytest

from rsnotify.journal.witness import KnownChange, Witness, proved_by
from rsnotify.resourcesync.change import Position


def at(position: int, mark: str = "") -> KnownChange:
    """A change, and the mark of the call that stored it."""
    return KnownChange(Position(position), mark or f"mark{position:02}")


def witness(*known: KnownChange, given: int = 0) -> Witness:
    found = Witness(Position(given))
    for each in known:
        found.note_change(*each)
    return found


def test_who_is_new_knows_where_the_journal_ended_and_no_change_of_it():
    new = Witness(Position(5))
    assert (new.given, new.changes, str(new.evidence)) == (5, (), "5")


@pytest.mark.parametrize(("position", "given"), [(4, 5), (5, 5), (6, 6)])
def test_what_was_given_never_goes_back(position, given):
    found = Witness(Position(5))
    found.note_given(Position(position))
    assert (found.given, found.changes) == (given, ())


def test_the_evidence_is_what_was_given_and_each_change_with_its_mark():
    found = witness(at(3), at(7))
    assert str(found.evidence) == "7 3:mark03 7:mark07"
    found.note_given(Position(9))
    assert str(found.evidence) == "9 3:mark03 7:mark07"


def test_a_newer_change_does_not_take_the_place_of_one_that_nobody_has_looked_for():
    assert witness(at(3), at(7), at(5)).changes == (at(3), at(7), at(5))
    assert witness(at(3), at(3)).changes == (at(3),), "it is the same"


def test_of_a_call_the_newest_change_stands_for_all():
    """Redis has all of a call or nothing; what other calls have stored is not proved by it."""
    found = witness(at(3, "first."), at(5, "second"), at(7, "second"), at(6, "second"), at(9))
    assert found.changes == (at(3, "first."), at(7, "second"), at(9))
    assert found.given == 9


def test_another_change_at_the_same_position_is_another_one():
    """After a loss it may be stored where the lost one was: neither proves the other."""
    found = witness(at(3, "first."), at(3, "second"))
    assert found.changes == (at(3, "first."), at(3, "second"))
    found.note_found([at(3, "second")])
    assert at(3, "first.") in found.changes


PROVED = {
    "nothing": ([3, 7], [], [3, 7]),
    "the older one": ([3, 7], [3], [7]),
    "the newer one": ([3, 7], [7], [3, 7]),
    "both": ([3, 7], [3, 7], [7]),
    "both, the newer one known first": ([7, 3], [3, 7], [7]),
    "the only one": ([3], [3], [3]),
    "one that is not known": ([3], [7], [3]),
    "one before, and one after it": ([3], [2, 4], [3]),
    "nothing is known": ([], [3], []),
}


@pytest.mark.parametrize(("known", "proved", "left"), PROVED.values(), ids=PROVED)
def test_what_is_proved_need_not_be_looked_for_but_the_newest(known, proved, left):
    """The newest stays: it is there now, and may be lost by the next failover."""
    found = witness(*map(at, known))
    found.note_found([at(each) for each in proved])
    assert found.changes == tuple(at(each) for each in left)
    assert found.given == max(known, default=0), "a proof gives nobody anything"


def test_a_witness_does_not_grow_where_each_change_is_proved_after_the_next_is_known():
    found = Witness(Position(0))
    for number in range(1, 100):
        asked_for = found.changes
        found.note_change(*at(number))
        found.note_found(asked_for)
        assert found.changes == (at(number),)


@pytest.mark.parametrize(
    ("gap", "left"), [(6, [7, 6]), (7, [7]), (8, [8])], ids=["before", "at it", "behind it"]
)
def test_what_lies_before_a_gap_is_said(gap, left):
    """The gap is known instead: whoever comes from before it has to be told by it."""
    found = witness(at(3), at(7))
    found.note_gap(Position(gap))
    after = [at(each) for each in (3, 7) if each > gap]
    assert found.changes == (*after, KnownChange(Position(gap), ""))
    assert [each.position for each in found.changes] == left
    assert found.given == max(7, gap)


def test_a_gap_is_known_until_something_after_it_is_proved():
    found = witness(at(3))
    found.note_gap(Position(5))
    found.note_change(*at(7))
    found.note_found([at(7)])
    assert str(found.evidence) == "7 5: 7:mark07"
    found.note_found([at(7), KnownChange(Position(5), "")])
    assert str(found.evidence) == "7 7:mark07"


# --- what was read proves -------------------------------------------------------------------------

KNOWN = [at(3), at(7)]
BOTH = {3: "mark03", 5: "mark05", 7: "mark07"}
PARTS = {
    "all of it": (BOTH, 2, 7, [3, 7]),
    "more than that": (BOTH, 0, 9, [3, 7]),
    "from behind the first": (BOTH, 3, 7, [7]),
    "up to before the second": (BOTH, 2, 6, [3]),
    "what is between them": (BOTH, 3, 6, []),
    "nothing": ({}, 3, 3, []),
    "what is before both": ({}, 0, 2, []),
    "the older one is missing": ({5: "mark05", 7: "mark07"}, 2, 7, None),
    "the older one is missing, not looked for": ({7: "mark07"}, 3, 7, [7]),
    "the newer one is missing": ({3: "mark03"}, 2, 7, None),
    "the newer one is missing, not looked for": ({3: "mark03"}, 2, 6, [3]),
    "another one is at its position": (BOTH | {3: "other0"}, 2, 7, None),
    "one without a mark is at its position": (BOTH | {7: ""}, 2, 7, None),
}


@pytest.mark.parametrize(("found", "begin", "end", "proved"), PARTS.values(), ids=PARTS)
def test_what_was_read_proves_what_lies_in_it_or_that_something_is_missing(
    found, begin, end, proved
):
    marks = {Position(each): mark for each, mark in found.items()}
    wanted = None if proved is None else tuple(at(each) for each in proved)
    assert proved_by(KNOWN, marks, Position(begin), Position(end)) == wanted
