"""Several processes on one port: one is killed, or all are replaced, while the hub is busy."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from rsnotify_client import follow
from tests.running import TOKEN, RunningHub, until

FIRST = "http://example.com/first"


class Publisher:
    """Publishes one change after another, and repeats nothing: what fails is lost."""

    def __init__(self, url: str, name: str) -> None:
        self.published: list[str] = []
        self._url = f"{url}/api/sets/dataset1/changes"
        self._name = name
        self._is_ending = False

    async def run(self, *, keeps_alive: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=not keeps_alive)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            while not self._is_ending:
                loc = f"http://example.com/{self._name}/{len(self.published)}"
                change = {"loc": loc, "change": "updated"}
                async with session.post(self._url, json=change) as answer:
                    assert answer.status == 201, await answer.text()
                self.published.append(loc)

    def end(self) -> None:
        self._is_ending = True


@asynccontextmanager
async def publishing(url: str) -> AsyncIterator[list[Publisher]]:
    """One that keeps its connection, and one that opens another each time, until the block ends."""
    publishers = [Publisher(url, "keeps"), Publisher(url, "opens")]
    async with asyncio.TaskGroup() as tasks:
        for publisher in publishers:
            tasks.create_task(publisher.run(keeps_alive=publisher is publishers[0]))
        yield publishers
        for publisher in publishers:
            publisher.end()


async def read(url: str, after: str, found: list[str]) -> None:
    async for change in follow(url, after=after):
        async with change:
            found.append(change.loc)


@asynccontextmanager
async def reading(hub: RunningHub) -> AsyncIterator[list[list[str]]]:
    """By WebSocket and as an event stream, from now on."""
    after = (await hub.publish(FIRST))["until"]
    urls = (hub.channel(), hub.channel().replace("ws", "http", 1))
    found: list[list[str]] = [[] for _ in urls]
    tasks = [
        asyncio.create_task(read(url, after, each)) for url, each in zip(urls, found, strict=True)
    ]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def workers_of(hub: RunningHub) -> set[int]:
    """The hub's processes: its children, of which Redis and its guard are none."""
    pid = hub.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    commands = {int(each): Path(f"/proc/{each}/cmdline").read_bytes() for each in children}
    return {each for each, command in commands.items() if b"--inherited-socket" in command}


async def test_a_rolling_restart_under_load_drops_no_publish_and_no_reader_misses_or_repeats_one(
    tmp_path: Path,
) -> None:
    hub = RunningHub(tmp_path / "data", "--workers", "2", drain_seconds="1")
    async with hub, reading(hub) as found:
        before = workers_of(hub)
        async with publishing(hub.url) as publishers:
            await until(lambda: _all_begun(publishers))
            hub.process.send_signal(signal.SIGHUP)
            await until(lambda: _logged(hub, "all workers are replaced"), 60)
        assert not before & workers_of(hub)
        await hub.publish("http://example.com/last")

        async def told() -> bool:
            return all("http://example.com/last" in each for each in found)

        await until(told)
        for each in found:
            for publisher in publishers:
                of_it = [loc for loc in each if loc in {*publisher.published}]
                assert of_it == publisher.published
            assert len(each) == sum(len(one.published) for one in publishers) + 1


async def _all_begun(publishers: list[Publisher]) -> bool:
    return all(len(each.published) > 5 for each in publishers)


async def _logged(hub: RunningHub, words: str) -> bool:
    return words in hub.log.read_text()


async def test_when_all_workers_were_killed_a_publish_waits_for_the_next_one(
    tmp_path: Path,
) -> None:
    async with RunningHub(tmp_path / "data", "--workers", "2") as hub:
        before = workers_of(hub)
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        await hub.publish(FIRST)
        assert len(before) == 2
        assert not before & workers_of(hub)


async def test_workers_that_cannot_be_replaced_stay(tmp_path: Path) -> None:
    hub = RunningHub(tmp_path / "data", "--workers", "2", admin_token="")
    hub.data.mkdir()
    (hub.data / "admin-token").write_text(TOKEN)
    async with hub:
        before = workers_of(hub)
        (hub.data / "admin-token").write_text("too short")
        hub.process.send_signal(signal.SIGHUP)
        await until(lambda: _logged(hub, "did not become ready; the rest stay"))
        assert workers_of(hub) == before
        await hub.publish(FIRST)
        assert await hub.stop() == 0
