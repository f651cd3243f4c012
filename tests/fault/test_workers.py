"""Several processes on one port: one is killed, or all are replaced, while the hub is busy."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from rsnotify.journal.call import NOTHING
from rsnotify_client import follow_async
from tests.support.running import TOKEN, RunningHub, until

FIRST = "http://example.com/first"
NOT_STORED = (NOTHING, "the journal cannot be reached: Timeout connecting to server")


class Publisher:
    """Publishes one change after another, repeating only what a slow machine did not let through to
    Redis, of which nothing is stored: what fails otherwise is lost."""

    def __init__(self, url: str, name: str) -> None:
        self.published: list[str] = []
        self.seen = 0  # of these, by a test
        self.prefix = f"http://example.com/{name}/"
        self._url = f"{url}/api/sets/dataset1/changes"
        self._is_ending = False

    async def run(self, *, keeps_alive: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=not keeps_alive)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            while not self._is_ending:
                loc = f"{self.prefix}{len(self.published)}"
                change = {"loc": loc, "change": "updated"}
                async with session.post(self._url, json=change) as answer:
                    text = await answer.text()
                    if any(words in text for words in NOT_STORED):
                        continue
                    assert answer.status == 201, text
                self.published.append(loc)

    def end(self) -> None:
        self._is_ending = True


@asynccontextmanager
async def publishing(url: str, opening: int = 1) -> AsyncIterator[list[Publisher]]:
    """One that keeps its connection, and some that open another each time, until the block ends."""
    publishers = [Publisher(url, name) for name in ("keeps", *map(str, range(opening)))]
    async with asyncio.TaskGroup() as tasks:
        for publisher in publishers:
            tasks.create_task(publisher.run(keeps_alive=publisher is publishers[0]))
        yield publishers
        for publisher in publishers:
            publisher.end()


async def grown(publishers: list[Publisher]) -> bool:
    """Whether each has published some more since the last time."""
    before = [each.seen for each in publishers]
    if all(len(one.published) > seen + 5 for one, seen in zip(publishers, before, strict=True)):
        for each in publishers:
            each.seen = len(each.published)
        return True
    return False


async def told(publishers: list[Publisher], found: list[list[str]]) -> bool:
    """Whether every reader has got every change of each, once and in order."""
    return all(
        [loc for loc in each if loc.startswith(publisher.prefix)] == publisher.published
        for each in found
        for publisher in publishers
    )


async def read(url: str, after: str, found: list[str]) -> None:
    async for change in follow_async(url, position=after):
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
    found = set()
    for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if b"--inherited-socket" in Path(f"/proc/{each}/cmdline").read_bytes():
                found.add(int(each))
    return found


@pytest.mark.evidence
async def test_a_rolling_restart_under_load_drops_no_publish_and_no_reader_misses_or_repeats_one(
    tmp_path,
):
    hub = RunningHub(tmp_path / "data", "--workers", "2", drain_seconds="1")
    async with hub, reading(hub) as found:
        before = workers_of(hub)
        async with publishing(hub.url, opening=8) as publishers:
            await until(lambda: grown(publishers))
            hub.process.send_signal(signal.SIGHUP)
            await until(lambda: _logged(hub, "all workers are replaced"), 60)
        assert not before & workers_of(hub)
        await until(lambda: told(publishers, found))


async def _logged(hub: RunningHub, words: str) -> bool:
    return words in hub.log.read_text()


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.evidence)])
async def test_a_hub_that_is_stopped_answers_all_who_have_connected(tmp_path, workers):
    async with RunningHub(tmp_path / "data", "--workers", workers, drain_seconds="1") as hub:
        serving = workers_of(hub) or {hub.process.pid}
        for each in serving:
            os.kill(each, signal.SIGSTOP)
        asking = [await _asked(hub, number) for number in range(50)]
        hub.process.terminate()
        await asyncio.sleep(0.3)  # so that the parent of workers has done its part
        for each in serving:
            os.kill(each, signal.SIGCONT)
        assert {await _first_line(*each) for each in asking} == {b"HTTP/1.1 201 Created\r\n"}
        await hub.process.wait()
        await hub.start()


async def _asked(hub: RunningHub, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A new connection that the kernel has made, and a publish that was sent over it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    body = json.dumps({"loc": f"{FIRST}/{number}", "change": "updated"})
    lines = [
        "POST /api/sets/dataset1/changes HTTP/1.1",
        "Host: hub",
        f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "",
        body,
    ]
    writer.write("\r\n".join(lines).encode())
    return reader, writer


async def _first_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    line = await reader.readline()
    writer.close()
    return line


@pytest.mark.evidence
async def test_when_all_workers_were_killed_a_publish_waits_for_the_next_one(tmp_path):
    async with RunningHub(tmp_path / "data", "--workers", "2") as hub:
        before = workers_of(hub)
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        await hub.publish(FIRST)
        assert len(before) == 2
        assert not before & workers_of(hub)


def of_a_new_set(name: str) -> list[tuple[str, str, object]]:
    """What may be asked as soon as a set is made."""
    change = {"loc": FIRST, "change": "created"}
    return [
        ("POST", f"/api/sets/{name}/changes", [change]),
        ("POST", "/api/changes", [change | {"sets": [name]}]),
        ("PUT", f"/api/sets/{name}/resources", [{"loc": FIRST}]),
        ("POST", "/api/tokens", {"sets": [name], "rights": ["publish"]}),
        ("POST", f"/api/sets/{name}/snapshot", None),
    ]


@pytest.mark.evidence
async def test_a_set_that_one_worker_has_made_is_known_to_every_other_at_once(tmp_path):
    async with RunningHub(tmp_path / "data", "--workers", "2") as hub:
        for which, asked in enumerate(of_a_new_set("none")):
            for number in range(20):
                name = f"set{which}-{number}"
                await hub.ask("PUT", f"/api/sets/{name}")
                method, path, body = of_a_new_set(name)[which]
                status, answer = await hub.ask(method, path, json=body)
                assert status in {200, 201, 202}, (method, path, answer)
            method, path, body = asked
            assert (await hub.ask(method, path, json=body))[0] == 404, (method, path)


async def test_a_set_that_one_worker_has_made_can_be_subscribed_to_at_every_other_at_once(tmp_path):
    async with RunningHub(tmp_path / "data", "--workers", "2", callback_private="allow") as hub:
        form = {"hub.mode": "subscribe", "hub.callback": "http://127.0.0.1:1/"}
        for name in (f"set{number}" for number in range(20)):
            await hub.ask("PUT", f"/api/sets/{name}")
            topic = f"{hub.url}/channels/{name}/change_notification_channel"
            status, answer = await hub.ask("POST", "/hub", data=form | {"hub.topic": topic})
            assert status == 202, answer


@contextmanager
def systemd(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Hears what a hub that is started meanwhile tells systemd."""
    path = folder / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(path))
        heard.settimeout(60)
        yield heard


async def test_systemd_is_told_when_the_hub_is_ready_and_when_it_ends(tmp_path, monkeypatch):
    with systemd(tmp_path, monkeypatch) as heard:
        async with RunningHub(tmp_path / "data", drain_seconds="0") as hub:
            assert heard.recv(100) == b"READY=1"
            assert await hub.stop() == 0
            assert heard.recv(100) == b"STOPPING=1"


@pytest.mark.evidence
async def test_workers_that_cannot_be_replaced_stay(tmp_path, monkeypatch):
    hub = RunningHub(tmp_path / "data", "--workers", "2", admin_token="")
    hub.data.mkdir()
    (hub.data / "admin-token").write_text(TOKEN)
    with systemd(tmp_path, monkeypatch) as heard:
        await hub.start()
        before = workers_of(hub)
        (hub.data / "admin-token").write_text("too short")
        hub.process.send_signal(signal.SIGHUP)
        await until(lambda: _logged(hub, "did not become ready; the rest stay"), 60)
        assert workers_of(hub) == before
        await hub.publish(FIRST)
        assert await hub.stop() == 0
        told = [heard.recv(100).partition(b"\n")[0] for _ in range(4)]
    assert told == [b"READY=1", b"RELOADING=1", b"READY=1", b"STOPPING=1"]


# --- how connections are spread -------------------------------------------------------------------

READERS = 400
SHARE = 1 / 10  # of those that come, which each of two workers gets at least


@asynccontextmanager
async def coming_readers(hub: RunningHub) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Lets so many more readers come; they read, and so answer pings, until the block ends."""
    reading: list[asyncio.Task[aiohttp.WSMessage]] = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def come(count: int) -> None:
            for _ in range(count):
                connection = await session.ws_connect(hub.channel())
                reading.append(asyncio.create_task(connection.receive()))

        yield come
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def readers_of(hub: RunningHub) -> list[int]:
    """How many readers each worker has that has any."""
    async with aiohttp.ClientSession() as session, session.get(f"{hub.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    found = [line for line in lines if line.startswith("rsnotify_readers{")]
    return sorted(int(float(line.split()[-1])) for line in found)


async def have_their_share(hub: RunningHub, readers: int, coming: int) -> None:
    """As soon as two workers tell of all readers, each must have its share of those that came."""
    found: list[int] = []

    async def are_counted() -> bool:
        found[:] = await readers_of(hub)
        return len(found) == 2 and sum(found) == readers

    await until(are_counted, 60)
    assert found[0] >= SHARE * coming, found


@pytest.mark.evidence
async def test_each_worker_gets_its_share_of_readers_also_in_the_place_of_a_killed_one(tmp_path):
    async with (
        RunningHub(tmp_path / "data", "--workers", "2", drain_seconds="0") as hub,
        coming_readers(hub) as come,
    ):
        await come(READERS)
        await have_their_share(hub, READERS, READERS)
        before = await started(hub)
        os.kill(min(workers_of(hub)), signal.SIGKILL)
        there = await until(lambda: _kept_beside_another(hub, before), 60)
        await come(READERS)
        await have_their_share(hub, there + READERS, READERS)


async def started(hub: RunningHub) -> set[str]:
    """When each worker that tells of itself has started; a dead one is told of for a while."""
    code, status = await hub.ask("GET", "/api/status")
    assert code in (200, 503), status  # not ready yet, or no longer
    processes = status["processes"] if code == 200 else ()
    return {process["started"] for process in processes if process["ready"]}


async def _kept_beside_another(hub: RunningHub, before: set[str]) -> int:
    """How many readers are left, once a worker serves that was not there before."""
    now, found = await started(hub), await readers_of(hub)
    return found[0] if len(now) == 2 and now - before and len(found) == 1 else 0


@pytest.mark.evidence
async def test_a_frozen_worker_gets_no_new_connections(tmp_path):
    async with RunningHub(tmp_path / "data", "--workers", "2", drain_seconds="0") as hub:
        frozen = min(workers_of(hub))
        os.kill(frozen, signal.SIGSTOP)
        try:
            await until(lambda: _all_are_answered(hub), 60)
        finally:
            os.kill(frozen, signal.SIGCONT)


async def _all_are_answered(hub: RunningHub) -> bool:
    """Whether each of many new connections gets an answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(3):
            await asyncio.gather(*(hub.ask("GET", "/health/live") for _ in range(30)))
            return True
    return False
