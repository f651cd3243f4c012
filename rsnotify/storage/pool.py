"""The connections to one server. An exchange keeps its connection for the next one.

To ask the library's pool takes longer than to write a command. So a few connections stay lent out;
one that has died since, or on which something came unasked, goes back to the pool, which mends it.
"""

from typing import Any

from redis import asyncio as redis

from rsnotify.storage.direct_connection import DirectConnection

KEPT = 8


class Pool(redis.BlockingConnectionPool):
    """A pool of the library, and what is kept out of it for exchanges."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._kept: list[DirectConnection] = []

    async def look_for_newer(self) -> None:
        """Learn whether another server has taken over."""

    async def borrow(self, *, afresh: bool = False) -> DirectConnection:
        """A connection that is ready to be written to."""
        while self._kept:
            direct = self._kept.pop()
            if not afresh and self.is_ready(direct):
                return direct
            await self.drop(direct)
        connection: Any = await self.get_connection()  # type: ignore[no-untyped-call]
        try:
            if afresh or not self.is_ready(DirectConnection.over(connection)):
                await connection.disconnect(nowait=True)
                await connection.connect()
            return DirectConnection.over(connection)
        except BaseException:
            await self.release(connection)
            raise

    def is_ready(self, direct: DirectConnection) -> bool:
        return direct.is_usable and not direct.connection.should_reconnect()

    async def give_back(self, direct: DirectConnection) -> None:
        """All that was asked on it is answered. Nobody may be waiting for it if it is kept."""
        if len(self._kept) < KEPT and self.can_get_connection() and direct.is_usable:
            self._kept.append(direct)
        elif direct.is_usable:
            await self.release(direct.connection)
        else:
            await self.drop(direct)

    async def drop(self, direct: DirectConnection) -> None:
        """Close it; the library opens it again when it is needed."""
        await direct.connection.disconnect(nowait=True)
        await self.release(direct.connection)
