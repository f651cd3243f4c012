"""Reads closed Change Lists while Redis loses changes, and each again at the end.

What a cache may keep must stay true: as long as its ETag is the same, a list has the same bytes;
one that is said to be immutable always has.
"""

import random
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import aiohttp

from tests.evidence.soak.peers import LOST, PATIENCE, Peer
from tests.support.running import RunningHub, until
from tests.support.stories import Row, difference, rows_of

INDEX = "/dataset1/changelist-index.xml"
LISTED = re.compile(rb'<loc>([^<]+)</loc><rs:md [^>]*from="[^"]+" until="')
SECONDS = 180


class Answer(NamedTuple):
    etag: str
    is_immutable: bool
    body: bytes


class Archivist(Peer):
    """Keeps every closed list that it finds, as a cache does."""

    def __init__(self, hubs: Sequence[RunningHub], chance: random.Random) -> None:
        super().__init__(hubs, chance)
        self.kept: dict[str, Answer] = {}
        self.closed_again = 0  # lists that were closed otherwise before a loss

    async def run(self) -> None:
        async with aiohttp.ClientSession(timeout=PATIENCE) as session:
            while True:
                with suppress(*LOST):
                    await self._look(session)
                await self.pause()

    async def _look(self, session: aiohttp.ClientSession) -> None:
        new = [path for path in await self._closed(session) if path not in self.kept]
        for path in new[-3:]:
            found = await self._get(session, path)
            if found is not None:
                self.kept[path] = found

    async def _closed(self, session: aiohttp.ClientSession) -> list[str]:
        """The addresses of all closed lists, without their hub."""
        found = await self._get(session, INDEX)
        locs = LISTED.findall(found.body) if found is not None else []
        return [loc.decode() for loc in locs]

    async def _get(self, session: aiohttp.ClientSession, path: str) -> Answer | None:
        base = self.hub().url
        async with session.get(base + path) as answer:
            body = (await answer.read()).replace(base.encode(), b"")  # the same from all hubs
            if answer.status in (404, 410, 503):  # a list may be gone with what Redis has lost
                return None
            assert answer.status == 200, (answer.status, body)
            said = answer.headers
            return Answer(said["ETag"], "immutable" in said["Cache-Control"], body)

    async def check(self, journal: Sequence[Row]) -> None:
        """All lists together are how the journal begins, and what was kept is still true."""
        async with aiohttp.ClientSession(timeout=PATIENCE) as session:
            now = await self._all(session)
        check_kept(self.kept, now)
        self.closed_again = sum(now.get(path) != each for path, each in self.kept.items())
        rows = [row for each in now.values() for row in rows_of(each.body)]
        assert rows == list(journal[: len(rows)]), difference(rows, journal)

    async def _all(self, session: aiohttp.ClientSession) -> Mapping[str, Answer]:
        async def complete() -> dict[str, Answer]:
            with suppress(*LOST):
                paths = await self._closed(session)
                answers = {path: await self._get(session, path) for path in paths}
                return {path: each for path, each in answers.items() if each is not None}
            return {}

        found: dict[str, Answer] = await until(complete, SECONDS)
        return found


def check_kept(kept: Mapping[str, Answer], now: Mapping[str, Answer]) -> None:
    for path, before in kept.items():
        after = now.get(path)
        is_same = after is not None and after.body == before.body
        assert is_same or not before.is_immutable, f"{path} was immutable, and has changed"
        if after is not None and after.etag == before.etag:
            assert is_same, f"{path} has changed under one ETag {before.etag}"
