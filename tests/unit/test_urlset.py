"""XML in and out: literals in, literals out; hostile documents; reading undoes writing."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.notification import HOLE, render_forms, resource_entries
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify.resourcesync.xml_writer import (
    RS_NS,
    SITEMAP_NS,
    Document,
    Entry,
    ForeignLink,
    Md,
    close_root,
    foreign_of,
    open_root,
    render_document,
    strays,
)


def render_fragment(change: Change, foreign: dict[str, str] | None = None) -> bytes:
    return render_forms(change, foreign=foreign)[0]


NOW = "2026-11-20T21:34:00.123456Z"
MD5 = "md5:1584abdf8ebdc9802ac0c6a7402c03b6"


def urlset(body: str) -> bytes:
    return f'<urlset xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}">{body}</urlset>'.encode()


def fill(fragment: bytes) -> bytes:
    return fragment.replace(HOLE, NOW.encode())


def refusal(data: bytes) -> Rejected:
    with pytest.raises(Rejected) as refused:
        parse_document(data)
    return refused.value


# Reading ---------------------------------------------------------------------------------------


def test_every_element_and_attribute_is_read():
    data = urlset(
        '<rs:ln rel="up" href="http://e.org/c"/>'
        '<rs:md capability="changelist" from="2026-01-01T00:00:00Z" until="2026-01-02T00:00:00Z"/>'
        "<url><loc> http://e.org/a&amp;b </loc><lastmod>2026-01-01</lastmod>"
        "<changefreq>daily</changefreq><priority>0.5</priority>"
        f'<rs:md change="updated" datetime="2026-01-01T01:00:00Z" hash="{MD5}" length="8876"'
        ' type="text/html" encoding="gzip" path="/a" modified="m" at="a" completed="c"/>'
        '<rs:ln rel="duplicate" href="http://m.org/a" pri="1" length="2" profile="p"/></url>'
    )
    entry = Entry(
        loc="http://e.org/a&b",
        lastmod="2026-01-01",
        changefreq="daily",
        priority="0.5",
        md=Md(
            change="updated",
            datetime="2026-01-01T01:00:00Z",
            hash=MD5,
            length=8876,
            type="text/html",
            encoding="gzip",
            path="/a",
            modified="m",
            at="a",
            completed="c",
        ),
        links=(Link(rel="duplicate", href="http://m.org/a", pri=1, length=2, profile="p"),),
    )
    assert parse_document(data) == Document(
        root="urlset",
        md=Md(capability="changelist", from_="2026-01-01T00:00:00Z", until="2026-01-02T00:00:00Z"),
        links=(Link(rel="up", href="http://e.org/c"),),
        entries=(entry,),
    )


def test_a_sitemapindex_has_sitemaps():
    data = f'<sitemapindex xmlns="{SITEMAP_NS}"><sitemap><loc>u:a</loc></sitemap></sitemapindex>'
    assert parse_document(data.encode()) == Document("sitemapindex", entries=(Entry("u:a"),))


def test_any_prefixes_will_do():
    data = (
        f'<s:urlset xmlns:s="{SITEMAP_NS}" xmlns:t="{RS_NS}"><s:url><s:loc>u:a</s:loc>'
        '<t:md change="created"/></s:url></s:urlset>'
    )
    entries = (Entry("u:a", md=Md(change="created")),)
    assert parse_document(data.encode()) == Document("urlset", entries=entries)


def test_comments_and_character_data_are_read_through():
    data = urlset("<url><loc>u:<!-- no -->a<![CDATA[&]]><?p i?>b</loc></url>")
    assert parse_document(data).entries[0].loc == "u:a&b"


def test_elements_of_other_namespaces_are_passed_over():
    data = urlset('<x xmlns="urn:x"/><url><loc>u:a</loc><y xmlns="urn:x"><z/></y></url>')
    assert parse_document(data) == Document("urlset", entries=(Entry("u:a"),))


def test_attributes_of_other_namespaces_are_kept_by_their_full_name():
    data = urlset('<rs:md xmlns:x="urn:x" x:seq="1"/><rs:ln xmlns:x="urn:x" rel="up" x:seq="2"/>')
    document = parse_document(data)
    assert document.md == Md(foreign={"{urn:x}seq": "1"})
    assert document.links == (ForeignLink(rel="up", href="", foreign={"{urn:x}seq": "2"}),)


@pytest.mark.parametrize("length", ["-1", "1.5", "", "many", "٣", "9" * 19])
def test_a_length_that_is_no_number_is_kept_as_a_stray(length):
    md = parse_document(urlset(f'<rs:md length="{length}"/>')).md
    assert (md.length if md else 0, strays(md)) == (None, {"length": length})


def test_strays_and_foreign_attributes_are_told_apart():
    md = Md(foreign={"{urn:x}seq": "1", "seq": "2"})
    assert (foreign_of(md), strays(md)) == ({"{urn:x}seq": "1"}, {"seq": "2"})


# What is refused -------------------------------------------------------------------------------

BOMB = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
HOSTILE = {
    "nothing": (b"", "Document is empty"),
    "no XML": (b"change", "Start tag expected"),
    "cut off": (urlset("<url><loc>u:a</loc></url>")[:-5], "not well-formed XML"),
    "broken UTF-8": (urlset("<url/>").replace(b"<url/>", b"<url>\xff</url>"), "is not UTF-8"),
    "control character": (urlset("<url><loc>u:\x07</loc></url>"), "Char value 7"),
    "NUL": (urlset("<url><loc>u:\0</loc></url>"), "not well-formed XML"),
    "escaped control character": (urlset("<url><loc>&#7;</loc></url>"), "not well-formed XML"),
    "undeclared entity": (urlset("<url><loc>&who;</loc></url>"), "who"),
    "undeclared prefix": (urlset('<rs:md x:seq="1"/>'), "Namespace prefix x"),
    "repeated attribute": (urlset('<rs:md change="a" change="b"/>'), "change redefined"),
    "deep nesting": (urlset("<a>" * 10_000 + "</a>" * 10_000), "Excessive depth"),
    "DOCTYPE": (b"<!DOCTYPE urlset>" + urlset(""), "DOCTYPE"),
    "external DTD": (b'<!DOCTYPE urlset SYSTEM "file:///etc/passwd">' + urlset(""), "DOCTYPE"),
    "external entity": (
        b'<!DOCTYPE u [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
        + urlset("<url><loc>&x;</loc></url>"),
        "DOCTYPE",
    ),
    "entity": (
        b'<!DOCTYPE u [<!ENTITY e0 "u:a">]>' + urlset("<url><loc>&e0;</loc></url>"),
        "DOCTYPE",
    ),
    "entity bomb in text": (
        f'<!DOCTYPE u [<!ENTITY e0 "lol">{BOMB}]>'.encode() + urlset("<url><loc>&e11;</loc></url>"),
        "DOCTYPE",
    ),
    "entity bomb in an attribute": (
        f'<!DOCTYPE u [<!ENTITY e0 "lol">{BOMB}]>'.encode() + urlset('<rs:md hash="&e11;"/>'),
        "DOCTYPE",
    ),
    "no namespace": (b"<urlset><url><loc>u:a</loc></url></urlset>", f'xmlns="{SITEMAP_NS}"'),
    "another namespace": (b'<urlset xmlns="urn:x"/>', "namespace urn:x"),
    "another root": (
        f'<url xmlns="{SITEMAP_NS}"/>'.encode(),
        "it must be <urlset> or <sitemapindex>",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_document_that_cannot_be_read_is_refused_with_the_reason(name):
    data, reason = HOSTILE[name]
    refused = refusal(data)
    assert refused.status == 400
    assert reason in refused.detail


MISPLACED = {
    "<loc>u:a</loc><loc>u:b</loc>": "<loc> (line 1) occurs twice: keep one",
    "<rs:md/><rs:md/>": "<rs:md> (line 1) occurs twice: keep one",
    "<loc>u:<b>a</b></loc>": "<loc> (line 1) contains an element: it must contain text only",
    "<rs:nd/>": "<rs:nd> (line 1) is not allowed here: remove it",
    "<url/>": "<url> (line 1) is not allowed here: remove it",
    "<md/>": f"<md> (line 1) must be in namespace {RS_NS}: declare it",
    '<x:md xmlns:x="http://www.openarchives.org/rs/terms"/>': (
        "<md> in namespace http://www.openarchives.org/rs/terms (line 1) "
        f"must be in namespace {RS_NS}: declare it"
    ),
}


@pytest.mark.parametrize("body", MISPLACED)
def test_a_misplaced_element_is_a_fault_of_its_entry(body):
    refused = refusal(urlset(f"<url/><url>{body}</url>"))
    assert [fault.get("index") for fault in refused.faults] == [1]
    assert refused.faults[0]["message"] == MISPLACED[body]


def test_a_misplaced_element_of_the_root_has_no_entry():
    refused = refusal(urlset("<url/><sitemap/><loc>u:a</loc>"))
    assert [(fault["field"], fault.get("index")) for fault in refused.faults] == [
        ("sitemap", None),
        ("loc", None),
    ]


def test_every_faulty_entry_is_named():
    refused = refusal(urlset("<url><url/></url><url/><url><rs:x/></url>"))
    assert [fault.get("index") for fault in refused.faults] == [0, 2]
    assert refused.detail.endswith("(and 1 more)")


def test_reading_stops_at_a_hundred_faults():
    assert len(refusal(urlset("<url><url/></url>" * 1000)).faults) == 100


def test_reading_stops_at_a_hundred_attributes_astray():
    one = '<url><rs:md x="1" y="2"/><rs:ln rel="up" href="u:a" z="3"/></url>'
    assert len(parse_document(urlset(one * 33)).entries) == 33
    refused = refusal(urlset(one * 10_000))
    assert (len(refused.faults), refused.faults[-1]) == (
        100,
        {"index": 33, "field": "x", "message": "x='1' is not allowed here"},
    )
    assert refused.detail == "x='1' is not allowed here (and 99 more)"


def test_a_document_of_more_entries_than_asked_for_is_not_read():
    assert len(parse_document(urlset("<url/>" * 3), most_entries=3).entries) == 3
    with pytest.raises(Rejected, match="has 4 changes, more than 3; post") as refused:
        parse_document(urlset("<url/>" * 4), most_entries=3)
    assert refused.value.status == 413


# Writing ---------------------------------------------------------------------------------------


def test_a_document_is_written_in_the_order_that_the_schemas_allow():
    entry = Entry(
        loc="u:a",
        lastmod="2026-01-01",
        changefreq="daily",
        priority="0.5",
        md=Md(length=5, change="updated", from_="f"),
        links=(Link(rel="via", href="u:b", pri=2),),
    )
    document = Document(
        "urlset", Md(capability="changelist"), (Link(rel="up", href="u:c"),), (entry,)
    )
    assert render_document(document).decode() == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}">'
        '<rs:ln rel="up" href="u:c"/><rs:md capability="changelist"/>'
        "<url><loc>u:a</loc><lastmod>2026-01-01</lastmod><changefreq>daily</changefreq>"
        '<priority>0.5</priority><rs:md change="updated" from="f" length="5"/>'
        '<rs:ln rel="via" href="u:b" pri="2"/></url></urlset>\n'
    )


def test_a_foreign_attribute_declares_its_own_prefix():
    md = Md(
        foreign={
            "{urn:x}seq": "1",
            "{urn:x}part": "2",
            "{http://www.w3.org/XML/1998/namespace}lang": "de",
            "bare": "3",
        }
    )
    written = render_document(Document("urlset", md)).decode()
    assert (
        '<rs:md xmlns:x0="urn:x" x0:seq="1" xmlns:x1="urn:x" x1:part="2" xml:lang="de" bare="3"/>'
    ) in written


@pytest.mark.parametrize("character", ["\0", "\x1b", "\ud800", "\uffff"])
def test_what_xml_cannot_carry_is_refused(character):
    with pytest.raises(Rejected, match=f"U\\+{ord(character):04X}"):
        render_fragment(Change(loc=f"u:{character}", change="created"))


# Fragments -------------------------------------------------------------------------------------


def test_the_position_stands_for_a_missing_lastmod():
    assert render_fragment(Change(loc="u:a", change="deleted")) == (
        b'<url><loc>u:a</loc><lastmod>\0</lastmod><rs:md change="deleted" datetime="\0"/></url>'
    )


def test_a_fragment_has_every_field_in_its_order():
    change = Change(
        loc="u:a",
        change="updated",
        lastmod="2026-01-01",
        datetime="2026-01-01T00:00:00Z",
        hash=MD5,
        length=0,
        type="text/html",
        encoding="gzip",
        changefreq="daily",
        links=(Link(rel="duplicate", href="u:b", pri=1),),
    )
    assert render_fragment(change, foreign={"{urn:x}seq": "1"}).decode() == (
        "<url><loc>u:a</loc><lastmod>2026-01-01</lastmod><changefreq>daily</changefreq>"
        f'<rs:md change="updated" datetime="\0" hash="{MD5}" length="0" type="text/html"'
        ' encoding="gzip" xmlns:x0="urn:x" x0:seq="1"/><rs:ln rel="duplicate" href="u:b" pri="1"/>'
        "</url>"
    )


def test_a_framework_change_links_its_index():
    change = Change(loc="u:a", change="created", capability="resourcelist", index="u:i?a&b")
    assert render_fragment(change).decode() == (
        "<url><loc>u:a</loc><lastmod>\0</lastmod>"
        '<rs:md change="created" datetime="\0" capability="resourcelist"/>'
        '<rs:ln rel="index" href="u:i?a&amp;b"/></url>'
    )


@pytest.mark.parametrize("field", ["loc", "lastmod", "hash", "type", "encoding", "changefreq"])
def test_markup_in_a_change_is_escaped(field):
    plain = Change(loc="u:a", change="created")
    change = msgspec.structs.replace(plain, **{field: 'u:<a b="c">&\'é\n'})
    fragment = render_fragment(change).decode()
    assert "u:&lt;a b=&quot;c&quot;&gt;&amp;'é&#10;" in fragment


def test_a_fragment_has_a_hole_wherever_its_position_belongs():
    fragment = render_fragment(Change(loc="u:a", change="created"))
    assert fragment.count(HOLE) == 2
    assert fill(fragment).count(NOW.encode()) == 2


def test_a_notification_is_the_root_around_its_fragments():
    up = Link(rel="up", href="http://e.org/c")
    md = Md(capability="change-notification", from_=NOW, until=NOW)
    fragments = [fill(render_fragment(Change(loc=f"u:{n}", change="created"))) for n in "ab"]
    data = open_root("urlset", (up,), md) + b"".join(fragments) + close_root("urlset")
    entry = Md(change="created", datetime=NOW)
    assert parse_document(data) == Document(
        "urlset", md, (up,), (Entry("u:a", NOW, md=entry), Entry("u:b", NOW, md=entry))
    )


RESOURCES = [
    (Change(loc="u:a", change="created"), "<lastmod>\0</lastmod></url>"),
    (Change(loc="u:a", change="created", length=3), '<rs:md length="3"/></url>'),
    (
        Change(loc="u:a", change="updated", links=(Link(rel="via", href="u:b"),)),
        '<lastmod>\0</lastmod><rs:ln rel="via" href="u:b"/></url>',
    ),
    (
        Change(
            loc="u:a",
            change="updated",
            links=(Link(rel=f"{RS_NS}patch", href="u:p"), Link(rel="via", href="u:b")),
        ),
        '<lastmod>\0</lastmod><rs:ln rel="via" href="u:b"/></url>',
    ),
]


@pytest.mark.parametrize(("change", "end"), RESOURCES)
def test_a_resource_has_nothing_of_its_last_change(change, end):
    resource = resource_entries(render_fragment(change)).decode()
    assert resource.startswith("<url><loc>u:a</loc><lastmod>\0</lastmod>")
    assert resource.endswith(end)
    assert "change=" not in resource.replace("changefreq", "")


def test_a_resource_can_be_made_of_a_filled_fragment():
    fragment = render_fragment(Change(loc="u:a", change="created", hash=MD5))
    assert resource_entries(fill(fragment)) == fill(resource_entries(fragment))


def test_a_loc_cannot_pass_for_markup_in_a_resource():
    loc = 'u:<rs:md change="x" datetime="y"/>'
    resource = resource_entries(render_fragment(Change(loc=loc, change="created", type="a/b")))
    data = open_root("urlset") + fill(resource) + close_root("urlset")
    assert parse_document(data).entries == (Entry(loc, NOW, md=Md(type="a/b")),)


# Reading undoes writing ------------------------------------------------------------------------

PLAIN = st.characters(
    codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"
)
VALUES = st.text(PLAIN | st.sampled_from("\t\n\r&<>\"'"), max_size=20)
TEXTS = VALUES.map(str.strip)
NAMES = st.from_regex(r"[a-z_][a-z0-9_.-]{0,8}", fullmatch=True).filter(lambda n: n[:3] != "xml")
NAMESPACES = st.sampled_from(["urn:x", "urn:y", "http://e.org/?a=1&b", f"{RS_NS}", f"{SITEMAP_NS}"])
FOREIGN = st.dictionaries(
    st.builds("{{{}}}{}".format, NAMESPACES, NAMES)
    | st.just("{http://www.w3.org/XML/1998/namespace}lang")
    | NAMES.map("bare-{}".format),
    VALUES,
    max_size=3,
)
NUMBERS = st.integers(0, 10**18 - 1)
KNOWN = {
    name: st.none() | (NUMBERS if name in ("length", "pri") else VALUES)
    for name in {*Md.__struct_fields__, *Link.__struct_fields__} - {"foreign", "rel", "href"}
}
MDS = st.builds(
    Md, foreign=FOREIGN, **{n: s for n, s in KNOWN.items() if n in Md.__struct_fields__}
)
LINK_FIELDS = {n: s for n, s in KNOWN.items() if n in Link.__struct_fields__}
LINKS = st.builds(Link, rel=VALUES, href=VALUES, **LINK_FIELDS) | st.builds(
    ForeignLink, rel=VALUES, href=VALUES, foreign=FOREIGN.filter(bool), **LINK_FIELDS
)
ENTRIES = st.builds(
    Entry,
    loc=TEXTS,
    lastmod=st.none() | TEXTS,
    changefreq=st.none() | TEXTS,
    priority=st.none() | TEXTS,
    md=st.none() | MDS,
    links=st.lists(LINKS, max_size=3).map(tuple),
)
DOCUMENTS = st.builds(
    Document,
    root=st.sampled_from(["urlset", "sitemapindex"]),
    md=st.none() | MDS,
    links=st.lists(LINKS, max_size=3).map(tuple),
    entries=st.lists(ENTRIES, max_size=4).map(tuple),
)
FILLED = st.none() | TEXTS.filter(bool)
CHANGES = st.builds(
    Change,
    loc=TEXTS,
    change=st.sampled_from(["created", "updated", "deleted"]),
    lastmod=FILLED,
    hash=st.none() | st.text("abcdef0123456789:&<é", min_size=1),
    length=st.none() | NUMBERS,
    type=FILLED,
    encoding=FILLED,
    changefreq=FILLED,
    priority=st.none() | st.floats(0, 1).map(lambda number: round(number, 3)),
    links=st.lists(st.builds(Link, rel=VALUES, href=VALUES), max_size=2).map(tuple),
)


@given(DOCUMENTS)
def test_reading_a_written_document_gives_it_back(document):
    assert parse_document(render_document(document)) == document


@given(CHANGES)
def test_reading_a_fragment_gives_its_change_back_with_its_position(change):
    data = open_root("urlset") + fill(render_fragment(change)) + close_root("urlset")
    (entry,) = parse_document(data).entries
    read = change_of(entry)
    lastmod = change.lastmod or NOW
    assert read == msgspec.structs.replace(change, datetime=NOW, lastmod=lastmod)


@given(
    CHANGES.filter(lambda change: not any(link.rel == "index" for link in change.links)),
    FILLED,
    st.sampled_from(["changelist", "description"]),
)
def test_a_framework_change_comes_back_with_its_index(change, index, capability):
    change = msgspec.structs.replace(change, index=index, capability=capability)
    data = open_root("urlset") + fill(render_fragment(change)) + close_root("urlset")
    read = change_of(parse_document(data).entries[0])
    assert (read.index, read.capability, read.links) == (index, capability, change.links)


def test_a_change_of_an_entry_that_tells_of_none_is_empty():
    assert change_of(Entry("u:a")) == Change(loc="u:a", change="")


def test_white_space_between_hashes_is_one_space():
    assert change_of(Entry("u:a", md=Md(hash="md5:a \n sha-1:b"))).hash == "md5:a sha-1:b"


def test_only_a_framework_change_has_an_index():
    link = Link(rel="index", href="u:i")
    change = change_of(Entry("u:a", md=Md(change="created"), links=(link,)))
    assert (change.index, change.links) == (None, (link,))
