"""A proxy before a hub that cuts WebSockets and event streams, as such programs do."""

import asyncio
import re
from asyncio import StreamReader, StreamWriter
from contextlib import closing, suppress
from typing import Literal, Self

from tests.support.stream_server import StreamServer

Cut = Literal["refused", "ignored", "silent", "held", "ended"]
"""What is done with the kinds of requests: answered by a page of the proxy's own; asked without
what makes it special; never answered; answered by the hub's head, and nothing after it; or ended
after that."""

_CONNECTION = re.compile(rb"(?i)\r\nconnection:[^\r]*")
_SPECIAL = re.compile(rb"(?i)\r\n(?:upgrade|accept|sec-websocket-[\w-]+):[^\r]*")
PAGE = b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<no>"


class CuttingProxy:
    """Passes on what is no WebSocket and no event stream, one request on a connection."""

    def __init__(self, port: int, websocket: Cut | None, events: Cut | None) -> None:
        self.asked: list[str] = []
        self._to = port
        self._cuts = {"websocket": websocket, "events": events}
        self._server = StreamServer(self._serve)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    def of(self, address: str) -> str:
        """The same address by way of this proxy."""
        return re.sub(r"(?<=//)[^/]*", f"127.0.0.1:{self._server.port}", address)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.split()[1].decode())
        cut = self._cuts.get(_kind(head))
        if cut == "refused":
            writer.write(PAGE)
            await writer.drain()
        elif cut == "silent":
            await reader.read()
        else:
            await self._ask(head, cut, reader, writer)

    async def _ask(
        self, head: bytes, cut: Cut | None, reader: StreamReader, writer: StreamWriter
    ) -> None:
        if cut == "ignored":
            head = _SPECIAL.sub(b"", head)
        if cut == "ignored" or _kind(head) != "websocket":
            head = _CONNECTION.sub(b"", head)[:-2] + b"Connection: close\r\n\r\n"
        back, forth = await asyncio.open_connection("127.0.0.1", self._to)
        with closing(forth):
            forth.write(head)
            if cut in ("held", "ended"):
                writer.write(await back.readuntil(b"\r\n\r\n"))
                if cut == "held":
                    await reader.read()
            else:
                await asyncio.gather(_pass(reader, forth), _pass(back, writer))


def _kind(head: bytes) -> str:
    lower = head.lower()
    if b"\r\nupgrade: websocket" in lower:
        return "websocket"
    return "events" if b"text/event-stream" in lower else "documents"


async def _pass(reader: StreamReader, writer: StreamWriter) -> None:
    with closing(writer), suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
