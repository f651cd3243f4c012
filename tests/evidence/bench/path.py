"""Where the time of one change goes, from its POST to its reader.

First the whole, by sockets, with one reader and nothing else to do. Then each piece alone, in this
process: the best of many rounds, so that what else the machine does counts little.
"""

import asyncio
import base64
import gc
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from socket import socketpair
from statistics import median
from time import monotonic, perf_counter

import uvloop

from rsnotify.channels.frames import TEXT
from rsnotify.http.endpoints import JsonResponse
from rsnotify.http.exchange import Exchange, render_head
from rsnotify.http.request_reader import RequestReader
from rsnotify.journal.call import Appended
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission
from rsnotify.journal.witness import KnownChange
from rsnotify.live.cache import Cache
from rsnotify.live.feed import Feeds
from rsnotify.process.embedded_redis import EmbeddedRedis
from rsnotify.publishing.bodies import read_submission
from rsnotify.publishing.intake import accepted
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, render_notification
from rsnotify.sets.records import SetOptions, Sets
from tests.evidence.bench.appends import Load, requests
from tests.support.running import RunningHub

POSTS, ROUNDS, EACH = 1_000, 30, 50
CHANNEL = ChannelName("dataset1", "change")
TEXT_FRAME = 0x81
HANDSHAKE = (
    "GET /channels/dataset1/change_notification_channel HTTP/1.1\r\nHost: hub\r\n"
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n\r\n"
).encode()


# --- the whole ---------------------------------------------------------------------------------


async def posts(port: int, count: int) -> tuple[float, float]:
    """Seconds until the answer, and until the reader has it: medians."""
    from_hub, to_hub = await asyncio.open_connection("127.0.0.1", port)
    channel, opening = await asyncio.open_connection("127.0.0.1", port)
    opening.write(HANDSHAKE)
    assert b" 101 " in await channel.readuntil(b"\r\n\r\n")
    answers, receipts = [], []
    for request in requests(Load(1, 1, count)):
        began = perf_counter()
        received = asyncio.create_task(_received(channel))
        to_hub.write(request)
        head = await from_hub.readuntil(b"\r\n\r\n")
        await from_hub.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
        answers.append(perf_counter() - began)
        receipts.append(await received - began)
    to_hub.close()
    opening.close()
    return median(answers), median(receipts)


async def _received(channel: asyncio.StreamReader) -> float:
    kind = 0
    while kind != TEXT_FRAME:  # pings come too
        kind, length = await channel.readexactly(2)
        size = length if length < 126 else int.from_bytes(await channel.readexactly(2), "big")
        await channel.readexactly(size)
    return perf_counter()


# --- its pieces --------------------------------------------------------------------------------


def best(work: Callable[[], object]) -> float:
    """Seconds that it takes when nothing disturbs it."""
    found = []
    for _ in range(ROUNDS):
        began = perf_counter()
        for _ in range(EACH):
            work()
        found.append((perf_counter() - began) / EACH)
    return min(found)


async def best_wait(work: Callable[[], Awaitable[object]]) -> float:
    found = []
    for _ in range(ROUNDS * 10):
        began = perf_counter()
        await work()
        found.append(perf_counter() - began)
    return min(found)


class _Handler:
    """Takes the requests that are read."""

    def request_began(self) -> None: ...

    def request_read(self, exchange: Exchange) -> None: ...

    def stop_deadline(self) -> None: ...


async def pieces() -> dict[str, float]:
    request = next(requests(Load(1, 1, 1)))
    body = request.partition(b"\r\n\r\n")[2]
    submission = read_submission("change", body, "application/json", None)
    reader = RequestReader(_Handler(), {})
    found = {
        "read the request": best(lambda: reader.read(request)),
        "judge the body, make the fragment": best(
            lambda: read_submission("change", body, "application/json", None)
        ),
    }
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedRedis(Path(folder, "data")) as server:
            client = connect(server.url)
            found |= await _of_redis(client, submission)
            await client.aclose()
    return found | await _of_readers(submission)


async def _of_redis(client: Client, submission: Submission) -> dict[str, float]:
    await Sets(client).add("dataset1", SetOptions())
    journal = JournalStore(client, window_changes=50_000)

    async def append() -> object:
        return await journal.append(CHANNEL, submission)

    whole = await best_wait(append)
    await client.config_set("appendfsync", "no")
    without = await best_wait(append)
    script = min([await _script_seconds(client, append) for _ in range(ROUNDS)])
    return {
        "there and back, without script and disk": without - script,
        "the script": script,
        "fsync": whole - without,
    }


async def _script_seconds(client: Client, append: Callable[[], Awaitable[object]]) -> float:
    await client.config_resetstat()
    for _ in range(EACH):
        await append()
    told = await client.info("commandstats")
    return float(told["cmdstat_evalsha"]["usec_per_call"]) / 1e6


async def _of_readers(submission: Submission) -> dict[str, float]:
    feeds = Feeds(Cache(256, monotonic))
    feeds.add_set("dataset1", "2026-01-01T00:00:00.000000Z")
    feed = feeds.get(CHANNEL)
    assert feed is not None
    begin = feed.tail.head
    ours, theirs = socketpair()
    row = (Position(begin + 1), submission.fragments[0].xml)
    stored, known = Appended(begin, row[0], False, 1, (row,)), KnownChange(row[0], "abcdef")
    answer = accepted(submission, stored.interval)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)

    def rendered() -> bytes:
        notification = render_notification(CHANNEL, begin, [row], base_url="http://hub")
        return TEXT.render(notification)

    def known_and_proved() -> None:
        feed.witness.note_change(*known)
        feed.witness.note_found([known])

    def answered() -> bytes:
        response = JsonResponse(answer, 201)
        return render_head(201, response.raw_headers) + response.body

    def written(data: bytes) -> None:
        transport.write(data)
        theirs.recv(65_536)

    frame = rendered()
    found = {
        "know it, and that it is there": best(known_and_proved),
        "make the notification": best(rendered),
        "write it to a reader, who reads it": best(lambda: written(frame)),
        "make the answer": best(answered),
    }
    transport.close()
    theirs.close()
    return found


async def measure() -> None:
    gc.disable()
    with tempfile.TemporaryDirectory() as folder:
        async with RunningHub(Path(folder, "data")) as hub:
            await posts(hub.port, POSTS // 10)
            answer, receipt = await posts(hub.port, POSTS)
    print("| | µs |\n|---|---|")
    print(f"| from POST to its answer, median | {answer * 1e6:.0f} |")
    print(f"| from POST to its reader, median | {receipt * 1e6:.0f} |")
    for name, seconds in (await pieces()).items():
        print(f"| {name} | {seconds * 1e6:.1f} |")


def main() -> None:
    uvloop.run(measure())
