"""Packed entries, made of pieces that are there already."""

from collections.abc import Iterable

from rsnotify.journal.gzip_parts import PackedEntries, Packer


def pack(pieces: Iterable[bytes]) -> PackedEntries:
    packer = Packer()
    for entries in pieces:
        packer.add(entries)
    return packer.packed()
