"""A part of a Source: a hub is asked for it, and of what others send it is left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.change_filter import FORMER
from rsnotify_client import InvalidArgument, follow_async
from rsnotify_client.follower import Followed
from rsnotify_client.following import notifications_async
from rsnotify_client.notification import TRANSPORTS, Received, TooOld
from rsnotify_client.wanted import Wanted, asked_for, wanted_of
from rsnotify_client.web import Web
from tests.support.running import RunningHub
from tests.support.sources import CAPABILITIES, Source

PAPERS, THESES = "http://example.com/papers/", "http://example.com/theses/"
PDF, HTML = "application/pdf", "text/html"
BY = pytest.mark.parametrize("transport", TRANSPORTS)


@pytest.fixture
async def hub(tmp_path) -> AsyncIterator[RunningHub]:
    running = RunningHub(tmp_path / "data", sets=("a", "b"), drain_seconds="0")
    async with running:
        for name in "ab":
            await running.ask("PATCH", f"/api/sets/{name}", json={"filters": True})
        yield running


async def locs_of(changes: Any, last: str) -> list[str]:
    """Those up to the last, which is not among them."""
    found: list[str] = []
    async with asyncio.timeout(60), aclosing(changes):
        async for change in changes:
            async with change:
                if change.loc == last:
                    return found
                found.append(change.loc)
    raise AssertionError("it has ended")


async def position(hub: RunningHub, name: str = "a") -> str:
    return (await hub.publish("http://example.com/before", set_name=name))["until"]


@BY
async def test_a_hub_sends_what_is_wanted_live_and_later(hub, transport, tmp_path):
    begin = await position(hub)
    options = {"prefix": [PAPERS, "http://example.com/end"], "transport": transport}
    url = f"{hub.url}/a"
    live = follow_async(url, position=begin, cursor=tmp_path / "c", **options)
    reading = asyncio.create_task(locs_of(live, "http://example.com/end"))
    for number in range(5):
        await hub.publish(f"{PAPERS}{number}", f"{THESES}{number}", set_name="a")
    end = await hub.publish("http://example.com/end", set_name="a")
    wanted = [f"{PAPERS}{number}" for number in range(5)]
    assert await reading == wanted
    assert (tmp_path / "c").read_text().split()[0] == end["until"]
    later = follow_async(url, position=begin, **options)
    assert await locs_of(later, "http://example.com/end") == wanted


@BY
async def test_a_hub_says_of_what_left_that_it_did(hub, transport):
    begin = await position(hub)
    for media_type in (PDF, HTML, HTML):
        await hub.publish(f"{PAPERS}1", set_name="a", type=media_type)
    await hub.publish("http://example.com/end", set_name="a", type=PDF)
    changes = follow_async(f"{hub.url}/a", position=begin, type=PDF, transport=transport)
    assert await locs_of(changes, "http://example.com/end") == [f"{PAPERS}1"] * 2


@BY
async def test_several_sets_are_read_in_part(hub, transport, tmp_path):
    begins = {name: await position(hub, name) for name in "ab"}
    for name in "ab":
        await hub.publish(f"{PAPERS}{name}", f"{THESES}{name}", set_name=name)
        await hub.publish(PAPERS + "end", set_name=name)
    cursors = {name: tmp_path / name for name in "ab"}
    for name, path in cursors.items():
        path.write_text(begins[name])
    changes = follow_async(
        hub.url,
        sets=["a", "b"],
        cursor=tmp_path / "c.db",
        position=min(begins.values()),
        prefix=PAPERS,
        transport=transport,
    )
    found = set()
    async with asyncio.timeout(60), aclosing(changes):
        async for change in changes:
            async with change:
                found.add((change.set_name, change.loc))
            if len(found) == 4:
                break
    assert found == {(name, f"{PAPERS}{each}") for name in "ab" for each in (name, "end")}


async def test_while_others_are_published_the_cursor_goes_on(hub):
    begin = await position(hub)
    told = notifications_async(f"{hub.url}/a", position=begin, prefix=PAPERS)
    end = None
    async with asyncio.timeout(60), aclosing(told):
        async for received in told:
            if end is None:
                locs = [f"{THESES}{number}" for number in range(1_000)]
                end = (await hub.publish(*locs, set_name="a"))["until"]
            if str(received.until) == end:
                assert received.changes == ()
                return


async def test_what_a_set_does_not_allow_ends_the_following_with_how_to_have_it(hub):
    await hub.ask("PATCH", "/api/sets/a", json={"filters": False})
    with pytest.raises(Exception, match="need a set with filters"):
        await locs_of(follow_async(f"{hub.url}/a", type=PDF), "")


async def test_a_source_that_knows_no_filters_is_read_in_part_all_the_same():
    async with Source() as source:
        changes = follow_async(
            source.url + CAPABILITIES, position=source.at, poll_seconds=0.1, prefix=source.loc("a")
        )
        for name in ("a.txt", "b.txt", "a2.txt", "a-end"):
            source.change(name, b"x")
        assert await locs_of(changes, source.loc("a-end")) == [
            source.loc("a.txt"),
            source.loc("a2.txt"),
        ]


# --- deciding ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"prefix": "papers/"}, "with a scheme"),
        ({"prefix": ""}, "prefix is empty"),
        ({"type": ["*"]}, "a media type such as application/pdf"),
        ({"change": ["removed"]}, "one of created, updated, deleted"),
        ({"collection": "theses"}, "the whole href"),
    ],
)
def test_what_is_no_filter_is_refused_before_anything_is_asked(wrong, said):
    with pytest.raises(InvalidArgument, match=said):
        follow_async("http://127.0.0.1:9", **wrong)


def test_an_address_keeps_what_it_has():
    wanted = wanted_of(PAPERS, "image/*", None, None)
    assert asked_for("ws://a/b?set=c@2026&x=", wanted) == (
        f"ws://a/b?set=c@2026&x=&prefix={PAPERS}&type=image/%2A"
    )
    assert asked_for("ws://a/b?x=%20", None) == "ws://a/b?x=%20"


@pytest.mark.parametrize(
    ("url", "is_asked"),
    [
        ("http://h:1/p/a/changelist.xml", True),
        ("http://h:1/p/a/changelist/2026-11-20T00:00:00.000000Z.xml", True),
        ("http://h:1/p/a/changelist-index.xml", False),
        ("http://h:1/p/b/changelist.xml", False),
        ("https://h:1/p/a/changelist.xml", False),
        ("http://source.example/changelist.xml", False),
    ],
)
def test_a_list_of_the_hub_of_the_channel_is_asked_for_a_part(url, is_asked):
    wanted = Wanted(wanted_of(PAPERS, None, None, None))
    channel = "ws://h:1/p/channels/a/change_notification_channel"
    assert wanted.asked_of_hub(channel, url) == url + (f"?prefix={PAPERS}" if is_asked else "")
    assert wanted.asked_of_hub("ws://source.example/channel", url) == url
    assert Wanted(None).asked_of_hub(channel, url) == url


@asynccontextmanager
async def aclosing_web(web: Web) -> AsyncIterator[Web]:
    try:
        yield web
    finally:
        await web.close()


async def test_what_a_channel_no_longer_has_comes_from_the_lists_in_part(hub):
    begin = await position(hub)
    for media_type in (PDF, HTML, HTML):
        await hub.publish(f"{PAPERS}1", set_name="a", type=media_type)
    await hub.publish("http://example.com/end", set_name="a", type=PDF)
    wanted, cursor = wanted_of(None, PDF, None, None), Position.parse(begin)
    async with aclosing_web(Web(None, hub.url)) as web:
        source = Followed(web, f"{hub.url}/a", cursor, wanted=wanted)
        source.behind = TooOld("gone")
        found = []
        async with asyncio.timeout(60), aclosing(source.catch_up()) as pieces:
            async for each in pieces:
                found += [change.loc for change in each.changes]
    assert found == [f"{PAPERS}1", f"{PAPERS}1", "http://example.com/end"]


def received(*changes: Change) -> Received:
    positions = tuple(Position(number) for number in range(1, len(changes) + 1))
    return Received(b"payload", Position(0), Position(9), changes, positions)


def test_what_is_left_of_a_notification_keeps_its_interval():
    whole = received(Change(PAPERS, "updated"), Change(THESES, "updated"))
    left = Wanted(wanted_of(THESES, None, None, None)).left_of(whole)
    assert [each.loc for each in left.changes] == [THESES]
    assert (left.positions, left.from_, left.until) == ((Position(2),), Position(0), Position(9))
    assert left.payload == b""
    assert Wanted(wanted_of("http://example.com/", None, None, None)).left_of(whole) is whole
    assert Wanted(None).left_of(whole) is whole


def test_an_update_that_may_have_been_wanted_is_left_where_nobody_knows():
    known = Change(PAPERS, "updated", type=HTML, links=(Link(FORMER, PAPERS, type=HTML),))
    whole = received(
        Change(PAPERS, "updated", type=HTML), Change(PAPERS, "created", type=HTML), known
    )
    left = Wanted(wanted_of(None, PDF, None, None)).left_of(whole)
    assert left.positions == (Position(1),)
