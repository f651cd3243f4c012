"""Reads a stretch of a change journal as the entries of a Change List, piece by piece.

Changes that the Redis stream no longer holds come from the packed windows, also if they are trimmed
while the stretch is being read. Memory holds one piece at a time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from rsnotify.errors import Trimmed, TryAgain
from rsnotify.journal.gzip_parts import PackedEntries, Packer, pieces_after
from rsnotify.journal.journal import Journal
from rsnotify.journal.window import Window
from rsnotify.journal.windows import Windows
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, render_rows
from rsnotify.single_flight import AtOnce

FIRST_CHANGES = 100  # so that the first byte comes soon
READ_CHANGES = 500  # a millisecond of Redis, then one of the event loop: so long others wait
THREAD_BYTES = 128 * 1024  # larger pieces are compressed in a thread
READS_AT_ONCE = 8  # of all readers of lists: a turn of the event loop has no more of them
COLD_PULLS = 32  # that hold a packed window in memory, each up to 50 MB

FULL = "too many others read changes as old as these; try again later"


class Stretches:
    """Reads change journals, from the stream or from packed windows."""

    def __init__(self, journal: Journal, windows: Windows, *, cold_pulls: int = COLD_PULLS) -> None:
        self._journal = journal
        self._windows = windows
        self._cold = AtOnce(cold_pulls, FULL)
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def entries(
        self, set_name: str, from_: Position, until: Position
    ) -> AsyncIterator[bytes]:
        """The entries in `(from_, until]`, piece by piece; `until` ends a window or is the head."""
        cursor, count = from_, FIRST_CHANGES
        while cursor < until:
            try:
                piece, cursor = await self.read(set_name, cursor, until, count)
                yield piece
                count = READ_CHANGES
            except Trimmed:
                async with self._cold.turn():  # until its reader has taken it
                    window, packed = await self._packed_after(set_name, cursor)
                    async for piece in _unpacked(packed, window, cursor):
                        yield piece
                cursor = window.until

    async def read(
        self, set_name: str, cursor: Position, until: Position, count: int = READ_CHANGES
    ) -> tuple[bytes, Position]:
        """The next entries of the stream, and the position of the last of them.

        If its reader goes away meanwhile, Redis answers to the end all the same: an answer that
        nobody waits for costs its connection, and the next reader waits for another.
        """
        channel = ChannelName(set_name, "change")
        async with self._reads:
            reading = asyncio.ensure_future(
                self._journal.read(channel, cursor, until=until, count=count)
            )
            reading.add_done_callback(_retrieve_error)
            rows = await asyncio.shield(reading)
            return render_rows(rows), rows[-1][0] if len(rows) == count else until

    async def packed(self, set_name: str, window: Window) -> PackedEntries:
        """The packed entries of a closed window. If they were not stored, they are now, unless
        Redis takes no writes."""
        packed = await self._windows.packed(set_name, window)
        if packed is None:
            packed = await self._pack(set_name, window)
            with suppress(TryAgain):
                await self._windows.keep(set_name, window, packed)
        return packed

    async def store_packed(self, set_name: str, window: Window) -> None:
        """Store the packed entries of a closed window, if they were not."""
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


async def _unpacked(
    packed: PackedEntries, window: Window, cursor: Position
) -> AsyncIterator[bytes]:
    pieces = packed.pieces() if cursor <= window.from_ else pieces_after(packed, cursor)
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece
