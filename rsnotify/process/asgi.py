"""The hub for any ASGI server that has a lifespan: `uvicorn --factory rsnotify.process.asgi:hub`.

It promises less than `rsnotify serve`, whose server bounds what strangers may hold and send;
`docs/operations/deploying.md` says what is missing.
"""

import asyncio
import logging
import os
import signal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rsnotify.errors import InvalidSettings
from rsnotify.process.admin_token import admin_token
from rsnotify.process.app import build
from rsnotify.process.composition import Composition
from rsnotify.process.hub_process import StartedRedis, on_redis, only_error, redis_url_of
from rsnotify.process.settings import Settings
from rsnotify.process.webserver import NO_SNIFFING

NO_SNIFFING_HEADER = tuple(text.lower().encode() for text in NO_SNIFFING)

log = logging.getLogger(__name__)


def hub() -> "HostedHub":
    """The hub, with the settings of the environment."""
    settings = Settings.from_env(os.environ)
    if settings.public_url is None:
        raise InvalidSettings("under another server the hub needs RSNOTIFY_PUBLIC_URL")
    return HostedHub(settings, settings.public_url)


class HostedHub:
    """An ASGI application that is a hub between its startup and its shutdown."""

    def __init__(self, settings: Settings, public_url: str) -> None:
        self._settings = settings
        self._public_url = public_url
        self._app: ASGIApp | None = None
        self._is_ready = asyncio.Event()
        self._is_stopped = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._app is None:
            raise RuntimeError("the hub has not started: the server must run its lifespan")
        else:
            await self._app({"extensions": {}, **scope}, receive, without_sniffing(send))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        ready = asyncio.create_task(self._is_ready.wait())
        serving = asyncio.create_task(self._serve())
        await asyncio.wait([ready, serving], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            ready.cancel()
            why = str(serving.exception() or "it ended")
            await send({"type": "lifespan.startup.failed", "message": why})
            return
        serving.add_done_callback(self._ended)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._is_stopped.set()
        await asyncio.wait([serving])
        await send({"type": "lifespan.shutdown.complete"})

    def _ended(self, serving: asyncio.Task[None]) -> None:
        """A hub whose loops have ended must not go on answering."""
        if not self._is_stopped.is_set():
            log.critical("the hub failed; the server ends", exc_info=serving.exception())
            signal.raise_signal(signal.SIGTERM)

    async def _serve(self) -> None:
        url = redis_url_of(self._settings)
        try:
            await on_redis(self._settings, url, self._run, is_worker=False)
        except BaseExceptionGroup as group:
            raise only_error(group) from None

    async def _run(self, redis: StartedRedis) -> None:
        token = admin_token(self._settings)
        composition = Composition(self._settings, redis.url, token, self._public_url)
        try:
            await composition.open(())
            self._app = build(composition)
            await composition.run(self._until_stopped(composition))
        finally:
            await composition.close()

    async def _until_stopped(self, composition: Composition) -> None:
        self._is_ready.set()
        await self._is_stopped.wait()
        await composition.drain(0)


def without_sniffing(send: Send) -> Send:
    """Sources say what their documents are; browsers must believe it."""

    async def send_with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), NO_SNIFFING_HEADER]
        await send(message)

    return send_with_header
