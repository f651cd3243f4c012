"""What the query of an address asks for, in every way that one writes it."""

import pytest

from rsnotify.access.query import (
    CHANGE_LIST,
    CHANNEL,
    SETS_LEFT_OUT,
    SETS_LISTED,
    SETS_OF_A_CONNECTION,
    SEVERAL_CHANNELS,
    STATUS,
    SetCursor,
    check_not_future,
    parse_cursors,
    parse_query,
    parse_sets,
    parse_sets_asked,
    parse_start,
    render_cursors,
)
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.sets.options import SetRecord

T = Position.parse("2026-11-20T20:34:00.123456Z")


def start(query: str) -> Position | None:
    return parse_start(parse_query(query.encode(), CHANGE_LIST))


def sets(query: str) -> list[SetCursor]:
    return parse_sets(parse_query(query.encode(), SEVERAL_CHANNELS))


# --- from ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "position"),
    [
        ("", None),
        ("access_token=x", None),
        ("from=2026-11-20T20:34:00.123456Z", T),
        ("from=2026-11-20T20%3A34%3A00.123456Z", T),
        ("from=2026-11-20T20:34:00.1234569Z", T),
        ("since=2026-11-20T20:34:00.123456Z", T),
        ("from=2026-11-20T21:34:00.123456%2B01:00", T),
        ("from=2026-11-20T21:34:00.123456+01:00", T),
        ("from=2026-11-20T19:34:00.123456-01:00", T),
        ("since=2026-11-20T21:34:00.123456+01:00&from=2026-11-20T20:34:00.123456Z", T),
        ("from=2026-11-20", Position.parse("2026-11-20T00:00:00Z")),
        ("from=2026-11-20T20:34Z", Position.parse("2026-11-20T20:34:00Z")),
        ("from=0001-01-01", Position.parse("0001-01-01T00:00:00Z")),
    ],
)
def test_from_is_read_as_people_write_it(query, position):
    assert start(query) == position


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "2026-11", "2026-11-20T10:00:00", "2026-11-20 10:00", "1795210440"),
        *("2026-99-99", "2026-02-30T00:00:00Z", "2026-11-20T20:34:00Z 01:00", "9" * 400),
    ],
)
@pytest.mark.parametrize("name", ["from", "since"])
def test_what_is_no_position_is_refused_by_its_name(name, text):
    with pytest.raises(Rejected, match=f"malformed `{name}`") as refused:
        start(f"{name}={text}")
    assert (refused.value.status, refused.value.close_code) == (400, 4400)


@pytest.mark.parametrize("query", ["from=2026-11-20&since=2026-11-21", "from=2026-01-01&from=2026"])
def test_two_positions_are_refused(query):
    with pytest.raises(Rejected):
        start(query)


def test_the_future_begins_five_seconds_after_now_or_after_the_newest_change():
    now = int(T)
    edge = Position(now + 5 * MICROSECONDS)
    check_not_future(edge, T, now)
    with pytest.raises(Rejected, match="in the future"):
        check_not_future(Position(edge + 1), T, now)
    check_not_future(Position(edge + 1), newest=Position(edge + 1), now=now)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("frm", "did you mean from? Known"),
        ("sinse", "did you mean since? Known"),
        ("q" * 9_000, "known"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_one_that_is_meant(name, meant):
    with pytest.raises(Rejected) as refused:
        parse_query(f"{name}=2026-11-20".encode(), CHANNEL)
    assert refused.value.detail.endswith(
        f"; {meant} here: access_token, format, from, since, prefix, type, change, collection"
    )


def test_an_unknown_parameter_is_refused_with_the_known_ones():
    with pytest.raises(Rejected) as refused:
        parse_query(b"form=2026-11-20", CHANNEL)
    assert refused.value.detail == (
        "unknown parameter 'form'; did you mean format?"
        " Known here: access_token, format, from, since, prefix, type, change,"
        " collection"
    )
    assert (refused.value.status, refused.value.close_code) == (400, 4400)


# --- several sets --------------------------------------------------------------------------------


def test_each_set_has_a_position_of_its_own_or_that_of_all():
    later = Position.parse("2026-11-21T00:00:00Z")
    assert sets("set=a&set=b@2026-11-20T21:34:00.123456+01:00") == [("a", None), ("b", T)]
    assert sets("set=a&set=b@2026-11-20T20:34:00.123456Z&since=2026-11-21") == [
        *(("a", later), ("b", T))
    ]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "0 sets"),
        ("set=a&set=b@", "malformed `set=b@`"),
        ("set=a@2026-11-20&set=b@soon", "malformed `set=b@`"),
        ("set=a&set=b&set=a@2026-11-20", "'a' is named twice"),
    ],
)
def test_sets_that_cannot_be_read_are_refused(query, says):
    with pytest.raises(Rejected, match=says):
        sets(query)


def test_a_connection_reads_100_sets_at_most():
    query = "&".join(f"set=s{number}" for number in range(SETS_OF_A_CONNECTION))
    assert len(sets(query)) == 100
    with pytest.raises(Rejected, match="101 sets"):
        sets(f"{query}&set=more")


def test_cursors_are_read_as_they_were_written():
    text = render_cursors([("a", T), ("b.c-d_e", Position(T + 1))])
    assert text == "a@2026-11-20T20:34:00.123456Z,b.c-d_e@2026-11-20T20:34:00.123457Z"
    assert parse_cursors(text) == {"a": T, "b.c-d_e": T + 1}
    with pytest.raises(Rejected, match="malformed `Last-Event-ID`"):
        parse_cursors("a")


def test_a_form_is_named_once():
    with pytest.raises(Rejected, match="`format` is given more than once"):
        parse_query(b"format=xml&format=json", CHANGE_LIST)


# --- which sets are told of ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["cats", "dogs", "hotdogs"]),
        ("name=dogs", ["dogs"]),
        ("name=dog", []),
        ("search=dogs", ["dogs", "hotdogs"]),
        ("search=DOGS", ["dogs", "hotdogs"]),
        ("search=dogs&name=cats", []),
    ],
)
def test_sets_are_asked_for_by_name_or_by_a_part_of_it(query, names):
    sets = {name: SetRecord(name=name, created="") for name in ("hotdogs", "cats", "dogs")}
    found = parse_sets_asked(query.encode()).among(sets)
    assert [record.name for record in found] == names


def test_sets_are_in_the_order_of_their_names_and_of_the_numbers_in_them():
    names = ["2a", "10a", "a", "a1", "a1.2", "a1.10", "a1b", "a02", "a2", "a3b2", "a10", "a-1", "b"]
    sets = {name: SetRecord(name=name, created="") for name in sorted(names)}
    assert [record.name for record in parse_sets_asked(b"").among(sets)] == names


def test_the_order_of_the_status_is_by_name_or_newest():
    for query, by_newest in (("", False), ("order=name", False), ("order=newest", True)):
        assert parse_sets_asked(query.encode(), known=STATUS).by_newest == by_newest
    for wrong in ("order=oldest", "order=newest&order=name"):
        with pytest.raises(Rejected, match="order"):
            parse_sets_asked(wrong.encode(), known=STATUS)
    with pytest.raises(Rejected, match="unknown parameter 'order'"):
        parse_sets_asked(b"order=newest")


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("", [0, 1, 2, 3, 4]),
        ("limit=2", [0, 1]),
        ("limit=2&offset=2", [2, 3]),
        ("limit=2&offset=4", [4]),
        ("offset=3", [3, 4]),
        ("limit=2&offset=5", []),
    ],
)
def test_sets_are_read_in_pages(query, numbers):
    found = [SetRecord(name=f"set{number}", created="") for number in range(5)]
    assert parse_sets_asked(query.encode()).part(found) == [found[at] for at in numbers]


def test_a_million_sets_may_be_left_out():
    assert parse_sets_asked(f"offset={SETS_LEFT_OUT}".encode()).offset == SETS_LEFT_OUT
    for wrong in (f"offset={SETS_LEFT_OUT + 1}", "offset=-1", "offset=", "offset=1&offset=1"):
        with pytest.raises(Rejected):
            parse_sets_asked(wrong.encode())


def test_a_limit_of_sets_is_1_to_10000():
    assert parse_sets_asked(b"").limit is None
    assert parse_sets_asked(b"", 7).limit == 7
    for number in (1, SETS_LISTED):
        assert parse_sets_asked(f"limit={number}".encode(), 7).limit == number
    for wrong in ("limit=0", f"limit={SETS_LISTED + 1}", "limit=", "nam=dogs", "access_token=x"):
        with pytest.raises(Rejected):
            parse_sets_asked(wrong.encode())
