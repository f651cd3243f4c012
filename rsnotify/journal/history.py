"""Reads the changes of a channel after any position: from its Redis stream, and older ones from the
windows that were packed when they closed. No change is missing between the two.
"""

import asyncio

from rsnotify.errors import Trimmed, TryAgain
from rsnotify.journal.gzip_parts import rows_after, rows_until
from rsnotify.journal.journal import Journal
from rsnotify.journal.windows import Windows
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName, Row


class History:
    """Reads the changes after a position. A framework channel has no windows."""

    def __init__(self, journal: Journal, windows: Windows | None) -> None:
        self._journal = journal
        self._windows = windows

    async def read(
        self, channel: ChannelName, after: Position, *, until: Position, count: int
    ) -> list[Row]:
        """Up to `count` changes in `(after, until]`, oldest first; `Trimmed` if some are gone."""
        rows: list[Row] = []
        while len(rows) < count:
            wanted = count - len(rows)
            try:
                return rows + await self._journal.read(channel, after, until=until, count=wanted)
            except Trimmed as trimmed:
                found, after = await self._read_packed(channel, after, wanted, trimmed)
                rows += found
        return rows

    async def _read_packed(
        self, channel: ChannelName, after: Position, count: int, trimmed: Trimmed
    ) -> tuple[list[Row], Position]:
        """The next changes from the next packed window, and where that window ends."""
        if self._windows is None or channel.kind != "change":
            raise trimmed
        window = await self._windows.closed_after(channel.set_name, after)
        if window is None or window.until > trimmed.first:
            raise trimmed
        if window.from_ > after:
            raise Trimmed(window.from_)
        packed = await self._windows.packed(channel.set_name, window)
        if packed is None:
            raise TryAgain("the journal has changed meanwhile; repeat the request")
        return await asyncio.to_thread(rows_after, packed, after, count), window.until

    async def read_back(self, channel: ChannelName, until: Position, count: int) -> list[Row]:
        """The last `count` changes up to `until` that are kept, oldest first."""
        rows, first = await self._journal.read_back(channel, until, count=count)
        rows.reverse()
        reached = min(until, first, rows[0][0] - 1 if rows else until)
        while self._windows is not None and len(rows) < count:
            window = await self._windows.closed_after(channel.set_name, Position(reached - 1))
            packed = window and await self._windows.packed(channel.set_name, window)
            if window is None or packed is None or window.from_ >= reached:
                break
            wanted = count - len(rows)
            older = await asyncio.to_thread(rows_until, packed, Position(reached), wanted)
            rows, reached = older + rows, window.from_
        return rows

    async def kept_from(self, channel: ChannelName, first: Position) -> Position:
        """The position where the kept changes begin; the stream begins at `first`."""
        if self._windows is None or channel.kind != "change":
            return first
        oldest = await self._windows.oldest(channel.set_name)
        return first if oldest is None else min(first, oldest.from_)
