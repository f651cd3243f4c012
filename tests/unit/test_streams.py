"""What a stream is asked for, and what caches may keep of its answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsnotify.access.caching import has_tag
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import HOUR, Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.streams.cursors import WaitingGrid, next_cursor
from rsnotify.streams.stream_headers import Chunk, cache_control, etag, headers_of
from rsnotify.streams.stream_query import Sentinel, parse_stream_question

TEXT = "2026-11-20T21:34:00.123456Z"
ENCODED = "2026-11-20T21%3A34%3A00.123456Z"
AT = Position.parse(TEXT)


@pytest.mark.parametrize(
    ("text", "offset", "live", "cursor"),
    [
        ("", Sentinel.BEGINNING, None, None),
        ("offset=-1", Sentinel.BEGINNING, None, None),
        ("offset=now", Sentinel.NOW, None, None),
        (f"offset={ENCODED}", AT, None, None),
        (f"live=long-poll&offset={ENCODED}", AT, "long-poll", None),
        (f"cursor=17&live=sse&offset={ENCODED}", AT, "sse", 17),
        ("cursor=1&offset=-1", Sentinel.BEGINNING, None, 1),
        ("offset=-1&live=long-poll", Sentinel.BEGINNING, "long-poll", None),
        (f"offset={ENCODED}&live=long-poll&cursor=17", AT, "long-poll", 17),
    ],
)
def test_a_canonical_question_is_understood(text, offset, live, cursor):
    assert parse_stream_question(text.encode()) == (offset, live, cursor, True, None)


def test_a_question_for_a_part_is_canonical_where_its_parameters_are_sorted():
    wanted = "prefix=http%3A%2F%2Fa%2F&prefix=http%3A%2F%2Fb%2F"
    asked = parse_stream_question(f"change=created&offset=-1&{wanted}".encode())
    assert asked.is_canonical
    assert asked.filter == Filter(prefix=["http://b/", "http://a/"], change=["created"])
    assert not parse_stream_question(f"offset=-1&{wanted}&change=created".encode()).is_canonical
    appended = f"change=created&{wanted}&offset=-1&live=long-poll&cursor=1"
    assert parse_stream_question(appended.encode()).is_canonical


@pytest.mark.parametrize(
    "text",
    [
        f"offset={TEXT}",
        f"offset={ENCODED.lower().replace('t', 'T').replace('z', 'Z')}",
        f"cursor=1&offset={ENCODED}&live=long-poll",
        f"offset={ENCODED}&cursor=1&live=long-poll",
        f"offset={ENCODED}&prefix=http%3A%2F%2Fa%2F&live=long-poll",
        "offset=%2D1",
        "offset=-1&",
        "access_token=x&offset=-1&",
    ],
)
def test_the_same_question_written_otherwise_is_not_canonical(text):
    assert not parse_stream_question(text.encode()).is_canonical


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("offset=", "Stream-Next-Offset"),
        ("offset=-2", "Stream-Next-Offset"),
        ("offset=NOW", "Stream-Next-Offset"),
        ("offset=1%2C2", "Stream-Next-Offset"),
        ("offset=2026-11-20T21%3A34%3A00Z", "Stream-Next-Offset"),
        ("offset=2026-11-20T23%3A34%3A00.123456%2B02%3A00", "Stream-Next-Offset"),
        ("offset=2026-11-20T21%3A34%3A00.1234567Z", "Stream-Next-Offset"),
        ("offset=2026-13-20T21%3A34%3A00.123456Z", "Stream-Next-Offset"),
        ("offset=%FF", "Stream-Next-Offset"),
        ("offset=-1&offset=-1", "more than once"),
        ("live=long-poll", "needs an offset"),
        ("live=poll&offset=-1", "long-poll or sse"),
        ("cursor=x&offset=-1", "Stream-Cursor"),
        ("cursor=-1&offset=-1", "Stream-Cursor"),
        ("cursor=&offset=-1", "Stream-Cursor"),
        (f"cursor={'9' * 19}&offset=-1", "Stream-Cursor"),
        ("from=-1", "unknown parameter 'from'"),
    ],
)
def test_what_is_no_question_is_refused_with_how_to_mend_it(text, told):
    with pytest.raises(Rejected, match=told) as refused:
        parse_stream_question(text.encode())
    assert refused.value.status == 400


def test_the_longest_cursor_is_read():
    assert parse_stream_question(b"cursor=" + b"9" * 18).cursor == 10**18 - 1


OLD, NEW = Position(AT - HOUR - 1), Position(AT - HOUR)


@pytest.mark.parametrize(
    ("until", "is_newest", "is_private", "told"),
    [
        (NEW, False, False, "public, max-age=60"),
        (OLD, False, False, "public, max-age=3600, immutable"),
        (NEW, True, False, "public, max-age=1"),
        (OLD, True, False, "public, max-age=1"),
        (OLD, False, True, "private, no-cache"),
        (OLD, True, True, "private, no-cache"),
    ],
)
def test_what_caches_may_keep(until, is_newest, is_private, told):
    chunk = Chunk(Position(0), until, is_newest)
    assert cache_control(chunk, AT, is_private=is_private) == told


def test_a_chunk_has_a_tag_of_its_own():
    chunk = Chunk(OLD, AT, is_newest=True)
    others = (
        etag(TEXT, chunk._replace(from_=NEW)),
        etag(TEXT, chunk._replace(until=NEW)),
        etag(str(OLD), chunk),
    )
    tag = etag(TEXT, chunk)
    assert tag not in others
    assert etag(TEXT, chunk._replace(is_newest=False)) == tag
    assert etag(TEXT, chunk, in_gzip=True) == f"W/{tag}"


@pytest.mark.parametrize(
    ("sent", "is_known"),
    [
        (None, False),
        ("", False),
        ('"a"', True),
        ('W/"a"', True),
        ('"b", "a"', True),
        ("*", True),
        ('"b"', False),
        ("a", False),
    ],
)
def test_a_peer_that_has_a_chunk_says_so(sent, is_known):
    assert has_tag(sent, '"a"') == is_known
    assert has_tag(sent, 'W/"a"') == is_known


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        ("change", '<../dataset1/capabilitylist.xml>; rel="resourcesync"'),
        ("framework", '<../../dataset1/capabilitylist.xml>; rel="resourcesync"'),
    ],
)
def test_an_answer_says_where_the_stream_goes_on(kind, link):
    found = headers_of(ChannelName("dataset1", kind), AT, is_newest=False)
    assert (found["stream-next-offset"], found["link"]) == (TEXT, link)
    assert "stream-up-to-date" not in found
    assert headers_of(ChannelName("a", "change"), AT, is_newest=True)["stream-up-to-date"] == "true"


# --- cursors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "until", "moment", "told"),
    [
        (None, 100, 90, 100),  # there was a change: all who get it go on with its position
        (90, 100, 90, 100),
        (50, 100, 90, 100),
        (100, 100, 110, 110),  # there was none: all go on with the moment
        (None, 100, 110, 110),
        (110, 100, 110, 111),  # it grows in any case
        (500, 100, 110, 501),
        (10**18 - 1, 100, 110, 10**18),
    ],
)
def test_equal_questions_get_equal_cursors_which_grow(asked, until, moment, told):
    assert next_cursor(asked, Position(until), moment) == told


CHANNEL = ChannelName("dataset1", "change")


@given(now=st.integers(0, 4 * 10**15), later=st.integers(0, 10**9))
def test_a_moment_is_the_same_for_all_until_the_next(now, later):
    grid = WaitingGrid(CHANNEL, 25)
    moment, left = grid.last(now), grid.seconds_left(now)
    assert moment <= now
    assert 0 < left <= 20
    assert grid.last(now + later) == moment or later >= left * 1_000_000 - 1
    assert grid.last(moment + 20_000_000) == moment + 20_000_000
    assert grid.spread_seconds == 5


def test_channels_have_moments_of_their_own():
    moments = {WaitingGrid(ChannelName(f"a{n}", "change"), 25).last(10**15) for n in range(100)}
    assert len(moments) > 90
