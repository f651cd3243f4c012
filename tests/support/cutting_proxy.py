"""A proxy before a hub that cuts WebSockets and event streams, as such programs do."""

import asyncio
import re
from asyncio import StreamReader, StreamWriter
from contextlib import closing, suppress
from typing import Literal, Self

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
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for each in self._serving:
            each.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def of(self, address: str) -> str:
        """The same address by way of this proxy."""
        return re.sub(r"(?<=//)[^/]*", f"127.0.0.1:{self.port}", address)

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        serving.add_done_callback(lambda _: writer.close())  # of one that never began, too

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError, EOFError):
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
