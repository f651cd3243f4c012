"""Which packages of the last dump stay as they are, and which are written anew. Pure.

Rules that hold here: each package has the resources of one range of addresses, in their order. A
package is written anew only if something in its range has changed, or if it is too long; what is
joined stays well below the limits, so that the next change does not divide it again.
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from rsnotify_client.dumps import DIRECTORY_BYTES

MAX_BYTES = 1024**3
MAX_ENTRIES = 50_000
JOINED = 0.75  # of what a package may hold


class Limits(NamedTuple):
    """What a package may hold."""

    bytes: int = MAX_BYTES
    entries: int = MAX_ENTRIES
    directory_bytes: int = DIRECTORY_BYTES  # of the ZIP: a Destination reads no more


class Pieces(NamedTuple):
    """How much is done at a time; what is in a dump does not depend on it."""

    small_bytes: int = 1024 * 1024  # of resources that are held in memory
    indexed: int = 500  # members in a piece of an index, at least
    hashed_bytes: int = 16 * 1024 * 1024  # by the thread
    reported: int = 250  # resources that are done, between two reports
    reading_seconds: float = 0.3  # before a resource is read again that is not as it is recorded


PIECES = Pieces()


class Range(NamedTuple):
    """What the copy has now of the addresses from `first` on, up to those of the next range."""

    first: str
    entries: int
    bytes: int
    package: str | None = None  # the one that has just that

    def fill(self, limits: Limits) -> float:
        """How much of a package it needs; a resource that is too long by itself needs one."""
        if self.entries == 1:
            return min(1.0, max(self.bytes / limits.bytes, 1 / limits.entries))
        return max(self.bytes / limits.bytes, self.entries / limits.entries)


class DumpPart(NamedTuple):
    """A range that is kept, or written into packages of the same size; into none if it is empty."""

    first: str
    before: str | None  # where the next one begins
    kept: str | None
    entries: int  # of each package, about
    bytes: int


def planned(ranges: Sequence[Range], limits: Limits) -> list[DumpPart]:
    """What is to be done with each range."""
    groups: list[list[Range]] = []
    for each in ranges:
        if groups and _may_join(groups[-1], each, limits):
            groups[-1].append(each)
        else:
            groups.append([each])
    begins = [group[0].first for group in groups]
    ends = [*begins[1:], None][: len(begins)]
    return [
        _part(group, begin, end, limits)
        for group, begin, end in zip(groups, begins, ends, strict=True)
    ]


def _may_join(group: Sequence[Range], each: Range, limits: Limits) -> bool:
    """Two that are as they were are not touched."""
    is_rewritten = len(group) > 1 or not _stays(group[0], limits) or not _stays(each, limits)
    together = sum(one.fill(limits) for one in group) + each.fill(limits)
    return is_rewritten and together <= JOINED


def _stays(each: Range, limits: Limits) -> bool:
    return each.package is not None and each.fill(limits) <= 1


def _part(group: Sequence[Range], begin: str, end: str | None, limits: Limits) -> DumpPart:
    entries, size = sum(each.entries for each in group), sum(each.bytes for each in group)
    if len(group) == 1 and _stays(group[0], limits):
        return DumpPart(begin, end, group[0].package, entries, size)
    pieces = max(1, ceil(Range(begin, entries, size).fill(limits)))
    return DumpPart(begin, end, None, ceil(entries / pieces), ceil(size / pieces))
