"""The open Change Lists, kept rendered in memory as far as they were asked for.

Rules that hold here: a list holds one window's entries from its beginning, grows only at its end,
and is made anew when the window closes; it grows from the hub's tail, which costs a memory copy,
and where the tail does not reach, from the journal. A list that the cache lets go of is made anew
for who asks next; whoever holds it yet is not disturbed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from rsnotify.cache import Cache
from rsnotify.core.gzip_parts import Packed, Packer
from rsnotify.core.tail import Tail
from rsnotify.core.window import Record
from rsnotify.resourcesync.change import Position

PIECE_BYTES = 256 * 1024

OnRelease = Callable[["OpenList"], None]
ReadJournal = Callable[[Position, Position], Awaitable[tuple[bytes, Position]]]
"""Reads on in the journal: after a position, up to another."""


class OpenList:
    """The entries of one open window."""

    stays_when_idle = True  # to make it costs more than to keep it, and who polls comes again

    def __init__(self, key: tuple[Position, Position], forget: OnRelease) -> None:
        self.key = key
        self.until = key[1]
        self.length = 0
        self._forget = forget
        self._pieces: list[bytes] = []
        self._growing = asyncio.Lock()
        self._packer: Packer | None = None  # nobody may ask for gzip
        self._packed_bytes = 0

    @property
    def size(self) -> int:
        """The bytes of memory that it takes."""
        return self.length + (0 if self._packer is None else self._packer.size)

    def release(self) -> None:
        self._forget(self)

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The entries, in pieces that all versions of the list share: who reads it slowly holds
        no copy of it."""
        return tuple(self._pieces)

    @property
    def is_growing(self) -> bool:
        return self._growing.locked()

    def grow_from_tail(self, tail: Tail, until: Position) -> None:
        """Grow from the tail, as far as it joins."""
        if self.is_growing:
            return
        while self.until < until:
            found = tail.next_after(self.until)
            if found is None or found.until > until:
                return
            self._add(found.payload[found.entries], found.until)

    async def grow_to(self, until: Position, read: ReadJournal) -> None:
        """Grow from the journal."""
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

    async def packed(self) -> tuple[Packed, Position]:
        """The entries compressed, and up to where; only what is new is compressed anew."""
        async with self._growing:
            until, more = self.until, self._from(self._packed_bytes)
            self._packed_bytes = self.length
            return await asyncio.to_thread(self._pack, more), until

    def _from(self, begin: int) -> bytes:
        """What stands from this byte on: the last pieces, or a part of the last one."""
        rest: list[bytes] = []
        at = self.length
        while at > begin:
            piece = self._pieces[-1 - len(rest)]
            at -= len(piece)
            rest.append(piece[max(0, begin - at) :])
        return b"".join(reversed(rest))

    def _pack(self, more: bytes) -> Packed:
        packer = self._packer = self._packer or Packer()
        packer.add(more)
        return packer.packed()


class OpenLists:
    """The open list of every set that is polled."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lists: dict[str, OpenList] = {}

    def of(self, set_name: str, record: Record) -> OpenList:
        key = (record.created, record.window_from)
        found = self._lists.get(set_name)
        if found is None or found.key != key:
            if found is not None:
                self._cache.forget(found)
            found = self._lists[set_name] = OpenList(key, partial(self._forget, set_name))
        return found

    def used(self, set_name: str, kept: OpenList) -> None:
        """It was asked for, and may have grown; one that was let go of meanwhile does not count."""
        if self._lists.get(set_name) is kept:
            self._cache.use(kept)

    def _forget(self, set_name: str, kept: OpenList) -> None:
        if self._lists.get(set_name) is kept:
            del self._lists[set_name]
