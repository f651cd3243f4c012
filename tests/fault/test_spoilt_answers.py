"""A way to Redis that spoils answers: no loop of the hub ends, and nothing is wrong afterwards."""

import asyncio
import random
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.support.amount import enough
from tests.support.faults import OwnRedis, SlowWay
from tests.support.lossy_failover import LOC
from tests.support.raw import CLOSE, raw_channel
from tests.support.running import RunningHub, until

PUBLISH = ("POST", "/api/sets/dataset1/changes")
REQUESTS = 120
ENOUGH = 10  # answers are spoilt
AT_ONCE = 6
TIME = re.compile(rb"(\*2\r\n\$10\r\n\d{4})\d")

Spoil = Callable[[random.Random, bytes], bytes]


def _at(chance: random.Random, data: bytes) -> int:
    return chance.randrange(len(data))


def flipped(chance: random.Random, data: bytes) -> bytes:
    at = _at(chance, data)
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def cut(chance: random.Random, data: bytes) -> bytes:
    return data[: _at(chance, data)]


def doubled(chance: random.Random, data: bytes) -> bytes:
    return data + data[_at(chance, data) :]


def garbled(chance: random.Random, data: bytes) -> bytes:
    """Another type at its beginning, or bytes that are no UTF-8."""
    return (
        chance.choice([b"-", b"+", b"*", b"$-1\r\n", b"%2\r\n", b"\xff\xfe", b"-\xff\r\n"]) + data
    )


WAYS = {each.__name__: each for each in (flipped, cut, doubled, garbled)}


class SpoilingWay(SlowWay):
    """Spoils one answer in so many, in an order of chance that a seed decides."""

    one_in = 0  # none

    def __init__(self, url: str, spoil: Spoil, chance: random.Random) -> None:
        super().__init__(url)
        self.spoil = spoil
        self._chance = chance
        self.spoilt = 0

    async def _answered(self, redis: StreamReader, writer: StreamWriter, _: asyncio.Event) -> None:
        while data := await redis.read(64 * 1024):
            if self.one_in and self._chance.randrange(self.one_in) == 0:
                honest, data = data, self.spoil(self._chance, data)
                self.spoilt += data != honest
            writer.write(data)
            await writer.drain()


@pytest.fixture(params=enough([*WAYS.values()], 2), ids=WAYS)
async def way(own_redis: OwnRedis, request: pytest.FixtureRequest) -> AsyncIterator[SpoilingWay]:
    async with SpoilingWay(own_redis.url, request.param, random.Random(23)) as way:
        yield way


async def test_a_hub_lives_through_spoilt_answers_and_is_right_afterwards(way, own_redis, tmp_path):
    async with RunningHub(tmp_path / "data", "--redis", way.url) as hub:
        acknowledged, statuses = set[str](), set[int]()

        async def publish(name: str) -> None:
            change = {"loc": f"http://example.com/{name}", "change": "updated"}
            headers = {"Idempotency-Key": name}
            status, _ = await hub.ask(*PUBLISH, json=change, headers=headers)
            statuses.add(status)
            if status == 201:
                acknowledged.add(name)

        way.one_in = 6
        asked = 0
        while asked < REQUESTS or way.spoilt <= ENOUGH:  # answers may come many at once
            await asyncio.gather(*(publish(str(asked + n)) for n in range(AT_ONCE)))
            asked += AT_ONCE
        way.one_in = 0
        assert hub.process.returncode is None
        # an answer of the same form may say that there is no such set, or token: that is believed
        assert statuses <= ({201, 401, 404, 503} if way.spoil is flipped else {201, 503})
        async with asyncio.timeout(90):  # 30 of them if it takes a position for lost
            while len(acknowledged) < asked:
                for name in {str(number) for number in range(asked)} - acknowledged:
                    await publish(name)
        async with asyncio.timeout(60):
            last = "last"
            # What was believed may be called a loss, once: readers are told to begin anew. Another
            # change then, since one that is stored is not published again.
            while not await _is_heard(hub, last, publish) and way.spoil is flipped:
                last += "-again"
        assert last in acknowledged
        await until(lambda: _is_ready(hub))
    async with RunningHub(tmp_path / "other", "--redis", own_redis.url) as honest:
        _, listed = await honest.ask("GET", "/dataset1/changelist.xml")
    stored = [loc.decode() for loc in LOC.findall(listed)]
    if way.spoil is flipped:  # one that is another answer of the same form is believed: no more
        assert last in stored
    else:
        assert sorted(stored) == sorted({*map(str, range(asked)), last})


async def _is_heard(hub: RunningHub, name: str, publish: Callable[[str], Awaitable[None]]) -> bool:
    """Whether a reader hears of this change; false if its channel ends by a gap before that."""
    async with raw_channel(hub.channel()) as reader:
        await publish(name)
        while (frame := await reader.frame()).opcode != CLOSE:
            if f"/{name}<".encode() in frame.data:
                return True
            await publish(name)
    assert int.from_bytes(frame.data[:2], "big") == 4410, frame
    return False


async def _is_ready(hub: RunningHub) -> bool:
    return (await hub.ask("GET", "/health/ready"))[0] == 200


def no_time(_: random.Random, data: bytes) -> bytes:
    """The answer to TIME, with a letter among its digits; any other as it is."""
    return TIME.sub(rb"\1x", data)


async def test_a_clock_that_cannot_be_read_ends_no_loop(own_redis, tmp_path):
    async with (
        SpoilingWay(own_redis.url, no_time, random.Random(23)) as way,
        RunningHub(tmp_path / "data", "--redis", way.url) as hub,
    ):
        way.one_in = 1

        async def is_asked_often() -> bool:
            assert hub.process.returncode is None, hub.log.read_text()
            return way.spoilt >= 10

        await until(is_asked_often, seconds=60)
        way.one_in = 0
        await until(lambda: _is_ready(hub))
        await hub.publish("http://example.com/after")
