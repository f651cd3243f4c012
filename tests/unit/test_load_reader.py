"""The forms in which a Source brings the whole state of a set, and what is wrong with a body."""

import gzip
import json
import re
from bisect import bisect_left

import pytest

from rsnotify.errors import Rejected
from rsnotify.journal.submission import FRAGMENT_BYTES
from rsnotify.publishing.loads.load_formats import (
    ENTRY_BYTES,
    ESCAPED,
    PADDING_BYTES,
    PADDING_OF_ONE,
    PIECE_BYTES,
    LoadLimits,
    LoadReader,
    Ready,
)
from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.notification import shorten
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document

JSON, NDJSON, XML = "application/json", "application/x-ndjson", "application/xml"
LIST = Md(capability="resourcelist", at="2026-11-21T00:00:00Z")
RESOURCES = [
    {"loc": "http://example.com/a&b", "lastmod": "2026-01-01T00:00:00Z", "length": 5},
    {"loc": "http://example.com/[;]?q='&amp;'", "type": "text/html; charset=utf-8"},
    {"loc": "http://example.com/c", "links": [{"rel": "describes", "href": "http://a.example/é"}]},
]


def entry(resource: dict[str, object]) -> Entry:
    links = tuple(Link(**link) for link in resource.get("links", ()))
    md = Md(length=resource.get("length"), type=resource.get("type"))
    return Entry(resource["loc"], resource.get("lastmod"), md=md, links=links)


def listed(*resources: dict[str, object], md: Md | None = LIST) -> bytes:
    return render_document(Document("urlset", md, (), tuple(map(entry, resources))))


def index(*parts: str) -> bytes:
    return render_document(Document("sitemapindex", LIST, (), tuple(map(Entry, parts))))


LINES = "\r\n\n".join(map(json.dumps, RESOURCES)).encode()
ARRAY = json.dumps(RESOURCES, indent=1, ensure_ascii=False).encode()
INDEXED = index("http://a.example/1", "http://a.example/2") + listed(*RESOURCES[:2])
FORMS = {
    "ndjson": (NDJSON, "", LINES),
    "ndjson, ended": ("application/jsonl", "", LINES + b"\n"),
    "json": (JSON, "", ARRAY),
    "xml": (XML, "", b"\n" + listed(*RESOURCES)),
    "sitemap": ("text/xml", "", listed(*RESOURCES, md=None)),
    "lists": (XML, "", listed(*RESOURCES[:2]) + b"\n\n" + listed(*RESOURCES[2:]) + b" \n"),
    "index and lists": (XML, "", INDEXED + listed(*RESOURCES[2:])),
    "gzip": (NDJSON, "gzip", gzip.compress(LINES)),
    "gzips": (XML, "gzip", gzip.compress(INDEXED) + gzip.compress(listed(*RESOURCES[2:]))),
}


def read(content_type: str, encoding: str, body: bytes, size: int) -> list[Ready]:
    reader = LoadReader(content_type, encoding)
    found: list[Ready] = []
    for start in range(0, len(body), size):
        for ready in reader.feed(body[start : start + size]):
            found += ready
    return [*found, *reader.close()]


EXPECTED = read(*FORMS["ndjson"], size=1_000_000)


def test_what_is_read_is_a_fragment_without_its_beginning():
    assert EXPECTED[0] == (
        b"http://example.com/a&amp;b",
        shorten(
            b"</loc><lastmod>2026-01-01T00:00:00Z</lastmod>"
            b'<rs:md change="created" datetime="\0" length="5"/></url>'
        ),
    )


@pytest.mark.parametrize("size", [1, 7, 1_000_000])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same_however_it_is_cut(form, size):
    assert read(*FORMS[form], size=size) == EXPECTED


@pytest.mark.parametrize("content_type", [JSON, XML])
def test_a_bomb_is_read_in_bounded_pieces(content_type):
    bomb = gzip.compress(b" " * 10_000_000)
    pieces = list(LoadReader(content_type, "gzip").feed(bomb))
    assert len(pieces) == -(-10_000_000 // PIECE_BYTES)


SPACE = {JSON: (b"[", b" "), NDJSON: (b"", b" \n"), XML: (b"", b"\r\n")}


@pytest.mark.parametrize("content_type", SPACE)
def test_white_space_is_read_up_to_its_limit_and_no_further(content_type):
    begin, space = SPACE[content_type]
    body = (begin + space * PADDING_BYTES)[:PADDING_BYTES]
    list(LoadReader(content_type, "gzip").feed(gzip.compress(body, compresslevel=1)))
    sent = gzip.compress(body + b" " * 4 * 1024 * 1024, compresslevel=1)
    with pytest.raises(Rejected, match=r"0 resources in \d+ bytes") as refused:
        list(LoadReader(content_type, "gzip").feed(sent))
    read = int(re.findall(r"in (\d+) bytes", refused.value.detail)[0])
    assert PADDING_BYTES < read <= PADDING_BYTES + PIECE_BYTES


@pytest.mark.parametrize(("beyond", "is_read"), [(0, True), (1, False)])
def test_a_resource_may_have_so_much_white_space_around_it(*, beyond, is_read):
    one = b'{"loc": "http://example.com/%d"}'
    kept = sum(map(len, read(NDJSON, "", one % 0, 100)[0]))
    body = b"\n".join(one % number for number in range(9)) + b"\n"
    most = 1_024 + 9 * (PADDING_OF_ONE + ESCAPED * kept)
    reader = LoadReader(NDJSON, "", LoadLimits(padding_bytes=1_024))
    assert sum(map(len, reader.feed(body))) == 9
    space = b" " * (most + beyond - len(body))
    if is_read:
        assert list(reader.feed(space)) == [[]]
    else:
        with pytest.raises(Rejected, match="9 resources in"):
            list(reader.feed(space))


def test_an_empty_list_may_have_no_end_tag():
    assert read(XML, "", listed(md=None).replace(b"></urlset>", b"/>"), 7) == []


LOC = b'{"loc": "http://example.com/a"}'
NESTED = listed(RESOURCES[0]).replace(
    b' length="5"/>', b' length="5"><rs:ln rel="describes" href="http://a.example/"/></rs:md>'
)


@pytest.mark.parametrize(
    ("content_type", "body", "detail"),
    [
        (JSON, b"", "one whole JSON array"),
        (JSON, b"[" + LOC, "one whole JSON array"),
        (JSON, b"[" + LOC + b', {"loc" 1}]', "resource 1: JSON is malformed: expected ':'"),
        (JSON, b"[" + LOC + b', {"loc": "http', "resource 1: Input data was truncated"),
        (JSON, b'[{"loc": "http://example.com/", "\\ud800": 1}]', "resource 0: "),
        (JSON, LOC[:-1].join((b"[", b', "length": ' + b"9" * 5000 + b"}]")), "resource 0, length"),
        (JSON, LOC, "after 0 resources stands '{'"),
        (JSON, b"[" + LOC + b",]", "after 1 resources stands ']'"),
        (JSON, b"[" + LOC + b"] []", "after 1 resources stands '['"),
        (JSON, b"[1]", "after 0 resources stands '1'"),
        (JSON, b'["\xff"]', "not UTF-8"),
        (JSON, b'[{"loc": "http://example.com/a", "etag": ""}]', "resource 0: "),
        (JSON, b'[{"loc": 1}]', "resource 0, loc: "),
        (NDJSON, LOC + b'\n{"loc": "no uri"}', "resource 1, loc: "),
        (NDJSON, LOC[:-1] + b', "change": "created"}', "resource 0: "),
        (NDJSON, LOC[:-1] + b', "hash": "md5:1 md5:2"}', "resource 0, hash: "),
        (NDJSON, b'{"loc": "http://example.com/\\ud800"}', "resource 0"),
        (XML, listed(*RESOURCES)[:-12], "not well-formed"),
        (XML, b"<urlset/>", "xmlns"),
        (XML, b" \n", "holds no Resource List"),
        (XML, NESTED, "/urlset/url[1]/rs:md: <rs:ln> stands inside it"),
        (XML, listed(*RESOURCES).replace(b"<url>", b"!<url>", 1), "/urlset: the text '!'"),
        (XML, listed(*RESOURCES).replace(b"</url>", b"</url>!"), "/urlset: the text '!'"),
        (XML, listed(*RESOURCES).replace(b"<url>", b"<url><loc/>", 1), "in document 1, entry 1: "),
        (XML, INDEXED, "names 2 lists, but 1 came"),
        (XML, listed(md=Md(capability="changelist")), "this is a changelist"),
        (XML, listed(RESOURCES[0]).replace(b"<rs:md l", b'<rs:md change="updated" l'), "changed"),
        (XML, listed(RESOURCES[0]).replace(b"<rs:md l", b'<rs:md x="1" l'), "resource 0, x: "),
        (XML, listed({"loc": "relative"}), "resource 0, loc: "),
        (XML, listed(*RESOURCES) + b"x", "begins with <"),
        (XML, b"<!DOCTYPE a>" + listed(), "DOCTYPE"),
    ],
)
def test_a_body_that_is_wrong_is_refused_with_the_place(content_type, body, detail):
    for size in (5, 1_000_000):
        with pytest.raises(Rejected) as refused:
            read(content_type, "", body, size)
        assert detail in refused.value.detail


@pytest.mark.parametrize(("content_type", "begin"), [(NDJSON, b""), (JSON, b"[")])
def test_an_entry_has_an_end_within_so_many_bytes(content_type, begin):
    def entry_of(size: int) -> bytes:
        return b'{"loc": "' + b"a" * (size - 9)

    read_ = LoadReader(content_type, "")
    list(read_.feed(begin + entry_of(ENTRY_BYTES)))
    with pytest.raises(Rejected, match=f"no end within {ENTRY_BYTES} bytes"):
        list(LoadReader(content_type, "").feed(begin + entry_of(ENTRY_BYTES + 1)))


@pytest.mark.parametrize("letter", ["a", "é"])
@pytest.mark.parametrize("in_pieces", [PIECE_BYTES, 8 * PIECE_BYTES])
@pytest.mark.parametrize("content_type", [JSON, NDJSON])
def test_a_whole_resource_is_as_long_as_documented_and_no_longer(content_type, in_pieces, letter):
    def body_of(size: int) -> bytes:
        one = b'{"loc": "http://example.com/a", "type": "%b"'
        entry = (one % letter.encode()).ljust(size - 1) + b"}"
        return b"[%b]" % entry if content_type == JSON else entry + b"\n"

    for size, said in ((ENTRY_BYTES, "must be a media type"), (ENTRY_BYTES + 1, "no end within")):
        body, reader = body_of(size), LoadReader(content_type, "")
        pieces = [body[start : start + in_pieces] for start in range(0, len(body), in_pieces)]
        with pytest.raises(Rejected, match=said):
            _ = [list(reader.feed(piece)) for piece in pieces]


def test_a_gzip_that_breaks_off_is_refused():
    with pytest.raises(Rejected, match="breaks off"):
        read(NDJSON, "gzip", gzip.compress(LINES)[:-1], 10)
    with pytest.raises(
        Rejected, match="no whole gzip, as its Content-Encoding says: incorrect header"
    ):
        read(NDJSON, "gzip", LINES, 10)
    with pytest.raises(Rejected, match="or is empty"):
        read(NDJSON, "gzip", b"", 10)


def test_gzips_that_hold_nothing_cost_no_piece_each():
    empty = gzip.compress(b"") * 1_000
    assert list(LoadReader(NDJSON, "gzip").feed(empty + gzip.compress(LINES))) == [EXPECTED[:-1]]


def test_a_resource_may_not_be_nested_without_end():
    nested = b'[{"loc": "http://example.com/a", "links": ' + b"[" * 100_000
    with pytest.raises(Rejected, match="resource 0"):
        read(JSON, "", nested, 1_000_000)


def test_a_resource_may_be_so_long_as_it_is_kept_and_no_longer():
    """Its links are longer in XML than they were sent."""

    def of_length(ampersands: int) -> bytes:
        hrefs = ["http://a.example/" + "&" * each for each in (2000, 2000, 2000, ampersands)]
        links = [{"rel": "describes", "href": href} for href in hrefs]
        return json.dumps({"loc": "http://example.com/a", "links": links}).encode()

    def is_refused(ampersands: int) -> bool:
        try:
            return not read(NDJSON, "", of_length(ampersands), 1_000_000)
        except Rejected:
            return True

    least = bisect_left(range(2000), True, key=is_refused)
    assert read(NDJSON, "", of_length(least - 1), 1_000_000)
    with pytest.raises(Rejected, match=f"resource 0: .* at most {FRAGMENT_BYTES} are allowed"):
        read(NDJSON, "", of_length(least), 1_000_000)


@pytest.mark.parametrize(
    ("content_type", "encoding", "detail"),
    [
        ("", "", "no Content-Type; send one of application/json"),
        ("text/csv; charset=utf-8", "", "Content-Type 'text/csv' is not understood"),
        (JSON, "br", "Content-Encoding 'br' is not understood; send gzip"),
    ],
)
def test_what_a_body_is_must_be_known(content_type, encoding, detail):
    with pytest.raises(Rejected) as refused:
        LoadReader(content_type, encoding)
    assert (refused.value.status, detail in refused.value.detail) == (415, True)
