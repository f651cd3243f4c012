"""Make the next dump of a copy: packages, then documents, then a new generation.

Rules that hold here: a dump whose state cannot be told, or that would leave something out, is not
made; what stands stays as it is. Each generation is of a later moment than the one before.

What is as it was stays as it is, or is copied as it lies. Memory does not grow with the copy; rows
and members are read side by side, by address. A Change Dump tells how the packages of two dumps
differ, so that the older ones and it are the newer ones, whatever the mirror was told.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from time import time
from typing import BinaryIO, NamedTuple

from msgspec.structs import replace

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import MICROSECONDS, Position, render_datetime
from rsnotify.resourcesync.xml_writer import Md
from rsnotify_mirror.dumping.changes import Changes
from rsnotify_mirror.dumping.copy_reader import (
    Content,
    CopyReader,
    HeldRow,
    NotAsFetched,
    NotWhole,
    entry_of,
)
from rsnotify_mirror.dumping.dump_documents import Generation, documents_of, stretches_of
from rsnotify_mirror.dumping.generations import DumpFolder
from rsnotify_mirror.dumping.package_writer import (
    ZIP,
    MadePackage,
    PackageWriter,
    is_readable,
    members,
)
from rsnotify_mirror.dumping.parts import MAX_ENTRIES, DumpPart, Limits, Range, planned
from rsnotify_mirror.dumping.zip_records import ZipMember
from rsnotify_mirror.state import GONE_SECONDS

# --- packages ------------------------------------------------------------------------------------

STATED_BYTES = 500  # about so many are said of a resource in headers and manifest
REPORTED_ROWS = 250

Progress = Callable[[int, int], None]
"""Called with how many resources are done, and how many there are."""


Pair = tuple[HeldRow | None, ZipMember | None, MadePackage | None]
"""A resource as the copy has it now, and as a package of the last dump has it."""


class Packing:
    """Makes the packages of one dump."""

    def __init__(
        self,
        copy: CopyReader,
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
        self._folder = folder
        self._run = run
        self._md = Md(capability="resourcedump-manifest", at=str(at))
        self._up = up
        self._limits = limits
        self._old = sorted(
            (each for each in old if is_readable(folder, each)), key=lambda each: each.first
        )
        self._changes = changes
        self._leaves_out = leaves_out
        self._progress = progress
        self._done = self._total = 0
        self._numbers = iter(range(1, 1_000_000))

    def packages(self) -> list[MadePackage]:
        """All that the copy has."""
        ranges = list(self._ranges())
        self._total = sum(each.entries for each in ranges)
        kept = {each.name: each for each in self._old}
        made: list[MadePackage] = []
        for part in planned(ranges, self._limits):
            if part.kept is not None:
                made.append(kept[part.kept])
                self._report(part.entries)
            else:
                made += self._written(part)
        return made

    # What has changed ---------------------------------------------------------------------------

    def _ranges(self) -> Iterator[Range]:
        firsts = ["", *(each.first for each in self._old[1:]), None]
        olds: list[MadePackage | None] = [*self._old] or [None]
        for (first, before), package in zip(pairwise(firsts), olds, strict=True):
            yield self._range(first or "", before, package)

    def _range(self, first: str, before: str | None, package: MadePackage | None) -> Range:
        old = [package] if package else []
        if package and all(self._is_as_it_was(*each) for each in self._pairs(first, before, old)):
            return Range(first, package.entries, package.length, package.name)
        entries, size = self._copy.extent(first, before)
        if not entries:  # nobody will look at it again
            for _, member, _ in self._pairs(first, before, old):
                self._gone(member)
        return Range(first, entries, size + entries * STATED_BYTES)

    def _pairs(
        self, first: str, before: str | None, packages: Sequence[MadePackage]
    ) -> Iterator[Pair]:
        """Both in the order of their addresses."""
        old = (
            (member, package)
            for package in packages
            for member in members(self._folder, package.name)
        )
        member, package = next(old, (None, None))
        for row in self._copy.rows(first, before):
            while member is not None and member.loc < row.loc:
                yield None, member, package
                member, package = next(old, (None, None))
            if member is not None and member.loc == row.loc:
                yield row, member, package
                member, package = next(old, (None, None))
            else:
                yield row, None, None
        if member is not None:
            yield None, member, package
            yield from ((None, *each) for each in old)

    def _is_as_it_was(self, row: HeldRow | None, member: ZipMember | None, _: object) -> bool:
        if row is None or member is None:
            return False
        if row.seen == member.seen:
            return True
        return not self._was_told(row) and self._has_same_content(row, member)

    def _was_told(self, row: HeldRow) -> bool:
        """Whether the Source has told a change of it since, be it to the same content."""
        position = row.described()[0].position
        return self._changes is not None and self._changes.covers(position)

    def _has_same_content(self, row: HeldRow, member: ZipMember) -> bool:
        if not row.states_digest:
            return False  # it is read again, to see
        return entry_of(row, *row.described()) == member.entry

    # Writing ------------------------------------------------------------------------------------

    def _written(self, part: DumpPart) -> Iterator[MadePackage]:
        """The packages of one part."""
        olds = [each for each in self._old if self._is_within(each, part)]
        with ExitStack() as stack:
            files: dict[str, BinaryIO] = {
                each.name: stack.enter_context(
                    (self._folder / f"{each.name}{ZIP}").open("rb", buffering=0)
                )
                for each in olds
            }
            writer: PackageWriter | None = None
            try:
                for row, old, package in self._pairs(part.first, part.before, olds):
                    if row is None:
                        self._gone(old)
                        continue
                    self._report(1)
                    is_known, content = old is not None and old.seen == row.seen, None
                    if not is_known and (old is None or not self._has_same_content(row, old)):
                        content = self._read(row)
                        is_known = content is None  # it stays as it was
                    member = old if content is None else content.member
                    if member is None:
                        continue
                    if writer is not None and self._is_full(writer, part, member):
                        yield writer.close()
                        writer = None
                    writer = writer or self._writer()
                    if content is not None:
                        writer.add(content)
                    elif package is not None:
                        member.seen = member.seen if is_known else row.seen
                        writer.copy(files[package.name], member)
                    if not is_known:
                        self._tell(writer, content.row if content else row, old, member)
                if writer is not None:
                    yield writer.close()
            except BaseException:
                if writer is not None:
                    writer.abandon()
                raise

    def _is_within(self, package: MadePackage, part: DumpPart) -> bool:
        begins = "" if package is self._old[0] else package.first
        return part.first <= begins and (part.before is None or begins < part.before)

    def _writer(self) -> PackageWriter:
        name = f"{self._run}-{next(self._numbers):04}"
        return PackageWriter(self._folder, name, self._md, self._up, self._limits)

    def _is_full(self, writer: PackageWriter, part: DumpPart, member: ZipMember) -> bool:
        is_full = writer.entries >= part.entries or writer.length >= part.bytes
        return is_full or not writer.has_room(member, member.entry)

    def _read(self, row: HeldRow) -> Content | None:
        try:
            return self._copy.read(row)
        except NotAsFetched as error:
            if not self._leaves_out:
                raise
            self.problems.append(str(error))
            return None

    def _tell(
        self, writer: PackageWriter, row: HeldRow, old: ZipMember | None, member: ZipMember
    ) -> None:
        is_changed = old is None or old.entry != member.entry
        if self._changes is not None and (is_changed or self._was_told(row)):
            change = "created" if old is None else "updated"
            self._changes.changed(writer.name, member, row.described()[0], change)

    def _gone(self, member: ZipMember | None) -> None:
        if self._changes is not None and member is not None:
            self._changes.deleted(member.loc)

    def _report(self, count: int) -> None:
        self._done += count
        if self._progress is not None and (count > 1 or self._done % REPORTED_ROWS == 0):
            self._progress(self._done, self._total)


# --- the dump ------------------------------------------------------------------------------------

KEEP = 2  # a Destination that has read the documents of the last one finds what they name


class DumpOptions(NamedTuple):
    """How dumps are made."""

    base: str
    limits: Limits = Limits()
    tells_changes: bool = False
    keep: int = KEEP
    leaves_out: bool = False  # what the mirror could not fetch, or is not as it was fetched
    up: str | None = None


class Dumped(NamedTuple):
    """What a run has made; without a generation, nothing has changed."""

    generation: Generation | None
    problems: tuple[str, ...]


def make(
    copy: Path, folder: DumpFolder, options: DumpOptions, progress: Progress | None = None
) -> Dumped:
    """Make a dump of the copy, if it has changed since the last one."""
    try:
        return _made(copy, folder, options, progress)
    except BaseException:
        folder.sweep(folder.kept)
        raise


def _made(
    copy: Path, folder: DumpFolder, options: DumpOptions, progress: Progress | None
) -> Dumped:
    with CopyReader(copy) as reader:
        at, last = reader.at(without_failed=options.leaves_out), _last(folder, reader.source)
        failed = [f"{loc}: {why}" for loc, why in reader.failed()]
        up = options.up or reader.source
        goes_on = last is not None and (last.base, last.up) == (options.base, up)
        if last is not None and goes_on and at <= Position.parse(last.at):
            return Dumped(None, tuple(failed))
        folder.sweep(folder.kept)  # what a killed run left
        changes = None
        if options.tells_changes and last is not None and goes_on:
            changes = Changes(Position.parse(last.at), at)
        run, told = _name(folder), None
        packing = Packing(
            *(reader, folder.packages, run, at, up, options.limits),
            old=last.packages if last is not None and last.up == up else (),
            changes=changes,
            leaves_out=options.leaves_out,
            progress=progress,
        )
        packages = tuple(packing.packages())
        if changes is not None:
            changes.gone(reader.gone(changes.after, at))
            if len(changes):
                told = tuple(changes.packages(folder.packages, run, up, options.limits))
            changes.close()
        problems = (*failed, *packing.problems)
        if last is not None and goes_on and packages == last.packages and not told:
            return Dumped(None, problems)
        completed = render_datetime(int(time() * MICROSECONDS))
        generation = Generation(
            *(run, reader.source, up, options.base, str(at), completed, packages, told)
        )
    kept = [*folder.kept, generation][-options.keep :]
    told_now = (made.name for each in stretches_of(kept) for made in each.changes or ())
    kept[-1] = generation = replace(generation, told=tuple(told_now))
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


def make_window(copy: Path, zipped: Path, after: Position) -> int:
    """What has changed since a moment, as one ZIP with a Change Dump's manifest; how many changes.

    It is made of what the mirror was told, change by change.
    """
    with CopyReader(copy) as reader:
        at = reader.at(without_failed=False)
        begins = reader.told_from(time() - GONE_SECONDS)
        if after < begins:
            raise NotWhole(
                f"{copy} knows single changes from {begins} on: give that or a later time"
            )
        if after > at:
            raise NotWhole(f"{copy} is of {at}: give that or an earlier time")
        changes = Changes(after, at)
        changes.gone(reader.gone(after, at))
        for row in reader.told(after, at):
            changes.told(row.loc, row.described()[0])
        if len(changes) > MAX_ENTRIES:
            raise NotWhole(f"{len(changes)} changes since {after} are too many for one package")
        count = len(changes)
        changes.into_one(zipped, reader)
        changes.close()
    return count
