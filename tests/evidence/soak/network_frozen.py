"""A network passes no bytes for 90 seconds and closes nothing; the follower notices."""

import asyncio
import tempfile
import time
from asyncio import StreamReader, StreamWriter
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Self

from rsnotify_client import follow_async
from rsnotify_client.live import PONG_SECONDS, QUIET_SECONDS
from tests.support.running import RunningHub
from tests.support.stream_server import StreamServer

FROZEN_SECONDS = 90


class Proxy:
    """Passes bytes on, until it is frozen; then it keeps every connection and passes nothing."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._flows = asyncio.Event()
        self._flows.set()
        self._server = StreamServer(self._serve)
        self.accepted = 0

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        self.port = self._server.port
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    def freeze(self) -> None:
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.accepted += 1
        await self._flows.wait()
        back, forth = await asyncio.open_connection("127.0.0.1", self._to)
        with closing(forth):
            await asyncio.gather(self._pass(reader, forth), self._pass(back, writer))

    async def _pass(self, reader: StreamReader, writer: StreamWriter) -> None:
        with closing(writer), suppress(OSError):
            while data := await reader.read(2**16):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()


async def run(folder: Path) -> None:
    async with RunningHub(folder / "data") as hub, Proxy(hub.port) as proxy:
        begin = (await hub.publish("http://example.com/begin"))["until"]
        url = hub.channel().replace(str(hub.port), str(proxy.port))
        found: list[str] = []

        async def read() -> None:
            async with aclosing(follow_async(url, position=begin)) as changes:
                async for change in changes:
                    async with change:
                        found.append(change.loc)

        reading = asyncio.create_task(read())
        await hub.publish("http://example.com/before")
        while "http://example.com/before" not in found:
            await asyncio.sleep(0.05)
        accepted, frozen = proxy.accepted, time.monotonic()
        proxy.freeze()
        await hub.publish("http://example.com/while-frozen")
        while proxy.accepted == accepted:
            await asyncio.sleep(0.1)
        noticed = time.monotonic() - frozen
        await asyncio.sleep(max(0, FROZEN_SECONDS - noticed))
        proxy.thaw()
        while "http://example.com/while-frozen" not in found:
            await asyncio.sleep(0.05)
        took = time.monotonic() - frozen
        print(
            f"noticed after {noticed:.0f} s, all told {took - FROZEN_SECONDS:.1f} s after the thaw"
        )
        assert noticed < QUIET_SECONDS + PONG_SECONDS + 15
        assert found.count("http://example.com/while-frozen") == 1
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
