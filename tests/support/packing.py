"""Packed entries, made of pieces that are there; gzip that inflates without end."""

import gzip
import zlib
from collections.abc import Iterable

from rsnotify.journal.gzip_parts import PackedEntries, Packer

MEBIBYTE = 2**20
GZIP_HEAD = gzip.compress(b"", mtime=0)[:10]


def bomb(size: int, begin: bytes = b"") -> bytes:
    """A gzip that begins so, with at least so many spaces; nobody is meant to see its end.

    To pack them all would take a second, in each process that imports a test.
    """
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    head = packer.compress(begin) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(b" " * MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return GZIP_HEAD + head + piece * -(-size // MEBIBYTE)


def pack(pieces: Iterable[bytes]) -> PackedEntries:
    packer = Packer()
    for entries in pieces:
        packer.add(entries)
    return packer.packed()
