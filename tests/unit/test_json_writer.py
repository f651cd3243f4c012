"""JSON out: what was published comes back as it was published, with its datetime."""

import json
from typing import Any
from xml.sax.saxutils import quoteattr

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rsnotify.errors import Rejected
from rsnotify.publishing.bodies import read_submission
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.json_writer import (
    EntriesAsJson,
    entries_as_json,
    render_empty_json,
    render_json,
    render_notification_json,
)
from rsnotify.resourcesync.notification import (
    ChannelName,
    render_forms,
    render_notification,
    render_rows,
    resource_entries,
)
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify.resourcesync.xml_writer import (
    RS_NS,
    SITEMAP_NS,
    Document,
    Entry,
    ForeignLink,
    Link,
    Md,
    close_root,
    open_root,
)
from tests.support.jsonform import may_be_published, told
from tests.unit.test_urlset import CHANGES, VALUES, fill


def render_fragment(change: Change, foreign: dict[str, str] | None = None) -> bytes:
    return render_forms(change, foreign=foreign)[0]


NOW = Position.parse("2026-11-20T21:34:00.123456Z")
JSON = "application/json"

WORDS = st.text(st.sampled_from("abc/?&=;%20é\\'\U0001f600"), min_size=1, max_size=12).map(
    lambda text: text.replace("%", "%25").replace("\\", "%5C")
)
HREFS = WORDS.map("http://example.com/{}".format)
LOCS = HREFS.map(lambda href: href.encode("ascii", "ignore").decode())
TYPES = st.sampled_from(["text/html", 'text/html; a="\\&<"', "application/vnd.a+json"])
MOMENTS = st.sampled_from(["2026-01-01", "2026", "2026-11-20T21:34:00Z", "2026-11-20T21:34:00.5Z"])
HASHES = st.sampled_from(["md5:" + "a1" * 16, "md5:" + "a1" * 16 + " sha-256:" + "0F" * 32])
TEXTS = st.text(st.sampled_from("ab\"'&<>\\\t\n\r é"), min_size=1, max_size=9)
NUMBERS = st.integers(0, 10**18 - 1)
ABOUT = {"hash": HASHES, "length": NUMBERS, "type": TYPES, "encoding": TEXTS}
LINK = st.fixed_dictionaries(
    {"rel": st.sampled_from(["duplicate", "index", "http://example.com/rel?a&b"]), "href": HREFS},
    optional=ABOUT
    | {"modified": st.just("2026-11-20T21:34:00Z"), "pri": st.integers(1, 999_999)}
    | {"path": st.just("/a b/ü"), "profile": TEXTS},
)
PUBLISHED = st.fixed_dictionaries(
    {"loc": LOCS, "change": st.sampled_from(["created", "updated", "deleted"])},
    optional=ABOUT
    | {"lastmod": MOMENTS, "changefreq": st.just("daily"), "priority": st.just(0.8)}
    | {"links": st.lists(LINK, min_size=1, max_size=3)},
)
OF_FRAMEWORK = st.fixed_dictionaries(
    {"loc": LOCS, "change": st.just("updated"), "capability": st.just("changelist")},
    optional={"index": st.just("http://example.org/?i&j")},
)


def written(published: dict[str, Any], kind: str) -> bytes:
    """The entry that a published change becomes, at its place in the journal."""
    body = json.dumps(published).encode()
    (fragment,) = read_submission(kind, body, JSON, None).fragments
    return render_rows([(NOW, fragment.xml)])


def back(entries: bytes) -> dict[str, Any]:
    (found,) = entries_as_json(entries)
    changed: dict[str, Any] = json.loads(found)
    return changed


@given(PUBLISHED)
def test_a_published_change_comes_back_with_its_datetime(published):
    at = str(NOW)
    assert back(written(published, "change")) == {"lastmod": at} | published | {"datetime": at}


@given(OF_FRAMEWORK)
def test_a_framework_change_comes_back_with_its_index(published):
    at = str(NOW)
    found = back(written(published, "framework"))
    assert found == {"lastmod": at} | published | {"datetime": at}


@given(PUBLISHED)
def test_the_schema_holds_what_is_published_and_what_comes_back(published):
    assert may_be_published(published)
    changes = [back(written(published, "change"))]
    assert may_be_published(changes[0])
    around = {"capability": "changelist", "from": str(NOW), "links": [], "changes": changes}
    assert told(json.dumps(around)) == around


@pytest.mark.parametrize(
    "wrong",
    [
        {"change": "updated"},
        {"loc": "http://e.org/a"},
        {"loc": "http://e.org/a", "change": "gone"},
        {"loc": "http://e.org/a", "change": "updated", "size": 1},
        {"loc": "http://e.org/a", "change": "updated", "length": -1},
        {"loc": "http://e.org/a", "change": "updated", "links": [{"rel": "up"}]},
        {"loc": "http://e.org/a", "change": "updated", "foreign": {"{urn:x}a": "1"}},
    ],
)
def test_what_the_schema_refuses_the_hub_refuses(wrong):
    assert not may_be_published(wrong)
    with pytest.raises(Rejected):
        written(wrong, "change")


@given(PUBLISHED)
def test_what_comes_back_can_be_published_as_it_is(published):
    entry = written(published, "change")
    assert written(back(entry), "change") == entry


@given(CHANGES)
def test_any_entry_says_in_json_what_it_says_in_xml(change):
    entries = fill(render_fragment(change))
    (entry,) = parse_document(open_root("urlset") + entries + close_root("urlset")).entries
    (found,) = entries_as_json(entries)
    assert msgspec.json.decode(found, type=Change) == change_of(entry)


def test_attributes_of_other_namespaces_stand_under_their_full_names():
    foreign = {"{urn:x}a": "1<2", "{http://www.w3.org/XML/1998/namespace}lang": "en"}
    link = ForeignLink(rel="up", href="u:a", foreign={"{urn:y}b": "2"})
    change = Change("u:a", "created", links=(link,))
    found = back(fill(render_fragment(change, foreign=foreign)))
    assert found["foreign"] == foreign
    assert found["links"] == [{"rel": "up", "href": "u:a", "foreign": {"{urn:y}b": "2"}}]


SYLLABLES = st.lists(st.sampled_from(["a", "&", "<", " length=", " x9:b="])).map("".join)


@given(st.dictionaries(st.text("ab·、\u0300").map("a{}".format), SYLLABLES))
@example({"a、": " x9:b=", "b": "1"})
def test_attributes_of_other_namespaces_come_back_whatever_they_are_called_and_say(attributes):
    said = "".join(f" x:{name}={quoteattr(text)}" for name, text in attributes.items())
    body = (
        f'<urlset xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}"><url><loc>u:a</loc>'
        f'<rs:md change="created" xmlns:x="urn:x"{said}/></url></urlset>'
    )
    (fragment,) = read_submission("change", body.encode(), "application/xml", None).fragments
    expected = {f"{{urn:x}}{name}": text for name, text in attributes.items()}
    assert back(render_rows([(NOW, fragment.xml)])).get("foreign", {}) == expected


@given(st.lists(PUBLISHED, max_size=4), st.integers(1, 40))
def test_pieces_cut_anywhere_give_the_same(published, size):
    entries = b"".join(written(each, "change") for each in published)
    writer = EntriesAsJson()
    pieces = [writer.feed(entries[at : at + size]) for at in range(0, len(entries), size)]
    assert b"".join(pieces) == b",\n".join(entries_as_json(entries))


def test_a_notification_says_its_interval_and_its_links():
    channel = ChannelName("dataset1", "change")
    fragment = written({"loc": "http://example.com/a", "change": "deleted"}, "change")
    found = render_notification(
        channel, Position(NOW - 1), [(NOW, fragment)], base_url="http://hub.example.org"
    )
    assert json.loads(render_notification_json(found)) == {
        "capability": "change-notification",
        "from": "2026-11-20T21:34:00.123455Z",
        "until": "2026-11-20T21:34:00.123456Z",
        "links": [{"rel": "up", "href": "http://hub.example.org/dataset1/capabilitylist.xml"}],
        "changes": [
            {
                "loc": "http://example.com/a",
                "lastmod": str(NOW),
                "change": "deleted",
                "datetime": str(NOW),
            }
        ],
    }


def test_before_there_is_a_notification_an_empty_one_says_where_it_begins():
    found = json.loads(render_empty_json("change-notification", NOW))
    assert (found["from"], found["until"], found["changes"]) == (str(NOW), str(NOW), [])


def test_a_notification_is_one_line():
    channel = ChannelName("dataset1", "change")
    rows = [(NOW, written({"loc": "http://e.org/a", "change": "deleted"}, "change"))] * 2
    found = render_notification(channel, Position(NOW - 1), rows, base_url="http://hub.example")
    assert b"\n" not in render_notification_json(found)


def test_a_resource_has_no_change():
    entry = resource_entries(written({"loc": "http://e.org/a", "change": "created"}, "change"))
    assert back(entry) == {"loc": "http://e.org/a", "lastmod": str(NOW)}


def test_an_index_names_its_documents():
    document = Document(
        root="sitemapindex",
        md=Md(capability="changelist", from_="2026-01-01T00:00:00Z"),
        links=(Link("up", "http://e.org/c"),),
        entries=(Entry("http://e.org/1", md=Md(from_="2026-01-01T00:00:00Z")),),
    )
    assert json.loads(render_json(document)) == {
        "capability": "changelist",
        "from": "2026-01-01T00:00:00Z",
        "links": [{"rel": "up", "href": "http://e.org/c"}],
        "documents": [{"loc": "http://e.org/1", "from": "2026-01-01T00:00:00Z"}],
    }


@given(VALUES)
def test_a_description_may_have_any_text_in_its_links(href):
    document = Document(root="urlset", links=(Link("describedby", href),))
    assert json.loads(render_json(document))["links"] == [{"rel": "describedby", "href": href}]
