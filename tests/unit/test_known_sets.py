"""What a process knows of the sets, when changes come in any order."""

from itertools import permutations

import pytest

from rsnotify.resourcesync.change import Position
from rsnotify.sets.options import SetRecord
from rsnotify.sets.records import KnownSets, Version

CREATED, EDITED = "2026-11-22T00:00:00.000000Z", "2026-11-22T00:00:01.000000Z"


def version(number: int, data: bytes = b"data") -> Version:
    return Version(data, number, Position(number))


def record(name: str, edited: str = CREATED) -> SetRecord:
    return SetRecord(name=name, created=CREATED, edited=edited)


@pytest.fixture
def known() -> KnownSets:
    sets = KnownSets()
    sets.replace({"old": record("old")}, version(3))
    return sets


@pytest.mark.parametrize("order", list(permutations((4, 5, 6))))
def test_changes_of_several_sets_are_known_in_whatever_order_they_come(known, order):
    """Otherwise the next check would read all sets."""
    for number in order:
        name = f"set{number}"
        assert known.can_apply(name, record(name), version(number))
        known.apply(name, record(name), version(number))
    assert known.version == version(6)
    assert sorted(known.records) == ["old", "set4", "set5", "set6"]


def test_while_one_is_missing_the_version_stays_behind(known):
    known.apply("set5", record("set5"), version(5))
    known.apply("set6", record("set6"), version(6))
    assert known.version == version(3)
    known.apply("set4", record("set4"), version(4))
    assert known.version == version(6)


def test_an_older_change_of_a_set_does_not_replace_a_newer_one(known):
    known.apply("old", record("old", EDITED), version(5))
    assert not known.can_apply("old", record("old"), version(4))


def test_a_change_that_a_check_has_read_is_seen(known):
    assert known.has_seen("old", record("old"), version(3))
    assert not known.has_seen("old", record("old"), version(4))
    assert not known.has_seen("old", record("old", EDITED), version(3))
    assert not known.has_seen("old", record("old"), version(3, b"other"))
    assert known.has_seen("gone", None, version(2))


def test_the_version_of_other_data_is_not_taken_for_the_next(known):
    known.apply("new", record("new"), version(4, b"other"))
    assert known.version == version(3)
