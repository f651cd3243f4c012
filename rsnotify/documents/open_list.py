"""The open Change Lists, rendered and kept in memory while they are polled.

A list holds the entries of one window from its beginning and grows only at its end. It grows from
the hub's tail, else from the journal. When the window closes, a new list begins; so it does when
Redis may have lost changes that the list holds. When the cache releases a list, the next poll makes
a new one, and answers that are being sent are not disturbed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from rsnotify.journal.cache import Cache
from rsnotify.journal.gzip_parts import PackedEntries, Packer
from rsnotify.journal.tail import Tail
from rsnotify.journal.window import JournalRecord
from rsnotify.resourcesync.change import Position

PIECE_BYTES = 256 * 1024

OnRelease = Callable[["OpenList"], None]
ReadJournal = Callable[[Position, Position], Awaitable[tuple[bytes, Position]]]
"""Reads the journal after a position, up to another position."""


class Key(NamedTuple):
    """What a list is made of."""

    created: Position
    window_from: Position
    losses: int = 0


class OpenList:
    """The entries of one open window."""

    stays_when_idle = True  # making it costs more than keeping it, and pollers come again

    def __init__(self, key: Key, forget: OnRelease) -> None:
        self.key = key
        self.until = key.window_from
        self.length = 0
        self._forget = forget
        self._pieces: list[bytes] = []
        self._growing = asyncio.Lock()
        self._packer: Packer | None = None  # made at the first request for gzip
        self._packed_bytes = 0

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self.length + (0 if self._packer is None else self._packer.size)

    def release(self) -> None:
        self._forget(self)

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The entries, in pieces that all answers share: a slow peer holds no copy of the list."""
        return tuple(self._pieces)

    @property
    def is_growing(self) -> bool:
        return self._growing.locked()

    def grow_from_tail(self, tail: Tail, until: Position) -> None:
        """Add what the tail has, up to a position."""
        if self.is_growing:
            return
        while self.until < until:
            found = tail.next_after(self.until)
            if found is None or found.until > until:
                return
            self._add(found.payload[found.entries], found.until)

    async def grow_to(self, until: Position, read: ReadJournal) -> None:
        """Read the journal, up to a position."""
        async with self._growing:
            while self.until < until:
                self._add(*await read(self.until, until))

    def _add(self, entries: bytes, until: Position) -> None:
        if self._pieces and len(self._pieces[-1]) < PIECE_BYTES:
            self._pieces[-1] += entries
        else:
            self._pieces.append(entries)
        self.length += len(entries)
        self.until = until

    async def packed(self) -> tuple[PackedEntries, Position]:
        """The compressed entries, and their last position; only new entries are compressed."""
        async with self._growing:
            until, more = self.until, self._from(self._packed_bytes)
            self._packed_bytes = self.length
            return await asyncio.to_thread(self._pack, more), until

    def _from(self, begin: int) -> bytes:
        """The entries from this byte on."""
        rest: list[bytes] = []
        at = self.length
        while at > begin:
            piece = self._pieces[-1 - len(rest)]
            at -= len(piece)
            rest.append(piece[max(0, begin - at) :])
        return b"".join(reversed(rest))

    def _pack(self, more: bytes) -> PackedEntries:
        packer = self._packer = self._packer or Packer()
        packer.add(more)
        return packer.packed()


class OpenLists:
    """The open list of every set that is polled."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lists: dict[str, OpenList] = {}

    def of(self, set_name: str, record: JournalRecord, losses: int = 0) -> OpenList:
        """The list; a new one if it is of another window, or made before a loss of changes."""
        key = Key(record.created, record.window_from, losses)
        found = self._lists.get(set_name)
        if found is None or found.key != key:
            if found is not None:
                self._cache.forget(found)
            found = self._lists[set_name] = OpenList(key, partial(self._forget, set_name))
        return found

    def used(self, set_name: str, kept: OpenList) -> None:
        """Tell the cache that the list was used and may have grown, unless it was released."""
        if self._lists.get(set_name) is kept:
            self._cache.use(kept)

    def _forget(self, set_name: str, kept: OpenList) -> None:
        if self._lists.get(set_name) is kept:
            del self._lists[set_name]
