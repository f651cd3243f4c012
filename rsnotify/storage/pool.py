"""The connections to one server. An exchange keeps its connection for the next one.

To ask the library's pool takes longer than to write a command. So a few connections stay lent out;
one that has died since, or on which something came unasked, goes back to the pool, which mends it.
"""

from typing import Any

from redis import asyncio as redis

KEPT = 2  # as many as the writers of a journal


class Pool(redis.BlockingConnectionPool):
    """A pool of the library, and what is kept out of it for exchanges."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._kept: list[Any] = []

    async def look_for_newer(self) -> None:
        """Learn whether another server has taken over."""

    async def borrow(self) -> Any:
        """A connection that is ready to be written to."""
        while self._kept:
            connection = self._kept.pop()
            if await self.is_ready(connection):
                return connection
            await self.release(connection)
        return await self.get_connection()  # type: ignore[no-untyped-call]

    async def is_ready(self, connection: Any) -> bool:
        if not connection.is_connected or connection.should_reconnect():
            return False
        return not await connection.can_read()

    async def give_back(self, connection: Any) -> None:
        """All that was asked on it is answered. Nobody may be waiting for it if it is kept."""
        is_free = len(self._kept) < KEPT and self.can_get_connection()
        if is_free and connection.is_connected:
            self._kept.append(connection)
        else:
            await self.release(connection)
