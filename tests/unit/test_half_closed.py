"""Peers that close their direction of a real connection and wait for answers, on both loops."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from rsnotify.channels.event_stream import SseReader
from rsnotify.channels.frames import EVENT
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.http.deadlines import Deadlines
from rsnotify.http.extensions import HAND_OVER
from rsnotify.http.protocol import PIPELINED, HttpProtocol

LARGE = 4 * 1024 * 1024  # more than the sockets hold
SECONDS = 20


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()


class Server:
    """A listening socket whose connections are `HttpProtocol`s."""

    def __init__(self) -> None:
        self.state = ServerState()
        self.closed_by_peer = asyncio.Event()
        self._config: Any = SimpleNamespace(loaded_app=self._app)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def _protocol(self) -> HttpProtocol:
        options = {"deadlines": Deadlines(), "send_timeout_seconds": 60}
        return HttpProtocol(self._config, self.state, {}, **options)

    async def _app(self, scope: Scope, _: Receive, send: Send) -> None:
        name = scope["path"]
        if name == "/when-closed":
            await self.closed_by_peer.wait()
        kind = b"text/event-stream" if name == "/events" else b"text/plain"
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]}
        await send(start)
        body = b"x" * (LARGE if name == "/large" else 1)
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if name == "/events":
            await send({"type": HAND_OVER, "take": take})
            return
        await send({"type": "http.response.body", "body": b""})

    async def has_none_left(self) -> None:
        async with asyncio.timeout(SECONDS):
            while self.state.connections or self.state.tasks:
                await asyncio.sleep(0)

    def close(self) -> None:
        self._server.close()

    async def told(self, *parts: bytes) -> bytes:
        """All that comes after this was sent and the direction closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for part in parts:
            writer.write(part)
        writer.write_eof()
        self.closed_by_peer.set()
        async with asyncio.timeout(SECONDS):
            answer = await reader.read()
        writer.close()
        return answer


def take(transport: asyncio.Transport, *, is_chunked: bool) -> None:
    SseReader(EVENT, transport, ReaderInput(), is_chunked=is_chunked).take_over()


Tell = Callable[[Server], Awaitable[None]]


async def one_request(server: Server) -> None:
    assert (await server.told(get("/when-closed"))).count(b"HTTP/1.1 200 OK") == 1


async def many_requests(server: Server) -> None:
    answers = await server.told(get("/when-closed"), *[get("/quick")] * PIPELINED)
    assert answers.count(b"HTTP/1.1 200 OK") == 1 + PIPELINED


async def a_large_answer(server: Server) -> None:
    assert len(await server.told(get("/large"))) > LARGE


async def nothing(server: Server) -> None:
    assert await server.told() == b""


async def half_a_request(server: Server) -> None:
    assert b"HTTP/1.1 400 " in await server.told(get("/quick")[:10])


async def an_event_stream(server: Server) -> None:
    await server.told(get("/events"))


async def a_running_event_stream(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(get("/events"))
    await reader.readuntil(b"x\r\n")
    writer.write_eof()
    async with asyncio.timeout(SECONDS):
        await reader.read()
    writer.close()


async def goes_away(server: Server) -> None:
    """It closes all when it has seen the first of a large answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(get("/large"))
    writer.write_eof()
    await reader.readline()
    writer.transport.abort()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    "tell",
    [
        *(one_request, many_requests, a_large_answer, nothing, half_a_request),
        *(an_event_stream, a_running_event_stream, goes_away),
    ],
)
def test_who_closes_its_direction_is_answered_and_nothing_stays(tell, loop):
    async def run() -> None:
        server = Server()
        await server.start()
        try:
            await tell(server)
            await server.has_none_left()
        finally:  # a loop of uvloop does not close while something listens
            server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
