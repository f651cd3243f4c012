"""Changes as activities of IIIF Change Discovery."""

import json
from typing import get_args

import pytest

from rsnotify.cli import administer
from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.notification import render_forms
from rsnotify.sets.options import IiifType
from rsnotify.views.activities import CONTEXT, render_collection, render_page

NOW = Position.parse("2026-11-20T21:34:00.000001Z")
COLLECTION, PAGE = "http://h/a/activities", "http://h/a/activities/2026"


def page(*changes: Change, kind: IiifType = "Manifest", **beside: str | None) -> dict:
    rows = [(Position(NOW + at), render_forms(each)[0]) for at, each in enumerate(changes)]
    return json.loads(render_page(PAGE, COLLECTION, rows, kind, **beside))


def test_a_collection_names_its_last_page():
    assert json.loads(render_collection(COLLECTION, PAGE)) == {
        "@context": CONTEXT,
        "id": COLLECTION,
        "type": "OrderedCollection",
        "last": {"id": PAGE, "type": "OrderedCollectionPage"},
    }


@pytest.mark.parametrize("prev", [None, "http://h/a/activities/2025"])
@pytest.mark.parametrize("following", [None, "http://h/a/activities/2027"])
def test_a_page_names_the_pages_beside_it_that_there_are(prev, following):
    found = page(prev=prev, next=following)
    for name, address in (("prev", prev), ("next", following)):
        there = None if address is None else {"id": address, "type": "OrderedCollectionPage"}
        assert found.get(name) == there
    assert found["partOf"] == {"id": COLLECTION, "type": "OrderedCollection"}
    assert (found["id"], found["type"], found["orderedItems"]) == (
        PAGE,
        "OrderedCollectionPage",
        [],
    )


@pytest.mark.parametrize("kind", get_args(IiifType))
def test_each_change_is_an_activity_the_oldest_first(kind):
    links = (Link(rel="describedby", href="a:b"),)
    found = page(
        Change("http://a/?b&c='", "created", type="a/b", links=links),
        Change("http://a/2", "updated", length=5),
        Change("http://a/?b&c='", "deleted"),
        kind=kind,
    )
    assert found["orderedItems"] == [
        {
            "type": what,
            "object": {"id": loc, "type": kind},
            "endTime": f"2026-11-20T21:34:00.00000{at}Z",
        }
        for at, what, loc in (
            (1, "Create", "http://a/?b&c='"),
            (2, "Update", "http://a/2"),
            (3, "Delete", "http://a/?b&c='"),
        )
    ]


def test_what_is_no_change_is_no_activity():
    with pytest.raises(ValueError, match="is none"):
        render_page(PAGE, COLLECTION, [(NOW, b"<url/>")], "Manifest")


def test_the_command_knows_what_resources_may_be_to_iiif():
    assert get_args(IiifType) == administer.IIIF_TYPES
