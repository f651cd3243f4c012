"""Records that Redis has lost are put back; what was removed goes again."""

import pytest

from rsnotify.journal.healing import REMEMBERED_RECORDS, REMEMBERED_SECONDS, Recent, plan_recall

CASES = {
    "nothing lost": ({"a": 1}, {}, {"a": 1}, [], []),
    "a new one lost": ({"a": 1}, {}, {}, ["a"], []),
    "an edit lost": ({"a": 2}, {}, {"a": 1}, ["a"], []),
    "edited since by another": ({"a": 1}, {}, {"a": 2}, [], []),
    "made since by another": ({}, {}, {"a": 1}, [], []),
    "a removal lost": ({}, {"a": 1}, {"a": 1}, [], ["a"]),
    "a removal and an edit before it lost": ({}, {"a": 2}, {"a": 1}, [], ["a"]),
    "removed, and made again since": ({}, {"a": 1}, {"a": 2}, [], []),
    "removed and made again, both lost": ({"a": 2}, {"a": 1}, {"a": 1}, ["a"], []),
}


@pytest.mark.parametrize(
    ("known", "removed", "stored", "put_back", "remove"), CASES.values(), ids=CASES
)
def test_which_records_are_put_back_or_removed(known, removed, stored, put_back, remove):
    assert plan_recall(known, removed, stored, lambda age: age) == (put_back, remove)


def test_a_record_is_remembered_for_a_minute():
    recent: Recent[str] = Recent()
    recent.note("a", "record", now=0.0)
    assert recent.has("a", REMEMBERED_SECONDS)
    assert not recent.has("a", REMEMBERED_SECONDS + 0.1)
    assert not recent.has("b", 0.0)
    assert recent.at(REMEMBERED_SECONDS) == {"a": "record"}
    assert recent.at(REMEMBERED_SECONDS + 0.1) == {}


def test_the_newest_of_too_many_are_remembered():
    recent: Recent[int] = Recent()
    for number in range(REMEMBERED_RECORDS + 1):
        recent.note(str(number), number, now=0.0)
    assert len(recent.at(0.0)) == REMEMBERED_RECORDS
    assert "0" not in recent.at(0.0)


def test_what_is_noted_again_is_as_young_as_its_last_note():
    recent: Recent[int] = Recent()
    recent.note("a", 1, now=0.0)
    recent.note("b", 1, now=1.0)
    recent.note("a", 2, now=REMEMBERED_SECONDS)
    assert recent.at(REMEMBERED_SECONDS + 1.1) == {"a": 2}
