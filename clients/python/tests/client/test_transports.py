"""A channel by each transport: chosen, or found where something on the way cuts the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import pytest
from aiohttp import web

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.retry import Backoff
from rsnotify_client import HistoryGone, InvalidArgument, NetworkOptions, follow_async
from rsnotify_client import live as live_module
from rsnotify_client import longpoll as longpoll_module
from rsnotify_client.discovery import Capabilities
from rsnotify_client.follower import Follower, SetsFollower
from rsnotify_client.following import checked_transport
from rsnotify_client.longpoll import streams_beside
from rsnotify_client.notification import TRANSPORTS, Messages, read_notification
from tests.evidence.soak.network_frozen import Proxy
from tests.support.amount import enough
from tests.support.cutting_proxy import CuttingProxy
from tests.support.running import RunningHub, until
from tests.support.sources import Source

BY = pytest.mark.parametrize("transport", TRANSPORTS)
CUTS = [
    ("refused", "refused"),
    ("ignored", "refused"),
    ("ignored", "silent"),
    ("silent", "silent"),
    ("refused", "held"),
    ("held", "held"),
    ("held", "silent"),
    ("ended", "ended"),
]
NAMES = [f"{number}" for number in range(12)]


@pytest.fixture
async def hub(tmp_path) -> AsyncIterator[RunningHub]:
    async with RunningHub(tmp_path / "data", drain_seconds="0") as running:
        yield running


async def names_of(changes, count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(60), aclosing(changes):
        async for change in changes:
            async with change:
                found.append(change.loc.rpartition("/")[2])
            if len(found) == count:
                break
    return found


async def publish(hub: RunningHub, *names: str, set_name: str = "dataset1") -> Position:
    locs = [f"http://example.com/{name}" for name in names]
    return Position.parse((await hub.publish(*locs, set_name=set_name))["until"])


@pytest.mark.parametrize("transport", enough(TRANSPORTS, 1))
async def test_each_change_comes_once_by_the_chosen_transport_while_the_hub_is_killed(
    hub, transport, quick_retries, tmp_path
):
    begin = await publish(hub, "before")
    changes = follow_async(hub.url, position=begin, cursor=tmp_path / "c", transport=transport)
    reading = asyncio.create_task(names_of(changes, 12))
    await publish(hub, *NAMES[:3])
    await until(lambda: forms_read_by(hub))
    assert await forms_read_by(hub) == {transport}
    await hub.kill()
    await hub.start()
    for name in NAMES[3:]:
        await publish(hub, name)
    assert await reading == NAMES
    again = follow_async(hub.url, cursor=tmp_path / "c", transport=transport)
    await publish(hub, "last")
    assert await names_of(again, 1) == ["last"]


async def forms_read_by(hub: RunningHub) -> set[str]:
    """How the hub is read at the moment."""
    _, text = await hub.ask("GET", "/metrics")
    lines = [line for line in text.decode().splitlines() if line.startswith("rsnotify_readers{")]
    read = {line.partition('form="')[2].partition('"')[0] for line in lines if line[-2:] != " 0"}
    named = {"frame of xml": "websocket", "event of xml": "sse", "long poll": "long-poll"}
    return {named[each] for each in read}


@pytest.mark.parametrize(("websocket", "events"), enough([pytest.param(*cut) for cut in CUTS], 2))
async def test_long_polls_pass_where_the_others_are_cut(
    hub, websocket, events, monkeypatch, quick_retries
):
    monkeypatch.setattr(live_module, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(live_module, "PONG_SECONDS", 0.3)
    begin = await publish(hub, "before")
    async with CuttingProxy(hub.port, websocket, events) as proxy:
        address = proxy.of(hub.channel())
        network = NetworkOptions(timeout_seconds=0.5)  # which an answer that is held back outlives
        changes = follow_async(address, position=begin, network=network)
        reading = asyncio.create_task(names_of(changes, 12))
        await until(lambda: forms_read_by(hub))
        for name in NAMES[:6]:
            await publish(hub, name)
        await hub.kill()
        await hub.start()
        for name in NAMES[6:]:
            await publish(hub, name)
        assert await reading == NAMES
        assert [each for each in proxy.asked if each.startswith("/streams/dataset1?")]


async def test_several_sets_are_followed_by_long_polls_where_the_others_are_cut(tmp_path):
    sets = [f"set{number}" for number in range(40)]  # more than the threads of a client
    async with (
        RunningHub(tmp_path / "data", sets=tuple(sets)) as hub,
        CuttingProxy(hub.port, "refused", "refused") as proxy,
    ):
        begin = {name: await publish(hub, "before", set_name=name) for name in sets}
        address = proxy.of(hub.url)
        changes = follow_async(
            address, sets=sets, cursor={each: kept(begin, each) for each in sets}
        )
        async with asyncio.timeout(60), aclosing(changes):
            for name in sets:
                await publish(hub, "one", "two", set_name=name)
            found = [await anext(changes) for _ in range(80)]
            for each in found:
                each.done()
            assert sorted((each.set_name, each.loc[-3:]) for each in found) == sorted(
                (name, loc) for name in sets for loc in ("one", "two")
            )
            await publish(hub, "six", set_name="set39")
            last = await anext(changes)
            assert (last.set_name, last.loc[-3:]) == ("set39", "six")


def kept(places: dict[str, Position], name: str):
    return (lambda: str(places[name]), lambda cursor: places.update({name: cursor}))


@BY
async def test_a_set_that_is_removed_or_private_is_told_alike(hub, transport):
    for number, end in enumerate(("removed", "private")):
        name = f"set{number}"
        await hub.ask("PUT", f"/api/sets/{name}", json={})
        follower = Follower(hub.channel(name), transport=transport)
        async with asyncio.timeout(60), aclosing(aiter(follower)) as pieces:
            await anext(pieces)
            reading = asyncio.create_task(anext(pieces))
            await until(lambda: forms_read_by(hub))
            if end == "removed":
                await hub.ask("DELETE", f"/api/sets/{name}")
            else:
                await hub.ask("PATCH", f"/api/sets/{name}", json={"private": True})
            with pytest.raises(Rejected, match=name):
                await reading


@BY
async def test_a_cursor_of_a_removed_set_is_told_alike(hub, transport):
    begin = await publish(hub, "before")
    await hub.ask("DELETE", "/api/sets/dataset1")
    await hub.ask("PUT", "/api/sets/dataset1", json={})
    changes = follow_async(hub.url + "/dataset1", position=begin, transport=transport)
    with pytest.raises(HistoryGone):
        await names_of(changes, 1)


@BY
async def test_a_framework_channel_is_followed_alike(hub, transport):
    address = hub.channel(kind="framework")
    changes = follow_async(address, position="2020-01-01", transport=transport)
    async with asyncio.timeout(60), aclosing(changes):
        assert (await anext(changes)).capability


async def test_who_leaves_a_long_poll_is_gone_at_once(tmp_path):
    async with RunningHub(tmp_path / "data", long_poll_seconds="300") as hub:
        follower = Follower(hub.channel(), transport="long-poll")
        async with aclosing(aiter(follower)) as pieces:
            await anext(pieces)
            reading = asyncio.create_task(anext(pieces))
            await until(lambda: forms_read_by(hub))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

        async def is_gone() -> bool:
            return not await forms_read_by(hub)

        await until(is_gone, seconds=20)


async def test_a_hub_that_waits_for_longer_than_the_client_loses_nothing(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(longpoll_module, "PATIENCE_SECONDS", 1.2)
    async with RunningHub(tmp_path / "data", long_poll_seconds="300") as hub:
        changes = follow_async(hub.channel(), position="2020-01-01", transport="long-poll")
        reading = asyncio.create_task(names_of(changes, 2))
        await publish(hub, "1")
        await asyncio.sleep(3)
        await publish(hub, "2")
        assert await reading == ["1", "2"]
    assert [each for each in caplog.messages if "trying again" in each] == []


async def test_a_frozen_network_is_noticed_while_a_long_poll_waits(hub, monkeypatch, quick_retries):
    monkeypatch.setattr(longpoll_module, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(longpoll_module, "ANSWER_SECONDS", 0.5)
    async with asyncio.timeout(60), Proxy(hub.port) as proxy:
        url = hub.channel().replace(str(hub.port), str(proxy.port))
        offered = Capabilities(url, socket=url)
        follower = Follower(url, offered=offered, transport="long-poll")
        async with aclosing(aiter(follower)) as pieces:
            await anext(pieces)
            reading = asyncio.create_task(next_changes(pieces))
            await until(lambda: forms_read_by(hub))
            proxy.freeze()
            accepted = proxy.accepted
            await publish(hub, "meanwhile")
            while proxy.accepted < accepted + 3:
                await asyncio.sleep(0.01)
            proxy.thaw()
            assert await reading == ["http://example.com/meanwhile"]


async def next_changes(pieces) -> list[str]:
    async for piece in pieces:
        if piece.changes:
            return [change.loc for change in piece.changes]
    return []


# A peer that fails ------------------------------------------------------------------------------

STREAM = "/streams/a"
CHANNEL = "/channels/a/change_notification_channel"


def followed(source: Source, **more) -> Follower:
    url = source.url.replace("http", "ws") + CHANNEL
    return Follower(url, offered=Capabilities(url, socket=url), transport="long-poll", **more)


def answer(source: Source, *answers: web.Response) -> list[str]:
    """The stream's answers in turn, the last one again and again. What was asked."""
    asked: list[str] = []

    async def stream(request: web.Request) -> web.StreamResponse:
        asked.append(request.rel_url.raw_query_string)
        found = answers[min(len(asked), len(answers)) - 1]
        return web.Response(status=found.status, headers=found.headers, body=found.body)

    source.handlers[STREAM] = stream
    return asked


def told(at: str, body: str = "", status: int = 200, **headers: str) -> web.Response:
    return web.Response(
        status=status,
        text=body or None,
        headers={"Stream-Next-Offset": f"2026-11-20T00:00:{at}.000000Z", **headers},
    )


def message(at: str) -> str:
    return (
        f'[{{"loc":"http://a/{at}","change":"updated","datetime":"2026-11-20T00:00:{at}.000000Z"}}]'
    )


async def test_a_question_is_written_as_caches_share_it_and_the_cursor_goes_back(source):
    first, second = told("02", message("02"), **{"Stream-Cursor": "7"}), told("03", message("03"))
    asked = answer(source, first, second, web.Response(status=503))
    follower = followed(source, cursor=Position.parse("2026-11-20T00:00:01Z"))
    async with asyncio.timeout(20), aclosing(aiter(follower)) as pieces:
        found = [await anext(pieces) for _ in range(3)]
    assert [change.loc for piece in found for change in piece.changes] == [
        "http://a/02",
        "http://a/03",
    ]
    place = "offset=2026-11-20T00%3A00%3A{}.000000Z".format
    assert asked[:2] == [place("01"), f"cursor=7&live=long-poll&{place('02')}"]


@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.usefixtures("quick_retries")
async def test_a_channel_that_is_given_by_its_address_and_not_answered_is_followed_by_long_polls(
    source, is_answered
):
    async def silent(request: web.Request) -> web.StreamResponse:
        if not is_answered:
            cast("Any", request.transport).abort()
        return web.Response(status=504)

    source.handlers[CHANNEL] = silent
    answer(source, told("02", message("02")))
    follower = Follower(source.url + CHANNEL, cursor=Position.parse("2026-11-20T00:00:01Z"))
    async with asyncio.timeout(20), aclosing(aiter(follower)) as pieces:
        assert await next_changes(pieces) == ["http://a/02"]


async def test_a_hub_that_does_not_wait_is_asked_after_longer_and_longer_pauses(
    source, monkeypatch
):
    class Noted(Backoff):
        def seconds(self, failures: int, *_: float) -> float:
            pauses.append(failures)
            return 0.0

    pauses: list[int] = []
    monkeypatch.setattr(longpoll_module, "HUB_BACKOFF", Noted(1, 1))
    asked = answer(source, *[told("01", status=204)] * 8, told("02", message("02")))
    begin = Position.parse("2026-11-20T00:00:01Z")
    async with asyncio.timeout(20), aclosing(aiter(followed(source, cursor=begin))) as pieces:
        assert await next_changes(pieces) == ["http://a/02"]
    assert len(asked) == 9
    assert pauses == [0, 1, 2, 3, 4]


async def names_of_pieces(follower: Follower) -> None:
    async for _ in follower:
        pass


async def test_a_stream_that_was_set_back_is_told(source, attempts):
    said: list[str] = []
    ends = told("03", message("03"))
    answers = (told("01", status=204), ends, told("02", status=204), told("02", status=204))
    answer(source, *answers, told("05", message("05")))
    begin = Position.parse("2026-11-20T00:00:01Z")
    follower = followed(source, cursor=begin, when_set_back=said.append)
    async with asyncio.timeout(20), aclosing(aiter(follower)) as pieces:
        async for piece in pieces:
            if piece.changes and piece.changes[0].loc == "http://a/05":
                break
    assert len(said) == 1
    assert "was set back" in said[0]


@pytest.mark.parametrize(
    "answered",
    [
        told("02", "no array"),
        told("02", '{"loc": 1}'),
        told("02", "[" * 100_000),
        web.Response(text=message("02")),
        web.Response(status=200, text="<html>"),
        web.Response(status=404, text="<html>"),
    ],
)
async def test_what_is_no_stream_ends_it_or_is_asked_again_and_never_moves_the_cursor(
    source, attempts, answered
):
    answer(source, answered)
    follower = followed(source, cursor=Position.parse("2026-11-20T00:00:01Z"))
    reading = asyncio.create_task(names_of_pieces(follower))
    async with asyncio.timeout(20):
        while len(attempts) < 3 and not reading.done():
            await asyncio.sleep(0.01)
    reading.cancel()
    (ended,) = await asyncio.gather(reading, return_exceptions=True)
    assert isinstance(ended, Rejected | asyncio.CancelledError)
    assert str(follower.cursor) == "2026-11-20T00:00:01.000000Z"


def test_of_messages_what_cannot_be_read_is_skipped_and_named():
    skipped: list[str] = []
    at = Position.parse("2026-11-20T00:00:00Z")
    body = (
        b'[{"loc":"http://a/1","change":"updated"},{"loc":1},{"change":"moved","loc":"http://b"}]'
    )
    found = read_notification(Messages(body, at, Position(at + 5), "http://a/x"), skipped.append)
    assert [change.loc for change in found.changes] == ["http://a/1"]
    assert (found.from_, found.until, found.positions) == (at, at + 5, (at,))
    assert len(skipped) == 1
    assert "2 in all" in skipped[0]


def test_an_offset_that_has_not_come_is_not_believed():
    skipped: list[str] = []
    at = Position.parse("2026-11-20T00:00:00Z")
    messages = Messages(b"[]", at, Position(at + 5), "http://a/x")
    found = read_notification(messages, skipped.append, lambda text: text > str(at))
    assert found.until == at
    assert "has not come yet" in skipped[0]


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_stream_that_goes_on_in_the_future_is_read_from_the_newest_change(
    source, attempts, caplog, at_once
):
    """Whoever asked for what follows that time would be told of nothing."""

    async def stream(request: web.Request) -> web.StreamResponse:
        offset = request.query["offset"]
        if offset.startswith("2999") or (not at_once and "live" not in request.query):
            return web.Response(status=204, headers={"Stream-Next-Offset": offset})
        if offset == "2026-11-20T00:00:01.000000Z":
            answer = told("02", message("02"))
            answer.headers["Stream-Next-Offset"] = "2999-01-01T00:00:00.000000Z"
            return answer
        return told("03", message("03"))

    source.handlers[STREAM] = stream
    follower = followed(source, cursor=Position.parse("2026-11-20T00:00:01Z"))
    async with asyncio.timeout(20), aclosing(aiter(follower)) as pieces:
        assert await next_changes(pieces) == ["http://a/02"]
        assert await next_changes(pieces) == ["http://a/03"]
    assert "goes on at 2999-01-01T00:00:00.000000Z, which has not come yet" in caplog.text


@pytest.mark.parametrize(
    ("channel", "streams"),
    [
        ("ws://a/channels/b/change_notification_channel?from=2026-11-20", ["http://a/streams/b"]),
        (
            "wss://a/x/channels/b/framework_notification_channel?access_token=t",
            ["https://a/x/streams/b/framework?access_token=t"],
        ),
        (
            "ws://a/channels/change_notification_channel?set=b&set=c@2026-11-20T00:00:00Z",
            ["http://a/streams/b", "http://a/streams/c"],
        ),
        ("ws://a/channel", []),
        ("ws://a/channels/b/other_notification_channel", []),
    ],
)
def test_a_stream_is_beside_a_channel_at_an_address_of_a_hub(channel, streams):
    found = streams_beside(channel, None)
    assert [each.url for each in found] == streams
    if "from=" in channel or "@" in channel:
        assert str(found[-1].begin).startswith("2026-11-20")


async def test_a_channel_that_has_no_stream_says_so_where_long_polls_are_chosen(source):
    url = source.url.replace("http", "ws") + "/channel"
    follower = Follower(url, offered=Capabilities(url, socket=url), transport="long-poll")
    with pytest.raises(Rejected, match="cannot be read by long polls"):
        await names_of_pieces(follower)


def test_a_transport_that_is_none_is_bad_use():
    with pytest.raises(InvalidArgument, match="'pigeon': it must be one of websocket, sse, long"):
        checked_transport(cast("Any", "pigeon"))


async def test_a_set_of_several_that_is_not_there_is_named_by_long_polls(hub):
    cursors = {"dataset1": None, "maps": None}
    follower = SetsFollower(hub.url, cursors, transport="long-poll")
    with pytest.raises(Rejected, match="maps"):
        async with asyncio.timeout(20):
            await anext(aiter(follower))
