"""OAI-PMH without a hub: questions, tokens, answers, and which records stand in a list."""

import base64
import json

import pytest
from lxml import etree

from rsnotify.resourcesync.change import DAY, MICROSECONDS, Change, Position
from rsnotify.resourcesync.change_rules import URI_CHARACTERS
from rsnotify.resourcesync.notification import render_forms
from rsnotify.views.dublin_core import CLOSING, OPENING, dublin_core
from rsnotify.views.listing import (
    PAGE_BYTES,
    Found,
    HarvestPage,
    Listing,
    ListPlace,
    Passed,
    Replaced,
    found_of,
    listed_at,
    page_of,
)
from rsnotify.views.oai_answers import (
    NextPage,
    datestamp,
    render_answer,
    render_fault,
    render_formats,
    render_identity,
    render_list,
    render_one,
)
from rsnotify.views.oai_question import (
    ARGUMENTS,
    OaiFault,
    OaiQuestion,
    check_served,
    parse_arguments,
    parse_datestamp,
    parse_question,
)
from rsnotify.views.oai_token import (
    LIFETIME,
    TOKEN_CHARACTERS,
    OfList,
    Resumption,
    parse_token,
    render_token,
)

NOW = Position.parse("2026-11-20T21:34:00Z")


# --- questions ------------------------------------------------------------------------------------


def asked(text: str) -> str:
    """The code of what is wrong with a query; nothing if that is nothing."""
    try:
        check_served(parse_question(parse_arguments(text.encode("latin-1"))))
    except OaiFault as fault:
        return fault.code
    return ""


LIST = "verb=ListRecords&metadataPrefix=oai_dc"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("verb=Identify", ""),
        ("verb=Identify&access_token=a", ""),
        ("verb=Identify&identifier=a", "badArgument"),
        ("verb=ListMetadataFormats&identifier=a", ""),
        ("verb=GetRecord&identifier=a&metadataPrefix=oai_dc", ""),
        ("verb=GetRecord&identifier=a&metadataPrefix=oai_dc&from=2026-11-20", "badArgument"),
        (LIST, ""),
        (f"{LIST}&from=2026-11-20&until=2026-11-20", ""),
        (f"{LIST}&from=2026-11-20T21:34:00Z&until=2026-11-20T21:34:00Z", ""),
        (f"{LIST}&from=2026-11-20T21:34:01Z&until=2026-11-20T21:34:00Z", "badArgument"),
        (f"{LIST}&from=2026-11-20T21:34:00%2B00:00", "badArgument"),
        (f"{LIST}&from=2026-11-20&until=2026-11-20T21:34:00Z", "badArgument"),
        (f"{LIST}&from=2026-11-20T24:00:00Z", "badArgument"),
        (f"{LIST}&from=2026-02-29", "badArgument"),
        (f"{LIST}&from=\xb2026-11-20", "badArgument"),
        (f"{LIST}&set=a:b", "noSetHierarchy"),
        *(
            (f"{LIST}&set={each}", "badArgument")
            for each in ("", ":a", "a:", "a::b", "a+b", "a%0A")
        ),
        ("verb=ListRecords&metadataPrefix=a-Z_0.!~*'()", "cannotDisseminateFormat"),
        *(
            (f"verb=ListRecords&metadataPrefix={each}", "badArgument")
            for each in ("", "a+b", "a:b", "%C3%A9", "oai_dc%0A")
        ),
        ("verb=ListRecords&resumptionToken=a", ""),
        ("verb=ListRecords&resumptionToken=a&resumptionToken=a", "badArgument"),
        ("verb=ListRecords&resumptionToken=a&from=2026-11-20", "badArgument"),
        ("verb=GetRecord&resumptionToken=a", "badArgument"),
        ("verb", "badVerb"),
        ("", "badVerb"),
        ("verb=Identify&verb=Identify", "badVerb"),
        ("verb=ListRecords", "badArgument"),
        ("verb=ListMetadataFormats&identifier=%01", "badArgument"),
        ("Verb=Identify", "badVerb"),
    ],
)
def test_a_question_is_judged(text, code):
    assert asked(text) == code


@pytest.mark.parametrize("text", [b"verb=\xff", b"verb=%FF"])
def test_arguments_are_utf_8(text):
    with pytest.raises(OaiFault, match="UTF-8"):
        parse_arguments(text)


@pytest.mark.parametrize(
    ("count", "code"), [(ARGUMENTS, "badVerb"), (ARGUMENTS + 1, "badArgument")]
)
def test_a_request_has_32_arguments_at_most(count, code):
    assert asked("&".join(["a=b"] * count)) == code


def test_what_is_asked_for_is_named():
    one = parse_question([("verb", "GetRecord"), ("identifier", "a"), ("metadataPrefix", "b")])
    rest = parse_question([("verb", "ListRecords"), ("resumptionToken", "c")])
    assert (one.identifier, one.token, rest.identifier, rest.token) == ("a", None, None, "c")


def test_a_range_reaches_from_the_first_position_of_it_to_the_last():
    sent = parse_arguments(f"{LIST}&from=2026-11-20&until=2026-11-21".encode())
    found = parse_question(sent)
    assert (str(found.from_), str(found.until)) == (
        "2026-11-20T00:00:00.000000Z",
        "2026-11-21T23:59:59.999999Z",
    )
    second = parse_datestamp("until", "2026-11-20T21:34:00Z", is_end=True)
    assert str(second) == "2026-11-20T21:34:00.999999Z"


# --- tokens ---------------------------------------------------------------------------------------

OF = OfList("ListRecords", "dataset1", Position(NOW - DAY))
WALK = Listing(None, None, NOW, of_state=True, resources=100_000, tombstones=NOW)
RESUMPTIONS = [
    Resumption(WALK, ListPlace(0, "", NOW), 0),
    Resumption(WALK, ListPlace(255, "http://example.com/?a&b=\u00fc", NOW), 500),
    Resumption(WALK, ListPlace(None, "", Position(NOW - 1)), 2**40),
    Resumption(
        Listing(Position(-1), Position(NOW + DAY), Position(0), of_state=False),
        ListPlace(None, "", Position(-62_135_596_800_000_000)),
        1,
    ),
]


@pytest.mark.parametrize("resumption", RESUMPTIONS)
def test_a_token_says_what_was_put_into_it(resumption):
    text = render_token(OF, resumption, NOW)
    assert text.isascii()
    assert parse_token(text, OF, NOW, NOW) == resumption


@pytest.mark.parametrize("is_plain", [False, True])
def test_the_longest_token_is_read(is_plain):
    """Of the longest address that can be published, in whatever characters."""
    place = ListPlace(255, "http://a.example/".ljust(URI_CHARACTERS, "\u00fc&"[is_plain]), NOW)
    text = render_token(OF, Resumption(WALK, place, 0), NOW)
    assert len(text) <= TOKEN_CHARACTERS
    assert parse_token(text, OF, NOW, NOW).place == place


@pytest.mark.parametrize(
    ("of", "now", "last", "why"),
    [
        (OF._replace(verb="ListIdentifiers"), NOW, NOW, "of another list"),
        (OF._replace(set_name="dataset2"), NOW, NOW, "of another list"),
        (OF._replace(created=NOW), NOW, NOW, "made again"),
        (OF, NOW + LIFETIME - 1, NOW, ""),
        (OF, NOW + LIFETIME, NOW, "it has expired"),
        (OF, NOW - LIFETIME, NOW, "it has expired"),
        (OF, NOW, NOW - 1, "has not come"),
    ],
)
def test_a_token_counts_for_its_own_list_and_in_its_time(of, now, last, why):
    text = render_token(OF, RESUMPTIONS[0], NOW)
    if not why:
        parse_token(text, of, Position(now), Position(last))
        return
    with pytest.raises(OaiFault, match=why) as refused:
        parse_token(text, of, Position(now), Position(last))
    assert refused.value.code == "badResumptionToken"


def forged(**places: object) -> str:
    """A token with other values, by their index."""
    values = json.loads(base64.urlsafe_b64decode(render_token(OF, RESUMPTIONS[1], NOW) + "=="))
    for name, value in places.items():
        values[int(name[1:])] = value
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()


WRONG_TOKENS = {
    "nothing": "",
    "no base64": "\u00fc",
    "no JSON": "AAAA",
    "an object": base64.urlsafe_b64encode(b"{}").decode(),
    "another version": forged(_0=1),
    "a shard below none": forged(_11=-1),
    "a number that is a text": forged(_14="1"),
    "the year 10000": forged(_13=253_402_300_800_000_000),
    "the year 9999": forged(_13=253_402_300_799_000_000),
    "fewer records than none": forged(_14=-1),
    "what XML cannot carry": forged(_12="\0"),
    "too long": "A" * (TOKEN_CHARACTERS + 1),
    "deep": base64.urlsafe_b64encode(b"[" * 5_000).decode(),
}


@pytest.mark.parametrize("name", WRONG_TOKENS)
def test_what_is_no_token_is_refused(name):
    with pytest.raises(OaiFault) as refused:
        parse_token(WRONG_TOKENS[name], OF, NOW, NOW)
    assert refused.value.code == "badResumptionToken"


# --- lists ----------------------------------------------------------------------------------------


def at(second: int) -> Position:
    return Position(NOW + second * MICROSECONDS)


def row(second: int, kind: str) -> tuple[Position, bytes]:
    return at(second), render_forms(Change("http://a.example/?b&c", kind))[0]


LOC = b"http://a.example/?b&amp;c"
JOURNAL = Listing(at(0), None, at(5), of_state=False)
STATE = JOURNAL._replace(of_state=True)
CASES = [  # the list, a row, where the resource stands in the state, what is listed
    (JOURNAL, row(3, "created"), 3, "there"),
    (JOURNAL, row(3, "updated"), 3, "there"),
    (JOURNAL, row(3, "updated"), 4, ""),
    (JOURNAL, row(3, "updated"), None, ""),
    (JOURNAL, row(3, "updated"), 2, "there"),
    (JOURNAL, row(3, "deleted"), None, "gone"),
    (JOURNAL, row(3, "deleted"), 4, ""),
    (STATE, row(3, "updated"), 3, ""),
    (STATE, row(3, "deleted"), None, "gone"),
    (STATE, row(5, "updated"), 5, ""),
    (STATE, row(6, "updated"), 6, "there"),
]
ENDED = [  # as above; the resource has a tombstone there
    (JOURNAL, row(3, "updated"), 4, ""),
    (JOURNAL, row(3, "deleted"), 3, "gone"),
    (JOURNAL, row(3, "deleted"), 4, ""),
    (STATE, row(3, "deleted"), 3, ""),
    (STATE, row(5, "deleted"), 5, ""),
    (STATE, row(6, "deleted"), 6, "gone"),
]


@pytest.mark.parametrize(
    ("listing", "change", "stands", "listed", "entry"),
    [*((*case, b"<url/>") for case in CASES), *((*case, None) for case in ENDED)],
)
def test_a_resource_is_listed_where_it_changed_last(listing, change, stands, listed, entry):
    position = None if stands is None else at(stands)
    found = None if position is None else Found(LOC, position, entry)
    outcome = listed_at(change, found, listing, position)
    assert (
        outcome
        == {
            "": None,
            "gone": Found(LOC, change[0], None),
            "there": Found(LOC, change[0], b"<url/>"),
        }[listed]
    )


@pytest.mark.parametrize(
    ("from_", "until", "changed", "is_in"),
    [
        (None, None, 3, True),
        (3, None, 3, True),
        (4, None, 3, False),
        (None, 3, 3, True),
        (None, 2, 3, False),
        (1, 5, 3, True),
    ],
)
def test_a_range_has_both_its_ends(from_, until, changed, is_in):
    ends = (None if second is None else at(second) for second in (from_, until))
    listing = Listing(*ends, at(9), of_state=True, resources=7)
    assert listing.has(at(changed)) == is_in
    assert listing.size == (7 if from_ is until is None else None)


def passed(name: str, second: int, size: int = 1) -> Passed:
    return Passed(Found(name.encode(), at(second), b"x" * size), ListPlace(None, "", at(second)))


END = ListPlace(None, "", at(99))


def test_a_page_ends_behind_its_last_record_and_has_each_resource_once():
    every = [passed("a", 1), passed("b", 2), passed("a", 3), passed("c", 4)]
    page = page_of(every, END, 2)
    assert page == HarvestPage([every[1].found, every[2].found], every[2].place)
    assert page_of(every, END, 3) == HarvestPage([each.found for each in every[1:]], END)
    assert page_of([], None, 3) == HarvestPage([], None)


@pytest.mark.parametrize(("size", "records"), [(PAGE_BYTES - 1, 2), (PAGE_BYTES, 1)])
def test_a_page_ends_where_it_is_long(size, records):
    page = page_of([passed("a", 1, size), passed("b", 2), passed("c", 3)], END)
    assert len(page.found) == records


@pytest.mark.parametrize(("number", "is_last"), [(500, True), (501, False)])
def test_a_page_has_500_records_at_most(number, is_last):
    page = page_of([passed(str(each), each) for each in range(number)], END)
    assert (len(page.found), page.next == END) == (500, is_last)


def test_what_a_load_brought_changed_when_it_took_the_place_of_the_state():
    replaced = Replaced(at(9), {at(3): at(9)})
    kept = b"%d\x022026</lastmod>\x03"
    found = found_of({b"a": kept % int(at(3)), b"b": kept % int(at(4))}, replaced)
    assert [(loc, each.changed) for loc, each in found.items()] == [(b"a", at(9)), (b"b", at(4))]


# --- answers --------------------------------------------------------------------------------------


def test_dublin_core_has_what_is_known_and_no_patch_of_a_change():
    entry = (
        b'<url><loc>a:b?c&amp;d</loc><lastmod>2026</lastmod><rs:md x:type="no" hash="md5:0"'
        b' length="5" type="text/plain; a=&quot;&gt;&quot;"/>'
        b'<rs:ln rel="describedby" href="c:d" type="e/f"/><rs:ln rel="via" href="g:h"/></url>'
    )
    assert dublin_core(entry)[len(OPENING) : -len(CLOSING)] == (
        b"<dc:identifier>a:b?c&amp;d</dc:identifier><dc:date>2026</dc:date>"
        b"<dc:format>text/plain; a=&quot;&gt;&quot;</dc:format>"
        b"<dc:relation>c:d</dc:relation><dc:source>g:h</dc:source>"
    )


@pytest.mark.parametrize(
    ("page", "written"),
    [
        (None, b""),
        (NextPage("", 0, 0), b'<resumptionToken cursor="0"></resumptionToken>'),
        (NextPage("", 500), b'<resumptionToken cursor="500"></resumptionToken>'),
        (
            NextPage("a", 0, 100, at(0)),
            b'<resumptionToken expirationDate="2026-11-20T21:34:00Z" completeListSize="100"'
            b' cursor="0">a</resumptionToken>',
        ),
        (
            NextPage("", 7, 5),
            b'<resumptionToken completeListSize="7" cursor="7"></resumptionToken>',
        ),
    ],
)
def test_a_page_says_where_it_stands(page, written):
    deleted = Found(b"a:b", NOW, None)
    header = (
        b'<header status="deleted"><identifier>a:b</identifier>'
        b"<datestamp>2026-11-20T21:34:00Z</datestamp></header>"
    )
    for verb, record in (
        (b"ListIdentifiers", header),
        (b"ListRecords", b"<record>%b</record>" % header),
    ):
        expected = b"<%b>%b%b</%b>" % (verb, record, written, verb)
        assert render_list(verb.decode(), [deleted], page) == expected


def test_a_record_has_its_dublin_core_and_only_records_have():
    found = Found(b"a:b", NOW, b"<url><loc>a:b</loc></url>")
    header = b"<header><identifier>a:b</identifier><datestamp>2026-11-20T21:34:00Z</datestamp>"
    metadata = dublin_core(b"<url><loc>a:b</loc></url>")
    record = b"<record>%b</header><metadata>%b</metadata></record>" % (header, metadata)
    assert render_one(found) == b"<GetRecord>%b</GetRecord>" % record
    assert render_list("ListRecords", [found], None) == b"<ListRecords>%b</ListRecords>" % record


@pytest.mark.parametrize(
    ("question", "attributes"),
    [
        (None, {}),
        (OaiQuestion("GetRecord", {"identifier": "<&"}), {"verb": "GetRecord", "identifier": "<&"}),
    ],
)
def test_an_answer_repeats_the_question_where_it_is_one(question, attributes):
    fault = render_fault(OaiFault("badVerb", "a < b"))
    identity = render_identity("a", "http://a/oai", "a@b.c", NOW, forgets=True)
    for content in (fault, render_formats(), identity):
        root = etree.fromstring(render_answer("http://a/oai", NOW, content, question))
        date, request, said = root
        assert (date.text, request.text) == ("2026-11-20T21:34:00Z", "http://a/oai")
        assert dict(request.attrib) == attributes
        assert said.tag.partition("}")[2] in ("error", "ListMetadataFormats", "Identify")


def test_a_datestamp_is_of_the_second_that_a_position_lies_in():
    assert datestamp(NOW + MICROSECONDS - 1) == "2026-11-20T21:34:00Z"
    assert datestamp(-1) == "1969-12-31T23:59:59Z"
