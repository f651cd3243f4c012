"""What a load comes to: what is the same, what may be deleted, what is published."""

from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

from rsnotify.errors import Rejected
from rsnotify.journal.submission import fragment_of
from rsnotify.publishing.loads.load import (
    Difference,
    LoadOptions,
    fragments_of,
    is_same,
    read_options,
)
from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.notification import LOC_END

LOC = "http://example.com/a&b"
AT = Position.parse("2026-11-21T00:00:00.000001Z")
GIVEN = "2026-01-01T00:00:00Z"
PATCH = Link("http://www.openarchives.org/rs/terms/patch", "http://example.com/patch")
OTHER = Link("describes", "http://example.com/other")


def rest_of(change: Change) -> bytes:
    short = fragment_of(change).short
    return short[short.index(LOC_END) :]


def changed(how: str = "created", **fields: object) -> bytes:
    return rest_of(Change(LOC, how, **fields))


SAME = [
    ({}, {}),
    ({"change": "updated", "length": 1}, {"length": 1}),
    ({"lastmod": GIVEN}, {"lastmod": GIVEN}),
    ({"lastmod": GIVEN, "length": 1}, {"length": 1}),
    ({}, {"lastmod": str(AT)}),
    ({"links": (PATCH, OTHER)}, {"links": (OTHER,)}),
]
DIFFERENT = [
    ({"length": 1}, {}),
    ({}, {"length": 1}),
    ({"lastmod": GIVEN}, {"lastmod": str(AT)}),
    ({}, {"lastmod": GIVEN}),
    ({"links": (OTHER,)}, {}),
    ({"type": "text/html"}, {"type": "text/plain"}),
]


@pytest.mark.parametrize(
    ("known", "brought", "same"),
    [(*pair, True) for pair in SAME] + [(*pair, False) for pair in DIFFERENT],
)
def test_a_resource_is_the_same_if_the_same_is_said_of_it(known, brought, same):
    fields = dict(known)
    kept = str(int(AT)).encode() + changed(str(fields.pop("change", "created")), **fields)
    assert is_same(b"http://example.com/a&amp;b", kept, changed(**brought)) is same


def test_a_difference_is_published_as_the_change_that_it_is():
    differences = [
        Difference("updated", b"http://example.com/a&amp;b", changed(length=1, lastmod=GIVEN)),
        Difference("deleted", b"http://example.com/a&amp;b", b""),
    ]
    expected = [
        fragment_of(Change(LOC, "updated", lastmod=GIVEN, length=1)),
        fragment_of(Change(LOC, "deleted")),
    ]
    assert fragments_of(differences, "t") == [replace(each, load="t") for each in expected]


def test_so_many_bytes_are_published_at_once():
    one = Difference("created", b"http://example.com/a&amp;b", changed())
    size = len(fragments_of([one], "t")[0].xml)
    assert len(fragments_of([one] * 9, "t", 2 * size)) == 3
    left = iter([one] * 1_000)
    assert len(fragments_of(left, "t", 2 * size)) == 3
    assert len(list(left)) > 990, "what is not published now is not looked at either"
    assert len(fragments_of([one] * 9, "t", 0)) == 1


@pytest.mark.parametrize(
    ("query", "options"),
    [
        (b"", LoadOptions(None, False, 10.0)),
        (b"publish=no&dry_run=yes", LoadOptions(False, True)),
        (b"max_delete=0.5&publish=yes", LoadOptions(True, False, 0.5)),
        (b"max_delete=100", LoadOptions(max_delete=100.0)),
        (b"max_delete=1.5e-3", LoadOptions(max_delete=0.0015)),
    ],
)
def test_options_are_read(query, options):
    assert read_options(query) == options


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("publish", "", "publish is '': it must be yes or no"),
        ("dry_run", "true", "dry_run is 'true': it must be yes or no"),
        ("max_delete", "100.1", "percent from 0 to 100"),
        ("max_delete", "-1", "percent from 0 to 100"),
        ("max_delete", "1e3", "percent from 0 to 100"),
        ("max_delete", "1_0", "percent from 0 to 100"),
        ("max_delete", "nan", "percent from 0 to 100"),
        ("max_delete", "²", "percent from 0 to 100"),
        ("max_delete", ".", "percent from 0 to 100"),
        ("loc", "x", "unknown parameter 'loc'; known here: publish, dry_run, max_delete"),
    ],
)
def test_an_option_that_cannot_be_read_is_said(name, text, says):
    with pytest.raises(Rejected) as refused:
        read_options(urlencode({name: text}).encode())
    assert says in refused.value.detail


def test_the_name_that_an_option_had_names_the_one_that_it_has():
    with pytest.raises(Rejected, match="`tell` is called `publish`"):
        read_options(b"dry_run=yes&tell=no")


def test_an_option_is_given_once():
    with pytest.raises(Rejected, match="`publish` is given more than once"):
        read_options(b"publish=yes&publish=yes")


@pytest.mark.parametrize(
    ("publish", "known", "published"),
    [(None, 0, False), (None, 1, True), (True, 0, True), (False, 1, False)],
)
def test_only_the_load_of_an_empty_set_is_not_published(publish, known, published):
    assert LoadOptions(publish).publishes(known) is published
