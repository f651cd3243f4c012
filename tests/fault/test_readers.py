"""Readers under stress: slow, deaf, thousands at once, and hubs that die beneath them."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from rsnotify.redis_client import Client
from rsnotify_client.notification import Received, read_notification
from tests.support.amount import amount
from tests.support.raw import Raw, raw_channel
from tests.support.running import PATIENT_SECONDS, TOKEN, RunningHub, until

SMALL_BUFFER = 4_096
LISTEN = "0A"  # a state, in /proc/net/tcp
STREAM = {"Accept": "text/event-stream", "Connection": "close", "Upgrade": ""}
READERS = amount(500, evidence=2_000)
BULKS = amount(60, evidence=250)  # of 0.8 MB
HUB_BYTES = 160 * 1024 * 1024  # what a hub may take at most, whatever its readers do
INTERVAL = re.compile(rb' from="([^"]+)" until="([^"]+)"')


def bulky(start: int, count: int) -> list[str]:
    """Locations of about 1 KB, in order."""
    return [f"http://example.com/{start + each:08d}/{'x' * 1_000}" for each in range(count)]


async def everything_until(raw: Raw, last: str) -> list[Received]:
    """All notifications up to the one that ends there."""
    found = [read_notification(await raw.text())]
    while str(found[-1].until) != last:
        found.append(read_notification(await raw.text()))
    return found


def locs_in_order(found: list[Received], cursor: str) -> Iterator[str]:
    """The changed resources, having seen that each interval joins the one before."""
    for notification in found:
        assert str(notification.from_) == cursor
        cursor = str(notification.until)
        yield from (change.loc for change in notification.changes)


@pytest.fixture
async def patient_hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    """It lets nobody go who reads nothing for as long as a test takes on a slow machine."""
    async with RunningHub(tmp_path / "data", send_timeout_seconds="600") as running:
        yield running


@pytest.mark.evidence
async def test_readers_of_every_speed_see_every_change_once_and_in_order(patient_hub):
    hub = patient_hub
    start = (await hub.publish("http://example.com/before"))["until"]
    published: list[str] = []
    url = f"{hub.channel()}?from={start}"
    async with (
        raw_channel(url) as eager,
        raw_channel(url, buffer_bytes=SMALL_BUFFER) as slow,
        raw_channel(url, buffer_bytes=SMALL_BUFFER) as sleeping,
    ):
        of_slow: list[Received] = []
        for step in range(60):
            locs = bulky(step * 200, 200)
            last = (await hub.publish(*locs))["until"]
            published += locs
            if step % 4 == 0:
                of_slow.append(read_notification(await slow.text()))
        of_slow += await everything_until(slow, last)
        for raw in (eager, sleeping):
            assert list(locs_in_order(await everything_until(raw, last), start)) == published
        assert list(locs_in_order(of_slow, start)) == published


@pytest.mark.evidence
@pytest.mark.timeout(300)
async def test_readers_dropped_and_resumed_at_once_miss_nothing(hub):
    async with AsyncExitStack() as stack:
        before = [
            await stack.enter_async_context(raw_channel(hub.channel())) for _ in range(READERS)
        ]
        cursor = (await hub.publish("http://example.com/before"))["until"]
        for raw in before:
            await raw.text()
        await hub.kill()
    await hub.start()
    for step in range(10):
        last = (await hub.publish(*bulky(step * 100, 100)))["until"]
    counts = await asyncio.gather(*(_resumed(hub, cursor, last) for _ in range(READERS)))
    assert set(counts) == {1_000}


async def _resumed(hub: RunningHub, cursor: str, last: str) -> int:
    """How many changes a reader has got from its cursor to the end."""
    count, at = 0, cursor
    async with raw_channel(f"{hub.channel()}?from={cursor}") as raw:
        while at != last:
            payload = await raw.text()
            begins, ends = INTERVAL.search(payload).groups()
            assert begins.decode() == at
            at = ends.decode()
            count += payload.count(b"<loc>")
    return count


@pytest.mark.evidence
@pytest.mark.timeout(300)
async def test_a_reader_that_never_reads_costs_the_hub_little_however_much_is_published(hub):
    async with (
        raw_channel(hub.channel(), buffer_bytes=SMALL_BUFFER),
        raw_channel(hub.channel()) as eager,
    ):
        for step in range(BULKS):
            last = (await hub.publish(*bulky(step * 800, 800)))["until"]
            while last.encode() not in (payload := await eager.text()):
                pass
            assert payload.startswith(b"<?xml")
    assert _peak_bytes(hub) < HUB_BYTES


def _peak_bytes(hub: RunningHub) -> int:
    status = Path(f"/proc/{hub.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


@pytest.mark.parametrize(
    "transport", ["WebSocket", pytest.param("event stream", marks=pytest.mark.evidence)]
)
async def test_who_reads_nothing_for_the_send_timeout_is_let_go_and_can_resume(tmp_path, transport):
    async with RunningHub(tmp_path / "data", send_timeout_seconds="1") as hub:
        cursor = (await hub.publish("http://example.com/before"))["until"]
        headers = {} if transport == "WebSocket" else STREAM
        async with raw_channel(hub.channel(), headers, buffer_bytes=SMALL_BUFFER):
            assert await until(lambda: _is(_connections(hub) == 1))
            for step in range(30):
                last = (await hub.publish(*bulky(step * 500, 500)))["until"]
            assert await until(lambda: _is(_connections(hub) == 0))
    async with RunningHub(tmp_path / "data") as hub:  # it waits for a reader that has to wait
        assert await _resumed(hub, cursor, last) == 15_000


def _connections(hub: RunningHub) -> int:
    """How many peers the hub has on its port."""
    owned = set()
    for descriptor in Path(f"/proc/{hub.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            owned.add(os.readlink(descriptor))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [line for line in lines if line[1].endswith(f":{hub.port:04X}") and line[3] != LISTEN]
    return sum(f"socket:[{line[9]}]" in owned for line in ours)


async def _is(fact: bool) -> bool:
    return fact


@pytest.fixture
async def two_hubs(
    tmp_path: Path, redis_url: str, client: Client
) -> AsyncIterator[tuple[RunningHub, RunningHub]]:
    """Two hub processes on one empty Redis."""
    assert await client.ping()
    async with (
        RunningHub(tmp_path / "one", "--redis", redis_url) as one,
        RunningHub(tmp_path / "two", "--redis", redis_url) as two,
    ):
        yield one, two


async def test_a_destination_moves_between_two_hubs_and_misses_nothing(two_hubs):
    cursor = (await two_hubs[0].publish("http://example.com/before"))["until"]
    found: list[str] = []
    for step in range(60):
        await two_hubs[step % 2].publish(f"http://example.com/res{step}")
        reading = two_hubs[step // 2 % 2]
        async with raw_channel(f"{reading.channel()}?from={cursor}") as raw:
            received = read_notification(await raw.text())
        assert str(received.from_) == cursor
        cursor = str(received.until)
        found += [change.loc for change in received.changes]
    assert found == [f"http://example.com/res{step}" for step in range(60)]


@pytest.mark.evidence
async def test_two_hubs_deliver_the_same_changes_to_those_who_stay(two_hubs):
    start = (await two_hubs[0].publish("http://example.com/before"))["until"]
    async with (
        raw_channel(f"{two_hubs[0].channel()}?from={start}") as of_one,
        raw_channel(f"{two_hubs[1].channel()}?from={start}") as of_two,
    ):
        locs = [f"http://example.com/res{number}" for number in range(100)]
        for number, loc in enumerate(locs):
            last = (await two_hubs[number % 2].publish(loc))["until"]
        for raw in (of_one, of_two):
            assert list(locs_in_order(await everything_until(raw, last), start)) == locs


SILENT = {
    "nothing": b"",
    "half a head": b"POST /api/sets/dataset1/changes HTTP/1.1\r\nHost: hub\r\nAuth",
    "half a body": (
        b"POST /api/sets/dataset1/changes HTTP/1.1\r\nHost: hub\r\n"
        b"Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n[" % TOKEN.encode()
    ),
}


async def test_http_peers_that_send_nothing_more_are_let_go(hub):
    async def ended(sent: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
        writer.write(sent)
        async with asyncio.timeout(PATIENT_SECONDS):
            answer = await reader.read()
        writer.close()
        return answer

    assert set(await asyncio.gather(*map(ended, SILENT.values()))) == {b""}
