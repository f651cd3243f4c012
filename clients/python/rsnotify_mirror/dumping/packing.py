"""The packages of a new dump: what is as it was stays as it is, or is copied as it lies.

Rules that hold here: memory does not grow with the copy, and nothing is done for each resource that
is as it was; what differs is read in the order of addresses. A Change Dump tells how the packages
of two dumps differ, so that the older ones and it are the newer ones, whatever the mirror was told.
"""

from collections.abc import Callable, Sequence
from itertools import count, pairwise
from pathlib import Path

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.xml_writer import Md
from rsnotify_mirror.dumping.changes import Changes
from rsnotify_mirror.dumping.copy_reader import CopyReader, HeldRow, NotAsFetched
from rsnotify_mirror.dumping.package_index import AFTER_ALL, Mark, PackageIndex
from rsnotify_mirror.dumping.package_writer import MadePackage, OldPackage, PackageWriter, PackedRun
from rsnotify_mirror.dumping.parts import DumpPart, Limits, Range, planned

STATED_BYTES = 500  # about so many are said of a resource in headers and manifest
REPORTED_ROWS = 250

Progress = Callable[[int, int], None]
"""Called with how many resources are done, and how many there are."""


class Packing:
    """Makes the packages of one dump."""

    def __init__(
        self,
        copy: CopyReader,
        index: PackageIndex,
        folder: Path,
        run: str,
        at: Position,
        up: str,
        limits: Limits,
        *,
        old: Sequence[MadePackage] = (),
        changes: Changes | None = None,
        leaves_out: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.problems: list[str] = []
        self._copy = copy
        self._index = index
        self._folder = folder
        self._names = (f"{run}-{number:04}" for number in count(1))
        self._md = Md(capability="resourcedump-manifest", at=str(at))
        self._up = up
        self._limits = limits
        self._old = sorted(old, key=lambda each: each.first)
        self._changes = changes
        self._leaves_out = leaves_out
        self._progress = progress
        self._done = self._total = self._reported = 0
        self._made: list[MadePackage] = []
        self._writer: PackageWriter | None = None
        self._limits_now = limits

    def packages(self) -> list[MadePackage]:
        """All that the copy has."""
        ranges = [self._range(*each) for each in self._ranges()]
        self._total = sum(each.entries for each in ranges)
        try:
            for part in planned(ranges, self._limits):
                self._put(part)
        except BaseException:
            if self._writer is not None:
                self._writer.abandon()
            raise
        return self._made

    # What has changed ---------------------------------------------------------------------------

    def _ranges(self) -> list[tuple[str, str | None, MadePackage | None]]:
        """Where each package of the last dump begins and ends."""
        firsts = ["", *(each.first for each in self._old[1:]), None]
        olds: list[MadePackage | None] = [*self._old] or [None]
        return [
            (first or "", before, old)
            for (first, before), old in zip(pairwise(firsts), olds, strict=True)
        ]

    def _range(self, first: str, before: str | None, package: MadePackage | None) -> Range:
        differences, new, gone, size = self._copy.extent(first, before)
        size += new * STATED_BYTES
        if package is None:
            return Range(first, new, size)
        if not differences:
            return Range(first, package.entries, package.length, package.name)
        stays = package.entries - gone
        return Range(first, stays + new, package.length * stays // package.entries + size)

    # Writing ------------------------------------------------------------------------------------

    def _put(self, part: DumpPart) -> None:
        """The packages of one part."""
        self._limits_now = Limits(part.bytes, part.entries)
        for first, before, package in self._ranges():
            if first < part.first or (part.before is not None and first >= part.before):
                continue
            if package is None:
                for _, _, row in self._copy.differences(first, before):
                    self._read(row)
            elif part.kept is None:
                self._put_anew(first, before, package)
            else:
                last = self._index.before(before or AFTER_ALL, package.start)
                self._index.copy(package.start, last, package.name, package.start)
                self._made.append(package)
                self._report(package.entries)
        self._end_package()

    def _put_anew(self, first: str, before: str | None, package: MadePackage) -> None:
        old, done = OldPackage(self._folder, package), package.start
        try:
            for loc, was_held, row in self._copy.differences(first, before):
                begin = self._index.before(loc, package.start)
                self._copy_on(old, done, begin)
                done = self._index.at(loc) if was_held else begin
                if not self._read(row, PackedRun(old, begin, done).entry):
                    self._copy_on(old, begin, done)  # what the last dump has
            self._copy_on(old, done, self._index.before(before or AFTER_ALL, package.start))
        finally:
            old.close()

    def _copy_on(self, old: OldPackage, begin: Mark, end: Mark) -> None:
        """What is as it was; it may fill packages."""
        while begin.n < end.n:
            writer = self._writer or self._begun()
            fits = self._index.fitting(begin, end, writer.room)
            if fits.n == begin.n and not writer.mark.n:
                fits = self._index.after(begin)
            if fits.n == begin.n:
                self._end_package()
                continue
            if writer.first is None:
                writer.first = self._index.after(begin).loc
            self._index.copy(begin, fits, writer.name, writer.mark)
            writer.copy(old, begin, fits)
            self._report(fits.n - begin.n)
            begin = fits

    def _read(self, row: HeldRow | None, said: bytes = b"") -> bool:
        """Pack what the copy has; `said` is what the last dump says of it, if it has it."""
        if row is None:
            return True
        try:
            content = self._copy.read(row)
        except NotAsFetched as error:
            if not self._leaves_out:
                raise
            self.problems.append(str(error))
            content = None
        if content is None:
            return False
        if self._writer is not None and not self._writer.has_room(content.size):
            self._end_package()
        writer = self._writer or self._begun()
        writer.add(content)
        self._index.add(writer.name, writer.mark, *content.row[1:])
        wanted = content.row.described()[0]
        if self._changes is not None and (
            content.entry != said or self._changes.covers(wanted.position)
        ):
            self._changes.changed(wanted, "updated" if said else "created")
        self._report(1)
        return True

    def _begun(self) -> PackageWriter:
        self._writer = PackageWriter(
            self._folder, next(self._names), self._md, self._up, self._limits_now
        )
        return self._writer

    def _end_package(self) -> None:
        if self._writer is not None:
            self._made.append(self._writer.close())
            self._writer = None

    def _report(self, done: int) -> None:
        self._done += done
        if self._progress is not None and self._done - self._reported >= REPORTED_ROWS:
            self._reported = self._done
            self._progress(self._done, self._total)
