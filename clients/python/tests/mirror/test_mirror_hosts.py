"""Hosts that do not answer a mirror: each run ends, and a host that is back is asked again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

import pytest
from aiohttp import web

from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client import web as client_web
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import Event
from rsnotify_mirror.workers import ATTEMPTS
from tests.support.amount import enough
from tests.support.running import until
from tests.support.sources import CAPABILITIES, Source, rendered
from tests.support.stream_server import StreamServer

PER_HOST = 2
OPTIONS = Options(first_retry_seconds=0.002, per_host=PER_HOST)  # away after a third of a second
NUMBERS = enough([PER_HOST + 1, PER_HOST, 1, 3 * PER_HOST, 30 * PER_HOST], 2)
WAYS = ["refuses", "closes", "says nothing", "breaks off", "dies now and then", "speaks no TLS"]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Peer:
    """A host that answers in one way, and later perhaps in another; `well` is as it should be."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.port = 0
        self.asked = 0
        self._server = StreamServer(self._serve)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        self.port = self._server.port
        if self.way == "refuses":
            await self._server.__aexit__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.way != "refuses":
            await self._server.__aexit__()

    async def mend(self) -> None:
        was, self.way = self.way, "well"
        if was == "refuses":
            await self._server.__aenter__()

    @property
    def scheme(self) -> str:
        return "https" if self.way == "speaks no TLS" else "http"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.way == "speaks no TLS" and await reader.read(1):
            writer.write(ANSWER)
        while self.way not in ("closes", "speaks no TLS"):
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            if self.way == "says nothing":
                continue
            writer.write(ANSWER[:-1] if self.way == "breaks off" else ANSWER)
            if self.way == "breaks off" or (self.way != "well" and self.asked > 3):
                break


@asynccontextmanager
async def peer_of(source: Source, way: str, number: int) -> AsyncIterator[Peer]:
    """A Source whose resources are at another host."""
    async with Peer(way) as peer:
        locs = [f"{peer.scheme}://127.0.0.1:{peer.port}/{each}" for each in range(number)]
        list_these(source, locs)
        yield peer


def list_these(source: Source, locs: list[str]) -> None:
    entries = list(map(Entry, locs))
    source.documents["/resourcelist.xml"] = rendered("resourcelist", entries, at=str(source.at))
    source.documents[CAPABILITIES] = source.capability_list("resourcelist")


@pytest.fixture(autouse=True)
def _impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a host says nothing: the Source, too, has to answer in that time."""
    if "says nothing" in request.node.name or "under_way" in request.node.name:
        monkeypatch.setattr(client_web, "SILENCE_SECONDS", 0.2)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_single_run_ends_though_a_host_does_not_answer(source, copy, way, number):
    async with (
        asyncio.timeout(60),
        peer_of(source, way, number),
        AsyncMirror(source.url + CAPABILITIES, copy, OPTIONS) as mirror,
    ):
        is_whole = await mirror.once()
        resources, to_do, failed = mirror.state.counts()
    assert (resources, to_do == failed, is_whole) == (number, True, not failed)
    assert failed or way == "dies now and then"


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("way", WAYS[:-1])
async def test_a_host_that_is_back_is_asked_again_soon_by_a_mirror_that_goes_on(
    source, copy, way, number
):
    async def have_failed() -> bool:
        return mirror.sums.failed + mirror.sums.stored >= number

    async def are_there() -> bool:
        return mirror.state.counts() == (number, 0, 0)

    async with (
        peer_of(source, way, number) as peer,
        AsyncMirror(source.url + CAPABILITIES, copy, OPTIONS) as mirror,
    ):
        keeping = asyncio.create_task(mirror.run())
        try:
            await until(have_failed)
            await peer.mend()
            await until(are_there)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])


async def test_what_was_under_way_when_its_host_came_back_is_asked_again_soon(source, copy):
    """Its request was sent too early to be answered: that is the host's failure, not its own."""
    asked, under_way, is_back = Counter[str](), set[str](), False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal is_back
        with suppress(OSError, asyncio.IncompleteReadError):
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            asked[path] += 1
            under_way.add(path)
            others_wait = under_way == {"/0", "/1"} and min(asked["/0"], asked["/1"]) > ATTEMPTS
            if is_back or others_wait:
                is_back = True
                writer.write(ANSWER)
            await reader.read()  # until the client has closed
            under_way.discard(path)
        writer.close()

    async def are_there() -> bool:
        return mirror.state.counts() == (2, 0, 0)

    async with StreamServer(serve) as server:
        port = server.port
        list_these(source, [f"http://127.0.0.1:{port}/{each}" for each in range(2)])
        async with AsyncMirror(source.url + CAPABILITIES, copy, OPTIONS) as mirror:
            keeping = asyncio.create_task(mirror.run())
            try:
                await until(are_there)
            finally:
                keeping.cancel()
                await asyncio.wait([keeping])


async def test_a_single_run_ends_though_a_name_is_no_hosts(source, copy):
    list_these(source, [f"http://nobody.invalid/{each}" for each in range(3 * PER_HOST)])
    async with AsyncMirror(source.url + CAPABILITIES, copy, OPTIONS) as mirror, asyncio.timeout(60):
        assert not await mirror.once()
        assert mirror.state.counts() == (6, 6, 6)


async def test_a_single_run_does_not_wait_long_for_a_host_that_asks_for_time(source, copy):
    """Whichever of its resources was asked for first, the others are not."""
    names = [f"/{name}.txt" for name in "abc"]
    for name in names:
        source.answer(name, status=503, headers={"Retry-After": "3600"})
    list_these(source, [source.url + name for name in names])
    options = Options(first_retry_seconds=0.002, jobs=1, per_host=1)
    async with AsyncMirror(source.url + CAPABILITIES, copy, options) as mirror, asyncio.timeout(60):
        assert not await mirror.once()
        assert mirror.state.counts() == (3, 3, 3)
        problems = [problem for _, problem in mirror.state.problems()]
    assert problems.count(f"{source.url} has asked for time") == 2
    assert sum(source.asked[name] for name in names) == 1


async def test_what_is_at_other_hosts_is_copied_beside_one_that_does_not_answer(source, copy):
    async with Peer("refuses") as peer, asyncio.timeout(60):
        away = [f"http://127.0.0.1:{peer.port}/{each}" for each in range(1_500)]
        list_these(source, [*away, source.loc("a.txt")])
        async with AsyncMirror(source.url + CAPABILITIES, copy, OPTIONS) as mirror:
            assert not await mirror.once()
            assert mirror.state.counts() == (1_501, 1_500, 1_500)


async def test_of_each_host_the_first_failure_is_told_at_once(source, copy):
    events: list[Event] = []
    async with peer_of(source, "refuses", 3 * PER_HOST) as peer, asyncio.timeout(60):
        url = source.url + CAPABILITIES
        async with AsyncMirror(url, copy, OPTIONS, report=events.append) as mirror:
            await mirror.once()
    kinds = [each.event for each in events]
    assert kinds == ["baseline", "trouble", *["failed"] * 3 * PER_HOST]
    assert events[1].problem == f"{events[1].loc} cannot be reached: connection refused"
    assert events[1].loc in [f"http://127.0.0.1:{peer.port}/{each}" for each in range(PER_HOST)]


@pytest.mark.parametrize("is_told", [True, False])
async def test_what_is_newer_than_the_resource_list_is_trouble_if_no_change_says_so(
    source, copy, is_told
):
    source.add("a.txt", b"old")
    source.list_resources()
    without = source.documents["/changelist.xml"]
    source.change("a.txt", b"newer")
    changes = source.documents["/changelist.xml"] if is_told else without

    async def asked() -> bool:
        return bool(source.asked["/a.txt"])

    async def once_the_resource_was_asked_for(_: web.Request) -> web.Response:
        await until(asked)
        return web.Response(body=changes, content_type="application/xml")

    source.handlers["/changelist.xml"] = once_the_resource_was_asked_for
    events: list[Event] = []
    options = Options(first_retry_seconds=60) if is_told else OPTIONS
    async with AsyncMirror(
        source.url + CAPABILITIES, copy, options, report=events.append
    ) as mirror:
        assert await mirror.once() == is_told
    kinds = [each.event for each in events if each.loc == source.loc("a.txt")]
    assert kinds == (["stored"] if is_told else ["trouble", "failed"])
