"""One round of a channel, measured beside the least that it could cost: the same bytes to the same
sockets by a loop in C, by `os.write` and by uvloop's `transport.write`.

All four share a process and its sockets, and take turns. Counted is the processor time of sending;
what was sent is read between the rounds, and not counted. Without gcc the loop in C is left out.
"""

import asyncio
import ctypes
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import create_connection, create_server, socket
from statistics import median
from time import process_time
from typing import Any, cast

import uvloop

from rsnotify.channels.channel import ChannelReaders
from rsnotify.channels.frames import TEXT
from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.socket_reader import SocketReader
from rsnotify.live.feed import Feed
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Notification
from tests.evidence.bench.pictures import Chart, save

READERS = (100, 1_000, 5_000)
SENDS = 20_000  # of each way, in one turn
UNREAD_ROUNDS = 20  # before the readers read: their sockets must not be full
TURNS = 7
PAYLOAD = b"x" * 440
C_LOOP = """
#include <sys/socket.h>
void send_all(const int *sockets, int count, const char *data, int size) {
    for (int i = 0; i < count; i++) send(sockets[i], data, size, MSG_NOSIGNAL);
}
"""

UNIT = "sends for each second of processor time"

Round = Callable[[], None]


def compiled(folder: Path) -> Any:
    """The loop in C; None without a compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        return None
    source, library = folder / "loop.c", folder / "loop.so"
    source.write_text(C_LOOP)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


@contextmanager
def connected(count: int) -> Iterator[list[tuple[socket, socket]]]:
    """So many connections over loopback: the hub's end, and the reader's."""
    with ExitStack() as stack, create_server(("127.0.0.1", 0), backlog=4096) as server:
        pairs = []
        for _ in range(count):
            theirs = stack.enter_context(create_connection(server.getsockname()))
            ours = stack.enter_context(server.accept()[0])
            ours.setblocking(False)
            theirs.setblocking(False)
            pairs.append((ours, theirs))
        yield pairs


class Ways:
    """Each way to send the same frame to every socket."""

    def __init__(self, ends: Sequence[socket]) -> None:
        self.ends = ends
        self.numbers = [end.fileno() for end in ends]
        self.notification = Notification(Position(0), Position(1), 1, PAYLOAD, slice(0))
        self.frame = TEXT.render(self.notification)

    async def all(self, library: Any) -> dict[str, Round]:
        transports = [await self.transport(end) for end in self.ends]
        ways = {
            "`os.write` from Python": self.by_os_write,
            "uvloop's `transport.write`": lambda: self.by_transports(transports),
            "the hub's round": self.by_the_hub(transports),
        }
        return ways if library is None else {"a loop in C": self.in_c(library)} | ways

    async def transport(self, end: socket) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, end)
        return cast(asyncio.Transport, transport)

    def in_c(self, library: Any) -> Round:
        count, size = len(self.numbers), len(self.frame)
        numbers = (ctypes.c_int * count)(*self.numbers)
        return lambda: library.send_all(numbers, count, self.frame, size)

    def by_os_write(self) -> None:
        write, frame = os.write, self.frame
        for number in self.numbers:
            write(number, frame)

    def by_transports(self, transports: Sequence[asyncio.Transport]) -> None:
        frame = self.frame
        for transport in transports:
            transport.write(frame)

    def by_the_hub(self, transports: Sequence[asyncio.Transport]) -> Round:
        feed = Feed(ChannelName("bench", "change"), "now", Position(0))
        hub: Any = None  # it is asked only for those who are behind
        channel = ChannelReaders(hub, feed, Keepalive(send_timeout_seconds=60))
        for transport in transports:
            channel.join(SocketReader(transport, ReaderInput(), is_deflated=False), Position(0))
        return lambda: channel.push(self.notification)


def sends_a_second(send: Round, peers: Sequence[socket], size: int) -> float:
    """Of processor time."""
    rounds = max(1, SENDS // len(peers))
    spent = 0.0
    for number in range(rounds):
        began = process_time()
        send()
        spent += process_time() - began
        if number % UNREAD_ROUNDS == UNREAD_ROUNDS - 1 or number == rounds - 1:
            read_all(peers, size)
    return round(rounds * len(peers) / spent)


def read_all(peers: Sequence[socket], size: int) -> None:
    buffer = bytearray(size * UNREAD_ROUNDS)
    for peer in peers:
        with suppress(BlockingIOError):
            while peer.recv_into(buffer) == len(buffer):
                pass


async def measure(readers: int, library: Any) -> dict[str, float]:
    """Sends a second of each way: the median of its turns."""
    with connected(readers) as pairs:
        peers = [theirs for _, theirs in pairs]
        ways = Ways([ours for ours, _ in pairs])
        found: dict[str, list[float]] = {}
        rounds = await ways.all(library)
        for _ in range(TURNS):
            for name, send in rounds.items():
                rate = sends_a_second(send, peers, len(ways.frame))
                found.setdefault(name, []).append(rate)
        return {name: median(rates) for name, rates in found.items()}


async def measure_all() -> dict[int, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        if library is None:
            print("The loop in C is left out: there is no gcc.\n")
        return {readers: await measure(readers, library) for readers in READERS}


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = uvloop.run(measure_all())
    print(
        "| readers | way | sends per second of processor time | of the first |\n|---|---|---|---|"
    )
    for readers, rates in found.items():
        first = next(iter(rates.values()))
        for name, rate in rates.items():
            print(f"| {readers:,} | {name} | {rate:,.0f} | {rate / first:.2f} |", flush=True)
    rates = {f"{readers:,} readers": rates for readers, rates in found.items()}
    save("writes", Chart("The same frame to every reader", UNIT, rates))


if __name__ == "__main__":
    main()
