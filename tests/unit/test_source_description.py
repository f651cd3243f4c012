"""How the public sets of a hub are divided into Source Descriptions."""

import pytest

from rsnotify.access.base_url import BASE_BYTES
from rsnotify.documents.discovery import FEW
from rsnotify.documents.documents import (
    MOST_DESCRIBED,
    DescribedSets,
    most_bytes_of,
    source_description,
    source_description_part,
)
from rsnotify.resourcesync.change_rules import URI_CHARACTERS
from rsnotify.resourcesync.notification import SOURCE_DESCRIPTION
from rsnotify.resourcesync.tables import MAX_BYTES, MAX_ENTRIES
from rsnotify.resourcesync.xml_writer import render_document
from rsnotify.sets.options import SetRecord

NAMES = ["b", "d", "f", "h", "j"]
LONGEST = "http://e/".ljust(URI_CHARACTERS, "&")
LONG_BASE = "http://".ljust(BASE_BYTES, "h")


def records(names, **options):
    return [SetRecord(name=name, created="", **options) for name in names]


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
    described = DescribedSets.of(records(map(str, range(count))))
    assert described.parts == parts
    named = [described.part(number) for number in range(1, parts + 1)]
    assert sum(map(len, named)) == count
    assert max(map(len, named)) <= MAX_ENTRIES


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_each_set_is_described_where_it_is_named(most):
    described = DescribedSets.of(records(NAMES), most)
    for number in range(1, described.parts + 1):
        for name in described.part(number):
            assert described.described_in(name) == source_description_part(number)


@pytest.mark.parametrize(
    ("name", "number"), [("a", 1), ("c", 1), ("e", 2), ("g", 2), ("i", 3), ("z", 3)]
)
def test_a_private_set_has_the_source_description_that_would_name_it(name, number):
    assert DescribedSets.of(records(NAMES), 2).described_in(name) == source_description_part(number)


def test_the_last_source_description_stands_for_what_would_come_behind_it():
    assert DescribedSets.of(records(NAMES[:4]), 2).described_in("z") == source_description_part(2)


def test_the_only_source_description_has_no_number():
    assert DescribedSets.of(records(NAMES), len(NAMES)).described_in("b") == SOURCE_DESCRIPTION


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sockets_first": True},
        {"describedby": "http://example.com/"},
        {"describedby": LONGEST, "sockets_first": True},
        {"describedby": "http://example.com/\N{SNOWMAN}"},
    ],
)
def test_the_most_bytes_of_a_set_are_those_under_the_longest_base_url(options):
    (record,) = records(["a" * 64], **options)
    lengths = [
        len(render_document(source_description(LONG_BASE, named, None))) for named in ([], [record])
    ]
    assert lengths[1] - lengths[0] == most_bytes_of(record)


@pytest.mark.parametrize(("less", "parts"), [(0, [5]), (1, [4, 1])])
def test_a_source_description_has_no_more_bytes_than_it_may(less, parts):
    named = records(NAMES, describedby=LONGEST)
    size = sum(map(most_bytes_of, named)) - less
    described = DescribedSets.of(named, size=size)
    assert [len(described.part(number + 1)) for number in range(described.parts)] == parts


@pytest.mark.evidence
def test_sets_with_the_longest_addresses_fit_into_documents():
    named = records(map(str, range(5_100)), describedby=LONGEST, sockets_first=True)
    described = DescribedSets.of(named)
    assert described.parts == 2
    by_name = {record.name: record for record in named}
    for number in (1, 2):
        of_part = [by_name[name] for name in described.part(number)]
        part = source_description(LONG_BASE, of_part, LONGEST, is_part=True)
        assert len(render_document(part)) <= MAX_BYTES


def test_few_sets_fit_into_one_whatever_addresses_they_have():
    (longest,) = records(["a" * 64], describedby=LONGEST, sockets_first=True)
    assert FEW * most_bytes_of(longest) <= MOST_DESCRIBED


def test_sets_without_addresses_are_divided_by_their_number_alone():
    (longest,) = records(["a" * 64], sockets_first=True)
    assert MAX_ENTRIES * most_bytes_of(longest) <= MOST_DESCRIBED
