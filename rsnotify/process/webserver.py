"""The web server: the settings and overrides of uvicorn.

Of uvicorn, `startup` and `shutdown` are overridden: to accept connections in our way, to say when
the server is ready, and to disconnect readers while it stops. And `capture_signals`: uvicorn raises
a signal again after its end, which would change our exit status. `tests/unit/test_seams.py` fails
when these move.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from signal import SIGHUP, SIGINT, SIGTERM, Signals
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from rsnotify.channels.handshake import Handshake
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.http.connection_limits import ConnectionLimits
from rsnotify.http.protocol import HttpInput, HttpProtocol
from rsnotify.process.listening import ACCEPT_SECONDS, BACKLOG, Acceptor, accept_the_last
from rsnotify.process.settings import Settings
from rsnotify.sd_notify import STOPPING, notify

GRACE_SECONDS = 10  # for running requests, after the readers are disconnected

ENDING = (SIGHUP, SIGINT, SIGTERM)  # a process alone has nobody to take its place at SIGHUP

NO_SNIFFING = ("X-Content-Type-Options", "nosniff")  # of every answer: Sources say what it is

Drain = Callable[[], Coroutine[Any, Any, None]]


def web_config(
    app: ASGIApp,
    settings: Settings,
    connections: ConnectionLimits | None = None,
    reader_input: ReaderInput | None = None,
) -> uvicorn.Config:
    reader_input = ReaderInput() if reader_input is None else reader_input
    http = partial(
        HttpProtocol,
        send_timeout_seconds=settings.send_timeout_seconds,
        connections=connections,
        http_input=HttpInput(reader_input.received),
    )
    return uvicorn.Config(
        app,
        interface="asgi3",  # uvicorn would guess, and `Application` has no `async def __call__`
        http=http,  # type: ignore[arg-type]
        ws=partial(Handshake, reader_input=reader_input),  # type: ignore[arg-type]
        ws_per_message_deflate=settings.channel_compression == "on",
        lifespan="off",
        log_config=None,
        access_log=False,
        headers=[NO_SNIFFING],
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=settings.drain_seconds + GRACE_SECONDS,
    )


class WebServer(uvicorn.Server):
    """uvicorn, with our callbacks at start and end."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[], None],
        drain: Drain,
        *,
        is_worker: bool,
        on_signal: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._drain = drain
        self._on_signal = on_signal  # the first that asks for the end, by its name
        self._is_worker = is_worker  # its socket is its parent's, who may need it on

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(None if sockets is None else [])  # without any it makes its own
        self._acceptors = [Acceptor(bound, self._protocol) for bound in sockets or ()]
        self._on_ready()

    def _protocol(self) -> asyncio.BaseProtocol:
        make = cast(Callable[..., HttpProtocol], self.config.http_protocol_class)
        return make(config=self.config, server_state=self.server_state, app_state={})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the last connections, finish running requests; disconnect readers meanwhile."""
        notify(STOPPING)
        if self._is_worker:  # its parent lets nobody in, or another worker goes on
            await asyncio.sleep(ACCEPT_SECONDS)
        else:
            for bound in sockets or ():
                await accept_the_last(bound)
        for acceptor in self._acceptors:
            acceptor.close()
            await acceptor.wait_closed()
        draining = asyncio.create_task(self._drain())
        await super().shutdown(sockets)
        if self.force_exit:
            draining.cancel()
        await asyncio.wait([draining])

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for signal in ENDING:
            loop.add_signal_handler(signal, self._end, signal)
        try:
            yield
        finally:
            for signal in ENDING:
                loop.remove_signal_handler(signal)

    def _end(self, signal: Signals) -> None:
        self.force_exit = self.should_exit  # the second signal does not wait
        if not self.should_exit:
            self._on_signal(signal.name)
        self.should_exit = True
