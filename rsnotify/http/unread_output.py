"""The bytes that a peer has not read: a writer waits for a peer that reads, however slowly, but not
for one that reads nothing.
"""

import asyncio

from rsnotify.http.deadlines import Deadlines
from rsnotify.http.sockets import unread_bytes


class UnreadOutput:
    """The output side of one connection."""

    def __init__(
        self, transport: asyncio.Transport, deadlines: Deadlines, timeout_seconds: float
    ) -> None:
        self._transport = transport
        self._deadlines = deadlines
        self._timeout_seconds = timeout_seconds
        self.is_full = False  # the transport has asked us to wait
        self._read: asyncio.Future[None] | None = None  # until there is room
        self._unread = 0

    async def wait(self) -> None:
        """Wait until there is room."""
        if self._read is not None:
            await self._read

    def pause(self) -> None:
        self.is_full = True
        self._read = asyncio.get_running_loop().create_future()
        self.start_deadline()

    def resume(self) -> None:
        self.clear_deadline()
        self.release()

    def release(self) -> None:
        """Let the writer go on, even if the peer has gone."""
        self.is_full = False
        read, self._read = self._read, None
        if read is not None and not read.done():
            read.set_result(None)

    def start_deadline(self) -> None:
        """By then the peer must have read something."""
        self._unread = unread_bytes(self._transport)
        self._deadlines.set(self._on_deadline, self._timeout_seconds)

    def clear_deadline(self) -> None:
        self._deadlines.clear(self._on_deadline)

    def _on_deadline(self) -> None:
        if unread_bytes(self._transport) < self._unread:
            self.start_deadline()
        else:
            self._transport.abort()
