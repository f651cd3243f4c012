"""The short form of fragments: its table, and that nothing is lost by it."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rsnotify.errors import Rejected
from rsnotify.publishing.bodies import read_submission
from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.notification import (
    PHRASES,
    render_forms,
    shorten,
    spell_out,
    spell_out_each,
)
from tests.unit.test_urlset import CHANGES, FILLED

TABLE = {
    1: "<url><loc>",
    2: "</loc><lastmod>",
    3: '"/></url>',
    4: '</lastmod><rs:md change="created" datetime="\0',
    5: '</lastmod><rs:md change="updated" datetime="\0',
    6: '</lastmod><rs:md change="deleted" datetime="\0',
    7: '" hash="md5:',
    8: '" hash="sha-256:',
    11: '" length="',
    12: '" type="',
    14: '</changefreq><rs:md change="created" datetime="\0',
    15: '</changefreq><rs:md change="updated" datetime="\0',
    16: '</changefreq><rs:md change="deleted" datetime="\0',
    17: "</lastmod><changefreq>",
    18: '" hash="sha-1:',
    19: '" capability="',
    20: '"/><rs:ln rel="',
    21: '" href="',
    22: '"/><rs:ln rel="http://www.openarchives.org/rs/terms/patch" href="',
    23: '" encoding="',
    24: '" type="application/',
    25: '" type="text/',
    26: '" type="image/',
    27: '</priority><rs:md change="created" datetime="\0',
    28: '</priority><rs:md change="updated" datetime="\0',
    29: '</priority><rs:md change="deleted" datetime="\0',
}
CONTROLS = "".join(map(chr, range(0x20)))


def test_the_table_never_changes():
    """What is in Redis was written with it: a line may be added, no other edit is right."""
    assert {ord(short): phrase.decode() for short, phrase in PHRASES} == TABLE


def test_nothing_that_text_tools_or_holes_need_is_taken():
    assert not {ord(short) for short, _ in PHRASES} & {0, *b"\t\n\r"}


def test_a_change_that_most_resemble_is_halved():
    change = Change("http://example.com/res1", "updated", hash="md5:" + "0" * 32, length=8876)
    xml, short = render_forms(change)
    assert short == b"\1http://example.com/res1\2\0\5\7" + b"0" * 32 + b"\x0b8876\3"
    assert (len(xml), len(short)) == (161, 66)


NOT_IN_XML = {*CONTROLS, "\ufffe", "\uffff"}
LINKED = st.builds(
    Link,
    rel=st.sampled_from(["describes", "http://www.openarchives.org/rs/terms/patch"]),
    href=st.text(min_size=1).filter(lambda text: not set(text) & NOT_IN_XML),
    hash=st.none() | st.just("sha-256:00"),
    type=st.none() | st.sampled_from(["text/html", "application/pdf", "x/y"]),
)
ANY = CHANGES | st.builds(
    msgspec.structs.replace,
    CHANGES,
    hash=st.sampled_from(["md5:0", "sha-256:1", "sha-1:2", "md5:0 sha-1:2", "sha-512:3", "md5"]),
    type=st.none() | st.sampled_from(["text/html", "application/pdf", "image/png", "video/x"]),
    capability=FILLED,
    index=FILLED,
    links=st.lists(LINKED, max_size=2).map(tuple),
)
FOREIGN = st.dictionaries(st.just("{urn:x}length") | st.just("{urn:y}hash"), FILLED.filter(bool))


@example(Change("u:a", "updated", hash="sha-1:2"), None)
@given(ANY, st.none() | FOREIGN)
def test_both_forms_say_the_same(change, foreign):
    try:
        xml, short = render_forms(change, foreign=foreign)
    except Rejected:
        return  # for a character that XML cannot carry
    assert short == shorten(xml)
    assert spell_out(short) == xml
    assert not set(xml.decode()) & set(CONTROLS[1:])


@given(st.lists(ANY, max_size=40))
def test_many_are_spelled_out_like_each(changes):
    forms = [render_forms(change) for change in changes]
    assert spell_out_each([short for _, short in forms]) == [xml for xml, _ in forms]


@pytest.mark.parametrize("number", [0, 1, 99, 100, 101, 200, 201])
def test_so_many_are_spelled_out_together(number):
    forms = [render_forms(Change(f"u:{n}", "updated", length=n)) for n in range(number)]
    assert spell_out_each([short for _, short in forms]) == [xml for xml, _ in forms]


@given(ANY)
def test_what_is_kept_of_a_resource_is_shortened_alone_as_in_its_fragment(change):
    xml, short = render_forms(change)
    loc_end = xml.index(b"</loc>")
    assert shorten(xml[loc_end:]) == short[short.index(b"\2") :]


@given(ANY)
def test_xml_stays_as_it_is(change):
    xml, _ = render_forms(change)
    assert spell_out(xml) == xml
    assert spell_out_each([xml, shorten(xml)]) == [xml, xml]


CODES = [code for code in range(0x20) if code not in b"\t\n\r"]


def is_taken(body: str, content_type: str) -> bool:
    try:
        read_submission("change", body.encode(), content_type, None)
    except Rejected:
        return False
    return True


@pytest.mark.parametrize("field", ["loc", "href", "hash", "type", "lastmod", "encoding"])
def test_no_such_character_can_be_published(field):
    def body(char: str) -> str:
        text = f"http://example.com/{char}" if field in ("loc", "href") else f"text/{char}"
        told = {"links": [{"rel": "up", "href": text}]} if field == "href" else {field: text}
        return json.dumps({"loc": "http://example.com/a", "change": "updated"} | told)

    assert [code for code in CODES if is_taken(body(chr(code)), "application/json")] == []


@pytest.mark.parametrize("written", [chr, "&#{};".format])
def test_nor_in_what_is_kept_of_other_namespaces(written):
    def body(text: str) -> str:
        return (
            '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
            ' xmlns:rs="http://www.openarchives.org/rs/terms/"><url><loc>http://example.com/a</loc>'
            f'<rs:md change="created" xmlns:x="urn:x" x:y="{text}"/></url></urlset>'
        )

    assert is_taken(body("text"), "application/xml")
    assert [code for code in CODES if is_taken(body(written(code)), "application/xml")] == []


@pytest.mark.parametrize("break_", ["\t", "\n", "\r"])
def test_a_line_break_is_written_as_a_reference(break_):
    xml, short = render_forms(Change(f"u:{break_}", "created", lastmod=break_))
    assert xml.count(b"&#%d;" % ord(break_)) == 2
    assert break_.encode() not in short
