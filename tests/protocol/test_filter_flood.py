"""Very many different filters from many addresses: some are served, the others are told why not."""

import asyncio
import re
from contextlib import AsyncExitStack
from typing import NamedTuple

from websockets.asyncio.client import ClientConnection, connect

from rsnotify.live.filter_counts import FILTERS
from rsnotify_client.notification import read_notification
from tests.protocol.test_freed_memory import resident
from tests.support.amount import amount
from tests.support.running import PATIENT_SECONDS, RunningHub, until

NUMBER = amount(600, evidence=10_000)
ADDRESSES = 200
AT_ONCE = 100
CHANGES = 20  # published meanwhile, to each of whom it concerns
LEFT_BYTES = 4 * 1024 * 1024  # 10,000 connections, each with a filter, take many times as much
REFUSED = re.compile(
    rb"(?i)^HTTP/1\.1 (429|503) .*\r\nretry-after: \d+\r\n.*different filters", re.DOTALL
)
CHANNEL = "/channels/dataset1/change_notification_channel"
STREAM = "/streams/dataset1"


class Asker(NamedTuple):
    """Asks for a filter of its own, from one of the addresses."""

    hub: RunningHub
    number: int
    since: str

    async def asks_and_leaves(self) -> None:
        writer, _ = await self._asked((CHANNEL, f"{STREAM}?offset={self.since}&live=long-poll"))
        await writer.drain()
        writer.transport.abort()

    async def stays_if_served(self) -> asyncio.StreamWriter | None:
        writer, reader = await self._asked((CHANNEL, f"{STREAM}?offset={self.since}&live=sse"))
        found = await reader.read(2**16)
        if found.startswith(b"HTTP/1.1 200 "):
            return writer
        assert REFUSED.match(found), found
        writer.close()
        return None

    async def _asked(
        self, ways: tuple[str, ...]
    ) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        path = ways[self.number // 2 % 2]
        path += f"{'&' if '?' in path else '?'}prefix=http://example.com/{self.number}/"
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.hub.port, local_addr=(f"127.0.1.{1 + self.number % ADDRESSES}", 0)
        )
        head = f"GET {path} HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n"
        writer.write(head.encode())
        return writer, reader


async def flood(hub: RunningHub, since: str) -> None:
    """Half of them leave at once, the others if they are refused, and at the end."""
    turn, staying = asyncio.Semaphore(AT_ONCE), list[asyncio.StreamWriter]()

    async def come(number: int) -> None:
        asker = Asker(hub, number, since)
        async with turn:
            if number % 2:
                await asker.asks_and_leaves()
            elif (writer := await asker.stays_if_served()) is not None:
                staying.append(writer)

    await asyncio.gather(*map(come, range(NUMBER)))
    assert 0 < len(staying) <= FILTERS
    for writer in staying:
        writer.transport.abort()


async def gets_all(channel: ClientConnection, locs: list[str]) -> None:
    found: list[str] = []
    async with asyncio.timeout(PATIENT_SECONDS):
        while len(found) < len(locs):
            found += [each.loc for each in read_notification(await channel.recv()).changes]
    assert found == locs


async def has_one_reader(hub: RunningHub) -> bool:
    _, told = await hub.ask("GET", "/metrics")
    lines = [line for line in told.decode().splitlines() if line.startswith("rsnotify_readers{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines) == 1


async def test_a_flood_of_filters_is_refused_clearly_and_leaves_nothing_behind(tmp_path):
    async with RunningHub(tmp_path / "data") as hub, AsyncExitStack() as readers:
        since = (await hub.publish("http://example.com/first"))["until"]
        channel = await readers.enter_async_context(connect(hub.channel()))
        held = list[int]()
        for turn in range(2):  # the first time takes what Python keeps for the next
            flooding = asyncio.create_task(flood(hub, since))
            locs = [f"http://example.com/{turn}/{number}" for number in range(CHANGES)]
            for loc in locs:
                await hub.publish(loc)
            await gets_all(channel, locs)
            await flooding
            await until(lambda: has_one_reader(hub))
            held.append(resident(hub))
        assert held[1] <= held[0] + LEFT_BYTES
        served = await Asker(hub, 0, since).stays_if_served()
        assert served is not None
        served.close()
