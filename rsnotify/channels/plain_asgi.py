"""Readers under any ASGI server: what they write is sent by the server, one message after another.

Our own server hands its connections over, so that a reader costs 1.7 KB and no task. Under another
server each reader has its task, and pings and limits of that server apply.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

from starlette.types import Receive

from rsnotify.channels.frames import close_reason
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.socket_reader import TOO_MUCH, SocketReader
from rsnotify.channels.transport_reader import CLOSE_SECONDS
from rsnotify.errors import CloseCode
from rsnotify.resourcesync.forms import Form

SendPart = Callable[[bytes], Awaitable[None]]


class NoSocket:
    """Stands for the socket, which the server keeps to itself."""

    def fileno(self) -> int:
        raise OSError("the server has the socket")


class SendingTransport(asyncio.Transport):
    """Keeps what a reader writes until the server takes it; meanwhile the reader waits."""

    def __init__(self) -> None:
        super().__init__({"sslcontext": True, "socket": NoSocket()})  # so nobody writes past it
        self.close_code, self.close_reason = 1000, ""
        self._protocol: Any = None
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._is_closing = False
        self._changed = asyncio.Event()

    async def run(self, receive: Receive, send_part: SendPart) -> None:
        """Until the reader has closed it and all is sent, or the peer has gone."""
        receiving = asyncio.create_task(self._receive_all(receive))
        try:
            while self._parts or not self._is_closing:
                self._changed.clear()
                while self._parts:
                    part = self._parts.popleft()
                    await send_part(part)
                    self._size -= len(part)
                    if not self._parts and self._protocol is not None:
                        self._protocol.resume_writing()
                if not self._is_closing:
                    await self._changed.wait()
        finally:
            self._is_closing = True
            receiving.cancel()
            with suppress(asyncio.CancelledError):
                await receiving
            self._protocol.connection_lost(None)

    async def _receive_all(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"].endswith(".disconnect"):
                self.abort()
                return
            data = message.get("text") or message.get("bytes") or b""
            self._protocol.receive_data(data.encode() if isinstance(data, str) else data)

    # --- called by the reader --------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data and not self._is_closing:
            self._parts.append(bytes(data))
            self._size += len(data)
            self._changed.set()
            self._protocol.pause_writing()

    def close(self) -> None:
        self._is_closing = True
        self._changed.set()

    def abort(self) -> None:
        self._parts.clear()
        self.close()

    def close_with(self, code: int, reason: str) -> None:
        self.close_code, self.close_reason = code, reason
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return self._size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing can be chosen here: one part is kept."""

    def pause_reading(self) -> None:
        """The server reads."""

    def resume_reading(self) -> None:
        """The server reads."""


class MessageReader(SocketReader):
    """A WebSocket whose frames another server writes."""

    __slots__ = ()

    def __init__(self, transport: SendingTransport, reader_input: ReaderInput, form: Form) -> None:
        super().__init__(transport, reader_input, is_deflated=False)
        self.write_in(form)

    def ping(self) -> bool:
        """The server pings by itself."""
        return False

    def close(self, code: int, reason: str) -> None:
        if self.is_open:
            self.end_within(CLOSE_SECONDS)
            self.transport.close_with(code, close_reason(reason))  # type: ignore[attr-defined]

    def receive_data(self, data: bytes) -> None:
        """Count what a reader sends, which has nothing to say."""
        few = self.turns.takes_bytes(self, len(data)) and self.turns.takes_frames(self, 1)
        if not few:
            self.close(CloseCode.NOT_ALLOWED, TOO_MUCH)


def texts_of(frames: bytes) -> Iterator[str]:
    """The texts of whole frames, as we write them: in one piece, unmasked.

    >>> list(texts_of(bytes([0x81, 2]) + b"ab" + bytes([0x81, 126, 0, 1]) + b"c"))
    ['ab', 'c']
    """
    at = 0
    while at < len(frames):
        size, at = frames[at + 1], at + 2
        if size > 125:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(frames[at : at + width], "big"), at + width
        yield frames[at : at + size].decode()
        at += size
