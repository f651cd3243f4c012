"""Several sets of a hub followed over one connection."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from itertools import islice
from pathlib import Path

import pytest
from aiohttp import web

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client import FollowedChange, Publisher, SqliteCursor, follow, follow_async
from rsnotify_client.follower import SetsFollower
from tests.support.hub_processes import HubProcess
from tests.support.running import TOKEN
from tests.support.sources import Source, rendered

SETS = ("papers", "images")
Told = tuple[str | None, str]


@pytest.fixture(scope="module")
def hub(real_hub: HubProcess) -> HubProcess:
    for name in SETS:
        real_hub.add_set(name)
    return real_hub


def publish(hub: HubProcess, *told: Told) -> None:
    with Publisher(hub.url, TOKEN) as publisher:
        for set_name, name in told:
            publisher.updated(set_name or "", f"http://example.com/{name}")


def short(change: FollowedChange) -> Told:
    return change.set_name, change.loc.rpartition("/")[2]


async def some(changes: AsyncGenerator[FollowedChange, None], count: int) -> set[Told]:
    """The next changes, dealt with."""
    found = set()
    async with asyncio.timeout(60):
        async for change in changes:
            async with change:
                found.add(short(change))
            if len(found) == count:
                break
    return found


async def begun(hub: HubProcess, cursor: Path) -> None:
    """Come and go, so that the place in each set is kept."""
    async with aclosing(follow_async(hub.url, sets=SETS, cursor=cursor)) as changes:
        first = asyncio.create_task(some(changes, 1))
        stores = [SqliteCursor(cursor, name) for name in SETS]
        async with asyncio.timeout(60):
            while not all(store.load() for store in stores):
                await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_the_changes_of_each_set_come_with_its_name_from_its_own_cursor(hub, tmp_path):
    cursor = tmp_path / "cursors"
    await begun(hub, cursor)
    await asyncio.to_thread(publish, hub, ("papers", "1"), ("images", "2"), ("papers", "3"))
    async with aclosing(follow_async(hub.url, sets=SETS, cursor=cursor)) as changes:
        assert await some(changes, 3) == {("papers", "1"), ("images", "2"), ("papers", "3")}
    await asyncio.to_thread(publish, hub, ("images", "4"))
    async with aclosing(follow_async(hub.url, sets=SETS, cursor=cursor)) as changes:
        assert await some(changes, 1) == {("images", "4")}


async def test_what_was_not_dealt_with_comes_again_in_its_set_alone(hub, tmp_path):
    cursor = tmp_path / "cursors"
    await begun(hub, cursor)
    await asyncio.to_thread(publish, hub, ("papers", "5"), ("images", "6"))
    async with (
        asyncio.timeout(60),
        aclosing(follow_async(hub.url, sets=SETS, cursor=cursor)) as changes,
    ):
        both = [await anext(changes), await anext(changes)]
        next(each for each in both if each.set_name == "papers").done()
    async with aclosing(follow_async(hub.url, sets=SETS, cursor=cursor)) as changes:
        assert await some(changes, 1) == {("images", "6")}


async def test_a_set_that_is_not_there_is_named(hub):
    async with (
        asyncio.timeout(60),
        aclosing(follow_async(hub.url, sets=["papers", "maps"])) as changes,
    ):
        with pytest.raises(Rejected, match="maps"):
            await anext(changes)


async def test_a_set_that_needs_a_token_is_named(hub):
    await asyncio.to_thread(hub.add_set, "secret", private=True)
    for names in (["papers", "secret"], ["secret"]):
        async with asyncio.timeout(60), aclosing(follow_async(hub.url, sets=names)) as changes:
            with pytest.raises(Rejected, match="no set 'secret' that can be read without a token"):
                await anext(changes)


def test_a_program_without_an_event_loop_follows_them_too(hub, tmp_path):
    cursor = tmp_path / "cursors"
    asyncio.run(begun(hub, cursor))
    publish(hub, ("papers", "8"), ("images", "9"))
    changes = follow(hub.url, sets=SETS, cursor=cursor)
    assert set(map(short, islice(changes, 2))) == {("papers", "8"), ("images", "9")}
    changes.close()


# A peer that fails ------------------------------------------------------------------------------

CHANNELS = "/channels/change_notification_channel"
Say = Callable[[int, web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def scripted(say: Say) -> AsyncIterator[tuple[Source, list[list[str]]]]:
    """A Source with the set `papers`; on each connection `say` is done. Which sets were asked."""
    asked: list[list[str]] = []

    async def channel(request: web.Request) -> web.WebSocketResponse:
        asked.append(request.query.getall("set"))
        socket = web.WebSocketResponse()
        places = (each if "@" in each else f"{each}@{source.at}" for each in asked[-1])
        socket.headers["Rsnotify-From"] = ",".join(places)
        await socket.prepare(request)
        await say(len(asked), socket)
        await socket.close()
        return socket

    async with Source() as source:
        source.handlers[CHANNELS] = channel
        lists = [Entry(source.loc("changelist.xml"), md=Md(capability="changelist"))]
        source.documents["/papers/capabilitylist.xml"] = rendered("capabilitylist", lists)
        source.list_changes()
        yield source, asked


async def told_of(
    source: Source, socket: web.WebSocketResponse, change: Change, *, from_: str
) -> None:
    links = (Link("up", source.loc("papers/capabilitylist.xml")),)
    entry = Entry(change.loc, md=Md(change="updated", datetime=change.datetime))
    interval = {"from": from_, "until": str(change.datetime)}
    text = rendered("change-notification", [entry], links=links, **interval)
    await socket.send_str(text.decode())


async def test_what_the_channel_no_longer_has_is_read_from_the_change_list_of_its_set():
    async def say(number: int, socket: web.WebSocketResponse) -> None:
        if number == 1:
            await socket.close(code=4410, message=b"papers: what is kept begins later")
            return
        live = source.change("live", b"2")
        await told_of(source, socket, live, from_=str(missed.datetime))

    async with scripted(say) as (source, asked):
        missed = source.change("missed", b"1")
        begin = source.at
        async with aclosing(follow_async(source.url, sets=["papers"], position=begin)) as changes:
            assert await some(changes, 2) == {("papers", "missed"), ("papers", "live")}
        assert asked == [[f"papers@{begin}"], [f"papers@{missed.datetime}"]]


async def test_a_set_that_begins_now_needs_no_change_list_where_another_is_too_old():
    async def say(_: int, socket: web.WebSocketResponse) -> None:
        await told_of(source, socket, source.change("live", b"2"), from_=str(missed.datetime))

    async with scripted(say) as (source, asked):
        begin, channel = source.at, source.handlers[CHANNELS]
        missed = source.change("missed", b"1")

        async def too_old_at_first(request: web.Request) -> web.StreamResponse:
            if f"papers@{begin}" in request.query.getall("set"):
                raise web.HTTPGone
            return await channel(request)

        source.handlers[CHANNELS] = too_old_at_first
        cursors = {"papers": Position.parse(str(begin)), "images": None}
        async with aclosing(aiter(SetsFollower(source.url, cursors))) as pieces:
            async with asyncio.timeout(20):
                read = [await anext(pieces) for _ in range(4)]
        assert [name for name, _ in read] == ["papers", "papers", "images", "papers"]
        assert asked == [[f"papers@{missed.datetime}", "images"]]


async def test_a_channel_that_stays_too_old_is_asked_again_after_longer_and_longer_pauses(attempts):
    """The Change List tells nothing new, as a cache does that is not up to date."""

    async def say(number: int, socket: web.WebSocketResponse) -> None:
        if number < 5:
            await socket.close(code=4410, message=b"papers: what is kept begins later")
            return
        await told_of(source, socket, source.change("live", b"2"), from_=str(source.at))

    async with scripted(say) as (source, _):
        async with aclosing(
            follow_async(source.url, sets=["papers"], position=source.at)
        ) as changes:
            assert await some(changes, 1) == {("papers", "live")}
        assert attempts == [1, 2, 3]


async def test_what_does_not_join_is_asked_for_again_and_then_read_from_the_lists(attempts):
    async def say(_: int, socket: web.WebSocketResponse) -> None:
        await told_of(source, socket, second, from_=str(first.datetime))

    async with scripted(say) as (source, asked):
        first, second = source.change("first", b"1"), source.change("second", b"2")
        begin = source.at
        async with aclosing(follow_async(source.url, sets=["papers"], position=begin)) as changes:
            assert await some(changes, 2) == {("papers", "first"), ("papers", "second")}
        assert asked[:2] == [[f"papers@{begin}"]] * 2
        assert attempts == [0, 1]


async def test_a_notification_that_cannot_be_read_is_asked_for_again(attempts, caplog):
    async def say(number: int, socket: web.WebSocketResponse) -> None:
        if number == 1:
            await socket.send_str("no XML")
            return
        await told_of(source, socket, first, from_=begin)

    async with scripted(say) as (source, asked):
        begin, first = str(source.at), source.change("first", b"1")
        async with aclosing(follow_async(source.url, sets=["papers"], position=begin)) as changes:
            assert await some(changes, 1) == {("papers", "first")}
        assert asked == [[f"papers@{begin}"]] * 2
        assert attempts == [0]
        assert "cannot read a notification of papers: not well-formed XML" in caplog.text


async def test_a_set_that_is_said_to_begin_in_the_future_is_read_from_its_cursor(caplog):
    async with Source() as source:
        begin, first = str(source.at), source.change("first", b"1")

        async def channel(request: web.Request) -> web.WebSocketResponse:
            socket = web.WebSocketResponse()
            socket.headers["Rsnotify-From"] = "papers@2999-01-01T00:00:00Z"
            await socket.prepare(request)
            await told_of(source, socket, first, from_=begin)
            return socket

        source.handlers[CHANNELS] = channel
        async with aclosing(follow_async(source.url, sets=["papers"], position=begin)) as changes:
            assert await some(changes, 1) == {("papers", "first")}
        assert "2999-01-01T00:00:00.000000Z has not come yet" in caplog.text


async def test_a_peer_that_does_not_say_where_it_begins_in_each_set_is_no_hub():
    async with Source() as source:

        async def channel(request: web.Request) -> web.WebSocketResponse:
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            return socket

        source.handlers[CHANNELS] = channel
        async with aclosing(follow_async(source.url, sets=["a", "b"])) as changes:
            with pytest.raises(Rejected, match="is it a hub"):
                await anext(changes)
