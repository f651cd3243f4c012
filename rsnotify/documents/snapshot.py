"""Takes a snapshot: the state of a set becomes a Resource List, while changes keep coming in.

`at` is one microsecond after the newest change before the first resource is read. So every change
before it is in the snapshot, no change ever has it as its datetime, and a reader that follows from
it misses none. Memory holds one compressed part; the event loop is blocked for one slice at a time.
"""

import asyncio
from collections.abc import Iterator
from time import monotonic

from rsnotify.documents.resource_state import Resource, render_resources
from rsnotify.documents.snapshots import Snapshot, Snapshots
from rsnotify.journal.claims import Claim
from rsnotify.journal.gzip_parts import PackedEntries, Packer
from rsnotify.journal.windows import Windows

PART_RESOURCES = 50_000
PART_BYTES = 50_000_000  # leaves room for what stands around the entries
SLICE_RESOURCES = 500  # two milliseconds of the event loop
SLICE_BYTES = 256 * 1024


class Parts:
    """Fills one part after the other, and returns the full ones."""

    def __init__(self) -> None:
        self.resources = 0
        self._in_part = 0
        self._packer = Packer()

    def full_before(self, entries: bytes, count: int) -> PackedEntries | None:
        """The part as it is, if these entries do not fit into it."""
        fits = self._in_part + count <= PART_RESOURCES
        if fits and self._packer.length + len(entries) <= PART_BYTES:
            return None
        return self.finish()

    def add(self, entries: bytes, count: int) -> None:
        self.resources += count
        self._in_part += count
        self._packer.add(entries)

    def finish(self) -> PackedEntries:
        packed = self._packer.packed()
        self._in_part, self._packer = 0, Packer()
        return packed


class SnapshotRun:
    """The taking of one snapshot."""

    def __init__(
        self,
        snapshots: Snapshots,
        windows: Windows,
        set_name: str,
        claim: Claim,
        *,
        keep_old: bool,
    ) -> None:
        self._snapshots = snapshots
        self._windows = windows
        self._set_name = set_name
        self._claim = claim
        self._keep_old = keep_old
        self._name = ""
        self._number = 0

    async def run(self) -> Snapshot | None:
        """The finished snapshot; None if the claim was lost on the way."""
        at, created, begun = await self._snapshots.begin(self._set_name)
        self._name = str(int(begun))
        resources = await self._write_parts()
        completed = max(at, await self._windows.now())
        snapshot = Snapshot(self._name, at, completed, self._number, resources)
        published = await self._snapshots.publish(
            self._set_name, created, self._claim, snapshot, keep_old=self._keep_old
        )
        return snapshot if published else None

    async def _write_parts(self) -> int:
        parts = Parts()
        async for some in self._snapshots.resources(self._set_name, self._claim):
            for resources in _slices(some):
                began = monotonic()
                entries = render_resources(resources)
                full = parts.full_before(entries, len(resources))
                if full is not None:
                    await self._write(full)
                parts.add(entries, len(resources))
                await asyncio.sleep(monotonic() - began)  # leave as much time to everything else
        await self._write(parts.finish())
        return parts.resources

    async def _write(self, packed: PackedEntries) -> None:
        self._number += 1
        await self._snapshots.write_part(self._set_name, self._name, self._number, packed)


async def take_snapshot(
    snapshots: Snapshots, windows: Windows, set_name: str, *, keep_old: bool = False
) -> Snapshot | None:
    """Take a snapshot now; None if another hub process does. The one before it may be kept."""
    async with snapshots.claim(set_name) as claim:
        if claim is None:
            return None
        return await SnapshotRun(snapshots, windows, set_name, claim, keep_old=keep_old).run()


def _slices(some: list[Resource]) -> Iterator[list[Resource]]:
    size = sum([len(kept) for _, kept in some])
    most = min(SLICE_RESOURCES, 1 + SLICE_BYTES * len(some) // max(1, size))
    for start in range(0, len(some), most):
        yield some[start : start + most]
