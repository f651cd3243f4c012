"""The connection of one event stream, as a channel's reader.

Rules that hold here: it takes one notification at a time and is paused until that is sent, so the
channel treats it like a WebSocket. Nothing here knows what an event looks like.
"""

import asyncio
from contextlib import suppress

from starlette.types import Message, Receive, Send

from rsnotify.delivery.channels.frames import WireFormat
from rsnotify.delivery.channels.reader import Reader

PART_BYTES = 16 * 1024  # of an event, in one write
DISCONNECTED = 1006  # the code of a connection that ended without a close code


class SseReader(Reader):
    """Sends what it was given in parts, then takes more."""

    def __init__(self, wire_format: WireFormat) -> None:
        super().__init__(wire_format)
        self._is_closed = False
        self._unsent = memoryview(b"")
        self._wake_up = asyncio.Event()
        self._timeout: asyncio.Timeout | None = None

    def __repr__(self) -> str:
        return f"<SseReader in {self.channel}>"

    @property
    def is_open(self) -> bool:
        return not self._is_closed

    def write(self, data: bytes, /) -> None:
        self._unsent = memoryview(data)
        self._wake_up.set()
        self.is_paused = True
        if self.channel is not None:
            self.channel.pause(self)

    def ping(self) -> bool:
        """Send a comment, which keeps proxies from closing the stream. Nobody answers it."""
        self.write(self.wire_format.idle)
        return False

    def backlog(self) -> int:
        return len(self._unsent)

    def close(self, code: int, reason: str) -> None:  # noqa: ARG002
        """End the stream, which has no way to tell a code or a reason."""
        if self._is_closed:
            return
        self._is_closed = True
        self.leave_channel()
        self._wake_up.set()
        if self._timeout is not None:  # stop a send that waits for a peer which reads nothing
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def run(self, send: Send, receive: Receive) -> None:
        """Send until either side ends the stream."""
        try:
            async with asyncio.TaskGroup() as tasks:
                disconnect = tasks.create_task(self._wait_for_disconnect(receive))
                await self._send_all(send)
                disconnect.cancel()
        finally:
            self.leave_channel()

    async def _wait_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.close(DISCONNECTED, "")

    async def _send_all(self, send: Send) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as self._timeout:
                while self.is_open:
                    await self._wake_up.wait()
                    await self._send_unsent(send)

    async def _send_unsent(self, send: Send) -> None:
        self._wake_up.clear()
        while self._unsent and self.is_open:
            part, rest = self._unsent[:PART_BYTES], self._unsent[PART_BYTES:]
            try:
                await send(body_message(bytes(part)))
            except OSError:
                self.close(DISCONNECTED, "")
            self._unsent = rest
        self.is_paused = False
        if self.channel is not None:
            self.channel.resume(self)


def body_message(part: bytes) -> Message:
    return {"type": "http.response.body", "body": part, "more_body": True}
