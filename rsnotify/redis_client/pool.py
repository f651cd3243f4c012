"""The connections to one server.

redis-py makes and closes them. They are lent out here, because its own pool takes longer than to
write a command. If none is free, callers wait in the order in which they came.
"""

import asyncio
from collections import deque
from time import monotonic
from typing import Any

from redis import asyncio as redis
from redis.exceptions import ConnectionError as ConnectionLost

from rsnotify.redis_client.taken_connection import DirectConnection


class Pool(redis.ConnectionPool):
    """At most `max_connections`; a turn is waited for no longer than `timeout` seconds."""

    def __init__(self, *, timeout: float, **options: Any) -> None:
        super().__init__(**options)
        self._turn_seconds = timeout
        self._turns = _Turns(self.max_connections)
        self._idle: list[DirectConnection] = []
        self._open: set[DirectConnection] = set()

    async def look_for_newer(self) -> None:
        """Learn whether another server has taken over."""

    async def borrow(self, *, new: bool = False, until: float = float("inf")) -> DirectConnection:
        """A connection that is ready to be written to; a new one, or one that was used before.

        A turn is waited for until then, by the monotonic clock.
        """
        if not self._turns.take():
            await self._wait_for_turn(until)
        try:
            while self._idle and not new:
                connection = self._idle.pop()
                if self.is_ready(connection):
                    return connection
                await self._close(connection)
            return await self._connect()
        except BaseException:
            self._turns.give_back()
            raise

    async def _wait_for_turn(self, until: float) -> None:
        try:
            async with asyncio.timeout(min(until - monotonic(), self._turn_seconds)):
                await self._turns.wait()
        except TimeoutError:
            raise ConnectionLost("all connections to Redis are in use") from None

    async def _connect(self) -> DirectConnection:
        while self._idle and not self.can_get_connection():
            await self._close(self._idle.pop(0))
        connection = DirectConnection(await self.get_connection())  # type: ignore[no-untyped-call]
        self._open.add(connection)
        return connection

    def is_ready(self, connection: DirectConnection) -> bool:
        """Whether it is open, and nothing came on it unasked."""
        return connection.is_usable

    async def give_back(self, connection: DirectConnection) -> None:
        try:
            if self.is_ready(connection):
                self._idle.append(connection)
            else:
                await self._close(connection)
        finally:
            self._turns.give_back()

    async def _close(self, connection: DirectConnection) -> None:
        self._open.discard(connection)
        try:
            await connection.library_connection.disconnect(nowait=True)
        finally:
            await self.release(connection.library_connection)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """At the end: what is not sent yet is not waited for."""
        for connection in self._open:
            connection.abort()
        await super().disconnect(inuse_connections)


class _Turns:
    """So many at the same time; who waits gets one in the order of asking."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a free one, if there is one: there is none while others wait."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """For one that somebody gives back."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it has come just now
                self.give_back()
            raise

    def give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
