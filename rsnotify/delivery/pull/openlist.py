"""The open Change Lists, kept rendered in memory as far as they were asked for.

Rules that hold here: a list holds one window's entries from its beginning, grows only at its end,
and is made anew when the window closes; it grows from the hub's tail, which costs a memory copy,
and where the tail does not reach, from the journal. Together the lists are bounded in bytes.
"""

import asyncio
from collections.abc import Awaitable, Callable

from rsnotify.core.change import Position
from rsnotify.core.packing import Packed, Packer
from rsnotify.core.tail import Tail
from rsnotify.core.window import Record

OPEN_BYTES = 128 * 1024 * 1024
PIECE_BYTES = 256 * 1024

Read = Callable[[Position, Position], Awaitable[tuple[bytes, Position]]]
"""Reads on in the journal: after a position, up to another."""


class OpenList:
    """The entries of one open window."""

    def __init__(self, key: tuple[Position, Position]) -> None:
        self.key = key
        self.until = key[1]
        self.size = 0
        self._pieces: list[bytes] = []
        self._growing = asyncio.Lock()
        self._packer = Packer(level=1)
        self._packed_bytes = 0

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The entries, in pieces that all versions of the list share: who reads it slowly holds
        no copy of it."""
        return tuple(self._pieces)

    @property
    def is_growing(self) -> bool:
        return self._growing.locked()

    def take(self, tail: Tail, until: Position) -> None:
        """Grow from the tail, as far as it joins."""
        if self.is_growing:
            return
        while self.until < until:
            found = tail.next_after(self.until)
            if found is None or found.until > until:
                return
            self._add(found.payload[found.entries], found.until)

    async def reach(self, until: Position, read: Read) -> None:
        """Grow from the journal."""
        async with self._growing:
            while self.until < until:
                self._add(*await read(self.until, until))

    def _add(self, entries: bytes, until: Position) -> None:
        if self._pieces and len(self._pieces[-1]) < PIECE_BYTES:
            self._pieces[-1] += entries
        else:
            self._pieces.append(entries)
        self.size += len(entries)
        self.until = until

    async def packed(self) -> tuple[Packed, Position]:
        """The entries compressed, and up to where; only what is new is compressed anew."""
        async with self._growing:
            until, more = self.until, self._from(self._packed_bytes)
            self._packed_bytes = self.size
            return await asyncio.to_thread(self._pack, more), until

    def _from(self, begin: int) -> bytes:
        """What stands from this byte on: the last pieces, or a part of the last one."""
        rest: list[bytes] = []
        at = self.size
        while at > begin:
            piece = self._pieces[-1 - len(rest)]
            at -= len(piece)
            rest.append(piece[max(0, begin - at) :])
        return b"".join(reversed(rest))

    def _pack(self, more: bytes) -> Packed:
        self._packer.add(more)
        return self._packer.packed()


class OpenLists:
    """The open list of every set that is polled."""

    def __init__(self, max_bytes: int = OPEN_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lists: dict[str, OpenList] = {}

    def of(self, set_name: str, record: Record) -> OpenList:
        key = (record.created, record.window_from)
        found = self._lists.pop(set_name, None)
        if found is None or found.key != key:
            found = OpenList(key)
        self._lists[set_name] = found  # the last asked for stands last
        self._forget()
        return found

    def _forget(self) -> None:
        size = sum(each.size for each in self._lists.values())
        for name in list(self._lists)[:-1]:
            if size <= self._max_bytes:
                return
            size -= self._lists.pop(name).size
