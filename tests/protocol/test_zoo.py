"""A zoo of receivers: whatever the sick ones do, the healthy ones get every change in order, soon.

One assertion for all. The sick have hosts of their own, as in the world.
"""

import asyncio
import resource
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.receivers import (
    Behaviour,
    ReceivedRequest,
    Receiver,
    answers,
    has,
    response,
    subscribe,
)
from tests.support.running import RunningHub, until

HEALTHY = 6
CHANGES = 60


async def hangs(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    await writer.wait_closed()


async def resets(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def one_byte_a_second(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    for byte in response("200 OK", b"x" * 1000):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1)


async def endless(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def endless_head(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not writer.is_closing():
        writer.write(b"X-More: " + b"x" * 1000 + b"\r\n")
        await writer.drain()


async def slow(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(1)
    writer.write(response())


class Flaps:
    """Every other answer is a failure."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, _: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        if self.count % 2:
            writer.write(response("503 Busy", Retry_After="1"))
        else:
            writer.write(response())


class ConfirmsOnce:
    """A second verification is refused, as some popular receivers do."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        status = "200 OK" if self.count == 1 else "404 Not Found"
        writer.write(response(status, asked.query.get("hub.challenge", "").encode()))


SICK: dict[str, Behaviour] = {
    "slow": slow,
    "hanging": hangs,
    "resetting": resets,
    "one byte a second": one_byte_a_second,
    "endless body": endless,
    "endless head": endless_head,
    "redirect": answers("307 Go", Location="http://169.254.169.254/latest/meta-data"),
    "gone": answers("410 Gone"),
    "too many": answers("429 Slow Down", Retry_After="3600"),
    "flapping": Flaps(),
    "no HTTP": answers("banana"),
}


def memory(hub: RunningHub) -> int:
    pages = Path(f"/proc/{hub.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


async def rounds(hub: RunningHub, healthy: list[Receiver], first: int) -> None:
    """Publish one change after the other, each when all healthy receivers have the one before."""
    for number in range(first, first + CHANGES):
        await hub.publish(f"http://example.com/{number}")
        await asyncio.gather(*(has(receiver, number + 1) for receiver in healthy))


@pytest.mark.evidence
async def test_the_healthy_get_every_change_in_order_and_do_not_care_about_the_sick(tmp_path):
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(
            RunningHub(tmp_path / "data", callback_private="allow")
        )
        healthy = [await stack.enter_async_context(Receiver()) for _ in range(HEALTHY - 1)]
        healthy.append(await stack.enter_async_context(Receiver(get=ConfirmsOnce())))
        for receiver in healthy:
            await subscribe(hub, receiver)
        await rounds(hub, healthy, 0)
        wrong = await stack.enter_async_context(Receiver(get=answers("200 OK", b"wrong")))
        sick = {}
        for number, (name, behaviour) in enumerate(SICK.items()):
            receiver = Receiver(post=behaviour, host=f"127.0.0.{number + 2}")
            sick[name] = await stack.enter_async_context(receiver)
            await subscribe(hub, receiver)
        before = memory(hub)
        await rounds(hub, healthy, CHANGES)
        everything = [f"http://example.com/{number}" for number in range(2 * CHANGES)]
        assert all(receiver.locs == everything for receiver in healthy)
        assert all(receiver.most_at_once == 1 for receiver in [*healthy, *sick.values()])
        assert wrong.deliveries == []
        # Had the rounds waited for it, the hanging one would have been asked again in each.
        assert len(sick["hanging"].deliveries) < CHANGES // 10
        assert memory(hub) - before < 32 * 1024 * 1024
        await until(lambda: _caught_up(sick["flapping"], everything[CHANGES:]))


async def _caught_up(receiver: Receiver, everything: list[str]) -> bool:
    return set(everything) <= set(receiver.locs)
