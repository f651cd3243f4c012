"""How many readers of packed Change Lists there are at once, how much is read at once."""

import asyncio
import gc
import socket
import struct
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from rsnotify.documents.stretches import (
    CLOSED_WAITING,
    FIRST_CHANGES,
    NOBODY,
    READ_CHANGES,
    READS_AT_ONCE,
    ReadTurns,
    Stretches,
)
from rsnotify.errors import Trimmed, TryAgain
from rsnotify.http.extensions import PEER
from rsnotify.journal.window import Window
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Row, render_rows
from tests.support.packing import pack
from tests.support.running import PATIENT_SECONDS, until

WINDOW = Window(Position(0), Position(9), 1, 1, Position(9))
OLD = (Position(0), Position(9))


class TrimmedJournal:
    async def read(self, *_: Any, **__: Any) -> Any:
        raise Trimmed(9)


class PackedWindows:
    async def closed_after(self, *_: Any) -> Window:
        return WINDOW

    async def packed(self, *_: Any) -> Any:
        return pack([b"<url/>"])


@pytest.fixture
def two_at_once() -> Stretches:
    journal: Any = TrimmedJournal()
    windows: Any = PackedWindows()
    return Stretches(journal, windows, cold_pulls=2, wait_seconds=0.05)


async def begun(reader: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    assert b"<url/>" in await anext(reader)
    return reader


async def test_one_more_than_the_limit_waits_and_is_then_refused(two_at_once):
    readers = [await begun(two_at_once.entries("dataset1", *OLD)) for _ in range(2)]
    with pytest.raises(TryAgain, match="too many others"):
        await anext(two_at_once.entries("dataset1", *OLD))
    waiting = asyncio.create_task(anext(two_at_once.entries("dataset1", *OLD)))
    await readers[0].aclose()
    assert await waiting


async def test_who_has_read_to_the_end_holds_nothing(two_at_once):
    for _ in range(5):
        assert [piece async for piece in two_at_once.entries("dataset1", *OLD)]


# --- how much is read at once --------------------------------------------------------------------


class LongJournal:
    """So many changes, one at each position; remembers how many were asked for at once."""

    def __init__(self, changes: int, size: int = 200) -> None:
        self.head = Position(changes)
        self.asked: list[int] = []
        self._fragment = b"<url>%b</url>" % (b"x" * size)

    def rows(self, after: int, until: int) -> list[Row]:
        return [(Position(at), self._fragment) for at in range(after + 1, until + 1)]

    async def read(self, _: Any, after: Position, *, until: Position, count: int) -> list[Row]:
        self.asked.append(count)
        return self.rows(after, min(after + count, until))


class NothingPacked:
    def __init__(self) -> None:
        self.kept: Any = None

    async def packed(self, *_: Any) -> None:
        return None

    async def keep(self, _: str, __: Window, packed: Any) -> None:
        self.kept = packed


async def packed_from(journal: Any) -> NothingPacked:
    windows: Any = NothingPacked()
    window = Window(Position(0), journal.head, int(journal.head), 1, journal.head)
    await Stretches(journal, windows).store_packed("dataset1", window)
    return windows


@pytest.mark.parametrize("size", [200, 1_000])  # compressed in the event loop, or in a thread
async def test_a_window_is_packed_from_small_pieces_one_after_the_other(size):
    journal = LongJournal(FIRST_CHANGES + 3 * READ_CHANGES + 1, size)
    windows = await packed_from(journal)
    assert journal.asked == [FIRST_CHANGES, *[READ_CHANGES] * 4]
    whole = render_rows(journal.rows(0, int(journal.head)))
    assert b"".join(windows.kept.pieces()) == whole


async def test_the_memory_of_packing_does_not_grow_with_the_window():
    journal = LongJournal(100 * READ_CHANGES)
    await packed_from(LongJournal(1))  # what is made once is there
    tracemalloc.start()
    try:
        windows = await packed_from(journal)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert windows.kept.length > 10_000_000
    assert peak < 1_000_000


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs, ours = socket.create_connection(server.getsockname()), server.accept()[0]
    with theirs, ours:
        yield theirs, ours


def request_of(peer: socket.socket) -> Any:
    return {"extensions": {PEER: {"socket": peer}}}


def go(peer: socket.socket, going: str) -> None:
    if going == "closes its direction":
        peer.shutdown(socket.SHUT_WR)
    elif going == "leaves":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="no TCP_INFO: only Linux tells of it")
@pytest.mark.parametrize("going", ["stays", "closes its direction", "leaves"])
@pytest.mark.parametrize("over", [-1, 0])
async def test_nothing_is_read_for_who_has_left_nor_if_100_wait_for_who_sends_no_more(
    connected, going, over
):
    theirs, ours = connected
    turns, done, end = ReadTurns(), list[int](), asyncio.Event()

    async def read(number: int, scope: Any = NOBODY) -> None:
        async with turns.turn(scope):
            done.append(number)
            await end.wait()

    reading = [asyncio.create_task(read(number)) for number in range(READS_AT_ONCE)]
    asked = asyncio.create_task(read(-1, request_of(ours)))
    others = [asyncio.create_task(read(100 + number)) for number in range(CLOSED_WAITING + over)]
    await asyncio.sleep(0)
    go(theirs, going)
    end.set()
    await asyncio.gather(*reading, *others)
    is_refused = going == "leaves" or (going == "closes its direction" and over == 0)
    if is_refused:
        with pytest.raises(TryAgain, match="too many others"):
            await asked
    else:
        await asked
    assert (-1 in done) is not is_refused
    assert len(done) == len(reading) + len(others) + (not is_refused)


@pytest.mark.parametrize("is_its_turn", [False, True])
async def test_who_waits_no_more_takes_no_turn(is_its_turn):
    turns, end = ReadTurns(1), asyncio.Event()

    async def read() -> None:
        async with turns.turn():
            await end.wait()

    reading, cancelled, last = (asyncio.create_task(read()) for _ in range(3))
    await asyncio.sleep(0)
    end.set()
    if is_its_turn:
        while not reading.done():
            await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(reading, last)
    assert cancelled.cancelled() or is_its_turn


async def test_pieces_are_unpacked_in_turn_and_never_by_the_event_loop():
    turns, goes_on, threads = ReadTurns(2), threading.Event(), list[int]()

    def pieces() -> Iterator[bytes]:
        threads.append(threading.get_ident())
        goes_on.wait(PATIENT_SECONDS)
        yield b"a piece"
        yield b"another"

    async def unpack() -> bytes:
        return b", ".join([piece async for piece in turns.unpacked(pieces())])

    async def are_begun() -> bool:
        return len(threads) == 2

    unpacking = [asyncio.create_task(unpack()) for _ in range(3)]
    await until(are_begun)
    goes_on.set()
    assert await asyncio.gather(*unpacking) == [b"a piece, another"] * 3
    assert threading.get_ident() not in threads


async def test_8_pieces_are_read_at_once_and_the_next_waits():
    reading, answered = 0, asyncio.Event()

    class SlowJournal:
        async def read(self, *_: Any, **__: Any) -> list[Row]:
            nonlocal reading
            reading += 1
            await answered.wait()
            return []

    journal, windows = SlowJournal(), NothingPacked()
    stretches = Stretches(journal, windows)
    readers = [
        asyncio.create_task(anext(stretches.entries("dataset1", *OLD)))
        for _ in range(READS_AT_ONCE + 1)
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    assert reading == READS_AT_ONCE
    answered.set()
    await asyncio.gather(*readers)
    assert reading == READS_AT_ONCE + 1


async def broken_off(journal: Any, asked: asyncio.Event) -> None:
    """A reader of this journal goes away as soon as something was asked of it."""
    windows: Any = NothingPacked()
    reader = asyncio.create_task(anext(Stretches(journal, windows).entries("dataset1", *OLD)))
    await asked.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_what_was_asked_of_redis_is_answered_although_its_reader_has_gone():
    asked, answered = asyncio.Event(), asyncio.Event()
    ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    class SlowJournal:
        async def read(self, *_: Any, **__: Any) -> list[Row]:
            asked.set()
            try:
                await answered.wait()
            except asyncio.CancelledError:
                ended.set_result(False)
                raise
            ended.set_result(True)
            return []

    await broken_off(SlowJournal(), asked)
    answered.set()
    assert await ended


async def test_an_error_of_a_read_whose_reader_has_gone_is_nobodys(caplog):
    asked, answered = asyncio.Event(), asyncio.Event()

    class FailingJournal:
        async def read(self, *_: Any, **__: Any) -> list[Row]:
            asked.set()
            await answered.wait()
            raise TryAgain("Redis does not answer")

    tasks = asyncio.all_tasks()
    await broken_off(FailingJournal(), asked)
    answered.set()
    await asyncio.wait(asyncio.all_tasks() - tasks)
    gc.collect()
    assert not caplog.records
