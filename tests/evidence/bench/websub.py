"""How fast WebSub deliveries go out, and whether a Source feels them.

The hub, its Redis and the receivers share the machine. Each callback has a host of its own on
loopback; the receivers are one process that does nothing but answer, at once or after a latency
that stands for their distance. Every notification carries one change: the next is published when
all have received the last.
"""

import asyncio
import contextlib
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import ClassVar

import aiohttp
import uvloop

from rsnotify.resourcesync.change import Position
from tests.support.running import TOKEN, RunningHub

SUBSCRIBERS = (1, 100, 1_000)
LATENCIES = (0.05, 0.2)
DISTANT_SECONDS = 5.0  # how long each latency is measured
DELIVERIES_AT_ONCE = 100  # the default of RSNOTIFY_DELIVERIES
DELIVERIES = 20_000
LATENCY_ROUNDS = 300
BUSY_ROUNDS = 60

POST = b"POST "
UNTIL = re.compile(rb"webhook-id: dataset1-change-\d+-(\d+)")
CHALLENGE = b"hub.challenge="
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class Receiver(asyncio.Protocol):
    """Confirms what is to be verified, answers 204 to deliveries, counts and times them."""

    latency: ClassVar = 0.0
    reached: ClassVar = Counter[bytes]()  # how many have received the notification up to here
    waiting: ClassVar[list[tuple[bytes, int, asyncio.Transport]]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end]
            _, found, length = head.lower().partition(b"content-length:")
            size = end + 4 + (int(length.partition(b"\r\n")[0]) if found else 0)
            if len(self.buffer) < size:
                return
            self.buffer = self.buffer[size:]
            self.answer(head)

    def answer(self, head: bytes) -> None:
        if head.startswith(POST):
            until = UNTIL.search(head)[1]
            if self.latency:
                asyncio.get_running_loop().call_later(self.latency, self.received, until)
            else:
                self.received(until)
        elif head.startswith(b"GET /latency/"):
            Receiver.latency = float(head.split(b" ")[1].rpartition(b"/")[2])
            self.text(self.transport, b"")
        elif CHALLENGE in head:
            self.text(self.transport, head.partition(CHALLENGE)[2].split(b"&")[0].split(b" ")[0])
        elif head.startswith(b"GET /answered/"):
            self.text(self.transport, str(self.reached.total()).encode())
        else:  # GET /<position>/<count>: answered when so many have received it
            _, position, count = head.split(b" ")[1].split(b"/")
            self.waiting.append((position, int(count), self.transport))
            self.tell()

    def received(self, until: bytes) -> None:
        self.transport.write(NO_CONTENT)
        self.reached[until] += 1
        self.tell()

    def tell(self) -> None:
        for waits in [waits for waits in self.waiting if self.reached[waits[0]] >= waits[1]]:
            self.waiting.remove(waits)
            self.text(waits[2], repr(time.time()).encode())

    def text(self, transport: asyncio.Transport, body: bytes) -> None:
        transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


async def receive() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Receiver, "0.0.0.0", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.asynccontextmanager
async def receivers() -> AsyncIterator[int]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.evidence.bench.websub", "receive"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    yield int(await process.stdout.readline())
    process.kill()
    await process.wait()


class Load:
    """A hub with so many subscribers, and a Source that publishes to it."""

    def __init__(self, hub: RunningHub, session: aiohttp.ClientSession, port: int) -> None:
        self.hub = hub
        self.session = session
        self.port = port
        self.published = 0
        self.subscribers = 0

    async def subscribe(self, count: int) -> None:
        topic = f"{self.hub.url}/channels/dataset1/change_notification_channel"
        for number in range(self.subscribers, count):
            host = f"127.1.{number // 250}.{number % 250 + 1}"
            form = {"hub.mode": "subscribe", "hub.topic": topic}
            form["hub.callback"] = f"http://{host}:{self.port}/callback/{number}"
            async with self.session.post(f"{self.hub.url}/hub", data=form) as answer:
                assert answer.status == 202, await answer.text()
        self.subscribers = count
        while len((await self.hub.ask("GET", "/api/subscriptions"))[1]) < count:
            await asyncio.sleep(0.1)

    async def publish(self) -> tuple[float, int]:
        """One change; the seconds until it was acknowledged, and its position."""
        self.published += 1
        change = {"loc": f"http://example.com/resource/{self.published}", "change": "updated"}
        begun = time.perf_counter()
        async with self.session.post(
            f"{self.hub.url}/api/sets/dataset1/changes",
            json=change,
            headers={"Authorization": f"Bearer {TOKEN}"},
        ) as answer:
            until = (await answer.json())["until"]
        return time.perf_counter() - begun, int(Position.parse(until))

    async def received(self, position: int) -> float:
        """When the last subscriber had it."""
        url = f"http://127.0.0.1:{self.port}/{position}/{self.subscribers}"
        async with self.session.get(url) as answer:
            return float(await answer.text())

    async def set_latency(self, seconds: float) -> None:
        async with self.session.get(f"http://127.0.0.1:{self.port}/latency/{seconds}"):
            pass

    async def delivered(self) -> int:
        """How many requests the receivers have answered so far."""
        async with self.session.get(f"http://127.0.0.1:{self.port}/answered/") as answer:
            return int(await answer.text())

    async def keep_publishing(self, stop: asyncio.Event) -> list[float]:
        """A Source at its own pace, so that everybody is always behind; what each publish took."""
        took = []
        while not stop.is_set():
            took.append((await self.publish())[0])
            await asyncio.sleep(0.02)
        return took

    async def round(self) -> tuple[float, float]:
        """One change to everyone: seconds until acknowledged, seconds until all had it."""
        begun = time.time()
        took, position = await self.publish()
        return took, await self.received(position) - begun

    async def busy(self) -> float:
        """How long a publish takes while the one before is being delivered."""
        await self.publish()
        await asyncio.sleep(0.005)
        took, position = await self.publish()
        await self.received(position)
        return took


async def measure() -> None:
    print(
        "| subscribers | deliveries/s | p50 publish to last receipt | p50 answer to the Source |"
        " p50, longest answer while delivering |"
    )
    print("|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            RunningHub(Path(folder) / "data", callback_private="allow") as hub,
            receivers() as port,
            aiohttp.ClientSession() as session,
        ):
            load = Load(hub, session, port)
            distant = []
            for count in SUBSCRIBERS:
                await load.subscribe(count)
                await report(load)
                if count >= DELIVERIES_AT_ONCE:
                    distant += [await row_of_distant(load, latency) for latency in LATENCIES]
                    await load.set_latency(0)
    print("\n| distant receivers | latency | deliveries/s | of the limit |", end="")
    print(" p50, p99 answer to the Source meanwhile |\n|---|---|---|---|---|")
    print("\n".join(distant), flush=True)


async def row_of_distant(load: Load, latency: float) -> str:
    """The limit is what so many calls at once can do if each takes the latency and no longer."""
    await load.set_latency(latency)
    await load.round()  # connections, and what is known of who answers promptly
    stop = asyncio.Event()
    source = asyncio.create_task(load.keep_publishing(stop))
    await asyncio.sleep(0.5)
    begun, before = time.perf_counter(), await load.delivered()
    await asyncio.sleep(DISTANT_SECONDS)
    rate = (await load.delivered() - before) / (time.perf_counter() - begun)
    stop.set()
    took = sorted(await source)
    p99 = took[int(len(took) * 0.99)]
    return (
        f"| {load.subscribers:,} | {latency * 1000:.0f} ms | {rate:,.0f} "
        f"| {rate * latency / DELIVERIES_AT_ONCE:.2f} | {middle(took)}, {p99 * 1000:.1f} ms |"
    )


async def report(load: Load) -> None:
    await load.round()
    begun = time.perf_counter()
    rounds = [
        await load.round()
        for _ in range(min(LATENCY_ROUNDS, max(10, DELIVERIES // load.subscribers)))
    ]
    rate = len(rounds) * load.subscribers / (time.perf_counter() - begun)
    alone, everyone = zip(*rounds, strict=True)
    busy = [await load.busy() for _ in range(BUSY_ROUNDS)]
    print(
        f"| {load.subscribers} | {rate:,.0f} | {middle(everyone)} | {middle(alone)} "
        f"| {middle(busy)}, {max(busy) * 1000:.1f} ms |",
        flush=True,
    )


def middle(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.1f} ms"


def main() -> None:
    uvloop.run(measure())


if __name__ == "__main__":
    uvloop.run(receive())
