"""Readers of a stream behind a cache: what they cost the hub, and when they get a change.

`BENCH_READERS` long-pollers (1,000 without it) ask nginx and Varnish, with the configurations of
the docs, and the hub directly; beside them as many WebSockets at the hub; and each time 200 first,
whom a change costs the hub as much behind a cache. `BENCH_CHANGES` changes (10) come as far apart
as each of `BENCH_PAUSE` says (`1,0.1`, in seconds), then nothing for `BENCH_SILENCE` seconds (60).
The load runs on the same cores, and its own cost is in every figure of time. Each reader takes an
open file of the load, and two of the cache.

    make bench BENCH_ARGS=caches BENCH_READERS=20000 BENCH_CHANGES=100 BENCH_SILENCE=300
"""

import asyncio
import json
import os
import re
import resource
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, quantiles
from time import time
from typing import NamedTuple, cast
from urllib.parse import quote

import uvloop

from tests.evidence.bench.channels import raise_open_files
from tests.fault.test_caches import ASKED, nginx, varnishd
from tests.fault.test_proxies import running
from tests.support.needs import find
from tests.support.redis_server import free_port
from tests.support.running import RunningHub

READERS = int(os.environ.get("BENCH_READERS", "1000"))
CHANGES = int(os.environ.get("BENCH_CHANGES", "10"))
PAUSES = tuple(map(float, os.environ.get("BENCH_PAUSE", "1,0.1").split(",")))  # seconds
SILENT_SECONDS = float(os.environ.get("BENCH_SILENCE", "60"))
FEW = 200
LOAD_READERS = 5_000  # of one process
SETTLED_A_SECOND = 2_500  # readers, of whom all wait then
OPENED_AT_ONCE = 100
HANDSHAKE = (
    "GET /channels/dataset1/change_notification_channel HTTP/1.1\r\nHost: bench\r\n"
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    "Sec-WebSocket-Version: 13\r\n\r\n"
)
PING, PONG = b"\x89", bytes([0x8A, 0x80, 0, 0, 0, 0])
NUMBERS = re.compile(rb"zzz(\d+)zzz")
HEAD = re.compile(rb"HTTP/1\.1 (\d+)")
OFFSET = re.compile(rb"(?i)\r\nstream-next-offset: (\S+)")
CURSOR = re.compile(rb"(?i)\r\nstream-cursor: (\S+)")
LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)")


# --- the load, in processes of its own ------------------------------------------------------------


class Receipts:
    """When each change came, at each reader."""

    def __init__(self, readers: int) -> None:
        self._readers = readers
        self._times: dict[int, list[float]] = {}

    def note(self, numbers: list[bytes]) -> None:
        for number in map(int, numbers):
            times = self._times.setdefault(number, [])
            times.append(time())
            if len(times) == self._readers:
                print(json.dumps([number, times]), flush=True)


class PollReader(asyncio.Protocol):
    """Asks again after each answer, as the official clients do."""

    def __init__(self, receipts: Receipts, offset: str) -> None:
        self._receipts = receipts
        self._asked = f"live=long-poll&offset={quote(offset, safe='')}"
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._ask()

    def _ask(self) -> None:
        request = f"GET /streams/dataset1?{self._asked} HTTP/1.1\r\nHost: bench\r\n\r\n"
        self._transport.write(request.encode())

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        status = HEAD.match(head)
        if not end or status is None:
            return
        length = LENGTH.search(head)
        if length is not None and len(body) < int(length[1]):
            return
        assert status[1] in (b"200", b"204"), self._data
        self._receipts.note(NUMBERS.findall(body))
        offset, cursor = OFFSET.search(head), CURSOR.search(head)
        assert offset is not None, head
        assert cursor is not None, head
        at = quote(offset[1].decode(), safe="")
        self._asked = f"cursor={cursor[1].decode()}&live=long-poll&offset={at}"
        self._data = b""
        self._ask()


class SocketReader(asyncio.Protocol):
    """Reads a channel by WebSocket, and decodes nothing."""

    def __init__(self, receipts: Receipts, _: str) -> None:
        self._receipts = receipts
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.write(HANDSHAKE.encode())

    def data_received(self, data: bytes) -> None:
        if data.startswith(PING):
            self._transport.write(PONG)
            return
        self._data += data
        found = NUMBERS.findall(self._data)
        if found:
            self._data = b""
            self._receipts.note(found)


async def load(kind: str, port: int, offset: str, readers: int) -> None:
    loop, receipts = asyncio.get_running_loop(), Receipts(readers)
    reader = SocketReader if kind == "WebSockets" else PollReader
    for start in range(0, readers, OPENED_AT_ONCE):
        count = min(OPENED_AT_ONCE, readers - start)
        await asyncio.gather(
            *(
                loop.create_connection(lambda: reader(receipts, offset), "127.0.0.1", port)
                for _ in range(count)
            )
        )
    print(json.dumps("ready"), flush=True)
    await asyncio.Event().wait()


# --- one way to read ------------------------------------------------------------------------------


class Paced(NamedTuple):
    """What the changes of one pace cost, on average, and how long each took to each reader."""

    requests: float
    cpu_ms: float
    receipts_ms: list[float]


class Measured(NamedTuple):
    """One way to read, with so many readers."""

    paces: dict[float, Paced]  # by the pause
    silent: int | None  # requests in silence


def processor_seconds(pid: int) -> float:
    """Of all threads, in nanoseconds at the source: a tick of the clock is longer than a change."""
    each = (file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in each) / 1e9


async def line(process: Process) -> object:
    assert process.stdout is not None
    return json.loads(await process.stdout.readline())


async def measured(way: str, readers: int, folder: Path, silent_seconds: float) -> Measured:
    async with RunningHub(
        folder / "hub",
        access_log="on",
        drain_seconds="0",
        trusted_proxies="127.0.0.1",
        readers_per_channel="100000",
        connections_per_address="100000",
    ) as hub:
        assert hub.process is not None
        pid, port = hub.process.pid, free_port()
        with ExitStack() as stack:
            if way in CACHES:
                words = CACHES[way](folder, port, hub.url.partition("//")[2], readers)
                stack.enter_context(running(words))
                await asyncio.sleep(1)
            else:
                port = hub.port
            offset = (await hub.publish("http://example.com/first"))["until"]
            loads = [await started(way, port, offset, count) for count in counts(readers)]
            try:
                for each in loads:
                    await line(each)
                await asyncio.sleep(max(2, readers / SETTLED_A_SECOND))
                paces = {each: await paced(each, hub, pid, loads) for each in PAUSES}
                return Measured(paces, await asked_in_silence(hub, silent_seconds))
            finally:
                for each in loads:
                    each.kill()
                    await each.wait()


def counts(readers: int) -> list[int]:
    full, rest = divmod(readers, LOAD_READERS)
    return [LOAD_READERS] * full + ([rest] if rest else [])


async def started(way: str, port: int, offset: str, readers: int) -> Process:
    words = (sys.executable, "-m", __name__, way, str(port), offset, str(readers))
    return await asyncio.create_subprocess_exec(*words, stdout=PIPE, limit=2**26)


async def paced(pause: float, hub: RunningHub, pid: int, loads: list[Process]) -> Paced:
    first = PAUSES.index(pause) * CHANGES
    asked, used = requests(hub), processor_seconds(pid)
    collecting = [asyncio.create_task(collected(each, first)) for each in loads]
    published: list[float] = []
    for number in range(first, first + CHANGES):
        published.append(time())
        await hub.publish(f"http://example.com/zzz{number}zzz")
        await asyncio.sleep(max(0, pause - (time() - published[-1])))
    receipts = [
        (came - at) * 1000
        for found in await asyncio.gather(*collecting)
        for at, times in zip(published, found, strict=True)
        for came in times
    ]
    cpu = (processor_seconds(pid) - used) / CHANGES * 1000
    return Paced((requests(hub) - asked) / CHANGES, cpu, receipts)


async def asked_in_silence(hub: RunningHub, seconds: float) -> int | None:
    if not seconds:
        return None
    before = requests(hub)
    await asyncio.sleep(seconds)
    return requests(hub) - before


def requests(hub: RunningHub) -> int:
    """For streams, as the hub has logged them."""
    return hub.log.read_text().count(ASKED)


async def collected(load: Process, first: int) -> list[list[float]]:
    """When each change from this one on came at the readers of one load, once all have all."""
    found: dict[int, list[float]] = {}
    while len(found) < CHANGES:
        number, times = cast(tuple[int, list[float]], await line(load))
        found[number] = times
    return [found[number] for number in range(first, first + CHANGES)]


def nginx_for_many(folder: Path, port: int, hub: str, readers: int) -> list[str]:
    words = nginx(folder, port, hub)
    config = folder / "nginx.conf"
    files = 4 * readers + 512
    many = f"worker_rlimit_nofile {files}; events {{ worker_connections {files}; }}"
    config.write_text(re.sub(r"events {.*?}", many, config.read_text(), count=1))
    return [find("nginx") or "nginx", *words]


def varnish_for_many(folder: Path, port: int, hub: str, _: int) -> list[str]:
    more = ("-p", "thread_pool_max=5000", "-p", "listen_depth=8192")
    return [find("varnishd") or "varnishd", *varnishd(folder, port, hub), *more]


CACHES = {"nginx": nginx_for_many, "Varnish": varnish_for_many}


def main() -> None:
    raise_open_files()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if (needed := 2 * READERS + 512) > most:
        sys.exit(
            f"{READERS} readers need {needed} files, for nginx opens an answer for each; "
            f"{most} may be open here: raise `ulimit -Hn`, or set BENCH_READERS"
        )
    print(
        "| | readers | seconds between changes | requests at the hub a change "
        f"| hub CPU a change, ms | of that with {FEW} | mean, p50, p99 of receipt, ms "
        f"| requests at the hub in {SILENT_SECONDS:.0f} silent seconds |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for way in ("WebSockets", "long polls", *(each for each in CACHES if find(PROGRAMS[each]))):
        few: Measured | None = None
        for readers in sorted({FEW, READERS}):
            with tempfile.TemporaryDirectory() as folder:
                silence = SILENT_SECONDS if readers == READERS else 0
                found = asyncio.run(measured(way, readers, Path(folder), silence))
            few = few or found
            for pause in PAUSES:
                print(row(way, readers, pause, found, few), flush=True)


def row(way: str, readers: int, pause: float, found: Measured, few: Measured) -> str:
    its = found.paces[pause]
    hundredths = quantiles(its.receipts_ms, n=100)
    times = f"{mean(its.receipts_ms):.0f}, {hundredths[49]:.0f}, {hundredths[98]:.0f}"
    ratio = its.cpu_ms / few.paces[pause].cpu_ms
    silent = "" if found.silent is None or pause != PAUSES[-1] else found.silent
    return (
        f"| {way} | {readers:,} | {pause:g} | {its.requests:,.1f} | {its.cpu_ms:.2f} "
        f"| {ratio:.2f} | {times} | {silent} |"
    )


PROGRAMS = {"nginx": "nginx", "Varnish": "varnishd"}

if __name__ == "__main__":
    way, port, offset, readers = sys.argv[1:]
    uvloop.run(load(way, int(port), offset, int(readers)))
