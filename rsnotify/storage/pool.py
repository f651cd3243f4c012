"""The connections to one server.

The library makes and closes them; who has one is decided here, for to ask the library's pool takes
longer than to write a command. Whoever finds none free waits for a turn, in the order of asking.
"""

import asyncio
from typing import Any

from redis import asyncio as redis
from redis.exceptions import ConnectionError as ConnectionLost

from rsnotify.storage.direct_connection import DirectConnection


class Pool(redis.ConnectionPool):
    """At most `max_connections`; a turn is waited for no longer than `timeout` seconds."""

    def __init__(self, *, timeout: float, **options: Any) -> None:
        super().__init__(**options)
        self._turn_seconds = timeout
        self._turns = asyncio.Semaphore(self.max_connections)
        self._idle: list[DirectConnection] = []
        self._open: set[DirectConnection] = set()

    async def look_for_newer(self) -> None:
        """Learn whether another server has taken over."""

    async def borrow(self, *, afresh: bool = False) -> DirectConnection:
        """A connection that is ready to be written to; `afresh`, one that is made now."""
        await self._wait_for_turn()
        try:
            return await self._made() if afresh else await self._ready()
        except BaseException:
            self._turns.release()
            raise

    async def _wait_for_turn(self) -> None:
        if not self._turns.locked():
            await self._turns.acquire()
            return
        try:
            async with asyncio.timeout(self._turn_seconds):
                await self._turns.acquire()
        except TimeoutError:
            raise ConnectionLost("all connections to Redis are in use") from None

    async def _ready(self) -> DirectConnection:
        while self._idle:
            direct = self._idle.pop()
            if self.is_ready(direct):
                return direct
            await self._close(direct)
        return await self._made()

    async def _made(self) -> DirectConnection:
        while self._idle and not self.can_get_connection():
            await self._close(self._idle.pop(0))
        direct = DirectConnection(await self.get_connection())  # type: ignore[no-untyped-call]
        self._open.add(direct)
        return direct

    def is_ready(self, direct: DirectConnection) -> bool:
        """Whether it is open, and was not written to by anybody else, nor by the server unasked."""
        return direct.is_usable and not direct.connection.should_reconnect()

    async def give_back(self, direct: DirectConnection) -> None:
        try:
            if self.is_ready(direct):
                self._idle.append(direct)
            else:
                await self._close(direct)
        finally:
            self._turns.release()

    async def _close(self, direct: DirectConnection) -> None:
        self._open.discard(direct)
        try:
            await direct.connection.disconnect(nowait=True)
        finally:
            await self.release(direct.connection)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """At the end: what is not sent yet is not waited for."""
        for direct in self._open:
            direct.abort()
        await super().disconnect(inuse_connections)
