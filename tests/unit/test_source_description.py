"""How the public sets of a hub are divided into Source Descriptions."""

import pytest

from rsnotify.documents.documents import DescribedSets, source_description_part
from rsnotify.resourcesync.notification import SOURCE_DESCRIPTION
from rsnotify.resourcesync.tables import MAX_ENTRIES

NAMES = ["b", "d", "f", "h", "j"]


@pytest.mark.parametrize(
    ("count", "parts"),
    [
        (0, 1),
        (1, 1),
        (MAX_ENTRIES, 1),
        (MAX_ENTRIES + 1, 2),
        (2 * MAX_ENTRIES, 2),
        (2 * MAX_ENTRIES + 1, 3),
    ],
)
def test_there_are_as_many_source_descriptions_as_the_sets_need(count, parts):
    described = DescribedSets(range(count))
    assert described.parts == parts
    named = [described.part(number) for number in range(1, parts + 1)]
    assert sum(map(len, named)) == count
    assert max(map(len, named)) <= MAX_ENTRIES


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_each_set_is_described_where_it_is_named(most):
    described = DescribedSets(NAMES, most)
    for number in range(1, described.parts + 1):
        for name in described.part(number):
            assert described.described_in(name) == source_description_part(number)


@pytest.mark.parametrize(
    ("name", "number"), [("a", 1), ("c", 1), ("e", 2), ("g", 2), ("i", 3), ("z", 3)]
)
def test_a_private_set_has_the_source_description_that_would_name_it(name, number):
    assert DescribedSets(NAMES, 2).described_in(name) == source_description_part(number)


def test_the_last_source_description_stands_for_what_would_come_behind_it():
    assert DescribedSets(NAMES[:4], 2).described_in("z") == source_description_part(2)


def test_the_only_source_description_has_no_number():
    assert DescribedSets(NAMES, len(NAMES)).described_in("b") == SOURCE_DESCRIPTION
