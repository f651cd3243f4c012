"""What a bridge decides: intervals, what is held back, news, where it came from, what it is."""

import msgspec
import pytest

from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.change import MICROSECONDS, Change, Link, Position
from rsnotify_bridge.feeds import activity_page, feed_page, moment, notification_page
from rsnotify_bridge.markup import ATTRIBUTES, TAGS, read_markup, repaired
from rsnotify_bridge.oaipmh import (
    ALL,
    DAY,
    FIELD_CHARS,
    NAME_CHARS,
    SECOND,
    OaiPage,
    OaiRecord,
    OaiRequest,
    cursor_after,
    early_token,
    from_of,
    page_of,
    stamp_of,
)
from rsnotify_bridge.polite import ahead_seconds
from rsnotify_bridge.rules import (
    Intervals,
    LocRule,
    change_between,
    changes_of,
    clock_off,
    is_from,
    is_news,
    key_of,
    newest,
    next_interval,
    with_entry,
)
from rsnotify_client.missing import result_by_error, result_by_record, result_by_status
from rsnotify_client.moments import CLOCK_SECONDS, exact
from rsnotify_client.provenance import publishable

LIMITS = Intervals(60, 3600)
MD5 = "md5:" + "0" * 32
OTHER = "md5:" + "1" * 32
LOC = "http://a.example/1"


def said(**fields: object) -> Change:
    return Change(LOC, "created", **fields)


@pytest.mark.parametrize(
    ("seconds", "is_changed", "failures", "expected"),
    [
        (60, False, 0, 90),
        (3000, False, 0, 3600),
        (3600, False, 0, 3600),
        (3600, True, 0, 1800),
        (100, True, 0, 60),
        (60, True, 0, 60),
        (60, False, 1, 120),
        (60, False, 5, 1920),
        (60, False, 6, 3600),
        (60, False, 10_000, 3600),
    ],
)
def test_the_interval_goes_by_what_the_source_does(seconds, is_changed, failures, expected):
    found = next_interval(seconds, LIMITS, is_changed=is_changed, failures=failures)
    assert found == expected


DAYS = ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {}, False),
        ({"lastmod": DAYS[0]}, {"lastmod": DAYS[0]}, False),
        ({"lastmod": DAYS[0]}, {"lastmod": DAYS[1]}, True),
        ({"lastmod": DAYS[1]}, {"lastmod": DAYS[0]}, True),
        ({"lastmod": DAYS[0]}, {"lastmod": "2026-11-01T01:00:00+01:00"}, False),
        ({}, {"lastmod": DAYS[0]}, False),
        ({"hash": MD5}, {"hash": OTHER}, True),
        ({"hash": MD5}, {"hash": MD5}, False),
        ({"hash": MD5, "lastmod": DAYS[0]}, {"hash": MD5, "lastmod": DAYS[1]}, True),
        ({"length": 1}, {"length": 2}, True),
        ({"length": 1}, {}, False),
        ({"type": "text/plain"}, {"type": "text/html"}, True),
        ({"datetime": DAYS[0]}, {"datetime": DAYS[1]}, True),
        ({"datetime": DAYS[1]}, {"datetime": DAYS[0]}, False),
        ({"datetime": DAYS[0], "hash": MD5}, {"datetime": DAYS[1], "hash": MD5}, False),
        ({"links": (Link("alternate", LOC),)}, {"links": (Link("alternate", LOC + "2"),)}, True),
        ({"links": (Link("via", LOC),)}, {"links": (Link("via", LOC + "2"),)}, False),
    ],
)
def test_what_is_news(old, new, expected):
    assert is_news(said(**old), said(**new)) == expected


OLD, NEW = said(lastmod=DAYS[0]), said(lastmod=DAYS[1])


@pytest.mark.parametrize(
    ("before", "after", "others", "expected"),
    [
        (None, OLD, [], ("created", DAYS[0])),
        (OLD, NEW, [], ("updated", DAYS[1])),
        (OLD, OLD, [], None),
        (OLD, None, [], ("deleted", DAYS[0])),
        (None, None, [], None),
        (None, OLD, [NEW], None),
        (None, NEW, [OLD], ("updated", DAYS[1])),
        (NEW, None, [OLD], ("updated", DAYS[0])),
        (OLD, None, [NEW], None),
    ],
)
def test_of_several_sources_the_newest_is_told(before, after, others, expected):  # fmt: skip
    found = change_between(before, after, others)
    assert (found and (found.change, found.lastmod)) == expected


def test_of_nothing_nothing_is_the_newest():
    assert newest([]) is None


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ((), ["http://s/list"]),
        ((Link("via", "http://first/"),), ["http://first/"]),
        ((Link("via", "http://first/"), Link("via", "http://second/")), ["http://first/"]),
    ],
)
def test_a_chain_keeps_the_first_via(links, expected):
    found = with_entry(said(links=links), "http://s/list")
    assert [link.href for link in found.links if link.rel == "via"] == expected
    assert with_entry(found, "http://elsewhere/") == found


def test_what_came_from_the_set_does_not_go_back():
    ours = with_entry(said(), "http://hub/a/capabilitylist.xml")
    assert is_from(ours, {"http://hub/a/capabilitylist.xml"})
    assert not is_from(ours, {"http://hub/b/capabilitylist.xml"})
    assert not is_from(said(), {"http://hub/a/capabilitylist.xml"})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"lastmod": "yesterday", "length": 1}, {"length": 1}),
        ({"hash": "md5:short"}, {}),
        ({"datetime": "2026-11-20"}, {}),
        ({"datetime": DAYS[0]}, {"datetime": DAYS[0]}),
        ({"type": "no type"}, {}),
        ({"links": (Link("x y", "no"),)}, {}),
    ],
)
def test_what_a_hub_would_refuse_is_left_out(fields, expected):
    found, _ = publishable(said(**fields))
    assert found == said(**expected)


def test_an_address_that_is_none_is_no_resource():
    found, why = publishable(Change("nowhere", "created"))
    assert (found, "an absolute URI" in why[0]) == (None, True)
    found, _ = publishable(Change("http://a.example/é", "created"))
    assert found == Change("http://a.example/%C3%A9", "created")


def test_a_key_is_made_of_the_state_the_number_and_the_content():
    keys = {
        key_of(*each) for each in (("a", 1, b"x"), ("b", 1, b"x"), ("a", 2, b"x"), ("a", 1, b"y"))
    }
    assert len(keys) == 4
    assert key_of("a", 1, b"x") in keys
    assert exact("2026-11-20") is None


def test_what_mends_bytes_mends_no_text():
    with pytest.raises(UnicodeEncodeError):
        "é".encode("ascii", errors="rsnotify-western")


# OAI-PMH ----------------------------------------------------------------------------------------

REQUEST = OaiRequest("https://a.example/oai", "oai_dc", None)
RECORD = OaiRecord("oai:a:12/3", DAYS[0], False, {"dc:identifier": ["10.1/x", LOC]})


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (LocRule("dc:identifier"), LOC),
        (LocRule("dc:title"), None),
        (LocRule(None, "https://a.example/{identifier}"), "https://a.example/oai%3Aa%3A12%2F3"),
        (LocRule(None, "https://a.example/{+identifier}"), "https://a.example/oai:a:12/3"),
        (LocRule(None, "https://a.example/{local}"), "https://a.example/12%2F3"),
        (LocRule(None, None, lambda record: record.datestamp), DAYS[0]),
        (
            LocRule(),
            "https://a.example/oai?verb=GetRecord&identifier=oai:a:12%2F3&metadataPrefix=oai_dc",
        ),
    ],
)
def test_which_resource_a_record_is(rule, expected):
    assert rule.loc(RECORD, REQUEST.record(RECORD.identifier)) == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("dc:identifier", "https://a/{identifier}", None), "give one of"),
        ((None, "https://a/{number}", None), "is not known"),
        ((None, "https://a/", None), "name a field"),
        ((None, None, "nothing-of-that-name"), "no package has"),
    ],
)
def test_a_wrong_rule_is_said(given, problem):
    with pytest.raises(InvalidSettings, match=problem):
        LocRule.of(*given)


def test_a_function_of_an_installed_package_is_taken(tmp_path, monkeypatch):
    (installed := tmp_path / "of_mine-1.dist-info").mkdir()
    (installed / "entry_points.txt").write_text("[rsnotify.bridge.loc]\nmine = builtins:id\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert LocRule.of(None, None, "mine").function is id


def test_what_a_record_does_not_say_is_said():
    def loc(record: OaiRecord) -> str | None:
        return {"a": LOC}[record.identifier] if record.datestamp else None

    records = [
        OaiRecord("a", DAYS[0], False, {}),
        OaiRecord("a", "soon", False, {}),
        OaiRecord("a", DAYS[0], True, {}),
        OaiRecord("b", DAYS[0], False, {}),
        OaiRecord("c", "", False, {}),
    ]
    skipped: list[str] = []
    page = OaiPage(records, None, None, None, "", 2, ())
    rule = LocRule(function=loc)
    assert rule.wanted is not None
    found = changes_of(page, REQUEST, rule, skipped.append)
    assert [(name, each.loc, each.change, each.lastmod) for name, each in found] == [
        ("a", LOC, "created", DAYS[0]),
        ("a", LOC, "created", None),
        ("a", LOC, "deleted", DAYS[0]),
    ]
    assert skipped == [
        "2 records without an identifier",
        "the datestamp 'soon' of a",
        "b: KeyError: 'b'",
        "c names no resource: see --loc-from, --loc",
    ]


def test_fields_are_known_with_their_prefix_and_without():
    metadata = "<metadata><a:dc xmlns:a='urn:a'><!-- --><a:id>1</a:id><id>2</id></a:dc></metadata>"
    header = "<header><identifier>x</identifier></header>"
    text = f"<OAI-PMH><ListRecords><record>{header}{metadata}</record></ListRecords></OAI-PMH>"
    (record,) = page_of("http://a.example/", text.encode(), ALL).records
    fields = {name: record.fields[name] for name in ("a:id", ":id", "id")}
    assert fields == {"a:id": ["1"], ":id": ["2"], "id": ["1", "2"]}


def record_of(metadata: str, wanted: str | None, identifier: str = "x") -> OaiRecord:
    header = f"<header><identifier>{identifier}</identifier></header>"
    record = f"<record>{header}<metadata>{metadata}</metadata></record>"
    text = f"<OAI-PMH><ListRecords>{record}</ListRecords></OAI-PMH>"
    (record,) = page_of("http://a.example/", text.encode(), wanted).records
    return record


def test_an_element_has_its_own_text_and_none_of_those_in_it():
    metadata = "<a>http://a/<!-- c -->b<b>of b</b><![CDATA[c]]> </a>"
    assert record_of(metadata, ALL).fields["a"] == ["http://a/bc"]
    assert record_of(metadata, "b").fields == {"b": ["of b"]}
    assert record_of(metadata, "d").fields == {}


@pytest.mark.parametrize("wanted", [ALL, "a"])
def test_what_is_kept_of_nested_elements_is_no_longer_than_the_page(wanted):
    deep = "x" * 100_000
    for _ in range(200):
        deep = f"<a>{deep}</a>"
    fields = record_of(deep + "<a>1</a>", wanted).fields
    assert sum(len(each) for texts in fields.values() for each in texts) < 2 * len(deep)
    assert fields["a"] == ["1"]  # the other one is too long


def test_elements_and_names_are_kept_up_to_their_lengths():
    longest, too_long = "x" * FIELD_CHARS, "x" * (FIELD_CHARS + 1)
    assert record_of(f"<a>{longest}</a><a>{too_long}</a>", "a").fields == {"a": [longest]}
    assert record_of("", None, identifier="x" * NAME_CHARS).identifier == "x" * NAME_CHARS
    for element in ("resumptionToken", "header"):
        for count in (NAME_CHARS, NAME_CHARS + 1):
            name = f"<identifier>{'x' * count}</identifier>" if element == "header" else "x" * count
            listed = f"<ListIdentifiers><{element}>{name}</{element}></ListIdentifiers>"
            data = f"<OAI-PMH>{listed}</OAI-PMH>".encode()
            if element == "header":
                assert page_of("http://a/", data, None).nameless == count - NAME_CHARS
            elif count == NAME_CHARS:
                assert page_of("http://a/", data, None).token == name
            else:
                with pytest.raises(Rejected, match="a resumption token of more than 8,192"):
                    page_of("http://a/", data, None)


RSS = "<rss><channel>{}</channel></rss>"


@pytest.mark.parametrize(
    ("text", "found", "skipped"),
    [
        ("<feed><entry><id>urn:a:1</id></entry></feed>", [("urn:a:1", "urn:a:1", "created")], 0),
        ("<feed><entry><id>one</id></entry></feed>", [], 1),
        ('<feed><deleted-entry/><deleted-entry ref="a"/></feed>', [("a", "", "deleted")], 1),
        ('<feed><deleted-entry ref=""/></feed>', [], 1),
        (
            '<feed><entry><id>a</id><link rel="enclosure" href="/1"/></entry></feed>',
            [("a", LOC, "created")],
            0,
        ),
        (RSS.format("<item><guid>g</guid><link>/1</link></item>"), [("g", LOC, "created")], 0),
        (RSS.format("<item><guid>g</guid></item>"), [], 1),
        ("<RDF><item><link>/1</link></item></RDF>", [(LOC, LOC, "created")], 0),
    ],
)
def test_what_an_entry_names(text, found, skipped):
    said: list[str] = []
    page = feed_page("http://a.example/feed", text.encode(), said.append)
    assert [(key, each.loc, each.change) for key, each in page.entries] == found
    assert len(said) == skipped


def test_a_notification_is_a_page_of_its_changes():
    own = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    terms = 'xmlns:rs="http://www.openarchives.org/rs/terms/"'
    times = f'capability="change-notification" from="{DAYS[0]}" until="{DAYS[1]}"'
    entry = f"<url><loc>{LOC}</loc><rs:md change='updated' datetime='{DAYS[1]}'/></url>"
    text = f"<urlset {own} {terms}><rs:md {times}/>{entry}</urlset>"
    page = notification_page(LOC, text.encode(), list[str]().append)
    assert [(key, each.change) for key, each in page.entries] == [(LOC, "updated")]
    assert page[1:3] == tuple(map(Position.parse, DAYS))


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        (feed_page, "<list/>", "sent <list>, which is no feed"),
        (activity_page, "{", "sent no JSON"),
        (activity_page, '{"type": "Note"}', "sent no OrderedCollection"),
    ],
)
def test_what_is_no_feed_is_refused(read, text, says):
    with pytest.raises(Rejected, match=says):
        read("http://a.example/feed", text.encode(), list[str]().append)


@pytest.mark.parametrize(
    ("items", "found", "skipped"),
    [
        ([{"type": "Create", "object": LOC}], [(LOC, "created")], 0),
        ([{"type": "Update", "object": {"id": "/1"}, "endTime": DAYS[0]}], [(LOC, "updated")], 0),
        ([{"type": "Delete", "object": {}}, {"type": "Like", "object": LOC}, 7], [], 3),
        (
            [{"type": "Move", "object": "/0", "target": LOC}],
            [("http://a.example/0", "deleted"), (LOC, "created")],
            0,
        ),
        ([{"type": "Create", "object": "/0"}, {"type": "Refresh"}], [], 0),
        (None, [], 0),
    ],
)
def test_what_an_activity_says(items, found, skipped):
    said: list[str] = []
    sent = msgspec.json.encode({"type": "OrderedCollection", "orderedItems": items})
    page = activity_page("http://a.example/", sent, said.append)
    assert [(each.loc, each.change) for _, each in page.entries] == found
    assert len(said) == skipped
    assert page.begins_anew == ("Refresh" in str(items))


@pytest.mark.parametrize(
    ("cursor", "granularity", "expected"),
    [
        (None, SECOND, None),
        ("2026-11-20T00:00:30Z", SECOND, "2026-11-19T23:59:30Z"),
        ("2026-11-20T00:00:30Z", DAY, "2026-11-20"),
        ("2026-11-20", DAY, "2026-11-20"),
        ("soon", DAY, None),
        ("0001-01-01T00:00:00Z", SECOND, "0001-01-01T00:00:00Z"),
        ("0001-01-01T00:01:01Z", SECOND, "0001-01-01T00:00:01Z"),
        ("0001-01-01", SECOND, "0001-01-01T00:00:00Z"),
        ("0001-01-01", DAY, "0001-01-01"),
        ("9999-12-31T23:59:59Z", SECOND, "9999-12-31T23:58:59Z"),
    ],
)
def test_from_is_in_the_granularity_of_the_repository(cursor, granularity, expected):
    assert from_of(cursor, granularity) == expected


DAY_SECONDS = 86_400


@pytest.mark.parametrize(
    ("cursor", "response", "newest", "expected"),
    [
        (None, None, None, None),
        (None, 0, -100, -100),
        (None, 0, -DAY_SECONDS - 1, -DAY_SECONDS),
        (None, 0, None, -DAY_SECONDS),
        (None, None, -100, -100),
        (-50, 0, -100, -50),
        (-100, 0, -50, -50),
        (-100, 7_200, 7_100, 0),
        (-100, -7_200, None, -7_200),
        (7_200, 0, None, 0),
        (None, 0, 7_200, 0),
    ],
)
def test_a_harvest_goes_on_at_the_newest_record_and_at_no_time_to_come(
    cursor, response, newest, expected
):
    """In seconds from now, by our clock."""
    now = Position.parse(DAYS[1])

    def at(seconds: int | None) -> Position | None:
        return None if seconds is None else Position(now + seconds * MICROSECONDS)

    assert cursor_after(at(cursor), at(response), at(newest), now) == at(expected)


def test_a_harvest_of_the_first_year_goes_on_in_it():
    first = Position.parse("0001-01-01T00:00:00Z")
    assert cursor_after(first, first, first, Position.parse(DAYS[1])) == first


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        (None, None),
        (CLOCK_SECONDS, None),
        (CLOCK_SECONDS + 1, "the Source's clock is 0 h 5 min ahead of ours"),
        (-CLOCK_SECONDS, None),
        (-3_600.0, "the Source's clock is 1 h 0 min behind ours"),
    ],
)
def test_a_clock_that_is_minutes_off_is_said(ahead, expected):
    assert clock_off(ahead) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [({}, None), ({"date": "soon"}, None), ({"date": "Thu, 01 Jan 1970 01:00:00 GMT"}, 3_540.0),
     ({"date": "Thu, 01 Jan 1970 00:00:00 GMT", "age": "60"}, 0.0),
     ({"date": "Thu, 01 Jan 1970 00:00:00 GMT", "age": "old"}, -60.0)],
)  # fmt: skip
def test_a_servers_clock_is_in_its_date(headers, expected):
    assert ahead_seconds(headers, 60.0) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20", "2026-11-20"),
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00Z"),
        ("2026-11-20 10:00:00", "2026-11-20T10:00:00Z"),
        ("2026-11-20T10:00:00", "2026-11-20T10:00:00Z"),
        ("20.11.2026", None),
        ("", None),
    ],
)
def test_datestamps_of_the_wild(text, expected):
    assert stamp_of(RECORD._replace(datestamp=text)) == expected


def test_a_token_is_known_before_its_page_is_read():
    assert early_token(b"<a><resumptionToken x='1'> a&amp;b </resumptionToken></a>") == "a&b"
    assert early_token(b"<oai:resumptionToken>t</oai:resumptionToken>") == "t"
    assert early_token(b"<resumptionToken/>") is None


def test_of_several_tokens_of_a_page_one_that_is_none_ends_nothing():
    tokens = "<resumptionToken>t</resumptionToken><resumptionToken/>"
    data = f"<OAI-PMH><ListIdentifiers>{tokens}</ListIdentifiers></OAI-PMH>".encode()
    assert page_of("http://a/", data, None).token == "t"


def test_what_is_no_answer_of_a_repository_is_said():
    for data in (b"<a/>", b"<OAI-PMH/>", b"<!DOCTYPE html><html>", b"", b"<OAI-PMH>"):
        with pytest.raises(Rejected):
            page_of("http://a/", data, None)


# The wild ---------------------------------------------------------------------------------------


def with_attributes(count: int) -> bytes:
    return b"<a " + b"".join(b'x%d="yyyy" ' % number for number in range(count)) + b"/>"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("<a>é</a>".encode(), "<a>é</a>"),
        ("<a>é</a>".encode("latin-1"), "<a>é</a>"),
        (b"\xef\xbb\xbf<a/>", "<a/>"),
        ("\ufeff<a>é</a>".encode("utf-16-le"), "\ufeff<a>é</a>"),
        ("<?xml version='1.0' encoding='iso-8859-1'?><a>é</a>".encode("latin-1"), "<a>é</a>"),
        ("<?xml version='1.0' encoding='koi8-r'?><a>я</a>".encode("koi8-r"), "<a>я</a>"),
        ("<?xml version='1.0' encoding='none-such'?><a>é</a>".encode(), "<a>é</a>"),
        (b"<a>\x00\x01\x1f</a>", "<a></a>"),
        (b"<a>&eacute;&nbsp;&none;&amp;&#233;&#xe9;&#0;&#xFFFF;</a>",
         "<a>é\xa0&amp;none;&amp;&#233;&#xe9;</a>"),
        (b"<a>R&D &lt;</a>", "<a>R&amp;D &lt;</a>"),
        (b"<a>\x93quoted\x94</a>", "<a>“quoted”</a>"),
    ],
)  # fmt: skip
def test_what_is_meant_is_read(data, expected):
    assert repaired(data)[0] == expected.removeprefix("\ufeff")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"<html><body>log in</body></html>", "perhaps a login page"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "DOCTYPE"),
        (b"<a>", "not well-formed"),
        (b"<a>" + b"<b/>" * TAGS + b"</a>", "tags"),
        (
            b"<a " + b"".join(b'x%d="yyyy" ' % n for n in range(ATTRIBUTES + 1)) + b"/>",
            "attributes",
        ),
    ],
)
def test_what_is_dangerous_is_refused(data, problem):
    with pytest.raises(Rejected, match=problem):
        read_markup("http://a/", data)


def test_as_many_attributes_as_anybody_writes_are_read():
    assert read_markup("http://a/", with_attributes(ATTRIBUTES)).root.get("x1") == "yyyy"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00Z"),
        ("Fri, 20 Nov 2026 10:00:00 GMT", "2026-11-20T10:00:00.000000Z"),
        ("2026-11", "2026-11"),
        ("tomorrow", None),
        (None, None),
    ],
)
def test_times_of_feeds(text, expected):
    assert moment(text) == expected


HERE, WWW, LOGIN = "http://a.example/1", "https://www.a.example/1", "http://a.example/login"
PROBES = [
    (HERE, 404, True, False), (HERE, 410, True, False), (WWW, 404, True, False),
    (LOGIN, 410, True, False), ("http://b.example/1", 404, False, False),
    (HERE, 200, False, False), (HERE, 206, False, False), (HERE, 304, False, False),
    (LOGIN, 200, False, False), ("http://a.example/", 200, False, False),
    (HERE, 400, False, False), (HERE, 401, False, False), (HERE, 403, False, False),
    (HERE, 405, False, False), (HERE, 409, False, False), (HERE, 416, False, False),
    (HERE, 451, False, False), (HERE, 500, False, False), (HERE, 501, False, False),
    (HERE, 429, False, True), (HERE, 502, False, True), (HERE, 503, False, True),
    (HERE, 504, False, True), ("http://[", 404, False, False),
]  # fmt: skip


@pytest.mark.parametrize(("found", "status", "is_gone", "pauses_host"), PROBES)
def test_only_what_answers_404_or_410_at_its_own_host_is_gone(found, status, is_gone, pauses_host):
    result = result_by_status(HERE, found, status, 7.0)
    assert (result.is_gone, result.pauses_host) == (is_gone, pauses_host)
    assert bool(result.why) != is_gone
    assert result.wait_seconds == (7.0 if pauses_host else 0.0)


@pytest.mark.parametrize(
    ("status", "code", "is_deleted", "is_gone"),
    [
        (200, "idDoesNotExist", False, True),
        (404, "idDoesNotExist", False, True),
        (200, None, True, True),
        (200, None, False, False),
        (200, "cannotDisseminateFormat", False, False),
        (200, "badArgument", False, False),
        (404, None, False, False),
        (410, None, False, False),
        (503, None, False, False),
    ],
)
def test_a_record_is_gone_if_its_repository_says_so(status, code, is_deleted, is_gone):
    result = result_by_record("oai:a:1", status, code, is_deleted=is_deleted)
    assert (result.is_gone, bool(result.why)) == (is_gone, not is_gone)


@pytest.mark.parametrize(
    ("error", "pauses_host"),
    [(TryAgain("down", retry_after_seconds=5), True), (Rejected("no"), False)],
)
def test_what_is_not_answered_is_kept(error, pauses_host):
    result = result_by_error(error)
    assert (result.is_gone, result.why, result.pauses_host) == (False, error.detail, pauses_host)
