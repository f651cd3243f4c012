"""Which changes a filter lets pass, and what is no filter."""

import pytest

from rsnotify.errors import CloseCode, Rejected
from rsnotify.resourcesync import change_filter
from rsnotify.resourcesync.change import CHANGE_TYPES, Change, Link, Position
from rsnotify.resourcesync.change_filter import (
    FILTER_VALUES,
    FORMER,
    VALUE_CHARACTERS,
    Filter,
    parse_filter,
)
from rsnotify.resourcesync.notification import (
    MADE_BYTES,
    ChannelName,
    Notification,
    begun_at,
    render_forms,
    render_nothing,
    render_notification,
)

PAPER = "http://example.com/papers/1?a=1&b=2"
PDF, HTML = "application/pdf", "text/html"
THESES, BOOKS = "http://example.com/theses", "http://example.com/books?x=1&y=2"
CHANNEL = ChannelName("a", "change")


def links(*collections: str, rel: str = "collection") -> tuple[Link, ...]:
    return tuple(Link(rel=rel, href=each) for each in collections)


def change(kind: str = "updated", **described: object) -> bytes:
    return render_forms(Change(PAPER, kind, **described))[0]


def former(media_type: str | None, *collections: str) -> tuple[Link, ...]:
    return tuple(Link(rel=FORMER, href=each, type=media_type) for each in (collections or (PAPER,)))


@pytest.mark.parametrize(
    ("wanted", "entry", "passes"),
    [
        # where it is
        ({"prefix": ["http://example.com/papers/"]}, change(), True),
        ({"prefix": ["http://example.com/papers/1?a=1&"]}, change(), True),
        ({"prefix": [PAPER]}, change(), True),
        ({"prefix": [PAPER + "0"]}, change(), False),
        ({"prefix": ["http://example.com/a", "http://example.com/pap"]}, change(), True),
        ({"prefix": ["http://example.com/Papers/"]}, change(), False),
        ({"prefix": ["https://example.com/papers/"]}, change(), False),
        ({"prefix": ["http://example.com/a"]}, change("deleted"), False),
        # how it changed
        ({"change": ["created"]}, change("created"), True),
        ({"change": ["created"]}, change("updated"), False),
        ({"change": ["created", "updated"]}, change("updated"), True),
        ({"change": ["created"]}, change("deleted"), True),
        ({"change": ["deleted"]}, change("updated"), False),
        # what it is
        ({"type": [PDF]}, change(type=PDF), True),
        ({"type": [PDF]}, change(type="Application/PDF; version=1.7"), True),
        ({"type": [PDF]}, change(type=HTML), False),
        ({"type": [PDF]}, change(type="application/pdf+x"), False),
        ({"type": [PDF]}, change(), False),
        ({"type": [PDF]}, change(links=(Link("alternate", PAPER, type=PDF),)), False),
        ({"type": ["image/*"]}, change(type="image/png"), True),
        ({"type": ["image/*"]}, change(type="imagery/png"), False),
        ({"type": [HTML, "image/*"]}, change(type="text/html"), True),
        # where it belongs
        ({"collection": [THESES]}, change(links=links(THESES)), True),
        ({"collection": [BOOKS]}, change(links=links(THESES, BOOKS)), True),
        ({"collection": [THESES]}, change(links=links(BOOKS)), False),
        ({"collection": [THESES]}, change(links=links(THESES, rel="up")), False),
        ({"collection": [THESES]}, change(links=links(THESES, rel="Collection")), True),
        ({"collection": [THESES]}, change(), False),
        # what it was
        ({"type": [PDF]}, change(type=HTML, links=former(PDF)), True),
        ({"type": [PDF]}, change(type=HTML, links=former("image/png")), False),
        ({"type": [PDF]}, change(type=HTML, links=former(None)), False),
        ({"type": [PDF], "change": ["created"]}, change(type=HTML, links=former(PDF)), True),
        ({"type": [PDF], "change": ["created"]}, change(type=PDF, links=former(HTML)), False),
        ({"collection": [THESES]}, change(links=former(None, THESES)), True),
        ({"collection": [THESES]}, change(links=former(PDF)), False),
        ({"type": [PDF], "collection": [THESES]}, change(links=former(PDF, BOOKS)), False),
        ({"type": [PDF], "collection": [THESES]}, change(links=former(PDF, THESES)), True),
        # that it ended
        ({"type": [PDF]}, change("deleted"), True),
        ({"type": [PDF]}, change("deleted", type=HTML), True),
        ({"type": [PDF]}, change("deleted", links=former(PDF)), True),
        ({"type": [PDF]}, change("deleted", links=former(HTML)), False),
        ({"type": [PDF]}, change("deleted", links=former(None)), False),
        ({"collection": [THESES]}, change("deleted", links=former(PDF, BOOKS, THESES)), True),
        ({"collection": [THESES]}, change("deleted", links=former(PDF, BOOKS)), False),
        ({"type": [PDF], "change": ["updated"]}, change("deleted", links=former(PDF)), True),
        # all of it
        ({"prefix": ["http://example.com/"], "type": [HTML]}, change(type=PDF), False),
        ({"prefix": ["http://example.com/"], "type": [PDF]}, change(type=PDF), True),
        ({"prefix": ["http://example.org/"], "type": [PDF]}, change("deleted"), False),
    ],
)
def test_a_change_passes_if_one_value_of_each_parameter_fits(wanted, entry, passes):
    found = parse_filter(wanted)
    assert found is not None
    assert found.matches(entry) is passes


SAID_SINCE = Position(12)


@pytest.mark.parametrize(
    ("kind", "at", "passes"),
    [
        ("updated", 11, True),
        ("updated", 12, True),
        ("updated", 13, False),
        ("created", 12, False),
        ("deleted", 13, True),
    ],
)
def test_where_nobody_knows_what_a_resource_was_an_update_passes(kind, at, passes):
    entry = change(kind, type=HTML).replace(b"\0", str(Position(at)).encode())
    plain = Filter(type=[PDF])
    wanted = plain.known_since(str(SAID_SINCE))
    assert wanted.matches(entry) is passes
    assert (wanted.pairs, str(wanted)) == (plain.pairs, str(plain))
    assert wanted != plain
    assert wanted == Filter(type=[PDF]).known_since(str(SAID_SINCE))


def test_no_parameter_is_no_filter():
    assert parse_filter({"from": ["2026-11-20"], "prefix": []}) is None


def test_filters_that_mean_the_same_are_one():
    one = parse_filter({"type": [PDF, HTML], "prefix": ["http://a/", "http://b/", "http://a/"]})
    other = parse_filter({"prefix": ["http://b/", "http://a/"], "type": ["Text/HTML", PDF]})
    assert one == other
    assert hash(one) == hash(other)
    assert str(one) == "prefix=http://a/&prefix=http://b/&type=application/pdf&type=text/html"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("prefix", "", "prefix is empty: leave it out"),
        ("type", "", "type is empty: leave it out"),
        ("change", "", "change is empty: leave it out"),
        ("collection", "", "collection is empty: leave it out"),
        ("prefix", "/papers/", "with a scheme: 'http://example.com/papers/'"),
        ("prefix", "example.com/papers", "with a scheme: 'http://example.com/"),
        ("prefix", "http://a/b c", "write it as in the loc of changes, 'http://a/b%20c'"),
        ("prefix", "http://a/ä", "write it as in the loc of changes, 'http://a/%C3%A4'"),
        ("type", "*", "it must be a media type such as application/pdf, or image/*"),
        ("type", "*/*", "it must be a media type"),
        ("type", "*/pdf", "it must be a media type"),
        ("type", "image", "it must be a media type"),
        ("type", "application/pdf;version=1", "leave its parameters out"),
        ("change", "removed", "it must be one of created, updated, deleted"),
        ("change", "Created", "it must be one of created, updated, deleted"),
        ("collection", "theses", "give the whole href of the link"),
        ("collection", "http://a/\x00", "no address has such a character"),
        ("prefix", "http://" + "a" * (VALUE_CHARACTERS - 6), "has 2001 characters"),
    ],
)
def test_what_is_no_filter_is_refused_with_what_would_be_one(name, value, said):
    with pytest.raises(Rejected) as refused:
        parse_filter({name: [value]})
    assert said in refused.value.detail
    assert (refused.value.status, refused.value.close_code) == (400, CloseCode.BAD_REQUEST)


def test_a_filter_has_so_many_values_and_no_more():
    values = [f"http://example.com/{number}" for number in range(FILTER_VALUES)]
    assert parse_filter({"prefix": values}) is not None
    with pytest.raises(Rejected, match="a filter of 101 values: at most 100"):
        parse_filter({"prefix": values, "change": ["created"]})


def test_a_value_has_so_many_characters():
    assert parse_filter({"prefix": ["http://" + "a" * (VALUE_CHARACTERS - 7)]}) is not None


# --- of a notification ---------------------------------------------------------------------------


def notification(*fragments: bytes) -> Notification:
    rows = [(Position(number), each) for number, each in enumerate(fragments, 11)]
    return render_notification(CHANNEL, Position(10), rows, base_url="http://hub")


MIXED = notification(change("created"), change("updated"), change("deleted"))


def test_what_passes_of_a_notification_covers_the_same_interval():
    part = Filter(change=["created"]).pick(MIXED)
    assert (part.from_, part.until, part.count) == (MIXED.from_, MIXED.until, 2)
    assert part.payload == MIXED.payload.replace(
        MIXED.payload[MIXED.entries].split(b"</url>")[1] + b"</url>", b""
    )


def test_if_nothing_of_a_notification_passes_next_to_nothing_is_kept():
    assert Filter(prefix=["http://example.net/"]).pick(MIXED) is None
    before = MIXED.size
    assert Filter(prefix=["http://example.org/"]).pick(MIXED) is None
    assert Filter(prefix=["http://example.org/"]).pick(MIXED) is None
    assert MIXED.size <= before + MADE_BYTES


def test_a_position_is_a_notification_without_changes():
    found = render_nothing(CHANNEL, MIXED.from_, MIXED.until, base_url="http://hub")
    assert (found.count, found.payload[found.entries]) == (0, b"")
    assert found.payload == MIXED.payload.replace(MIXED.payload[MIXED.entries], b"")


def test_what_passes_is_chosen_once_for_all_who_want_the_same():
    one, other = Filter(change=CHANGE_TYPES), Filter(change=reversed(CHANGE_TYPES))
    assert one.pick(MIXED) is other.pick(MIXED)


def test_a_notification_begins_where_its_reader_is():
    part = Filter(change=["created"]).pick(MIXED)
    begun = begun_at(part, Position(3))
    assert begun.from_ == Position(3)
    assert begun.payload == part.payload.replace(
        str(part.from_).encode(), str(begun.from_).encode()
    )
    assert begun.payload[begun.entries] == part.payload[part.entries]
    assert begun_at(part, Position(3)) is begun
    assert begun_at(part, part.from_) is part


def test_what_was_made_of_a_part_is_counted_in_the_whole():
    whole = notification(change("created"))
    assert Filter(change=["updated"]).pick(whole) is None  # it is taken apart once for all
    before = whole.size
    part = Filter(change=["created"]).pick(whole)
    assert whole.size == before + part.size
    begun_at(part, Position(1)).derived("frame", lambda _: b"x" * 1000)
    assert whole.size >= before + part.size > before + 2 * len(part.payload) + 1000


def test_a_change_from_before_it_was_known_passes_of_a_notification_that_reaches_back():
    whole = notification(change("updated", type=HTML), change("updated", type=HTML))
    plain = Filter(type=[PDF])
    for since, count in ((10, 0), (11, 1), (12, 2), (13, 2)):
        part = plain.known_since(str(Position(since))).pick(whole)
        assert (0 if part is None else part.count) == count


def test_a_notification_is_taken_apart_once_for_all_filters(monkeypatch):
    looked = []
    real = change_filter.described
    monkeypatch.setattr(
        change_filter, "described", lambda *each: looked.append(each) or real(*each)
    )
    whole = notification(change("updated", type=PDF), change("created", type=HTML))
    for number in range(50):
        Filter(type=[f"image/{number}"]).pick(whole)
    assert len(looked) == whole.count
