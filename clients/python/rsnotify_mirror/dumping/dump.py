"""Make the next dump of a copy: packages, then documents, then a new generation.

Rules that hold here: a dump whose state is not known, or that would leave something out, is not
made; what stands stays as it is. Each generation is of a later moment than the one before.

What is as it was stays as it is, or is copied as it lies. Memory does not grow with the copy; rows
and members are read side by side, by address. A Change Dump says how the packages of two dumps
differ, so that the older ones and it are the newer ones, whatever changes the mirror got.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, groupby
from pathlib import Path
from time import time
from typing import NamedTuple

from msgspec.structs import replace

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import MICROSECONDS, Position, render_datetime
from rsnotify.resourcesync.xml_writer import Md
from rsnotify_mirror.dumping.changes import Changes
from rsnotify_mirror.dumping.copy_reader import Content, CopyReader, HeldRow, NotAsFetched, entry_of
from rsnotify_mirror.dumping.dump_documents import Generation, documents_of, stretches_of
from rsnotify_mirror.dumping.generations import DumpFolder
from rsnotify_mirror.dumping.package_writer import MadePackage, PackageWriter, is_readable, members
from rsnotify_mirror.dumping.parts import DumpPart, Limits, Range, planned
from rsnotify_mirror.dumping.zip_records import ZipMember, needed

STATED_BYTES = 500  # about so many are said of a resource in headers and manifest
REPORTED_ROWS = 250
KEEP = 2  # a Destination that has read the documents of the last one finds what they name

Progress = Callable[[int, int], None]
"""Called with how many resources are done, and how many there are."""


class DumpOptions(NamedTuple):
    """How dumps are made."""

    base: str
    limits: Limits = Limits()
    makes_change_dumps: bool = False
    keep: int = KEEP
    leaves_out: bool = False  # what the mirror could not fetch, or is not as it was fetched
    up: str | None = None


# --- packages ------------------------------------------------------------------------------------


SideBySide = tuple[Iterator[HeldRow], dict[str, ZipMember], str]
"""What the copy has of some addresses, and what a package of the last dump, named, has of them."""


class Packing:
    """Makes the packages of one dump."""

    def __init__(
        self,
        copy: CopyReader,
        folder: Path,
        new: Callable[[int], PackageWriter],
        options: DumpOptions,
        old: Sequence[MadePackage],
        changes: Changes | None,
        progress: Progress | None,
    ) -> None:
        self.problems: list[str] = []
        self._copy = copy
        self._folder = folder
        self._new = new
        self._options = options
        self._old = sorted(
            (each for each in old if is_readable(folder, each)), key=lambda each: each.first
        )
        self._changes = changes
        self._progress = progress
        self._done = self._total = 0
        self._writer: PackageWriter | None = None
        self._made: list[MadePackage] = []
        self._numbers = count(1)

    def packages(self) -> tuple[MadePackage, ...]:
        """All that the copy has."""
        ranges = list(self._ranges())
        self._total = sum(each.entries for each in ranges)
        kept = {each.name: each for each in self._old}
        try:
            for part in planned(ranges, self._options.limits):
                if part.kept is not None:
                    self._made.append(kept[part.kept])
                    self._report(part.entries)
                else:
                    self._write(part)
        finally:
            if self._writer is not None:
                self._writer.abandon()
        return tuple(self._made)

    # What has changed ---------------------------------------------------------------------------

    def _ranges(self) -> Iterator[Range]:
        begins = ["", *(each.first for each in self._old[1:])]
        packages: list[MadePackage | None] = [*self._old] or [None]
        for first, before, package in zip(begins, [*begins[1:], None], packages, strict=True):
            if package and all(map(self._is_as_it_was, self._sides(first, before, [package]))):
                yield Range(first, package.entries, package.length, package.name)
            else:
                entries, size = self._copy.extent(first, before)
                yield Range(first, entries, size + entries * STATED_BYTES)

    def _sides(
        self, first: str, before: str | None, packages: Sequence[MadePackage]
    ) -> Iterator[SideBySide]:
        """One after another, each with so many members as an index has together."""
        batches = (
            (each.name, batch) for each in packages for batch in members(self._folder, each.name)
        )
        package, old = next(batches, ("", []))
        for following, batch in batches:
            begin = batch[0].loc
            yield self._side_by_side(first, begin, package, old)
            first, package, old = begin, following, batch
        yield self._side_by_side(first, before, package, old)

    def _side_by_side(
        self, first: str, before: str | None, package: str, old: Sequence[ZipMember]
    ) -> SideBySide:
        return self._copy.rows(first, before), {each.loc: each for each in old}, package

    def _is_as_it_was(self, sides: SideBySide) -> bool:
        rows, old, _ = sides
        return all(self._is_same(row, old.pop(row.loc, None)) for row in rows) and not old

    def _is_same(self, row: HeldRow, member: ZipMember | None) -> bool:
        if member is None or row.seen == member.seen:
            return member is not None
        return not self._has_changed_since(row) and self._has_same_content(row, member)

    def _has_changed_since(self, row: HeldRow) -> bool:
        """Whether the Source has listed a change of it since, be it to the same content."""
        position = row.described()[0].position
        return self._changes is not None and self._changes.covers(position)

    def _has_same_content(self, row: HeldRow, member: ZipMember) -> bool:
        """As far as a digest says so; what has none is read again, to see."""
        return '"hash":' in row.have and entry_of(row, *row.described()) == member.entry

    # Writing ------------------------------------------------------------------------------------

    def _write(self, part: DumpPart) -> None:
        """The packages of one part."""
        packages = [each for each in self._old if self._is_within(each, part)]
        for rows, old, package in self._sides(part.first, part.before, packages):
            pairs = ((row, old.pop(row.loc, None)) for row in rows)
            for is_known, run in groupby(pairs, key=_is_known):
                if is_known:
                    self._keep(part, package, [member for _, member in run if member])
                else:
                    for row, member in run:
                        self._put(part, package, row, member)
            self._gone(old)
        self._end_package()

    def _is_within(self, package: MadePackage, part: DumpPart) -> bool:
        begins = "" if package is self._old[0] else package.first
        return part.first <= begins and (part.before is None or begins < part.before)

    def _keep(self, part: DumpPart, package: str, old: Sequence[ZipMember]) -> PackageWriter:
        """These stay as they are; where there is no room for all, some go into a new package."""
        writer = self._writer_for(part, old[:1])
        if len(old) > 1 and self._is_full(writer, part, old):
            half = len(old) // 2
            self._keep(part, package, old[:half])
            return self._keep(part, package, old[half:])
        writer.copy(package, old)
        self._report(len(old))
        return writer

    def _put(self, part: DumpPart, package: str, row: HeldRow, old: ZipMember | None) -> None:
        """This one is new, or something else is known of it."""
        if old is not None and self._has_same_content(row, old):
            old.seen = row.seen
            self._note_change(self._keep(part, package, [old]), row, old, old)
            return
        content = self._read(row)
        if content is not None:
            writer = self._writer_for(part, [content.member])
            writer.add(content)
            self._report(1)
            self._note_change(writer, content.row, old, content.member)
        elif old is not None:  # it stays as it was
            self._keep(part, package, [old])

    def _writer_for(self, part: DumpPart, members: Sequence[ZipMember]) -> PackageWriter:
        """The package that they go into: a new one, if there is no room in the last."""
        if self._writer is not None and self._is_full(self._writer, part, members):
            self._end_package()
        if self._writer is None:
            self._writer = self._new(next(self._numbers))
        return self._writer

    def _is_full(self, writer: PackageWriter, part: DumpPart, members: Sequence[ZipMember]) -> bool:
        """The last member may go beyond the size that the packages of the part should have."""
        more = needed(members)
        length = writer.length + (more.bytes if len(members) > 1 else 0)
        return (
            writer.entries + len(members) > part.entries
            or length >= part.bytes
            or not writer.has_room(more)
        )

    def _end_package(self) -> None:
        if self._writer is not None:
            self._made.append(self._writer.close())
            self._writer = None

    def _read(self, row: HeldRow) -> Content | None:
        try:
            return self._copy.read(row)
        except NotAsFetched as error:
            if not self._options.leaves_out:
                raise
            self.problems.append(str(error))
            return None

    def _note_change(
        self, writer: PackageWriter, row: HeldRow, old: ZipMember | None, member: ZipMember
    ) -> None:
        is_changed = old is None or old.entry != member.entry
        if self._changes is not None and (is_changed or self._has_changed_since(row)):
            change = "created" if old is None else "updated"
            self._changes.changed(writer.name, member, row.described()[0], change)

    def _gone(self, locs: Iterable[str]) -> None:
        if self._changes is not None:
            for loc in locs:
                self._changes.deleted(loc)

    def _report(self, done: int) -> None:
        before, self._done = self._done, self._done + done
        if self._progress is not None and before // REPORTED_ROWS != self._done // REPORTED_ROWS:
            self._progress(self._done, self._total)


def _is_known(pair: tuple[HeldRow, ZipMember | None]) -> bool:
    row, member = pair
    return member is not None and member.seen == row.seen


# --- the dump ------------------------------------------------------------------------------------


class Dumped(NamedTuple):
    """What a run has made; without a generation, nothing has changed."""

    generation: Generation | None
    problems: tuple[str, ...]


def make(
    copy: Path, folder: DumpFolder, options: DumpOptions, progress: Progress | None = None
) -> Dumped:
    """Make a dump of the copy, if it has changed since the last one."""
    with CopyReader(copy) as reader:
        at, last = reader.at(without_failed=options.leaves_out), _last(folder, reader.source)
        failed = [f"{loc}: {why}" for loc, why in reader.failed()]
        up = options.up or reader.source
        before = last if last and (last.base, last.up) == (options.base, up) else None
        if before is not None and at <= Position.parse(before.at):
            return Dumped(None, tuple(failed))
        folder.sweep(folder.kept)  # what a killed run left
        changes = None
        if options.makes_change_dumps and before is not None:
            changes = Changes(Position.parse(before.at), at)
        run, change_packages = _name(folder), None
        md = Md(capability="resourcedump-manifest", at=str(at))

        def new(number: int) -> PackageWriter:
            return PackageWriter(folder.packages, f"{run}-{number:04}", md, up, options.limits)

        old = last.packages if last and last.up == up else ()
        packing = Packing(reader, folder.packages, new, options, old, changes, progress)
        packages = packing.packages()
        if changes is not None:
            for loc, position in reader.gone(changes.after, at):
                changes.deleted(loc, position)
            if len(changes):
                change_packages = tuple(changes.packages(folder.packages, run, up, options.limits))
            changes.close()
        problems = (*failed, *packing.problems)
        unchanged = before.packages if before else None if last else ()
        if packages == unchanged and not change_packages:
            return Dumped(None, problems)
        completed = render_datetime(int(time() * MICROSECONDS))
        generation = Generation(
            *(run, reader.source, up, options.base, str(at), completed, packages, change_packages)
        )
    kept = [*folder.kept, generation][-options.keep :]
    still_listed = (made.name for each in stretches_of(kept) for made in each.changes or ())
    kept[-1] = generation = replace(generation, told=tuple(still_listed))
    folder.publish(generation, documents_of(kept))
    folder.sweep(kept)
    return Dumped(generation, problems)


def _last(folder: DumpFolder, source: str) -> Generation | None:
    last = folder.kept[-1] if folder.kept else None
    if last is not None and last.source != source:
        raise InvalidSettings(f"{folder.directory} holds dumps of {last.source}, not of {source}")
    return last


def _name(folder: DumpFolder) -> str:
    """Names are in the order of time, whatever the clock does."""
    name = render_datetime(int(time() * MICROSECONDS)).translate({ord("-"): None, ord(":"): None})
    last = folder.kept[-1].name if folder.kept else ""
    return name if name > last else f"{last}a"
