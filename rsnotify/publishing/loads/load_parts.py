"""What a load brings, sorted by shard: for Redis few large commands are half the work of many."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple
from zlib import crc32

import msgspec

from rsnotify.journal import keys

GATHERED_RESOURCES = 8_000  # some thirty in each shard
GATHERED_BYTES = 4 * 1024 * 1024
PART_RESOURCES = 1_000  # Redis is busy with them for some milliseconds
PART_BYTES = 512 * 1024

Brought = tuple[bytes, bytes]  # the escaped loc of a resource, and the rest of its fragment

_shard_in = itemgetter(0)


class Part(NamedTuple):
    """Resources that are staged at once."""

    brought: Sequence[Brought]
    packed: bytes


class Gathered:
    """Resources that are staged together, as soon as there are enough of them."""

    def __init__(self) -> None:
        self._held: list[tuple[int, Brought]] = []
        self._bytes = 0

    def add(self, brought: Iterable[Brought]) -> None:
        added = [(shard_of(each[0]), each) for each in brought]
        self._held += added
        self._bytes += sum([len(loc) + len(rest) for _, (loc, rest) in added])

    @property
    def is_full(self) -> bool:
        return len(self._held) >= GATHERED_RESOURCES or self._bytes >= GATHERED_BYTES

    def parts(self) -> Iterator[Part]:
        """All of it, shard by shard."""
        self._held.sort(key=_shard_in)
        start = size = 0
        for number, (_, (loc, rest)) in enumerate(self._held):
            size += len(loc) + len(rest)
            if number + 1 - start == PART_RESOURCES or size >= PART_BYTES:
                yield _part(self._held[start : number + 1])
                start, size = number + 1, 0
        if start < len(self._held):
            yield _part(self._held[start:])


def _part(sorted_: Sequence[tuple[int, Brought]]) -> Part:
    return Part([brought for _, brought in sorted_], _packed(sorted_))


def _packed(sorted_: Iterable[tuple[int, Brought]]) -> bytes:
    """As the scripts read them: Redis knows texts in MessagePack, but no bytes."""
    packed: list[int | list[str]] = []
    for shard, group in groupby(sorted_, _shard_in):
        texts = [text.decode() for _, brought in group for text in brought]
        packed += (shard, texts)
    return msgspec.msgpack.encode(packed)


def pack(brought: Iterable[Brought]) -> bytes:
    """So many that they are one part."""
    return _packed(sorted([(shard_of(each[0]), each) for each in brought], key=_shard_in))


def shard_of(loc: bytes) -> int:
    return crc32(loc) % keys.STATE_SHARDS
