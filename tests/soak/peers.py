"""Who publishes and who reads while hubs and Redis fail; each keeps what it was told."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress

import aiohttp

from rsnotify.resourcesync.notification import FROM_HEADER
from tests.support.raw import CLOSE, PING, PONG, TEXT, frame, raw_channel
from tests.support.running import TOKEN, RunningHub

INTERVAL = re.compile(rb' from="([^"]+)" until="([^"]+)"')
ENTRY = re.compile(
    rb'<loc>([^<]*)</loc>(?:<lastmod>[^<]*</lastmod>)?<rs:md [^>]*datetime="([^"]+)"'
)
LOST = (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError)
PATIENCE = aiohttp.ClientTimeout(total=30)
OF_STREAMS = aiohttp.ClientTimeout(total=None, sock_read=30)
REPEATED = 0.3  # of acknowledged changes…
LATELY = 30  # …of the newest ones
STAYS_SECONDS = (2, 60)  # at one hub, so that no hub gets all readers
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}

Begin = Callable[[Mapping[str, str]], None]  # is given the headers of a channel
Row = tuple[str, str]  # the position of a change, and its resource


def rows_of(document: bytes) -> list[Row]:
    return [(at.decode(), loc.decode()) for loc, at in ENTRY.findall(document)]


class Peer:
    """Speaks to any of the hubs, and to another one when that fails."""

    def __init__(self, hubs: Sequence[RunningHub], chance: random.Random) -> None:
        self._hubs = hubs
        self._chance = chance

    def hub(self) -> RunningHub:
        return self._chance.choice(self._hubs)

    async def pause(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.02, 0.3))


class Publisher(Peer):
    """With keys it repeats each change until that is acknowledged, and some afterwards; without it
    never repeats one."""

    def __init__(
        self, hubs: Sequence[RunningHub], chance: random.Random, name: str, *, keyed: bool
    ) -> None:
        super().__init__(hubs, chance)
        self.prefix = f"http://example.com/{name}/"
        self.acknowledged: list[str] = []
        self.refused = 0
        self.repeated = 0  # although they were acknowledged
        self.is_ending = False
        self.is_keyed = keyed

    async def run(self) -> None:
        number = 0
        async with aiohttp.ClientSession(headers=AUTHORIZATION, timeout=PATIENCE) as session:
            while not self.is_ending:
                number += 1
                loc = f"{self.prefix}{number}"
                while not await self._is_acknowledged(session, loc) and self.is_keyed:
                    await self.pause()
                if self.is_keyed and self.acknowledged and self._chance.random() < REPEATED:
                    loc = self._chance.choice(self.acknowledged[-LATELY:])
                    self.repeated += await self._status(session, loc) == 201
                await self.pause()

    async def _is_acknowledged(self, session: aiohttp.ClientSession, loc: str) -> bool:
        status = await self._status(session, loc)
        if status == 201:
            self.acknowledged.append(loc)
        self.refused += status != 201
        return status == 201

    async def _status(self, session: aiohttp.ClientSession, loc: str) -> int:
        """Of the answer; 0 if there was none."""
        url = f"{self.hub().url}/api/sets/dataset1/changes"
        headers = {"Idempotency-Key": loc[-40:]} if self.is_keyed else {}
        change = {"loc": loc, "change": "updated"}
        status = 0
        with suppress(*LOST):
            async with session.post(url, json=change, headers=headers) as answer:
                status = answer.status
        assert status in (0, 201, 503, 507), status
        return status


class Reader(Peer):
    """Reads a channel and comes back with its cursor; each notification joins the one before."""

    def __init__(
        self, hubs: Sequence[RunningHub], chance: random.Random, cursor: str, *, by_stream: bool
    ) -> None:
        super().__init__(hubs, chance)
        self.found: list[Row] = []
        self.connections = 0
        self.sent_back = 0
        self._cursor = cursor
        self._by_stream = by_stream

    async def run(self) -> None:
        while True:
            self.connections += 1
            url = f"{self.hub().channel()}?from={self._cursor}"
            with suppress(*LOST):
                async with (
                    asyncio.timeout(self._chance.uniform(*STAYS_SECONDS)),
                    aclosing(self._notifications(url)) as notifications,
                ):
                    async for each in notifications:
                        self._take(each)
            await self.pause()

    def _notifications(self, url: str) -> AsyncIterator[bytes]:
        if self._by_stream:
            return events(url.replace("ws", "http", 1), self._begin)
        return messages(url, self._begin)

    def _begin(self, headers: Mapping[str, str]) -> None:
        """A journal that has lost what this reader knows begins before it, and says so: then what
        was told since is told again."""
        begins = headers.get(FROM_HEADER)
        if begins is not None and begins < self._cursor:  # who is refused is told nothing
            self.sent_back += 1
            self.found = [row for row in self.found if row[0] <= begins]
            self._cursor = begins

    def _take(self, notification: bytes) -> None:
        begins, ends = (each.decode() for each in INTERVAL.search(notification).groups())
        assert begins == self._cursor, f"after {self._cursor} came what begins at {begins}"
        self.found += rows_of(notification)
        self._cursor = ends


async def messages(url: str, begin: Begin) -> AsyncIterator[bytes]:
    """By WebSocket, until the hub closes it."""
    async with raw_channel(url) as raw:
        if raw.status == 101:
            begin({name.title(): value for name, value in raw.headers.items()})
        while raw.status == 101:
            found = await raw.frame()
            if found.opcode == CLOSE:
                assert found.data[:2] < (4400).to_bytes(2), found.data
                return
            if found.opcode == PING:
                await raw.send(frame(PONG, found.data))
            if found.opcode == TEXT:
                yield found.data


async def events(url: str, begin: Begin) -> AsyncIterator[bytes]:
    """As an event stream, until it ends."""
    headers = {"Accept": "text/event-stream"}
    async with (
        aiohttp.ClientSession(timeout=OF_STREAMS, read_bufsize=2**20) as session,
        session.get(url, headers=headers) as answer,
    ):
        lines: list[bytes] = []
        if answer.status != 200:
            return
        begin(answer.headers)
        async for line in answer.content:
            if line.startswith(b"data: "):
                lines.append(line[6:])
            elif line == b"\n" and lines:
                yield b"".join(lines)
                lines = []


class Poller(Peer):
    """Asks again and again for the Change List of what followed."""

    def __init__(self, hubs: Sequence[RunningHub], chance: random.Random, cursor: str) -> None:
        super().__init__(hubs, chance)
        self.found: list[Row] = []
        self._cursor = cursor

    async def run(self) -> None:
        async with aiohttp.ClientSession(timeout=PATIENCE) as session:
            while True:
                with suppress(*LOST):
                    await self._poll(session)
                await asyncio.sleep(0.5)

    async def _poll(self, session: aiohttp.ClientSession) -> None:
        url = f"{self.hub().url}/dataset1/changelist.xml?from={self._cursor}"
        async with session.get(url) as answer:
            body = await answer.read()
            assert answer.status in (200, 503), (answer.status, body)
        rows = rows_of(body)
        if rows and answer.status == 200:
            self.found += rows
            self._cursor = rows[-1][0]
