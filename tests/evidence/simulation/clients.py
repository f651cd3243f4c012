"""Histories of the Python client: its follower, and the state of a mirror, in the world.

Their code is the real one, but for what waits in threads: a thread that waits for a socket stands
still, and with it the world. So requests for documents are sent by `WorldWeb`; what is made of the
answers, channels by WebSocket, cursors and the file of a mirror are the client's own. Fetching the
resources themselves is not simulated, for it is done in those threads.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rsnotify.errors import TryAgain
from rsnotify_client import live  # noqa: F401  or it is loaded in the world
from rsnotify_client.changelists import HistoryGone
from rsnotify_client.follower import Follower
from rsnotify_client.notification import ChannelTransport
from rsnotify_client.web import Unreachable as NotReached
from rsnotify_client.web import Web
from rsnotify_mirror import mirror
from tests.evidence.simulation.engine import URL, Engine
from tests.evidence.simulation.judge import Judge, Wrong
from tests.evidence.simulation.peers import Source, resources
from tests.evidence.simulation.scenarios import SETS, hubs_ready, scenario
from tests.evidence.simulation.world import HUB_PORT, TOKEN, World

ANSWER_SECONDS = 10.0


class WorldReply:
    """What the client's `Reply` offers, from a connection of the world."""

    def __init__(self, url: str, head: bytes, reader: asyncio.StreamReader) -> None:
        first, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        pairs = (line.partition(":") for line in rest)
        self.url, self.status = url, int(first.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}
        self._reader = reader
        self._is_chunked = self.headers.get("transfer-encoding") == "chunked"
        self._left = int(self.headers.get("content-length", "0"))
        self._rest = b""

    def never_ends(self) -> None: ...

    async def next_piece(self) -> bytes:
        try:
            if self._is_chunked:
                size = int(await self._reader.readuntil(b"\r\n"), 16)
                return (await self._reader.readexactly(size + 2))[:-2]
            data, self._left = self._left, 0
            return await self._reader.readexactly(data)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise NotReached(self.url, repr(error)) from None

    async def pieces(self) -> AsyncIterator[bytes]:
        while piece := await self.next_piece():
            yield piece

    async def read(self, size: int) -> bytes:
        while len(self._rest) < size and (piece := await self.next_piece()):
            self._rest += piece
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


class WorldWeb(Web):
    """The client's `Web`, whose requests go through the world."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.reach = None  # addresses of the world mean nothing to it

    @asynccontextmanager
    async def ask(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
    ) -> AsyncIterator[WorldReply]:
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        shown = {
            "Host": parts.netloc,
            "Connection": "close",
            **self.headers(url),
            **(headers or {}),
        }
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {shown[name]}" for name in shown)]
        writer = None
        try:
            try:
                async with asyncio.timeout(patience or ANSWER_SECONDS):
                    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
                    writer.write("\r\n".join([*lines, "", ""]).encode())
                    head = await reader.readuntil(b"\r\n\r\n")
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                raise NotReached(url, repr(error)) from None
            yield WorldReply(url, head, reader)
        finally:
            if writer is not None:
                writer.transport.abort()


mirror.Web = WorldWeb


class Client:
    """Somebody who follows a set with the Python client, from the cursor that he has kept."""

    def __init__(
        self, world: World, name: str, hub: str, transport: ChannelTransport | None = None
    ) -> None:
        self.name = name
        self._transport = transport
        self.locs: list[str] = []
        self.was_told = False  # that something is lost: it ends
        self._world = world
        self._url = f"http://{hub}:{HUB_PORT}/dataset1/capabilitylist.xml"
        self._cursor: Any = None

    def follow(self) -> asyncio.Task[None]:
        return self._world.run_on(self._world.host(self.name), self._follow(), self.name)

    async def _follow(self) -> None:
        web = WorldWeb(TOKEN, self._url)
        follower = Follower(self._url, cursor=self._cursor, web=web, transport=self._transport)
        try:
            async for received in follower:
                self.locs += [change.loc.rpartition("/")[2] for change in received.changes]
                self._cursor = follower.cursor
                self._world.note(self.name, f"follows {len(self.locs)} until {self._cursor}")
        except HistoryGone:
            self.was_told = True
            raise

    def faults(self, source: Source, *, may_lose: bool) -> list[str]:
        if may_lose and self.was_told:
            return []
        wanted = [loc for key in source.acknowledged for loc in source.locs[key]]
        missing, twice = set(wanted) - set(self.locs), len(self.locs) - len(set(self.locs))
        return [
            *([f"{self.name} has not got {sorted(missing)}"] if missing else ()),
            *([f"{self.name} has got {twice} twice"] if twice else ()),
        ]


class MirrorClient:
    """A mirror that plans, and does not fetch; it can be killed, and begins again with its file."""

    def __init__(self, world: World, directory: Path, hub: str) -> None:
        directory.mkdir()
        self._world = world
        self._directory = directory
        self._url = f"http://{hub}:{HUB_PORT}/dataset1/capabilitylist.xml"
        self._mirror: mirror.AsyncMirror | None = None

    def follow(self) -> asyncio.Task[None]:
        return self._world.run_on(self._world.host("mirror"), self._follow(), "mirror")

    async def _follow(self) -> None:
        self._mirror = mirror.AsyncMirror(self._url, self._directory, token=TOKEN)
        planner = self._mirror._planner
        while True:
            with suppress(TryAgain):
                await planner.prepare()
                await planner.follow()
            await asyncio.sleep(1)

    def kill(self) -> None:
        """What was not committed is lost, as with its process."""
        self._world.crash("mirror")
        if self._mirror is not None:
            state = self._mirror.state
            state._database.close()
            os.close(state._lock)

    def locs(self) -> set[str]:
        with mirror.State(self._directory, is_writer=False) as state:
            found = state.database.execute("SELECT loc FROM resource").fetchall()
        return {loc.rpartition("/")[2] for (loc,) in found}


@scenario
async def python_client(world: World, redis: Engine) -> None:
    """The Python client follows while hubs crash, Redis answers late or loses its newest writes:
    it gets everything once, or is told that something is lost."""
    chance = world.chance
    await hubs_ready(world, "a", "b")
    source = Source(world, ["a", "b"])
    clients = [Client(world, f"client{hub}", hub) for hub in "ab"]
    clients.append(Client(world, "poller", chance.choice("ab"), "long-poll"))
    following = [client.follow() for client in clients]
    await asyncio.sleep(1)
    redis.answers_late = lambda host, _: chance.random() ** 3 * 0.1 if host == "b" else 0.0
    may_lose = chance.random() < 0.4
    for _ in range(3):
        redis.keep()
        sent = [asyncio.ensure_future(source.publish(source.new())) for _ in range(3)]
        await asyncio.sleep(chance.random() ** 2 * 0.2)
        if may_lose:
            redis.fail_over()
        elif chance.random() < 0.5:
            world.crash("a")
            world.start_hub("a", URL, SETS)
        await asyncio.gather(*sent)
    redis.answers_late = lambda _, __: 0.0
    await Judge(world, ["a", "b"], [source], may_lose=may_lose).judge()
    for _ in range(60):
        faults = [fault for each in clients for fault in each.faults(source, may_lose=may_lose)]
        if not faults:
            break
        await asyncio.sleep(0.5)
    ended = [
        repr(task.exception())
        for task in following
        if task.done() and not (may_lose and isinstance(task.exception(), HistoryGone))
    ]
    if faults or ended:
        raise Wrong("\n".join([*faults, *ended]))


@scenario
async def killed_mirror(world: World, redis: Engine) -> None:
    """A mirror is killed as it plans, and begins again: its file knows all that the hub lists; and
    more, perhaps, where Redis has lost its newest writes meanwhile."""
    chance = world.chance
    await hubs_ready(world, "a")
    source = Source(world, ["a"])
    await source.publish(source.new(5))
    copy = MirrorClient(world, redis.folder / "mirror", "a")
    may_lose = chance.random() < 0.4
    for _ in range(3):
        redis.keep()
        copy.follow()
        sent = [asyncio.ensure_future(source.publish(source.new(3))) for _ in range(3)]
        await asyncio.sleep(chance.random() ** 2 * 1.5)
        if may_lose:
            redis.fail_over()
            await asyncio.sleep(chance.random())
        copy.kill()
        await asyncio.gather(*sent)
    copy.follow()
    await Judge(world, ["a"], [source], may_lose=may_lose).judge()
    wanted = set((await resources("a")).locs)
    for _ in range(60):
        known = copy.locs()
        if known == wanted or (may_lose and known > wanted):
            return
        await asyncio.sleep(0.5)
    raise Wrong(f"the mirror knows {len(copy.locs())} of {len(wanted)} resources")
