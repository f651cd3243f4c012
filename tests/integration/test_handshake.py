"""Handshakes that end while the application waits for Redis."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from uvicorn.server import ServerState

from rsnotify.access.access import Access
from rsnotify.access.tokens import Tokens
from rsnotify.channels.channels import Channels
from rsnotify.channels.handshake import EARLY_BYTES, Handshake
from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.websocket_endpoint import WebSocketEndpoint
from rsnotify.http.connection_limits import ConnectionLimits
from rsnotify.http.endpoints import Application, WebSocketRoute
from rsnotify.http.input_turns import WEBSOCKET
from rsnotify.http.protocol import HttpProtocol
from rsnotify.redis_client import Client, connect
from tests.protocol.test_channels import in_seconds
from tests.support.faults import SlowWay
from tests.support.hubs import hub_on
from tests.support.raw import BINARY, KEY, PING, frame
from tests.support.running import until


class Entrance:
    """A hub whose connections are all handshakes."""

    def __init__(self, client: Client) -> None:
        self.hub = hub_on(client)
        access = Access(Tokens(client), "the-admin-token")
        self.channels = Channels(self.hub, access, Keepalive(send_timeout_seconds=60))
        self.state = ServerState()
        app = Application(
            [WebSocketRoute("/channels/{set}/{kind}", WebSocketEndpoint(self.channels).open)]
        )
        self._config: Any = SimpleNamespace(loaded_app=app, ws_per_message_deflate=True)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        """With a set; the port."""
        await self.hub.add_set("dataset1")
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._handshake, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()

    def _handshake(self) -> Handshake:
        return Handshake(self._config, self.state, {}, reader_input=self.channels.reader_input)

    def shut_down(self) -> None:
        """As uvicorn does at SIGTERM."""
        for connection in list(self.state.connections):
            connection.shutdown()

    async def is_asked(self) -> bool:
        return bool(self.state.tasks)

    async def has_read(self, size: int) -> bool:
        return self.channels.reader_input.received.bytes[WEBSOCKET] == size

    async def is_left(self) -> bool:
        return not self.state.connections

    async def has_answered(self) -> bool:
        return not self.state.tasks


def request() -> bytes:
    """For a position after the head, about which the hub asks Redis."""
    lines = [
        f"GET /channels/dataset1/change?from={in_seconds(1)} HTTP/1.1",
        "Host: h",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {KEY}",
        "Sec-WebSocket-Version: 13",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
Loop = Callable[[], asyncio.AbstractEventLoop]


@LOOPS
@pytest.mark.parametrize("ends", ["peer", "hub"])
def test_a_handshake_that_ends_while_redis_is_asked_is_no_error(redis_url, loop, ends, caplog):
    async def run() -> None:
        async with SlowWay(redis_url) as way, connect(way.url) as client:
            await client.flushall()
            entrance = Entrance(client)
            async with entrance.open() as port:
                way.freeze()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request())
                await until(entrance.is_asked)
                if ends == "peer":
                    writer.transport.abort()
                else:
                    entrance.shut_down()
                    assert b" 503 " in await reader.readline()
                await until(entrance.is_left)
                way.thaw()
                await until(entrance.has_answered)
                assert len(entrance.channels.limits.addresses) == 0
                writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@LOOPS
@pytest.mark.parametrize("over", [0, 1])
def test_a_peer_may_send_a_little_before_its_handshake_is_answered(redis_url, loop, over, caplog):
    """It should wait for the answer. What it sent is read afterwards; too much ends it."""
    early = frame(BINARY, bytes(EARLY_BYTES - 8)) + bytes(over)

    async def run() -> bytes:
        async with SlowWay(redis_url) as way, connect(way.url) as client:
            await client.flushall()
            entrance = Entrance(client)
            async with entrance.open() as port:
                way.freeze()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request())
                await until(entrance.is_asked)
                writer.write(early)
                await until(lambda: entrance.has_read(len(early)))
                way.thaw()
                try:
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(frame(PING, b"x"))
                    return await reader.readexactly(3)
                except (asyncio.IncompleteReadError, ConnectionError):
                    await until(entrance.is_left)
                    return b""
                finally:
                    writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(run()) == (b"" if over else b"\x8a\x01x")
    logged = ["closing a connection (websocket) of 127.0.0.1: it sends too much"]
    assert [record.message for record in caplog.records] == logged * over


class FrontDoor(Entrance):
    """A hub whose connections begin with a request, as they do; one for each address."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        readers = self.channels.limits.addresses
        self.limits = ConnectionLimits(9, 1, lambda host: host, readers)
        self._config.ws_protocol_class = partial(Handshake, reader_input=self.channels.reader_input)

    def _handshake(self) -> HttpProtocol:
        return HttpProtocol(
            self._config, self.state, {}, send_timeout_seconds=60, connections=self.limits
        )

    async def is_empty(self) -> bool:
        return not self.limits


@pytest.mark.parametrize("ends", ["it leaves", "it is a reader"])
def test_a_handshake_counts_as_a_connection_until_it_ends(redis_url, ends):
    async def run() -> None:
        async with SlowWay(redis_url) as way, connect(way.url) as client:
            await client.flushall()
            door = FrontDoor(client)
            async with door.open() as port:
                way.freeze()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request())
                await until(door.is_asked)
                assert len(door.limits) == 1
                another, writer_of_another = await asyncio.open_connection("127.0.0.1", port)
                assert b" 429 " in await another.readline()
                writer_of_another.close()
                if ends == "it leaves":
                    writer.transport.abort()
                    way.thaw()
                    await until(door.is_empty)
                    return
                way.thaw()
                await reader.readuntil(b"\r\n\r\n")
                await until(door.has_answered)
                assert (len(door.limits), len(door.channels.limits.addresses)) == (1, 1)
                writer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
