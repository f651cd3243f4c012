"""Reads a stretch of a change journal as the entries of a Change List, piece by piece.

Changes that the Redis stream no longer holds come from the packed windows, also if they are trimmed
while the stretch is being read. Memory holds one piece at a time.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from starlette.types import Scope

from rsnotify.documents.responses import THREAD_BYTES
from rsnotify.errors import Trimmed, TryAgain
from rsnotify.http.extensions import peer_state
from rsnotify.http.sockets import TCP_CLOSE_WAIT, TCP_CLOSED
from rsnotify.journal.gzip_parts import PackedEntries, Packer, pieces_after
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.window import Window
from rsnotify.journal.windows import Windows
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import END_OF_ENTRY, ChannelName, render_rows
from rsnotify.single_flight import WAIT_SECONDS, AtOnce

FIRST_CHANGES = 100  # so that the first byte comes soon
READ_CHANGES = 500  # a millisecond of Redis, then one of the event loop: so long others wait
READS_AT_ONCE = 8  # of all readers of such lists: a turn of the event loop has no more of them
COLD_PULLS = 32  # that hold a packed window in memory, each up to 50 MB
CLOSED_WAITING = 100  # requests that wait before those of peers that send no more are refused

MANY = "too many others read lists; try again later"
FULL = "too many others read changes as old as these; try again later"


NOBODY: Scope = {}  # no request waits, or its answer has begun


class ReadTurns:
    """Lets so many reads run at once, the others in their order. Nothing is read for a request
    whose peer has left meanwhile, nor, where many wait, for one whose peer sends no more."""

    def __init__(self, most: int = READS_AT_ONCE) -> None:
        self._free = most
        self._waiting: deque[tuple[asyncio.Future[None], Scope]] = deque()

    @asynccontextmanager
    async def turn(self, scope: Scope = NOBODY) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            await self._wait(scope)
        try:
            yield
        finally:
            self._next()

    async def unpacked(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Each piece in a thread, when its turn comes."""
        while True:
            async with self.turn():
                piece = await asyncio.to_thread(next, pieces, b"")
            if not piece:
                return
            yield piece

    async def _wait(self, scope: Scope) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, scope))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._next()
            raise

    def _next(self) -> None:
        while self._waiting:
            turn, scope = self._waiting.popleft()
            if turn.done():
                continue
            if not self._has_left(scope):
                turn.set_result(None)
                return
            turn.set_exception(TryAgain(MANY, retry_after_seconds=10))
        self._free += 1

    def _has_left(self, scope: Scope) -> bool:
        state = peer_state(scope)
        return state == TCP_CLOSED or (
            state == TCP_CLOSE_WAIT and len(self._waiting) >= CLOSED_WAITING
        )


class ReadSizes(NamedTuple):
    """How many changes are read at once."""

    first: int = FIRST_CHANGES
    later: int = READ_CHANGES


READ_SIZES = ReadSizes()


async def chosen(
    entries: Callable[[], AsyncIterator[bytes]], filter_: Filter
) -> AsyncIterator[bytes]:
    """Those of the entries that pass the filter, piece by piece. A piece may be empty: whoever
    waits for it is not kept waiting for the next that is not."""
    rest = b""
    async for piece in entries():
        found, end, rest = (rest + piece).rpartition(END_OF_ENTRY)
        yield b"".join(filter_.choose(found + end))


class Stretches:
    """Reads change journals, from the stream or from packed windows."""

    def __init__(
        self,
        journal: JournalStore,
        windows: Windows,
        *,
        cold_pulls: int = COLD_PULLS,
        wait_seconds: float = WAIT_SECONDS,
        sizes: ReadSizes = READ_SIZES,
    ) -> None:
        self._journal = journal
        self._windows = windows
        self._sizes = sizes
        self._cold = AtOnce(cold_pulls, FULL, wait_seconds)
        self._reads = ReadTurns()

    async def entries(
        self, set_name: str, from_: Position, until: Position, scope: Scope = NOBODY
    ) -> AsyncIterator[bytes]:
        """The entries in `(from_, until]`, piece by piece; `until` ends a window or is the head."""
        cursor, count = from_, self._sizes.first
        while cursor < until:
            try:
                piece, cursor = await self.read(set_name, cursor, until, count, scope)
                yield piece
                count, scope = self._sizes.later, NOBODY
            except Trimmed:
                async with self._cold.turn():  # held until its reader has taken the window
                    window, packed = await self._packed_after(set_name, cursor)
                    is_whole = cursor <= window.from_
                    pieces = packed.pieces() if is_whole else pieces_after(packed, cursor)
                    async for piece in self._reads.unpacked(pieces):
                        yield piece
                cursor = window.until

    async def read(
        self,
        set_name: str,
        cursor: Position,
        until: Position,
        count: int = READ_CHANGES,
        scope: Scope = NOBODY,
    ) -> tuple[bytes, Position]:
        """The next entries of the stream, and the position of the last of them.

        If its reader goes away meanwhile, Redis answers to the end all the same: an answer that
        nobody waits for costs its connection, and the next reader waits for another.
        """
        channel = ChannelName(set_name, "change")
        async with self._reads.turn(scope):
            reading = asyncio.ensure_future(
                self._journal.read(channel, cursor, until=until, count=count)
            )
            reading.add_done_callback(_retrieve_error)
            rows = await asyncio.shield(reading)
            return render_rows(rows), rows[-1][0] if len(rows) == count else until

    async def packed(self, set_name: str, window: Window) -> PackedEntries:
        """The packed entries of a closed window. If they were not stored yet, they are stored now,
        unless Redis takes no writes."""
        packed = await self._windows.packed(set_name, window)
        if packed is None:
            packed = await self._pack(set_name, window)
            with suppress(TryAgain):
                await self._windows.keep(set_name, window, packed)
        return packed

    async def store_packed(self, set_name: str, window: Window) -> None:
        """Store the packed entries of a closed window, unless they are stored."""
        if await self._windows.packed(set_name, window) is None:
            await self._windows.keep(set_name, window, await self._pack(set_name, window))

    async def _pack(self, set_name: str, window: Window) -> PackedEntries:
        packer = Packer()
        async for piece in self.entries(set_name, window.from_, window.until):
            if len(piece) > THREAD_BYTES:
                await asyncio.to_thread(packer.add, piece)
            else:
                packer.add(piece)
        return packer.packed()

    async def _packed_after(self, set_name: str, cursor: Position) -> tuple[Window, PackedEntries]:
        window = await self._windows.closed_after(set_name, cursor)
        packed = window and await self._windows.packed(set_name, window)
        if window is None or packed is None:
            raise TryAgain("the journal has changed meanwhile; repeat the request")
        return window, packed


def _retrieve_error(reading: asyncio.Future[Any]) -> None:
    """So that asyncio does not log an error of a read whose reader has gone as forgotten."""
    if not reading.cancelled():
        reading.exception()
