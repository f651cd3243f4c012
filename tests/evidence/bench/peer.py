"""Requests of the benchmarks, written and read with as little work as possible."""

import asyncio
import json
import time

from tests.support.running import TOKEN


def loc(number: int) -> str:
    return f"http://example.com/dataset1/resource/{number}"


def change(number: int) -> dict[str, object]:
    digest = "md5:1584abdf8ebdc9802ac0c6a7402c03b6"
    return {"loc": loc(number), "change": "updated", "hash": digest, "length": 8876}


def post(changes: list[dict[str, object]]) -> bytes:
    """The bytes of a publish request."""
    body = json.dumps(changes).encode()
    return (
        f"POST /api/sets/dataset1/changes HTTP/1.1\r\nHost: hub\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


class Peer:
    """One connection that asks and reads whole answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> "Peer":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))

    async def ask(self, request: bytes) -> tuple[bytes, int, float]:
        """The head, the bytes of the body, and when its first byte came."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            return head, *await self._chunks()
        length = int((lower.partition(b"content-length:")[2] or b"0\r").partition(b"\r")[0])
        first = time.perf_counter()
        left = length
        while left:
            left -= len(await self.reader.read(left))
        return head, length, first

    async def _chunks(self) -> tuple[int, float]:
        total, first = 0, 0.0
        while size := int(await self.reader.readline(), 16):
            first = first or time.perf_counter()
            await self.reader.readexactly(size + 2)
            total += size
        await self.reader.readline()
        return total, first


def get(path: str, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\nHost: hub\r\n{lines}\r\n".encode()


async def fill(port: int, count: int) -> None:
    """So many changes, each of a resource of its own."""
    peers = [await Peer.connect(port) for _ in range(4)]
    starts = iter(range(0, count, 1_000))

    async def send(peer: Peer) -> None:
        for start in starts:
            head, _, _ = await peer.ask(post([change(start + n) for n in range(1_000)]))
            assert head.startswith(b"HTTP/1.1 201"), head

    await asyncio.gather(*map(send, peers))
    for peer in peers:
        peer.writer.close()
