"""Compressed entries, as part of gzip documents: compressed once, then sent in any document.

They are raw deflate that ends at a whole byte, so a gzip file can be put together around them
without decompressing. ISA-L does the work, several times faster than zlib.
"""

import re
import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from isal import isal_zlib

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Row

PIECE_BYTES = 256 * 1024
PACKER_BYTES = 360 * 1024  # the buffers of one compressor
LEVEL = 1  # of ISA-L: higher levels take longer and save nothing on these entries

_HEAD = struct.Struct("<IQ")
GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_STORED = struct.Struct("<BHH")
_DATETIME = re.compile(rb'<rs:md change="[^"]*" datetime="([^"]*)"')
_END = b"</url>"
_CHANGE = b"<rs:md change="


class PackedEntries(NamedTuple):
    """Compressed entries, with their length and checksum."""

    length: int  # of the entries in bytes, uncompressed
    checksum: int
    deflated: bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        checksum, length = _HEAD.unpack_from(data)
        return cls(length, checksum, data[_HEAD.size :])

    def to_bytes(self) -> bytes:
        return _HEAD.pack(self.checksum, self.length) + self.deflated

    def pieces(self) -> Iterator[bytes]:
        """The entries, piece by piece: the whole may be 50 MB."""
        inflate = isal_zlib.decompressobj(-15)
        piece = inflate.decompress(self.deflated, PIECE_BYTES)
        while piece:
            yield piece
            piece = inflate.decompress(inflate.unconsumed_tail, PIECE_BYTES)

    def gzipped(self, head: bytes, foot: bytes) -> tuple[bytes, bytes, bytes]:
        """The gzip file of a document that has these entries between `head` and `foot`."""
        before = isal_zlib.crc32_combine(isal_zlib.crc32(head), self.checksum, self.length)
        size = (len(head) + self.length + len(foot)) & 0xFFFFFFFF
        end = struct.pack("<II", isal_zlib.crc32(foot, before), size)
        return GZIP_HEAD + stored(head), self.deflated, stored(foot, last=True) + end


class Packer:
    """Compresses entries as they come."""

    def __init__(self) -> None:
        self.length = self._checksum = 0
        self._deflate = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, -15)
        self._deflated: list[bytes] = []

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return PACKER_BYTES + sum(map(len, self._deflated))

    def add(self, entries: bytes) -> None:
        self.length += len(entries)
        self._checksum = isal_zlib.crc32(entries, self._checksum)
        self._deflated.append(self._deflate.compress(entries))

    def packed(self) -> PackedEntries:
        """Everything that was added; more can be added afterwards."""
        self._deflated.append(self._deflate.flush(isal_zlib.Z_FULL_FLUSH))
        self._deflated = [b"".join(self._deflated)]
        return PackedEntries(self.length, self._checksum, self._deflated[0])


def pieces_after(packed: PackedEntries, cursor: Position) -> Iterator[bytes]:
    """The entries of a Change List that are newer than the cursor, piece by piece."""
    pieces = _whole_entries(packed)
    for entries in pieces:
        if _newest(entries) > cursor:
            yield entries_after(entries, cursor)
            yield from pieces


def entries_after(entries: bytes, cursor: Position) -> bytes:
    """The part of a Change List's entries that is newer than the cursor."""
    each = _split(entries)
    return b"".join(each[bisect_right(each, cursor, key=_newest) :])


def rows_after(packed: PackedEntries, cursor: Position, count: int) -> list[Row]:
    """The next changes after the cursor, as rows of a journal with their datetimes filled in."""
    found: list[bytes] = []
    for entries in pieces_after(packed, cursor):
        found += _split(entries)
        if len(found) >= count:
            break
    return _rows(found[:count])


def rows_until(packed: PackedEntries, until: Position, count: int) -> list[Row]:
    """The last changes up to a position."""
    found: list[bytes] = []
    for entries in _pieces_until(packed, until, count):
        found += _split(entries)
    end = bisect_right(found, until, key=_newest)
    return _rows(found[max(0, end - count) : end])


def _pieces_until(packed: PackedEntries, until: Position, count: int) -> Sequence[bytes]:
    """The pieces that have the last changes up to a position."""
    pieces: deque[bytes] = deque()
    held = 0
    for entries in _whole_entries(packed):
        pieces.append(entries)
        if _newest(entries) >= until:
            break
        held += entries.count(_END)
        while held - (oldest := pieces[0].count(_END)) >= count:
            pieces.popleft()
            held -= oldest
    return pieces


def _split(entries: bytes) -> list[bytes]:
    return [entry + _END for entry in entries.split(_END)[:-1]]


def _rows(each: Iterable[bytes]) -> list[Row]:
    return [(_newest(entry), entry) for entry in each]


def count_entries(packed: PackedEntries) -> int:
    return sum(entries.count(_END) for entries in _whole_entries(packed))


def some_entries(packed: PackedEntries, offset: int, limit: int) -> Iterator[bytes]:
    """So many entries, without the first ones, piece by piece."""
    for entries in _whole_entries(packed):
        each = entries.split(_END)[:-1]
        chosen = each[offset : offset + limit]
        offset, limit = max(0, offset - len(each)), limit - len(chosen)
        yield b"".join(entry + _END for entry in chosen)
        if not limit:
            return


def _whole_entries(packed: PackedEntries) -> Iterator[bytes]:
    """The entries in pieces that end at the end of an entry."""
    rest = b""
    for piece in packed.pieces():
        entries, end, rest = (rest + piece).rpartition(_END)
        if end:
            yield entries + end


def _newest(entries: bytes) -> Position:
    """The position of the last of these entries."""
    found = _DATETIME.match(entries, entries.rindex(_CHANGE))
    if found is None:
        raise ValueError("a packed entry has no datetime")
    return Position.parse(found[1].decode())


def stored(data: bytes, *, last: bool = False) -> bytes:
    """An uncompressed deflate block, of 64 KiB at most."""
    return _STORED.pack(last, len(data), len(data) ^ 0xFFFF) + data
