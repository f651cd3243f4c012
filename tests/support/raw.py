"""A WebSocket by hand: any bytes may be sent, and what comes back is seen frame by frame."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from tests.support.running import PATIENT_SECONDS

KEY = "AAAAAAAAAAAAAAAAAAAAAA=="
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Frame(NamedTuple):
    opcode: int
    data: bytes
    is_compressed: bool = False


def frame(
    opcode: int, data: bytes = b"", *, fin: bool = True, reserved: int = 0, mask: bool = True
) -> bytes:
    """A client's frame, right or wrong."""
    head = (0x80 if fin else 0) | reserved | opcode
    masked = 0x80 if mask else 0
    if len(data) < 126:
        start = struct.pack("!BB", head, masked | len(data))
    elif len(data) < 65536:
        start = struct.pack("!BBH", head, masked | 126, len(data))
    else:
        start = struct.pack("!BBQ", head, masked | 127, len(data))
    return start + (b"\0\0\0\0" if mask else b"") + data


def close(code: int | None = None, reason: bytes = b"") -> bytes:
    return frame(CLOSE, b"" if code is None else struct.pack("!H", code) + reason)


class Raw:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.status = 0
        self.headers: dict[str, str] = {}

    @classmethod
    async def to(cls, url: str, headers: Mapping[str, str], buffer_bytes: int | None) -> Self:
        parts = urlsplit(url)
        connected = socket.socket()
        if buffer_bytes is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        connected.setblocking(False)
        loop = asyncio.get_running_loop()
        limit = buffer_bytes or 2**16
        try:
            await loop.sock_connect(connected, (parts.hostname, parts.port))
            raw = cls(*await asyncio.open_connection(sock=connected, limit=limit))
        except BaseException:
            connected.close()
            raise
        try:
            await raw._shake_hands(url, headers)
        except BaseException:
            raw.writer.transport.abort()
            raise
        return raw

    async def _shake_hands(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {parts.netloc}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        await self.send("\r\n".join([*lines, "", ""]).encode())
        head = (await self._timed(self.reader.readuntil(b"\r\n\r\n"))).decode().split("\r\n")
        self.status = int(head[0].split()[1])
        self.headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])
        }

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self._timed(self.writer.drain())

    async def frame(self) -> Frame:
        """The next frame that the hub sent; it must be one a server may send."""
        first, second = await self._timed(self.reader.readexactly(2))
        assert first & 0x80, "fragmented"
        assert not first & 0x30, "reserved bits"
        assert not second & 0x80, "masked"
        length = second
        if second == 126:
            (length,) = struct.unpack("!H", await self._timed(self.reader.readexactly(2)))
        elif second == 127:
            (length,) = struct.unpack("!Q", await self._timed(self.reader.readexactly(8)))
        data = await self._timed(self.reader.readexactly(length))
        return Frame(first & 0x0F, data, bool(first & 0x40))

    async def text(self) -> bytes:
        """The next notification; the pings that come before it are answered."""
        while (found := await self.frame()).opcode == PING:
            await self.send(frame(PONG, found.data))
        assert found.opcode == TEXT, found
        return found.data

    async def closed_with(self) -> tuple[int | None, str]:
        """Code and reason of the close frame that comes, and then nothing more."""
        while (found := await self.frame()).opcode != CLOSE:
            pass
        assert await self._timed(self.reader.read()) == b""
        if not found.data:
            return None, ""
        return struct.unpack("!H", found.data[:2])[0], found.data[2:].decode()

    async def closed_with_code(self) -> int:
        """The code of the close frame that comes; it stays unanswered."""
        while (found := await self.frame()).opcode != CLOSE:
            pass
        return struct.unpack("!H", found.data[:2])[0]

    async def body(self) -> bytes:
        return await self._timed(self.reader.read())

    async def _timed(self, waiting):
        async with asyncio.timeout(PATIENT_SECONDS):
            return await waiting


@asynccontextmanager
async def raw_channel(
    url: str, headers: Mapping[str, str] | None = None, *, buffer_bytes: int | None = None
) -> AsyncIterator[Raw]:
    """A handshake by hand; whether it was accepted is for the caller to see.

    With a small buffer the hub soon notices who does not read.
    """
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    }
    raw = await Raw.to(url.replace("ws://", "http://"), upgrade | dict(headers or {}), buffer_bytes)
    try:
        yield raw
    finally:
        raw.writer.transport.abort()
