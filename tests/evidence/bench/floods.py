"""Strangers who send without end, or who connect, ask and leave: how long everybody else waits
meanwhile, and how soon the first are cut off.

`python -m tests.evidence.bench floods`, or some kinds: `python -m tests.evidence.bench.floods pongs
"a head"`. The floods come from a process of their own; a Source publishes and honest readers read
all the while.
"""

import asyncio
import os
import select
import socket
import struct
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from math import inf
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import NamedTuple

import aiohttp
import uvloop

from tests.evidence.bench.readers import HANDSHAKE
from tests.support.raw import BINARY, CLOSE, PING, PONG, TEXT, frame
from tests.support.running import TOKEN, RunningHub

COUNTS = (1, 8, 200)
HONEST = 20
PAUSE_SECONDS = 0.02  # between two publishes, and two looks at the hub's health
QUIET_SECONDS = 1.0  # watched after the flood's end
FLOOD_SECONDS = 6.0
AT_ONCE = 1 << 18
STAY_SECONDS = 0.005  # of those who leave, after they have asked
CHANGES = 100_000  # in the list that they ask for
BATCH = 5_000
RESET = struct.pack("ii", 1, 0)  # at a close, instead of an orderly end

CHANNEL = "/channels/dataset1/change_notification_channel"
GET = b"GET /health/live HTTP/1.1\r\nHost: h\r\n\r\n"
STREAM = f"GET {CHANNEL} HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n".encode()
SOCKET = HANDSHAKE.format(path=CHANNEL, offer="").encode()
POST = b"POST /%b HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n%b\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"


class Flood(NamedTuple):
    """What opens it, whether an answer is waited for, what follows once and then always."""

    opening: bytes
    is_answered: bool
    first: bytes
    then: bytes


def _socket(then: bytes, first: bytes = b"") -> Flood:
    return Flood(SOCKET, True, first, then)


def _request(opening: bytes, then: bytes) -> Flood:
    return Flood(b"", False, opening, then)


FLOODS = {
    "pongs": _socket(frame(PONG)),
    "pings": _socket(frame(PING)),
    "pings with a payload": _socket(frame(PING, b"x" * 125)),
    "empty fragments": _socket(frame(0, fin=False), frame(TEXT, fin=False)),
    "texts": _socket(frame(TEXT, b"x" * 20)),
    "close frames": _socket(frame(CLOSE, b"\x03\xe8")),
    "half frames": _socket(frame(BINARY, bytes(4096))[:100], frame(BINARY, bytes(4096))[:100]),
    "masked garbage": _socket(b"\xff\xfe\xfd\xfc\xfb\xfa"),
    "bytes after a close": _socket(bytes(1000), frame(CLOSE, b"\x03\xe8")),
    "bytes before 101": _request(SOCKET, frame(PONG)),
    "bytes in an event stream": Flood(STREAM, True, b"", GET),
    "pipelined requests": _request(b"", GET),
    "a head": _request(b"GET / HTTP/1.1\r\n", b"a:b\r\n"),
    "small chunks": _request(POST % (b"hub", CHUNKED), b"1\r\na\r\n"),
    "small chunks, refused": _request(
        POST % (b"api/sets/dataset1/changes", CHUNKED), b"1\r\na\r\n"
    ),
    "trailers": _request(POST % (b"hub", CHUNKED) + b"0\r\n", b"a:b\r\n"),
    "a body": _request(
        POST % (b"api/sets/dataset1/changes", b"Content-Length: 1000000000000"), bytes(1000)
    ),
}


def _list(query: str) -> bytes:
    return f"GET /dataset1/changelist.xml?{query} HTTP/1.1\r\nHost: h\r\n\r\n".encode()


LEFT = {
    "a list, left": _list("from=FIRST"),
    "a list, closed": _list("from=FIRST"),
    "a list until, left": _list("until=9999-01-01T00:00:00Z"),
    "a list until, closed": _list("until=9999-01-01T00:00:00Z"),
    "a page, left": _list("from=FIRST&limit=1000"),
    "an event stream, left": STREAM,
    "an event stream, closed": STREAM,
    "a WebSocket, left": SOCKET,
    "a WebSocket, closed": SOCKET,
}
"""What is asked for, again and again, by those who reset or close their connections meanwhile."""


# --- the process that floods ---------------------------------------------------------------------


def flood(kind: str, connections: int, port: int) -> None:
    """Begin at a line of input, end with a line that says what became of it."""
    os.nice(10)  # strangers have machines of their own
    if kind in LEFT:
        uvloop.run(_leave(kind, connections, port))
    else:
        _send(kind, connections, port)


async def _leave(kind: str, connections: int, port: int) -> None:
    """Ask and leave, all at the same time."""
    print("ready", flush=True)
    request, left = LEFT[kind].replace(b"FIRST", sys.stdin.readline().strip().encode()), 0

    async def ask_and_leave() -> None:
        nonlocal left
        loop = asyncio.get_running_loop()
        while True:
            with socket.socket() as peer, suppress(OSError):
                peer.setblocking(False)
                await loop.sock_connect(peer, ("127.0.0.1", port))
                await loop.sock_sendall(peer, request)
                left += 1
                await asyncio.sleep(STAY_SECONDS)
                if kind.endswith("left"):
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    with suppress(TimeoutError):
        async with asyncio.timeout(FLOOD_SECONDS):
            await asyncio.gather(*(ask_and_leave() for _ in range(connections)))
    print(f"{left / FLOOD_SECONDS:.0f} left in a second", flush=True)


def _send(kind: str, connections: int, port: int) -> None:
    """Open so many, and send until they are cut off."""
    sending = FLOODS[kind]
    peers = {each.fileno(): each for each in (_opened(sending, port) for _ in range(connections))}
    then = memoryview(sending.then * (2 * AT_ONCE // len(sending.then)))
    poll = select.poll()
    for peer in peers.values():
        peer.setblocking(False)
        poll.register(peer, select.POLLIN | select.POLLOUT)
    left = {number: memoryview(sending.first) for number in peers}
    at = dict.fromkeys(peers, 0)
    print("ready", flush=True)
    sys.stdin.readline()
    began, closed = perf_counter(), 0.0
    while peers and perf_counter() - began < FLOOD_SECONDS:
        for number, _ in poll.poll(100):
            try:
                _go_on(peers[number], number, left, at, then, len(sending.then))
            except ConnectionError:
                poll.unregister(number)
                peers.pop(number).close()
                closed = perf_counter() - began
    print(f"{len(peers)} still open" if peers else f"{closed:.2f} s", flush=True)


def _opened(sending: Flood, port: int) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port), timeout=30)
    peer.sendall(sending.opening)
    if sending.is_answered:
        peer.recv(4096)
    return peer


def _go_on(
    peer: socket.socket,
    number: int,
    left: dict[int, memoryview],
    at: dict[int, int],
    then: memoryview,
    size: int,
) -> None:
    with suppress(BlockingIOError):
        peer.recv(1 << 16)
    with suppress(BlockingIOError):
        if left[number]:
            left[number] = left[number][peer.send(left[number]) :]
        else:
            at[number] = (at[number] + peer.send(then[at[number] : at[number] + AT_ONCE])) % size


# --- everybody else ------------------------------------------------------------------------------


class Others:
    """Honest readers, a Source, and somebody who asks whether the hub lives."""

    def __init__(self, hub: RunningHub, session: aiohttp.ClientSession) -> None:
        self._hub = hub
        self._session = session
        self._numbers = count()
        self._began: dict[int, float] = {}
        self.live: list[float] = []
        self.publishes: list[float] = []
        self.readers: list[float] = []
        self._asked: dict[str, float] = {}  # what has no answer yet, since when

    def longest(self, what: str, times: Sequence[float]) -> float:
        """Of those that were answered, and the one that is not."""
        return max(*times, perf_counter() - self._asked.get(what, perf_counter()), 0.0)

    def forget(self) -> None:
        for times in (self.live, self.publishes, self.readers):
            times.clear()

    async def look(self) -> None:
        while True:
            began = self._asked["live"] = perf_counter()
            async with self._session.get(f"{self._hub.url}/health/live") as answer:
                await answer.read()
            self.live.append(perf_counter() - self._asked.pop("live", began))
            await asyncio.sleep(PAUSE_SECONDS)

    async def publish(self) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"{self._hub.url}/api/sets/dataset1/changes"
        while True:
            number = next(self._numbers)
            change = {"loc": f"http://example.com/no-{number}-", "change": "updated"}
            began = self._began[number] = self._asked["publish"] = perf_counter()
            async with self._session.post(url, json=change, headers=headers) as answer:
                assert answer.status == 201, await answer.text()
            self.publishes.append(perf_counter() - self._asked.pop("publish", began))
            await asyncio.sleep(PAUSE_SECONDS)

    async def read(self) -> None:
        async with self._session.ws_connect(self._hub.channel()) as channel:
            async for message in channel:
                now = perf_counter()
                for part in message.data.split("/no-")[1:]:
                    self.readers.append(now - self._began[int(part.partition("-")[0])])
        raise AssertionError("an honest reader was closed")


async def report(hub: RunningHub, others: Others, kind: str, connections: int, first: str) -> None:
    words = ("-m", "tests.evidence.bench.floods", "--flood", kind, str(connections), str(hub.port))
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    await process.stdout.readline()
    before = scheduled(hub)
    others.forget()
    process.stdin.write(first.encode() + b"\n")
    end = (await process.stdout.readline()).decode().strip()
    await asyncio.sleep(QUIET_SECONDS)
    used, waited = (now - then for now, then in zip(scheduled(hub), before, strict=True))
    await process.wait()
    p99 = quantiles([*others.readers, *others.readers], n=100)[98] if others.readers else inf
    live = others.longest("live", others.live)
    publish = others.longest("publish", others.publishes)
    print(
        f"| {kind} | {connections} | {live * 1e3:.0f} ms | {publish * 1e3:.0f} ms "
        f"| {p99 * 1e3:.0f} ms | {end} "
        f"| {used:.1f} s, {waited:.1f} s |",
        flush=True,
    )


async def fill(hub: RunningHub) -> str:
    """A long list, and the position at which it begins."""
    first = ""
    for begin in range(0, CHANGES, BATCH):
        locs = (f"http://example.com/{number:07d}" for number in range(begin, begin + BATCH))
        stored = await hub.publish(*locs)
        first = first or str(stored["from"])
    await asyncio.sleep(QUIET_SECONDS)
    return first


def scheduled(hub: RunningHub) -> tuple[float, float]:
    """How many seconds the hub has had a processor, and has waited for one."""
    assert hub.process is not None
    used, waited, _ = Path(f"/proc/{hub.process.pid}/schedstat").read_text().split()
    return int(used) / 1e9, int(waited) / 1e9


async def measure(kinds: Sequence[str]) -> None:
    print(
        "| flood | connections | /health/live, longest | a publish, longest | readers, p99 "
        "| all cut off after, or left | the hub had a processor, and waited for one |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            RunningHub(Path(folder) / "data") as hub,
            aiohttp.ClientSession(connector=connector) as session,
        ):
            others = Others(hub, session)
            running = [others.look(), others.publish(), *(others.read() for _ in range(HONEST))]
            tasks = [asyncio.create_task(each) for each in running]
            await asyncio.sleep(QUIET_SECONDS)
            first = ""
            for kind in kinds:
                if kind in LEFT and not first:
                    first = await fill(hub)
                for connections in COUNTS:
                    await report(hub, others, kind, connections, first)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


def main(kinds: Sequence[str] = (*FLOODS, *LEFT)) -> None:
    uvloop.run(measure(kinds))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--flood"]:
        flood(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(sys.argv[1:] or (*FLOODS, *LEFT))
