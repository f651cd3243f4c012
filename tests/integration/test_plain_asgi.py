"""The hub under uvicorn with uvicorn's own protocols: an application as any other."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from rsnotify.channels.reader_input import BYTES_PER_SECOND
from rsnotify_client import channel_url
from tests.support.redis_server import free_port
from tests.support.running import PATIENT_SECONDS, TOKEN, clean_environment

CHANGE = {"loc": "http://example.com/res1", "change": "updated"}
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
END = ("--timeout-graceful-shutdown", "2")


class Hosted:
    """A hub that uvicorn serves."""

    def __init__(self, url: str, process: Process, session: aiohttp.ClientSession) -> None:
        self.url, self.process, self._session = url, process, session

    async def ask(self, method: str, path: str, **options: object) -> tuple[int, str]:
        async with self._session.request(
            method,
            self.url + path,
            headers=HEADERS,
            **options,
        ) as answer:
            return answer.status, await answer.text()

    async def publish(self, change: object = CHANGE) -> None:
        assert (await self.ask("POST", "/api/sets/a/changes", json=change))[0] == 201

    def channel(self, query: str = "") -> str:
        return channel_url(self.url, "a") + query


@asynccontextmanager
async def hosted(folder: Path, **settings: str) -> AsyncIterator[Hosted]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = ("rsnotify.process.asgi:hub", "--factory", "--port", str(port), *END)
    environment = clean_environment() | {
        "RSNOTIFY_DATA": str(folder),
        "RSNOTIFY_ADMIN_TOKEN": TOKEN,
        "RSNOTIFY_PUBLIC_URL": url,
        **settings,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "uvicorn", *words, env=environment, stderr=PIPE
    )
    async with aiohttp.ClientSession() as session:
        found = Hosted(url, process, session)
        try:
            yield found
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENT_SECONDS):
                await process.communicate()


async def until_ready(hub: Hosted) -> None:
    async with asyncio.timeout(PATIENT_SECONDS):
        while True:
            try:
                assert (await hub.ask("PUT", "/api/sets/a", json={}))[0] == 201
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)
            else:
                return


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path / "data") as found:
        await until_ready(found)
        yield found


async def test_what_is_published_reaches_readers_and_lists_and_it_ends_with_status_0(hub):
    async with asyncio.timeout(PATIENT_SECONDS):
        async with connect(hub.channel().replace("http", "ws", 1)) as socket:
            begin = socket.response.headers["Rsnotify-From"] if socket.response else ""
            for count in range(3):
                await hub.publish(CHANGE | {"loc": f"http://example.com/{count}"})
            seen = ""
            while "http://example.com/2<" not in seen:
                seen += str(await socket.recv())
        async with connect(hub.channel(f"?from={begin}").replace("http", "ws", 1)) as again:
            assert "http://example.com/0<" in await again.recv()
    status, listed = await hub.ask("GET", "/a/changelist.xml")
    assert (status, listed.count("<loc>")) == (200, 3)
    hub.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENT_SECONDS):
        await hub.process.communicate()
    assert hub.process.returncode in (0, -signal.SIGTERM)


@pytest.mark.evidence
async def test_an_event_stream_is_sent_as_it_comes(hub):
    async with (
        aiohttp.ClientSession() as session,
        asyncio.timeout(PATIENT_SECONDS),
        session.get(hub.channel(), headers={"Accept": "text/event-stream"}) as stream,
    ):
        assert stream.headers["X-Content-Type-Options"] == "nosniff"
        assert (await stream.content.readuntil(b"\n\n")).startswith(b"id: ")
        await hub.publish()
        assert b"http://example.com/res1" in await stream.content.readuntil(b"</urlset>")


async def test_a_reader_is_closed_with_the_reason(hub):
    async with asyncio.timeout(PATIENT_SECONDS):
        async with connect(hub.channel("?from=nonsense").replace("http", "ws", 1)) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4400
        async with connect(hub.channel().replace("http", "ws", 1)) as socket:
            assert (await hub.ask("DELETE", "/api/sets/a"))[0] == 204
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4404


@pytest.mark.evidence
async def test_a_reader_that_says_more_than_a_reader_may_is_closed(hub):
    async with (
        asyncio.timeout(PATIENT_SECONDS),
        connect(hub.channel().replace("http", "ws", 1)) as quiet,
        connect(hub.channel().replace("http", "ws", 1)) as loud,
    ):
        for socket, size in ((quiet, BYTES_PER_SECOND), (loud, BYTES_PER_SECOND + 1)):
            await socket.send("x" * size)
        with pytest.raises(ConnectionClosed) as closed:
            await loud.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
        await hub.publish()
        assert "res1" in await quiet.recv()


async def test_without_an_address_it_says_what_is_missing(tmp_path):
    async with hosted(tmp_path / "data", RSNOTIFY_PUBLIC_URL="") as found:
        assert found.process.stderr is not None
        said = (await found.process.stderr.read()).decode()
    assert "RSNOTIFY_PUBLIC_URL" in said
    assert found.process.returncode != 0


@pytest.mark.evidence
async def test_whoever_waits_for_a_stream_is_answered_there_too(tmp_path):
    async with hosted(tmp_path / "data", RSNOTIFY_LONG_POLL_SECONDS="2") as hub:
        await until_ready(hub)
        path = "/streams/a?live=long-poll&offset=now"
        assert (await hub.ask("GET", path))[0] == 204
        waiting = asyncio.create_task(hub.ask("GET", path))
        while not waiting.done():  # some wait has a change
            await hub.publish()
            await asyncio.sleep(0.01)
        assert "http://example.com/res1" in (await waiting)[1]
