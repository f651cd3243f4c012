"""What Sources post: three formats, one meaning, every fault named with its place."""

import json

import msgspec
import pytest

from rsnotify.errors import Rejected
from rsnotify.journal.submission import Submission
from rsnotify.operation.administration import NewToken
from rsnotify.publishing import bodies
from rsnotify.publishing.bodies import read_submission, read_submissions
from rsnotify.resourcesync.change import Change, Link, as_ascii, misfit
from rsnotify.resourcesync.change_rules import LOGIN, faults_of
from rsnotify.resourcesync.notification import HOLE

JSON, NDJSON, XML = "application/json", "application/x-ndjson", "application/xml"
RES1 = {"loc": "http://example.com/res1", "change": "updated"}
MD5 = "md5:1584abdf8ebdc9802ac0c6a7402c03b6"


def read(body: object, content_type: str = JSON, kind: str = "change", **limits: int) -> Submission:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_submission(kind, encoded, content_type, None, **limits)


def urlset(entries: str) -> bytes:
    return (
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
        f'xmlns:rs="http://www.openarchives.org/rs/terms/">{entries}</urlset>'
    ).encode()


def refusal(
    body: object, content_type: str = JSON, kind: str = "change", **limits: int
) -> Rejected:
    with pytest.raises(Rejected) as refused:
        read(body, content_type, kind, **limits)
    return refused.value


def test_one_object_is_one_change():
    (fragment,) = read(RES1).fragments
    assert fragment.xml == (
        b"<url><loc>http://example.com/res1</loc><lastmod>\0</lastmod>"
        b'<rs:md change="updated" datetime="\0"/></url>'
    )


def test_the_three_formats_mean_the_same():
    one = {**RES1, "hash": MD5, "length": 8876, "type": "text/html"}
    in_xml = urlset(
        '<url><loc>http://example.com/res1</loc><rs:md change="updated" '
        f'hash="{MD5}" length="8876" type="text/html"/></url>'
    )
    lines = json.dumps(one).encode() + b"\n\n" + json.dumps(one).encode() + b"\n"
    assert read([one, one]).fragments == read(lines, NDJSON).fragments
    assert read(one).fragments == read(in_xml, XML).fragments


def test_attributes_of_other_namespaces_are_kept():
    md = '<rs:md xmlns:x="urn:x" change="created" x:y="1"/>'
    entry = f"<url><loc>http://example.com/a</loc>{md}</url>"
    (fragment,) = read(urlset(entry), XML).fragments
    assert b'xmlns:x0="urn:x" x0:y="1"' in fragment.xml


def test_its_own_datetime_becomes_the_position_asked_for():
    (fragment,) = read({**RES1, "datetime": "2026-11-20T21:34:00Z"}).fragments
    assert fragment.position == 1_795_210_440_000_000


def test_the_loc_can_be_found_in_the_fragment_even_if_escaped():
    (fragment,) = read({**RES1, "loc": "http://example.com/?a=1&b=2"}).fragments
    assert fragment.loc == b"http://example.com/?a=1&amp;b=2"


def test_a_lastmod_with_an_offset_is_kept_in_utc():
    (fragment,) = read({**RES1, "lastmod": "2026-11-20T22:34:00+01:00"}).fragments
    assert b"<lastmod>2026-11-20T21:34:00Z</lastmod>" in fragment.xml
    assert fragment.xml.count(HOLE) == 1


def test_a_framework_change_names_its_index():
    change = {
        "loc": "http://example.com/resourcelist1.xml",
        "change": "created",
        "capability": "resourcelist",
        "index": "http://example.com/resourcelist-index.xml",
    }
    (fragment,) = read(change, kind="framework").fragments
    assert b'<rs:ln rel="index" href="http://example.com/resourcelist-index.xml"/>' in fragment.xml


LOC = "http://example.com/" + "a" * 2048

FAULTY = [
    ({**RES1, "change": "moved"}, "change", "must be one of created, updated, deleted"),
    ({**RES1, "loc": "res1"}, "loc", "must be an absolute URI"),
    ({**RES1, "loc": "http:///res1"}, "loc", "must be an absolute URI"),
    ({**RES1, "loc": "http://example.com/\x7f"}, "loc", "must be an absolute URI"),
    ({**RES1, "loc": "http://example.com/\x9b31m"}, "loc", "must be an absolute URI"),
    ({**RES1, "loc": "http://example.com/\u202egnp.exe"}, "loc", "must be an absolute URI"),
    ({**RES1, "loc": "http://example.com/a b"}, "loc", "must be an absolute URI"),
    ({**RES1, "loc": "http://example.com/\x07"}, "loc", "must be an absolute URI"),
    ({**RES1, "loc": "http://example.com/<a>"}, "loc", "must be an absolute URI"),
    ({**RES1, "loc": LOC}, "loc", "at most 2048"),
    ({**RES1, "loc": 7}, "loc", "Expected `str`"),
    ({**RES1, "length": -1}, "length", "zero or more"),
    ({**RES1, "length": "8"}, "length", "Expected `int"),
    ({**RES1, "length": 2**63}, "length", "zero or more"),
    ({**RES1, "hash": "crc32:12345678"}, "hash", "md5:HEX"),
    ({**RES1, "hash": "md5:123"}, "hash", "md5:HEX"),
    ({**RES1, "type": "text"}, "type", "media type"),
    ({**RES1, "lastmod": "yesterday"}, "lastmod", "W3C Datetime"),
    ({**RES1, "lastmod": "2026-02-30"}, "lastmod", "W3C Datetime"),
    ({**RES1, "datetime": "2026-11-20"}, "datetime", "full W3C Datetime"),
    ({**RES1, "changefreq": "often"}, "changefreq", "must be one of"),
    ({**RES1, "capability": "resourcelist"}, "capability", "is only for framework changes"),
    ({**RES1, "index": "http://example.com/i"}, "index", "is only for framework changes"),
    ({**RES1, "links": [{"rel": "up", "href": "x"}]}, "links[0].href", "absolute URI"),
    ({**RES1, "links": [{"rel": "Up!", "href": LOC[:60]}]}, "links[0].rel", "relation"),
    ({**RES1, "links": [{"rel": "up", "href": LOC[:60], "pri": 0}]}, "links[0].pri", "1 to 999999"),
    ({**RES1, "links": [{"rel": "up", "href": LOC[:60]}] * 101}, "links", "at most 100"),
]


@pytest.mark.parametrize(("change", "field", "message"), FAULTY)
def test_a_fault_is_named_with_its_place_and_its_mend(change, field, message):
    (fault,) = refusal([RES1, change]).faults
    assert (fault["index"], fault["field"]) == (1, field)
    assert message in fault["message"]


@pytest.mark.parametrize(
    ("wrong", "place"), [("loc", "0: loc is 'a': it"), ("length", "0, length: Expected ")]
)
def test_the_first_fault_is_told_with_its_field_once(wrong, place):
    detail = refusal([{**RES1, wrong: "a"}]).detail
    assert detail.startswith(f"change {place}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({**RES1, "colour": "red"}, "unknown field `colour`"),
        ({"loc": "http://example.com/a"}, "missing required field `change`"),
        ("http://example.com/a", 'got `str`: a change is an object, such as {"loc": "http'),
        ({**RES1, "links": ["a"]}, "Expected `object`, got `str`"),
        (None, "Expected `object`"),
    ],
)
def test_a_change_of_the_wrong_shape_is_named(change, message):
    (fault,) = refusal([RES1, change]).faults
    assert fault["index"] == 1
    assert message in fault["message"]


def test_every_fault_is_named_not_only_the_first():
    faults = refusal([{**RES1, "loc": "x", "length": -1}, RES1, {**RES1, "change": "x"}]).faults
    assert [(fault["index"], fault["field"]) for fault in faults] == [
        (0, "loc"),
        (0, "length"),
        (2, "change"),
    ]


FRAMEWORK = {
    "loc": "http://example.com/dump.xml",
    "change": "created",
    "capability": "resourcedump",
}


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({**FRAMEWORK, "change": "updated"}, "change", "row resourcedump"),
        ({**FRAMEWORK, "capability": "dump"}, "capability", "must be one of"),
        (RES1, "capability", "is missing"),
        ({**FRAMEWORK, "index": FRAMEWORK["loc"]}, "loc", "is the index itself"),
        ({**FRAMEWORK, "index": "x"}, "index", "absolute URI"),
    ],
)
def test_a_framework_change_obeys_its_table(change, field, message):
    (fault,) = refusal(change, kind="framework").faults
    assert fault["field"] == field
    assert message in fault["message"]


def test_what_concerns_every_set_is_its_changes_of_the_source_description():
    both = [RES1 | {"capability": each} for each in ("description", "capabilitylist")]
    shared = read(both, kind="framework").of_source_description()
    assert shared is not None
    assert shared.fragments == read(both[:1], kind="framework").fragments
    assert read(both[1:], kind="framework").of_source_description() is None


@pytest.mark.parametrize(
    ("body", "content_type", "status", "detail"),
    [
        (b"{", JSON, 400, "not JSON"),
        (b"\xff\xfe", JSON, 400, "not JSON"),
        (b"[" * 1_000_000, JSON, 400, "recursion"),
        (b'[{"loc": 1}, {', JSON, 400, "not JSON"),
        (b'{"a":' * 1_000_000, NDJSON, 400, "unknown field"),
        (b"[]", JSON, 400, "no change"),
        (b"\n\n", NDJSON, 400, "no change"),
        (b"<urlset/>", XML, 400, "xmlns"),
        (b"<a>", XML, 400, "not well-formed"),
        (urlset(""), XML, 400, "no change"),
        (b"<!DOCTYPE urlset>" + urlset(""), XML, 400, "DOCTYPE"),
        (b"x", "text/plain", 415, "text/plain"),
        (b"x", "", 415, "no Content-Type"),
        (b" " * (bodies.BODY_BYTES + 1), JSON, 413, "post the changes in parts"),
        (b"[" + b"0," * 10_000 + b"0]", JSON, 413, "more than 10000"),
        (b"[" + json.dumps(RES1).encode() * 1 + b"]", JSON + "; charset=utf-8", 0, ""),
    ],
)
def test_a_body_that_is_none_is_refused_with_its_status(body, content_type, status, detail):
    if not status:
        assert len(read(body, content_type).fragments) == 1
        return
    refused = refusal(body, content_type)
    assert refused.status == status
    assert detail in refused.detail


ENTRY = (
    f'<url><loc>{RES1["loc"]}</loc><rs:md change="updated" datetime="2026-11-20T21:34:00Z"/></url>'
)


def changes(count: int, content_type: str) -> bytes:
    one = json.dumps(RES1).encode()
    if content_type == JSON:
        return b"[" + b",".join([one] * count) + b"]"
    return b"\n".join([one] * count) if content_type == NDJSON else urlset(ENTRY * count)


@pytest.mark.parametrize("content_type", [JSON, NDJSON, XML])
def test_a_body_has_at_most_10_000_changes(content_type):
    assert len(read(changes(10_000, content_type), content_type).fragments) == 10_000
    refused = refusal(changes(10_001, content_type), content_type)
    assert refused.status == 413
    assert "10001" in refused.detail
    assert "in parts" in refused.detail or "at most 10000 at once" in refused.detail


def test_what_a_body_becomes_is_bounded_too():
    several = [{**RES1, "loc": f"http://example.com/?{'&' * 500}{n}"} for n in range(3)]
    size = sum(len(fragment.xml) for fragment in read(several).fragments)
    assert len(read(several, most_bytes=size).fragments) == 3
    assert refusal(several, most_bytes=size - 1).status == 413


def test_a_change_too_large_for_a_notification_is_refused():
    links = [{"rel": "describedby", "href": "http://example.com/" + "x" * 2000}] * 20
    assert "at most 32768 are allowed" in refusal({**RES1, "links": links}).detail


def test_an_entity_bomb_is_refused_unexploded():
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>' + urlset(
        "<url><loc>&b;</loc></url>"
    )
    assert refusal(bomb, XML).status == 400


# All of a document is judged ------------------------------------------------------------------

LOC = "<loc>http://example.com/a</loc>"
MD = '<rs:md change="deleted"/>'
LOST = {
    f'<url>{LOC}<rs:md change="created"><rs:ln rel="up" href="u:a"/></rs:md></url>': "<rs:ln> ",
    f'<url>{LOC}{MD}<rs:ln rel="up" href="u:a"><url>{LOC}{MD}</url></rs:ln></url>': "<url> stands",
    f"<url>{LOC}{MD}deleted</url>": "the text 'deleted' stands between elements",
    f"<url>also {LOC}{MD}</url>": "the text 'also' stands between elements",
    f"<url>{LOC}{MD}</url>and": "the text 'and' stands between elements",
    f'<url>{LOC}<rs:md change="created">x</rs:md></url>': "the text 'x' stands between elements",
    f'<url change="deleted">{LOC}{MD}</url>': "there is no attribute change",
    f'<url><loc href="u:a">http://example.com/a</loc>{MD}</url>': "there is no attribute href",
    f'<url>{LOC}<rs:md change="created" rs:length="1"/></url>': "no attribute rs:length: write it",
    f'<url>{LOC}<rs:md change="created" size="1"/></url>': "size='1' is not allowed here",
    f'<url>{LOC}<rs:md change="created" path="/a"/></url>': "path is not used in the rs:md of a",
    f'<rs:md capability="resourcelist"/><url>{LOC}{MD}</url>': "capability is 'resourcelist': pub",
    f'<rs:md capability="framework-notification"/><url>{LOC}{MD}</url>': "publish a change-notif",
    f'<rs:md from="yesterday"/><url>{LOC}{MD}</url>': "from is 'yesterday': it must be",
    f'<rs:md hash="{MD5}"/><url>{LOC}{MD}</url>': "hash is not used here: remove it",
    f'<rs:ln rel="up" href="no uri"/><url>{LOC}{MD}</url>': "href is 'no uri': it must be",
}


@pytest.mark.parametrize("entries", LOST)
def test_what_a_change_would_lose_is_refused_by_name(entries):
    refused = refusal(urlset(entries), XML)
    assert (refused.status, LOST[entries] in refused.detail) == (400, True), refused.detail


def test_what_stands_behind_a_hundred_foreign_elements_is_still_refused():
    entries = f"<url>{LOC}{MD}</url>" + '<a xmlns="urn:x"/>' * 200 + "lost"
    assert "the text 'lost'" in refusal(urlset(entries), XML).detail


def test_the_root_is_judged_by_its_channel():
    md = '<rs:md change="created" capability="resourcelist"/>'
    entries = f'<rs:md capability="{{}}"/><url>{LOC}{md}</url>'
    assert read(urlset(entries.format("framework-notification")), XML, "framework").fragments
    refused = refusal(urlset(entries.format("change-notification")), XML, "framework")
    assert "publish a framework-notification here" in refused.detail


IMAGE = '<x:image xmlns:x="urn:x"/>'


def test_what_sitemaps_allow_but_a_change_has_no_field_for_is_named():
    submission = read(urlset(f"<url>{LOC}{IMAGE}{MD}</url>"), XML)
    assert len(submission.fragments) == 1
    (fault,) = submission.not_kept
    assert (fault["index"], fault["field"]) == (0, "/urlset/url[1]/image")


def test_a_hundred_things_that_are_not_kept_are_named_at_most():
    entry = f"<url>{LOC}{IMAGE}{MD}</url>"
    assert len(read(urlset(entry * 101), XML).not_kept) == 100


@pytest.mark.parametrize("priority", ["0.0", "1", "0.125"])
def test_a_priority_means_the_same_in_xml_and_json(priority):
    in_xml = read(urlset(f"<url>{LOC}<priority>{priority}</priority>{MD}</url>"), XML)
    change = {"loc": "http://example.com/a", "change": "deleted", "priority": float(priority)}
    assert in_xml.fragments == read(change).fragments
    assert f"<priority>{float(priority)}</priority>".encode() in in_xml.fragments[0].xml


@pytest.mark.parametrize("priority", [-0.1, 1.1, "high", "", "nan", 1e-9])
def test_a_priority_beyond_its_limits_is_refused(priority):
    refused = refusal(urlset(f"<url>{LOC}<priority>{priority}</priority>{MD}</url>"), XML)
    assert refused.detail.startswith(
        f"change 0: priority is {str(priority)!r}: it must be a number"
    )
    refused = refusal({"loc": "http://example.com/a", "change": "deleted", "priority": priority})
    assert refused.faults[0]["field"] == "priority"


def test_nothing_is_named_of_a_document_that_is_kept_whole():
    body = urlset(
        '\n<rs:ln rel="up" href="http://example.com/c"/>\n<!-- a comment --><?a pi?>'
        '<rs:md capability="change-notification" from="2026-01-01T00:00:00Z"/>\n'
        f"<url>\n{LOC}\n{MD}\n</url>\n"
    ).replace(
        b"<urlset ",
        b'<urlset xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:schemaLocation="u:a u:b" ',
    )
    assert read(body, XML).not_kept == []


@pytest.mark.parametrize("space", [b"\n", b"\r\n\t "])
def test_a_template_may_begin_with_an_empty_line(space):
    body = space + b'<?xml version="1.0" encoding="UTF-8"?>' + urlset(f"<url>{LOC}{MD}</url>")
    assert len(read(body, XML).fragments) == 1


def test_an_empty_line_hides_no_other_encoding():
    body = b'\n<?xml version="1.0" encoding="latin-1"?>' + urlset(f"<url>{LOC}{MD}</url>")
    assert "send it in UTF-8" in refusal(body, XML).detail


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 256])
def test_an_idempotency_key_is_visible_ascii(key):
    with pytest.raises(Rejected, match="Idempotency-Key"):
        read_submission("change", b"{}", JSON, key)


def test_a_link_may_be_written_in_the_letters_of_any_language():
    href = "http://example.com/\xa1caf\xe9/\u0646\u200c\u0627/\U0001f600"
    (fragment,) = read({**RES1, "links": [{"rel": "describes", "href": href}]}).fragments
    assert href.encode() in fragment.xml


A = "http://example.com/"


@pytest.mark.parametrize(
    ("loc", "said"),
    [
        (A + "%C3%A9?q=%20#b", None),
        ("urn:isbn:0451450523", None),
        (
            A + "é",
            f"has 'é' as its character 20, and addresses in Sitemaps are ASCII: publish '{A}%C3",
        ),
        (
            "http://exämple.com:80/ü?q=ß%20",
            "publish 'http://xn--exmple-cua.com:80/%C3%BC?q=%C3%9F%20'",
        ),
        (A + "a b", "write ' ', its character 21, as %20"),
        (A + "100%", "write '%', its character 23, as %25"),
        (A + "%zz", "write '%', its character 20, as %25"),
        (A + "<x>", "write '<', its character 20, as %3C"),
        ("https://me:secret@example.com/a", "has a login in it, and everybody reads it"),
        ("https://token@example.com/a", "has a login in it"),
        ("file:///etc/passwd", "is on your own machine: publish the address"),
        ("FILE:x", "is on your own machine"),
    ],
)
def test_an_address_is_refused_with_the_character_and_what_to_write(loc, said):
    faults = faults_of(Change(loc, "updated"), "change")
    if said is None:
        assert faults == []
    else:
        ((field, message),) = faults
        assert (field, said in message) == ("loc", True), message


def test_no_address_of_a_change_brings_a_login():
    link = Link("describedby", "https://me:secret@example.com/a")
    change = Change("http://example.com/a", "updated", links=(link,))
    assert faults_of(change, "change") == [("links[0].href", LOGIN.format("href"))]
    index = "https://me:secret@example.com/index"
    change = Change("http://h/a", "updated", capability="resourcelist", index=index)
    assert faults_of(change, "framework") == [("index", LOGIN.format("index"))]
    assert faults_of(Change("http://example.com/@a?b@c", "updated"), "change") == []


@pytest.mark.parametrize("loc", [A + "é", "file:///a", "https://u:p@h/a"])
def test_what_was_published_once_may_be_deleted(loc):
    assert faults_of(Change(loc, "deleted"), "change") == []


def test_what_names_its_sets_is_stored_once_for_each_and_counted_so():
    body = json.dumps([RES1 | {"sets": ["a", "b", "a"]}]).encode()
    found = read_submissions(body, JSON, None)
    assert [*found] == ["a", "b"]
    size = len(found["a"].fragments[0].xml)
    assert read_submissions(body, JSON, None, most_bytes=2 * size)
    with pytest.raises(Rejected) as refused:
        read_submissions(body, JSON, None, most_bytes=2 * size - 1)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("content_type", "body", "detail"),
    [
        (JSON, b"[", "the body is not JSON"),
        (JSON, b"[" * 1_000_000, "the body is not JSON"),
        (JSON, json.dumps(RES1 | {"sets": []}).encode(), "names no set"),
        (NDJSON, json.dumps(RES1 | {"sets": []}).encode(), "names no set"),
        (XML, urlset(""), "XML cannot name the sets"),
    ],
)
def test_what_names_no_sets_is_refused(content_type, body, detail):
    with pytest.raises(Rejected) as refused:
        read_submissions(body, content_type, None)
    assert detail in str(refused.value) or detail in str(refused.value.faults)


def test_a_change_counts_once_for_each_of_its_sets():
    def named(count: int) -> list[str]:
        return [f"s{number}" for number in range(count)]

    body = [RES1 | {"sets": named(5_000)}, RES1 | {"sets": named(5_000) + named(1)}]
    assert len(read_submissions(json.dumps(body).encode(), JSON, None)) == 5_000
    body[1]["sets"] = named(5_001)
    with pytest.raises(Rejected, match="these are 10001 changes, more than 10000"):
        read_submissions(json.dumps(body).encode(), JSON, None)


def test_a_word_that_is_none_of_those_that_may_stand_there_is_said_with_them():
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert({"rights": ["write"]}, NewToken)
    assert misfit(refused.value, NewToken).endswith("it must be one of publish, read")


def test_an_index_is_no_list_of_changes():
    index = urlset("").replace(b"urlset", b"sitemapindex")
    assert "publish a <urlset>" in refusal(index, XML).detail


@pytest.mark.parametrize(
    ("loc", "ascii"),
    [
        ("http://exämple.org/é?ü#ß", "http://xn--exmple-cua.org/%C3%A9?%C3%BC#%C3%9F"),
        ("http://é..org/", "http://%C3%A9..org/"),  # no name that could be resolved
        ("urn:é", "urn:%C3%A9"),
    ],
)
def test_an_address_in_any_letters_has_one_in_ascii(loc, ascii):  # noqa: A002
    assert as_ascii(loc) == ascii
