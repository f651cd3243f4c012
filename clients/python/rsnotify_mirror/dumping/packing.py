"""The packages of a new dump: what is as it was stays as it is, or is copied as it lies.

Rules that hold here: memory does not grow with the copy; rows and members are read side by side, by
address. A Change Dump tells how the packages of two dumps differ, so that the older ones and it are
the newer ones, whatever the mirror was told.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.xml_writer import Md
from rsnotify_mirror.dumping.changes import Changes
from rsnotify_mirror.dumping.copy_reader import (
    Content,
    CopyReader,
    HeldRow,
    NotAsFetched,
    entry_of,
    name_of,
)
from rsnotify_mirror.dumping.package_writer import (
    ZIP,
    MadePackage,
    PackageWriter,
    is_readable,
    members,
)
from rsnotify_mirror.dumping.parts import DumpPart, Limits, Range, planned
from rsnotify_mirror.dumping.zip_records import ZipMember

STATED_BYTES = 500  # about so many are said of a resource in headers and manifest
REPORTED_ROWS = 250

Progress = Callable[[int, int], None]
"""Called with how many resources are done, and how many there are."""


class _Length(msgspec.Struct):
    length: int = 0


_length = msgspec.json.Decoder(_Length)


class Pair(NamedTuple):
    """A resource as the copy has it now, and as a package of the last dump has it."""

    row: HeldRow | None
    member: ZipMember | None
    package: MadePackage | None


class _Found(NamedTuple):
    """What a package gets: new content, or without it what an old one has."""

    row: HeldRow
    seen: bytes
    content: Content | None
    old: ZipMember | None
    package: MadePackage | None


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
        entries = size = 0
        is_same = package is not None
        for row, member, _ in self._pairs(first, before, [package] if package else []):
            if row is None:
                is_same = False
                if self._changes is not None and member is not None:
                    self._changes.deleted(member.loc)
                continue
            entries += 1
            length = _length.decode(row.have).length if member is None else member.length
            size += length + STATED_BYTES
            is_same = is_same and member is not None and self._is_as_it_was(row, member)
        if package is not None and is_same:
            return Range(first, package.entries, package.length, package.name)
        return Range(first, entries, size)

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
                yield Pair(None, member, package)
                member, package = next(old, (None, None))
            if member is not None and member.loc == row.loc:
                yield Pair(row, member, package)
                member, package = next(old, (None, None))
            else:
                yield Pair(row, None, None)
        if member is not None:
            yield from (Pair(None, *each) for each in chain([(member, package)], old))

    def _is_as_it_was(self, row: HeldRow, member: ZipMember) -> bool:
        if self._copy.seen(row) == member.seen:
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
        old = [each for each in self._old if self._is_within(each, part)]
        with ExitStack() as stack:
            files: dict[str, BinaryIO] = {
                each.name: stack.enter_context((self._folder / f"{each.name}{ZIP}").open("rb"))
                for each in old
            }
            writer: PackageWriter | None = None
            try:
                for pair in self._pairs(part.first, part.before, old):
                    if (found := self._found(pair)) is None:
                        continue
                    if writer is not None and self._is_full(writer, part, found):
                        yield writer.close()
                        writer = None
                    writer = writer or self._writer()
                    self._put(writer, found, files)
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

    def _is_full(self, writer: PackageWriter, part: DumpPart, found: "_Found") -> bool:
        if writer.entries >= part.entries or writer.length >= part.bytes:
            return True
        if found.content is not None:
            length, entry, name = found.content.length, found.content.entry, name_of(found.row)
        else:
            assert found.old is not None  # noqa: S101
            length, entry, name = found.old.length, found.old.entry, found.old.name
        return not writer.has_room(length, name, entry)

    def _found(self, pair: Pair) -> "_Found | None":
        """What goes into the package: what is read, or without it the member as it was."""
        row, old, package = pair
        if row is None:
            return None
        self._report(1)
        seen = self._copy.seen(row)
        if old is not None and (seen == old.seen or self._has_same_content(row, old)):
            return _Found(row, seen, None, old, package)
        if (content := self._read(row)) is not None:
            return _Found(content.row, self._copy.seen(content.row), content, old, package)
        return None if old is None else _Found(row, old.seen, None, old, package)

    def _read(self, row: HeldRow) -> Content | None:
        try:
            return self._copy.read(row)
        except NotAsFetched as error:
            if not self._leaves_out:
                raise
            self.problems.append(str(error))
            return None

    def _put(self, writer: PackageWriter, found: "_Found", files: Mapping[str, BinaryIO]) -> None:
        row, seen, content, old, package = found
        if content is not None:
            member = writer.add(content, seen)
            is_changed = old is None or old.entry != member.entry
        else:
            assert old is not None  # noqa: S101
            assert package is not None  # noqa: S101
            member, is_changed = writer.copy(files[package.name], old, seen), False
        is_new = old is None or seen != old.seen
        if self._changes is not None and is_new and (is_changed or self._was_told(row)):
            change = "created" if old is None else "updated"
            self._changes.changed(writer.name, member, row.described()[0], change)

    def _report(self, count: int) -> None:
        self._done += count
        if self._progress is not None and (count > 1 or self._done % REPORTED_ROWS == 0):
            self._progress(self._done, self._total)
