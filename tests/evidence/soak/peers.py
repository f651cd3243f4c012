"""Who publishes and who reads while hubs and Redis fail; each keeps what it was told."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress

import aiohttp

from rsnotify.resourcesync.notification import FROM_HEADER
from tests.support.raw import CLOSE, PING, PONG, TEXT, frame, raw_channel
from tests.support.running import TOKEN, RunningHub
from tests.support.stories import Ends, Row, Story, rows_of

LOST = (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError)
PATIENCE = aiohttp.ClientTimeout(total=30)
OF_STREAMS = aiohttp.ClientTimeout(total=None, sock_read=30)
REPEATED = 0.3  # of acknowledged changes…
LATELY = 30  # …of the newest ones
STAYS_SECONDS = (2, 60)  # at one hub, so that no hub gets all readers
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}

LOST_CODE, REFUSED_CODE = 4410, 4400

Begin = Callable[[Mapping[str, str]], None]  # is given the headers of a channel


class LossTold(Exception):
    """The hub says that what followed the reader's position is deleted or lost."""


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
        self.answers: dict[str, list[Ends]] = {}
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
                said = await answer.json(content_type=None)
                status = answer.status
        assert status in (0, 201, 503, 507), status
        if status == 201:
            self.answers.setdefault(loc, []).append((said["from"], said["until"]))
        return status


class Reader(Peer):
    """Reads a channel and comes back with its cursor; told of a loss, it begins anew at the end."""

    def __init__(
        self, hubs: Sequence[RunningHub], chance: random.Random, story: Story, *, by_stream: bool
    ) -> None:
        super().__init__(hubs, chance)
        self.story = story
        self.connections = 0
        self._by_stream = by_stream

    async def run(self) -> None:
        while True:
            self.connections += 1
            query = f"?from={self.story.cursor}" if self.story.began else ""
            url = self.hub().channel() + query
            with suppress(*LOST):
                async with (
                    asyncio.timeout(self._chance.uniform(*STAYS_SECONDS)),
                    aclosing(self._notifications(url)) as notifications,
                ):
                    try:
                        async for each in notifications:
                            self.story.take(each)
                    except LossTold:
                        self.story.is_told()
            await self.pause()

    def _notifications(self, url: str) -> AsyncIterator[bytes]:
        if self._by_stream:
            return events(url.replace("ws", "http", 1), self._begin)
        return messages(url, self._begin)

    def _begin(self, headers: Mapping[str, str]) -> None:
        if FROM_HEADER in headers:  # who is refused is told by a close code, and nothing else
            self.story.begin(headers[FROM_HEADER])


async def messages(url: str, begin: Begin) -> AsyncIterator[bytes]:
    """By WebSocket, until the hub closes it."""
    async with raw_channel(url) as raw:
        if raw.status == 410:
            raise LossTold
        if raw.status == 101:
            begin({name.title(): value for name, value in raw.headers.items()})
        while raw.status == 101:
            found = await raw.frame()
            if found.opcode == CLOSE:
                code = int.from_bytes(found.data[:2])
                if code == LOST_CODE:
                    raise LossTold
                assert code < REFUSED_CODE, found.data
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
        if answer.status == 410:
            raise LossTold
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
    """Asks again and again for the Change List of what followed; told of a loss, it begins anew
    behind the newest change."""

    def __init__(self, hubs: Sequence[RunningHub], chance: random.Random, story: Story) -> None:
        super().__init__(hubs, chance)
        self.story = story

    async def run(self) -> None:
        async with aiohttp.ClientSession(timeout=PATIENCE) as session:
            while True:
                with suppress(*LOST):
                    await self._poll(session)
                await asyncio.sleep(0.5)

    async def _poll(self, session: aiohttp.ClientSession) -> None:
        query = f"?from={self.story.cursor}" if self.story.began else ""
        url = f"{self.hub().url}/dataset1/changelist.xml{query}"
        async with session.get(url) as answer:
            body = await answer.read()
            assert answer.status in (200, 410, 503), (answer.status, body)
        if answer.status == 410 and self.story.began:
            self.story.is_told()
        if answer.status == 200:
            self._take(rows_of(body), answer.headers[FROM_HEADER])

    def _take(self, rows: Sequence[Row], list_begins: str) -> None:
        story = self.story
        if story.began is None:
            story.begin(rows[-1][0] if rows else list_begins)
        elif rows:
            story.rows += rows
            story.cursor = rows[-1][0]
