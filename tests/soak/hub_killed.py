"""A hub is killed 20 times under three followers, themselves stopped and begun again each time."""

import asyncio
import tempfile
from contextlib import aclosing
from pathlib import Path

from rsnotify_client import Change, Publisher, TryAgain, follow
from tests.running import TOKEN, RunningHub

KILLS = 20
CHANGES = 1_000


class Reader:
    """Keeps its place in a file; is ended in the middle of something again and again."""

    def __init__(self, url: str, cursor: Path) -> None:
        self._url = url
        self._cursor = cursor
        self.found: list[str] = []
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._read())

    async def end(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        async with aclosing(follow(self._url, cursor=self._cursor)) as changes:
            async for change in changes:
                async with change:
                    self.found.append(change.loc)


async def run(folder: Path) -> None:
    async with RunningHub(folder / "data") as hub:
        begin = (await hub.publish("http://example.com/begin"))["until"]
        addresses = (hub.channel(), hub.channel().replace("ws", "http", 1), hub.url)
        readers = []
        for number, url in enumerate(addresses):
            cursor = folder / f"cursor{number}"
            cursor.write_text(begin)
            readers.append(Reader(url, cursor))
            readers[-1].begin()
        locs = [f"http://example.com/res{number}" for number in range(CHANGES)]
        publishing = asyncio.create_task(_publish(hub.url, locs))
        for number in range(KILLS):
            await asyncio.sleep(0.5)
            await hub.kill()
            reader = readers[number % len(readers)]
            await reader.end()
            await hub.start()
            reader.begin()
        await publishing
        for reader in readers:
            async with asyncio.timeout(120):
                while not reader.found or locs[-1] not in reader.found[-3:]:
                    await asyncio.sleep(0.05)
            await reader.end()
            told = [loc for loc in dict.fromkeys(reader.found) if loc != "http://example.com/begin"]
            assert told == locs
            repeated = len(reader.found) - len(told)
            print(f"all {CHANGES} in order; {repeated} told again after a restart of the reader")


async def _publish(url: str, locs: list[str]) -> None:
    async with Publisher(url, TOKEN) as publisher:
        for loc in locs:
            while True:
                try:
                    await publisher.publish("dataset1", [Change(loc, "updated")], key=loc[-12:])
                except TryAgain:
                    continue
                break
            await asyncio.sleep(0.01)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
