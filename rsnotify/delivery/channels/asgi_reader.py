"""A Destination's connection over plain ASGI: event streams, and WebSockets of any other server.

Rules that hold here: it takes one notification at a time and is paused until that is sent, so it
uses a channel like every other reader. Nothing here knows what the server does with what is sent.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocketDisconnect

from rsnotify.delivery.channels.frames import Form
from rsnotify.delivery.channels.reader import Home
from rsnotify.resourcesync.change import Position

GONE = 1006  # the code of a connection that ended without one

Send = Callable[[bytes], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]


class AsgiReader:
    """Sends what it was given, part by part, then takes more."""

    def __init__(self, form: Form, *, part_bytes: int, alive: bytes = b"") -> None:
        self.form = form
        self.channel: Home | None = None
        self.cursor = Position(0)
        self.is_paused = False
        self.deadline: float | None = None
        self.pushed = -1
        self.slot = 0
        self.ended: tuple[int, str] | None = None
        self._part_bytes = part_bytes
        self._alive = alive
        self._unsent = memoryview(b"")
        self._given = asyncio.Event()
        self._running: asyncio.Timeout | None = None

    def __repr__(self) -> str:
        return f"<AsgiReader of {self.form.name}s in {self.channel}>"

    @property
    def is_open(self) -> bool:
        return self.ended is None

    def write(self, data: bytes, /) -> None:
        self._unsent = memoryview(data)
        self._given.set()
        self.is_paused = True
        if self.channel is not None:
            self.channel.pause(self)

    def ping(self) -> bool:
        """The server below asks by itself; an event stream cannot ask, only show that it lives."""
        if self._alive:
            self.write(self._alive)
        return False

    def backlog(self) -> int:
        return len(self._unsent)

    def close(self, code: int, reason: str) -> None:
        if self.is_open:
            self.ended = (code, reason)
            self._leave()
            self._given.set()
            self._interrupt()

    def _interrupt(self) -> None:
        """A peer that reads nothing is not waited for."""
        if self._running is not None:
            self._running.reschedule(asyncio.get_running_loop().time())

    async def run(self, send: Send, receive: Receive) -> None:
        """Send until either side ends it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(self._until_gone(receive))
                await self._send_all(send)
                listening.cancel()
        finally:
            self._leave()

    async def _until_gone(self, receive: Receive) -> None:
        while not (await receive())["type"].endswith(".disconnect"):
            pass
        self.close(GONE, "")

    async def _send_all(self, send: Send) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as self._running:
                while self.is_open:
                    await self._given.wait()
                    await self._send(send)

    async def _send(self, send: Send) -> None:
        self._given.clear()
        while self._unsent and self.is_open:
            part, rest = self._unsent[: self._part_bytes], self._unsent[self._part_bytes :]
            try:
                await send(bytes(part))
            except (OSError, WebSocketDisconnect):
                self.close(GONE, "")
            self._unsent = rest
        self.is_paused = False
        if self.channel is not None:
            self.channel.resume(self)

    def _leave(self) -> None:
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.leave(self)
