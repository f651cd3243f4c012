"""Servers in a test's own loop that leave no connection behind: of streams, and of aiohttp.

What a test leaves open is found when Python next collects what is unused, and fails the test that
runs then.
"""

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from ssl import SSLContext
from typing import Self
from weakref import WeakSet

from aiohttp import web

BACKLOG = 1024


async def stop_accepting(listener: socket.socket) -> None:
    """Before its server is closed: a connection that was just accepted is nobody's until then."""
    asyncio.get_running_loop().remove_reader(listener)
    for _ in range(3):  # until the server knows it, and its task has begun
        await asyncio.sleep(0)


def _abort(transports: Iterable[asyncio.WriteTransport]) -> None:
    """Whose peers read nothing, too."""
    for transport in transports:
        transport.abort()


class StreamServer:
    """Has each connection served by a task, and closes it then; `async with` opens its port."""

    def __init__(
        self,
        serve: Callable[[StreamReader, StreamWriter], Awaitable[None]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl: SSLContext | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._serve = serve
        self._ssl = ssl
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: WeakSet[asyncio.WriteTransport] = WeakSet()

    async def __aenter__(self) -> Self:
        self._listener = socket.create_server((self.host, self.port), backlog=BACKLOG)
        self.port = self._listener.getsockname()[1]
        self._server = await asyncio.start_server(
            self._connect, sock=self._listener, ssl=self._ssl, backlog=BACKLOG
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_accepting(self._listener)
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        _abort(self._transports)

    def cut(self) -> None:
        """End every connection."""
        for task in self._tasks:
            task.cancel()

    def _connect(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._transports.add(writer.transport)
        task = asyncio.create_task(self._attend(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # of one that never began, too

    async def _attend(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError, EOFError):  # the peer has gone
            await self._serve(reader, writer)


def one_answer(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], *, body_bytes: int = 1024**2
) -> web.Application:
    """Every request is answered by this function."""
    app = web.Application(client_max_size=body_bytes)
    app.router.add_route("*", "/{path:.*}", answer)
    return app


class WebServer:
    """aiohttp's; `async with` opens its port."""

    def __init__(self, app: web.Application, *, tls: SSLContext | None = None) -> None:
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self._tls = tls
        self.port = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        await web.SockSite(
            self._runner, self._listener, ssl_context=self._tls, backlog=BACKLOG
        ).start()
        self.port = self._listener.getsockname()[1]
        where = "http://127.0.0.1" if self._tls is None else "https://localhost"
        self.url = f"{where}:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_accepting(self._listener)
        server = self._runner.server
        assert server is not None
        transports = [each.transport for each in server.connections if each.transport is not None]
        if self._tls is not None:  # to close them would take longer than the loop runs
            _abort(transports)
        await self._runner.cleanup()
        _abort(transports)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._runner.server.connections) if self._runner.server else 0
