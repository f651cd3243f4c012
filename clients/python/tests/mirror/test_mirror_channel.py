"""What a mirror believes of a channel: a Source that is set back, and times that have not come."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from clients.python.tests.mirror.test_mirror import files
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Change, Position, render_datetime
from rsnotify.resourcesync.retry import Backoff
from rsnotify.resourcesync.xml_writer import Document, Entry, Link, Md, render_document
from rsnotify_mirror import mirror, planning
from rsnotify_mirror.audit import audit
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import SOURCE_BACKOFF, Options
from rsnotify_mirror.report import CopyStatus, Event, status_of
from rsnotify_mirror.state import State
from tests.support.running import rsnotify, until
from tests.support.sources import CAPABILITIES, Handler, Source, entry_of, rendered

DAY = timedelta(days=1)


class ChannelOf:
    """The channel of a Source: what it says, and where it begins, if it says that."""

    def __init__(self, source: Source, *, says_where: bool) -> None:
        self.source = source
        self._says_where = says_where
        self._sockets: list[web.WebSocketResponse] = []
        self.reached = source.at  # the end of the newest notification
        md = {name: Md(capability=name) for name in ("resourcelist", "changelist")}
        entries = [Entry(source.loc(f"{name}.xml"), md=each) for name, each in md.items()]
        address = source.loc("channel").replace("http", "ws", 1)
        notification = Md(capability="change-notification")
        entries.append(
            Entry(source.loc("channel"), md=notification, links=(Link("alternate", address),))
        )
        source.documents[CAPABILITIES] = rendered("capabilitylist", entries)
        source.handlers["/channel"] = self._serve

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        if self._says_where:
            asked = Position.parse(request.query["from"])
            socket.headers["Rsnotify-From"] = str(min(asked, self.reached))
        await socket.prepare(request)
        self._sockets.append(socket)
        async for _ in socket:
            pass
        return socket

    @property
    def is_read(self) -> bool:
        return any(not each.closed for each in self._sockets)

    async def cut(self) -> None:
        for each in self._sockets:
            await each.close()
        self._sockets.clear()

    async def say(self, change: Change, *, until: str | None = None) -> None:
        end = until or str(change.datetime)
        md = Md(capability="change-notification", from_=str(self.reached), until=end)
        document = Document("urlset", md, (), (entry_of(change),))
        self.reached = Position.parse(end)
        for each in self._sockets:
            if not each.closed:
                await each.send_str(render_document(document).decode())


class Following:
    """A mirror that follows."""

    def __init__(self, source: Source, copy: Path) -> None:
        self._source, self._copy = source, copy
        self.events: list[Event] = []

    @asynccontextmanager
    async def runs(self, channel: ChannelOf) -> AsyncIterator[None]:
        async with self.polls():
            await self.until(lambda: channel.is_read)
            yield

    async def reads(self, channel: ChannelOf, change: Change) -> None:
        async with self.runs(channel):
            await channel.say(change)
            await self.has("0.txt", b"second")

    @asynccontextmanager
    async def polls(self) -> AsyncIterator[None]:
        options = Options(relist_seconds=0.5, first_retry_seconds=0.01, poll_seconds=0.05)
        url = self._source.url + CAPABILITIES
        async with AsyncMirror(url, self._copy, options, report=self.events.append) as running:
            task = asyncio.create_task(running.run())
            try:
                yield
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def until(self, is_so: Callable[[], bool]) -> None:
        async def found() -> bool:
            return is_so()

        await until(found)

    async def has(self, name: str, content: bytes) -> None:
        await self.until(lambda: files(self._copy).get(name) == content)

    def said(self, words: str) -> list[str]:
        return [each.problem for each in self.events if words in (each.problem or "")]

    async def is_in_sync(self) -> bool:
        return (await audit(self._source.url + CAPABILITIES, self._copy)).is_in_sync


@pytest.fixture
def following(source: Source, copy: Path) -> Following:
    for number in range(20):
        source.add(f"{number}.txt", b"first")
    source.list_resources()
    return Following(source, copy)


def backup(source: Source, channel: ChannelOf) -> Callable[[], None]:
    kept = dict(source.resources), list(source.changes), channel.reached

    def restore() -> None:
        source.resources, source.changes = dict(kept[0]), list(kept[1])
        channel.reached = kept[2]
        source.list_changes()

    return restore


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_channel_that_stands_before_what_it_has_sent_is_said_and_all_is_copied_anew(
    source, following, is_restarted
):
    channel = ChannelOf(source, says_where=True)
    async with following.runs(channel):
        restore = backup(source, channel)
        await channel.say(source.change("1.txt", b"second"))
        await channel.say(source.change("2.txt", b"second"))
        await following.has("2.txt", b"second")
        restore()
        if not is_restarted:
            await channel.cut()
            await following.has("2.txt", b"first")
    if is_restarted:
        await channel.cut()
        async with following.runs(channel):
            await following.has("2.txt", b"first")
            await following.until(lambda: channel.is_read)
    assert len(following.said("was set back")) == 1
    async with following.runs(channel):
        await channel.say(source.change("3.txt", b"after"))
        await following.has("3.txt", b"after")
    assert len(following.said("was set back")) == 1
    assert await following.is_in_sync()


@pytest.mark.parametrize("is_cut", [False, True])
async def test_what_is_published_after_positions_have_gone_back_is_not_passed_over(
    source, following, is_cut
):
    """The connection may last, for it may be that of a hub in front of the Source."""
    channel = ChannelOf(source, says_where=False)
    async with following.runs(channel):
        restore = backup(source, channel)
        now = source.now
        await channel.say(source.change("1.txt", b"second"))
        await channel.say(source.change("2.txt", b"second"))
        await following.has("2.txt", b"second")
        restore()
        source.now = now
        if is_cut:
            await channel.cut()
            await following.until(lambda: channel.is_read)
        await channel.say(source.change("3.txt", b"after"))
        await following.has("3.txt", b"after")
        await following.has("1.txt", b"first")
    assert len(following.said("was set back")) == 1
    assert await following.is_in_sync()


async def test_an_end_that_has_not_come_is_said_and_nothing_is_passed_over_until_then(
    source, following
):
    source.now = int(datetime.now(UTC).timestamp()) * 1_000_000
    channel = ChannelOf(source, says_where=True)
    async with following.runs(channel):
        tomorrow = render_datetime(source.now + int(DAY.total_seconds() * 1_000_000))
        await channel.say(source.change("1.txt", b"second"), until=tomorrow)
        await following.has("1.txt", b"second")
        assert len(following.said("which has not come yet")) == 1
        change = source.change("2.txt", b"second")
        channel.reached = Position.parse(str(source.changes[-2].datetime))
        await channel.say(change)
        await following.has("2.txt", b"second")
        lives = [each.event for each in following.events].count("live")
        await following.until(
            lambda: [each.event for each in following.events].count("live") > lives
        )  # it is read again, and whole
    assert await following.is_in_sync()


@pytest.mark.parametrize(("failures", "most"), [(0, 10), (1, 20), (4, 160), (5, 300), (99, 300)])
def test_a_source_that_is_not_there_is_looked_for_as_often_as_the_page_says(failures, most):
    assert SOURCE_BACKOFF.seconds(failures, 0.0) == most / 2
    assert SOURCE_BACKOFF.seconds(failures, 1.0) == most


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SOURCE_BACKOFF", Backoff(0.01, 0.05))
    monkeypatch.setattr(mirror, "LOOK_SECONDS", 0.05)


def status_now(copy: Path) -> CopyStatus:
    with State(copy, is_writer=False) as state:
        return status_of(state)


BEFORE = ", but the Source was read before"
MISSING = f"the answer was 404{BEFORE}"
PAGE = f"it sent a page in HTML, neither a WebSocket nor an event stream{BEFORE}"


async def page(_: web.Request) -> web.Response:
    """What a server says while it is mended."""
    return web.Response(text="<html>Back soon", content_type="text/html")


def take_away(source: Source, instead: Handler | None) -> Handler:
    """Something else, or nothing, is at the address of the channel; what was there before."""
    serve = source.handlers.pop("/channel")
    if instead is not None:
        source.handlers["/channel"] = instead
    return serve


async def refusal(_: web.Request) -> web.Response:
    return web.Response(status=403)


@pytest.mark.parametrize("instead", [None, page, refusal])
async def test_the_command_ends_with_2_then_and_says_what_to_do(source, copy, instead):
    ChannelOf(source, says_where=True)
    take_away(source, instead)
    url = source.url + CAPABILITIES
    ended = await rsnotify("mirror", url, str(copy))
    assert ended.status == 2
    assert "/channel" in ended.err
    assert "ask it to mend that, or copy without it, by --once" in ended.err
    assert (await rsnotify("mirror", url, str(copy), "--once")).status == 0


INSTEAD = pytest.mark.parametrize(("instead", "said"), [(None, MISSING), (page, PAGE)])


@INSTEAD
@pytest.mark.usefixtures("soon")
async def test_a_channel_that_is_not_there_for_a_while_is_followed_again(
    source, copy, following, instead, said
):
    channel = ChannelOf(source, says_where=True)
    async with following.runs(channel):
        await following.has("0.txt", b"first")
        serve = take_away(source, instead)
        await channel.cut()
        await following.until(lambda: len(following.said(said)) > 2)
        lives = [each.event for each in following.events].count("live")
        await following.until(lambda: said in (status_now(copy).last_error or ""))
        assert not status_now(copy).in_step
        offered = source.documents.pop(CAPABILITIES)
        source.asked.clear()
        await following.until(lambda: source.asked[CAPABILITIES] > 2)
        source.documents[CAPABILITIES], source.handlers["/channel"] = offered, serve
        await following.until(lambda: channel.is_read)
        await channel.say(source.change("0.txt", b"second"))
        await following.has("0.txt", b"second")
        await following.until(lambda: status_now(copy).in_step)
    assert [each.event for each in following.events].count("live") == lives


@INSTEAD
@pytest.mark.usefixtures("soon")
async def test_a_channel_that_was_never_there_ends_a_first_run_and_no_later_one(
    source, copy, following, instead, said
):
    channel = ChannelOf(source, says_where=True)
    serve = take_away(source, instead)
    async with AsyncMirror(source.url + CAPABILITIES, copy) as first:
        words = re.escape(said.removesuffix(BEFORE)) + "; .*: ask it to mend that, .* by --once"
        with pytest.raises(Rejected, match=words):
            await asyncio.wait_for(first.run(), 20)
    running = asyncio.create_task(following.reads(channel, source.change("0.txt", b"second")))
    await following.until(lambda: bool(following.said(said)))
    source.handlers["/channel"] = serve
    await running


@pytest.mark.usefixtures("soon")
async def test_change_lists_that_are_not_there_for_a_while_are_read_again(source, following):
    async with following.polls():
        await following.until(lambda: "live" in [each.event for each in following.events])
        listed = source.documents.pop("/changelist.xml")
        await following.until(lambda: len(following.said("but the Source was read before")) > 2)
        source.documents["/changelist.xml"] = listed
        source.change("0.txt", b"second")
        await following.has("0.txt", b"second")
