"""Changes as entries of an Atom feed."""

import pytest
from lxml import etree

from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.notification import render_forms
from rsnotify.views.atom import FeedHead, render_feed

NOW = Position.parse("2026-11-20T21:34:00.000001Z")
ATOM = "{http://www.w3.org/2005/Atom}"
HEAD = FeedHead("http://h/a/feed.atom", "a", NOW, {"self": "http://h/a/feed.atom?b&c"})


def feed(*changes: Change, is_archive: bool = False) -> etree._Element:
    rows = [(Position(NOW + at), render_forms(each)[0]) for at, each in enumerate(changes)]
    return etree.fromstring(render_feed(HEAD._replace(is_archive=is_archive), rows))


def test_a_feed_has_what_atom_demands_of_one():
    found = feed()
    assert [(each.tag.removeprefix(ATOM), each.text) for each in found] == [
        ("id", "http://h/a/feed.atom"),
        ("title", "a"),
        ("updated", "2026-11-20T21:34:00.000001Z"),
        ("author", None),
        ("link", None),
    ]
    assert found.findtext(f"{ATOM}author/{ATOM}name") == "a"
    assert dict(found[-1].attrib) == {
        "rel": "self",
        "type": "application/atom+xml",
        "href": "http://h/a/feed.atom?b&c",
    }


@pytest.mark.parametrize("is_archive", [False, True])
def test_an_archive_says_that_it_is_one(is_archive):
    marks = feed(is_archive=is_archive).findall("{http://purl.org/syndication/history/1.0}archive")
    assert len(marks) == is_archive


def test_the_newest_change_stands_first_and_a_deletion_is_a_tombstone():
    found = feed(Change("a:1", "created"), Change("a:2", "deleted"), Change("a:1", "updated"))
    first, gone, last = found[5:]
    assert (first.findtext(f"{ATOM}id"), last.findtext(f"{ATOM}id")) == ("a:1", "a:1")
    assert first.findtext(f"{ATOM}updated") == "2026-11-20T21:34:00.000003Z"
    assert gone.tag == "{http://purl.org/atompub/tombstones/1.0}deleted-entry"
    assert dict(gone.attrib) == {"ref": "a:2", "when": "2026-11-20T21:34:00.000002Z"}


def test_an_entry_links_what_the_change_links_but_no_patch():
    links = (
        Link(rel="describedby", href="a:b?c&d", type="text/xml", hash="md5:" + "0" * 32),
        Link(rel="alternate", href="a:other"),
        Link(rel="http://www.openarchives.org/rs/terms/patch", href="a:patch", type="x/y"),
        Link(rel="via", href="a:origin"),
    )
    loc = 'http://a.example/?b&c="'
    (entry,) = feed(Change(loc, "created", type='text/html; a="<"', length=5, links=links))[5:]
    assert [each.tag.removeprefix(ATOM) for each in entry[:3]] == ["id", "title", "updated"]
    assert entry[0].text == entry[1].text == loc
    assert [dict(each.attrib) for each in entry[3:]] == [
        {"rel": "alternate", "href": loc, "type": 'text/html; a="<"', "length": "5"},
        {"rel": "describedby", "href": "a:b?c&d", "type": "text/xml"},
        {"rel": "via", "href": "a:origin"},
    ]


def test_what_is_no_change_is_no_entry():
    with pytest.raises(ValueError, match="is none"):
        render_feed(HEAD, [(NOW, b"<url/>")])
