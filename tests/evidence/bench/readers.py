"""The load of the channel benchmarks: readers and publishers in one cheap epoll loop.

Readers count marks, one a change, and decode nothing, so that what is measured is the server.
Started by `channels`; speaks JSON lines: a target first, then what to do; answers what it saw.
"""

import json
import select
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any

MARK = b"zzz"  # stands once in every change, and cannot stand in a frame's header
BUFFER = bytearray(1 << 20)
HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n{offer}\r\n"
)
SILENCE_SECONDS = 20.0
PINGS_EVERY = 100  # readers that are opened
PING, PONG, MASKED = 0x89, 0x8A, 0x80


class Load:
    """One target's readers and publishers."""

    def __init__(self, target: dict[str, Any]) -> None:
        self.target = target
        self.readers: dict[int, socket.socket] = {}
        self.seen: dict[int, int] = {}
        self.poll = select.epoll()
        self.numbers = count()

    def connect(self) -> socket.socket:
        return socket.create_connection((self.target["host"], self.target["port"]), timeout=30)

    def open(self, readers: int) -> int:
        """Have this many readers; how many there are."""
        while len(self.readers) < readers:
            reader = self.connect()
            reader.sendall(
                HANDSHAKE.format(path=self.target["channel"], offer=self.target["offer"]).encode()
            )
            answer = reader.recv(4096)
            assert answer.startswith(b"HTTP/1.1 101"), answer
            reader.setblocking(False)
            self.readers[reader.fileno()] = reader
            self.seen[reader.fileno()] = 0
            self.poll.register(reader, select.EPOLLIN)
            if len(self.readers) % PINGS_EVERY == 0:
                self.answer_pings()
        return len(self.readers)

    def answer_pings(self) -> None:
        """Of those who came first, if opening takes long."""
        with suppress(TimeoutError):
            while True:
                list(self.arrivals(0))

    def request(self) -> bytes:
        body = self.target["body"].replace("NUMBER", f"{next(self.numbers):08d}").encode()
        head = f"POST {self.target['publish']} HTTP/1.1\r\nHost: bench\r\n{self.target['headers']}"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def arrivals(self, seconds: float = SILENCE_SECONDS) -> Iterator[tuple[int, int]]:
        """What has arrived: how many changes, at whom; or another socket's number and -1."""
        ready = self.poll.poll(seconds)
        if not ready:
            raise TimeoutError(f"nothing came for {seconds} s")
        for number, _ in ready:
            reader = self.readers.get(number)
            if reader is None:
                yield number, -1
                continue
            size = reader.recv_into(BUFFER)
            if not size:
                raise ConnectionError("the server has closed a channel")
            if BUFFER[0] == PING:
                answer_ping(reader)
            marks = self.count(size)
            self.seen[number] += marks
            yield number, marks

    def count(self, size: int) -> int:
        """How many changes are in the buffer. Compressed ones come one by one, a frame each."""
        return 1 if self.target["offer"] else BUFFER.count(MARK, 0, size)

    def one_by_one(self, changes: int) -> dict[str, Any]:
        """Publish the next change when everybody has the last one."""
        latencies: list[float] = []
        sending = 0.0
        with self.connect() as publisher:
            self.one(publisher, [])
            started, cpu, own = perf_counter(), self.cpu_seconds(), process_time()
            for _ in range(changes):
                sending += self.one(publisher, latencies)
            seconds, cpu = perf_counter() - started, self.cpu_seconds() - cpu
            own = process_time() - own
        cuts = quantiles(latencies, n=100)
        return {
            "deliveries": len(latencies),
            "seconds": seconds,
            "sending_seconds": sending,
            "cpu_seconds": cpu,
            "load_cpu_seconds": own,
            "p50_ms": cuts[49] * 1e3,
            "p99_ms": cuts[98] * 1e3,
        }

    def one(self, publisher: socket.socket, latencies: list[float]) -> float:
        """One change to everybody; how long that took from the first to the last."""
        before, until = len(latencies), len(latencies) + len(self.readers)
        began = perf_counter()
        publisher.sendall(self.request())
        while len(latencies) < until:
            for _, marks in self.arrivals():
                latencies.extend([perf_counter() - began] * marks)
        read_answer(publisher)
        return latencies[-1] - latencies[before]

    def busy(self, seconds: float, publishers: int) -> dict[str, Any]:
        """Publish as fast as the server answers; then wait until everybody has everything."""
        sockets = {each.fileno(): each for each in (self.connect() for _ in range(publishers))}
        before = sum(self.seen.values())
        started, cpu, published = perf_counter(), self.cpu_seconds(), 0
        for number, publisher in sockets.items():
            self.poll.register(number, select.EPOLLIN)
            publisher.sendall(self.request())
        open_requests = len(sockets)
        last = started
        while open_requests or sum(self.seen.values()) - before < published * len(self.readers):
            try:
                arrived = [*self.arrivals()]
            except TimeoutError:  # the server has lost what it took: nchan does at times
                break
            last = perf_counter()
            for number, marks in arrived:
                if marks >= 0:
                    continue
                read_answer(sockets[number])
                published += 1
                if perf_counter() - started < seconds:
                    sockets[number].sendall(self.request())
                else:
                    open_requests -= 1
        for publisher in sockets.values():
            self.poll.unregister(publisher)
            publisher.close()
        return {
            "published": published,
            "delivered": sum(self.seen.values()) - before,
            "seconds": last - started,
            "cpu_seconds": self.cpu_seconds() - cpu,
        }

    def cpu_seconds(self) -> float:
        """What the server's processes have used of their core."""
        threads = (
            stat for pid in self.target["pids"] for stat in Path(f"/proc/{pid}/task").iterdir()
        )
        return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


def answer_ping(reader: socket.socket) -> None:
    length = BUFFER[1]
    reader.send(bytes((PONG, MASKED | length)) + bytes(4) + BUFFER[2 : 2 + length])


def read_answer(publisher: socket.socket) -> None:
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += publisher.recv(4096)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 20"), answer
    missing = int(head.lower().partition(b"content-length:")[2].split()[0]) - len(body)
    while missing > 0:
        missing -= len(publisher.recv(missing))


def main() -> None:
    load = Load(json.loads(sys.stdin.readline()))
    acts: dict[str, Callable[..., Any]] = {
        "open": load.open,
        "one_by_one": load.one_by_one,
        "busy": load.busy,
    }
    for line in sys.stdin:
        act, *arguments = json.loads(line)
        print(json.dumps(acts[act](*arguments)), flush=True)


if __name__ == "__main__":
    main()
