"""Many sets, each with one reader: how long the hub takes to start, what it costs while nothing
happens, how much memory a set takes, and how long a change takes to its reader.

`python -m tests.evidence.bench sets`, or with other numbers: `python -m tests.evidence.bench.sets 1
1000`. The sets are made in Redis directly; everything after that goes through a hub process of its
own.
"""

import asyncio
import json
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from time import perf_counter

import uvloop

from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.process.embedded_redis.server import EmbeddedRedis
from rsnotify.redis_client import connect
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets
from tests.evidence.bench.readers import HANDSHAKE
from tests.support.running import TOKEN, RunningHub

NUMBERS = (1, 10_000)
AT_ONCE = 16
SETTLING_SECONDS = 70  # what is left to be done after a start, and for each new change, once
IDLE_SECONDS = 20
CHANGES = 500
OWN_LIST = SetOptions(resourcelist="http://example.com/resourcelist.xml")


def name_of(number: int) -> str:
    return f"set{number:06d}"


async def make_sets(data: Path, count: int) -> None:
    """So many sets, with a change each."""
    server = EmbeddedRedis(data)
    await server.start()
    client = connect(server.url)
    sets, journal = Sets(client), JournalStore(client, window_changes=50_000)

    async def make(name: str) -> None:
        await sets.add(name, OWN_LIST)
        change = Change(f"http://example.com/{name}/1", "created")
        await journal.append(ChannelName(name, "change"), Submission([fragment_of(change)]))

    for start in range(0, count, AT_ONCE):
        some = range(start, min(start + AT_ONCE, count))
        await asyncio.gather(*(make(name_of(number)) for number in some))
    await client.aclose()
    await server.stop()


class Processes:
    """What the hub and its Redis use."""

    def __init__(self, hub: RunningHub) -> None:
        pid = hub.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.hub, self.all = pid, [pid, *map(int, children)]

    def seconds(self, pids: Sequence[int]) -> float:
        threads = (each for pid in pids for each in Path(f"/proc/{pid}/task").iterdir())
        return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9

    def resident(self) -> int:
        return int(Path(f"/proc/{self.hub}/statm").read_text().split()[1]) * 4096

    async def shares(self, seconds: float) -> tuple[float, float]:
        """Of a core, for so long: the hub, and what it has started."""
        pids = [pid for pid in self.all if pid != self.hub]
        began, hub, others = perf_counter(), self.seconds([self.hub]), self.seconds(pids)
        await asyncio.sleep(seconds)
        passed = perf_counter() - began
        return (
            (self.seconds([self.hub]) - hub) / passed,
            (self.seconds(pids) - others) / passed,
        )


class Reader(asyncio.Protocol):
    """Counts the messages of one channel, and answers no ping: that costs the hub the same."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.arrived: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport
        self.transport.write(HANDSHAKE.format(path=self.path, offer="").encode())

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            assert data.startswith(b"HTTP/1.1 101"), data
            self.opened.set_result(None)
        elif data[0] == 0x89:
            self.transport.write(b"\x8a\x80\0\0\0\0")
        elif self.arrived is not None and not self.arrived.done():
            self.arrived.set_result(None)


async def open_readers(hub: RunningHub, count: int) -> list[Reader]:
    readers = []
    loop = asyncio.get_running_loop()
    for number in range(count):
        path = f"/channels/{name_of(number)}/change_notification_channel"
        _, reader = await loop.create_connection(lambda p=path: Reader(p), "127.0.0.1", hub.port)
        await reader.opened
        readers.append(reader)
    return readers


async def publish_times(hub: RunningHub, readers: Sequence[Reader]) -> list[float]:
    """Seconds from a request until its reader has the change, one after another, over the sets."""
    source, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    times = []
    for number in range(CHANGES):
        at = number * 7919 % len(readers)
        reader = readers[at]
        reader.arrived = asyncio.get_running_loop().create_future()
        body = json.dumps({"loc": f"http://example.com/{number}", "change": "updated"})
        began = perf_counter()
        writer.write(
            f"POST /api/sets/{name_of(at)}/changes HTTP/1.1\r\nHost: hub\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        await reader.arrived
        times.append(perf_counter() - began)
        head = await source.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 201"), head
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await source.readexactly(length)
    writer.close()
    return times


async def report(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        hub = RunningHub(path / "data", sets=())
        await make_sets(path / "data", count)
        async with hub:
            await asyncio.sleep(SETTLING_SECONDS)  # told of each other
        began = perf_counter()
        async with hub:
            started = perf_counter() - began
            processes = Processes(hub)
            await asyncio.sleep(SETTLING_SECONDS)
            alone, memory = await processes.shares(IDLE_SECONDS), processes.resident()
            readers = await open_readers(hub, count)
            await asyncio.sleep(1)
            read, with_readers = await processes.shares(IDLE_SECONDS), processes.resident()
            cuts = quantiles(await publish_times(hub, readers), n=100)
            for reader in readers:
                reader.transport.abort()
    print(
        f"| {count:,} | {started:.1f} s | {alone[0]:.1%} + {alone[1]:.1%} "
        f"| {read[0]:.1%} + {read[1]:.1%} | {memory / 2**20:.1f} MiB "
        f"| {with_readers / 2**20:.1f} MiB | {cuts[49] * 1e3:.2f} ms | {cuts[98] * 1e3:.2f} ms |",
        flush=True,
    )


async def measure(numbers: Sequence[int]) -> None:
    print(
        "| sets | start | idle: hub + Redis, of a core | … with a reader each | memory of the hub |"
        " … with readers | p50 to the reader | p99 |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for count in numbers:
        await report(count)


def main(numbers: Sequence[int] = NUMBERS) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(measure(numbers))


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
