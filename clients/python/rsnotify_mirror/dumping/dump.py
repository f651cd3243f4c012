"""Make the next dump of a copy: packages, then documents, then a new generation.

Rules that hold here: a dump whose state is not known, or that would leave something out, is not
made; what stands stays as it is. Each generation is of a later moment than the one before.

What is as it was stays as it is, or is copied as it lies. Memory does not grow with the copy; rows
and members are read side by side, by address. A Change Dump says how the packages of two dumps
differ, so that the older ones and it are the newer ones, whatever changes the mirror got.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from time import time
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import MICROSECONDS, Position, render_datetime
from rsnotify.resourcesync.xml_writer import Md
from rsnotify_client.resource import SourceResource
from rsnotify_mirror.dumping.changes import Changes
from rsnotify_mirror.dumping.copy_reader import (
    Content,
    CopyReader,
    HeldRow,
    NotAsFetched,
    NotWhole,
    described,
    loc_of,
    mark_of,
)
from rsnotify_mirror.dumping.dump_documents import Generation, documents_of, stretches_of
from rsnotify_mirror.dumping.generations import DumpFolder
from rsnotify_mirror.dumping.package_writer import (
    ContentsAt,
    MadePackage,
    PackageWriter,
    is_readable,
    members,
)
from rsnotify_mirror.dumping.parts import PIECES, DumpPart, Limits, Pieces, Range, planned
from rsnotify_mirror.dumping.zip_records import BytesOrFile, ZipMember

STATED_BYTES = 500  # about so many are said of a resource in headers and manifest
KEEP = 2  # a Destination that has read the documents of the last one finds what they name

Progress = Callable[[int, int], None]
"""Called with how many resources are done, and how many there are."""


class PublishedAs(NamedTuple):
    """How a copy is published whose dumps go with it: by which addresses, and of which moment.

    The moment is one of its set: what the set had then, the copy has.
    """

    addresses: str
    at: Position


class DumpOptions(NamedTuple):
    """How dumps are made."""

    base: str
    limits: Limits = Limits()
    pieces: Pieces = PIECES
    makes_change_dumps: bool = False
    keep: int = KEEP
    leaves_out: bool = False  # what the mirror could not fetch, or is not as it was fetched
    up: str | None = None
    published: PublishedAs | None = None


# --- packages ------------------------------------------------------------------------------------


SideBySide = tuple[Iterator[HeldRow], dict[str, ZipMember], str]
"""What the copy has of some addresses, and what a package of the last dump, named, has of them."""


class Packing(msgspec.Struct):
    """Makes the packages of one dump."""

    copy: CopyReader
    folder: Path
    new: Callable[[int], PackageWriter]
    options: DumpOptions
    old: Sequence[MadePackage]  # of the last dump, by address
    changes: Changes | None
    progress: Progress | None
    problems: list[str] = []
    _noted: dict[str, Callable[[str, ZipMember], None]] = {}  # to be called once it is written
    _writer: PackageWriter | None = None
    _made: list[MadePackage] = []
    _done: int = 0
    _total: int = 0

    def packages(self) -> tuple[MadePackage, ...]:
        """All that the copy has."""
        ranges = list(self._ranges())
        self._total = sum(each.entries for each in ranges)
        kept = {each.name: each for each in self.old}
        try:
            for part in planned(ranges, self.options.limits):
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
        begins = ["", *(each.first for each in self.old[1:])]
        packages: list[MadePackage | None] = [*self.old] or [None]
        for first, before, package in zip(begins, [*begins[1:], None], packages, strict=True):
            if package and all(map(self._is_as_it_was, self._sides(first, before, [package]))):
                yield Range(first, package.entries, package.length, package.name)
            else:
                entries, size = self.copy.extent(first, before)
                yield Range(first, entries, size + entries * STATED_BYTES)

    def _sides(
        self, first: str, before: str | None, packages: Sequence[MadePackage]
    ) -> Iterator[SideBySide]:
        """One after another, each with so many members as an index has together."""
        nothing: tuple[str, list[ZipMember]] = ("", [])
        batches = (
            (each.name, batch) for each in packages for batch in members(self.folder, each.name)
        )
        for (package, old), (_, following) in pairwise(chain([nothing], batches, [nothing])):
            end = following[0].loc if following else before
            yield self.copy.rows(first, end), {each.loc: each for each in old}, package
            first = end or ""

    def _is_as_it_was(self, side: SideBySide) -> bool:
        rows, known, _ = side
        return all(self._is_same(*row, known.pop(row[0], None)) for row in rows) and not known

    def _is_same(self, loc: str, seen: str, old: ZipMember | None) -> bool:
        """As far as a digest says so; what has none, or is listed as changed, is read again."""
        if old is None or old.seen == (mark := mark_of(seen)):
            return old is not None
        path, wanted, have = described(seen)
        if self._is_listed(wanted) or self.copy.entry(loc, path, wanted, have) != old.entry:
            return False
        old.seen = mark
        return True

    def _is_listed(self, wanted: SourceResource) -> bool:
        """Whether the Source has listed a change of it since, be it to the same content."""
        return self.changes is not None and self.changes.covers(wanted.position)

    # Writing ------------------------------------------------------------------------------------

    def _write(self, part: DumpPart) -> None:
        """The packages of one part; what is of one kind is written together, about a megabyte."""
        packages = [
            each
            for each in self.old
            if part.first <= each.first and (part.before is None or each.first < part.before)
        ]
        for rows, old, package in self._sides(part.first, part.before, packages):
            together: list[ZipMember] = []
            contents: dict[str, BytesOrFile] = {}
            size = 0
            for member, content in self._members(rows, old):
                if size > self.options.pieces.small_bytes or (
                    together and bool(contents) is (content is None)
                ):
                    self._put(part, together, contents or package)
                    together, contents, size = [], {}, 0
                together.append(member)
                size += STATED_BYTES + member.length
                if content is not None:
                    contents[member.loc] = content
            self._put(part, together, contents or package)
            if self.changes is not None:
                for loc, member in old.items():
                    self.changes.deleted(loc, named=loc_of(member.entry))
        self._end_package()

    def _members(
        self, rows: Iterable[HeldRow], known: dict[str, ZipMember]
    ) -> Iterator[tuple[ZipMember, BytesOrFile | None]]:
        """What is to be written; without a content it stays as it lies in the old package."""
        for loc, seen in rows:
            old = known.pop(loc, None)
            content = None if self._is_same(loc, seen, old) else self._read(loc, seen, old)
            if content is not None:
                self._note(content, old)
                yield content.member, content.data
            elif old is not None:
                yield old, None

    def _put(self, part: DumpPart, together: Sequence[ZipMember], contents: ContentsAt) -> None:
        """Into this package or, where it has no room, into the next ones."""
        while together:
            if self._writer is None:
                self._writer = self.new(len(self._made) + 1)
            some, about = together, Limits(part.bytes, part.entries)
            while some and not self._writer.has_room(some, about):
                some = some[: len(some) // 2]
            if not some:
                self._end_package()
                continue
            together = together[len(some) :]
            self._writer.put(some, contents)
            self._report(len(some))
            for each in some if self._noted else ():
                if (note := self._noted.pop(each.loc, None)) is not None:
                    note(self._writer.name, each)

    def _end_package(self) -> None:
        if self._writer is not None:
            self._made.append(self._writer.close())
            self._writer = None

    def _read(self, loc: str, seen: str, old: ZipMember | None) -> Content | None:
        try:
            return self.copy.read(loc, seen)
        except NotAsFetched as error:
            if not self.options.leaves_out:
                raise
            stays = "" if old is None else "; what the last dump has of it is in this one"
            self.problems.append(f"{error}{stays}")
            return None

    def _note(self, content: Content, old: ZipMember | None) -> None:
        member, wanted, _ = content
        is_changed = old is None or old.entry != member.entry
        if self.changes is not None and (is_changed or self._is_listed(wanted)):
            change = "created" if old is None else "updated"
            self._noted[member.loc] = partial(self.changes.changed, wanted=wanted, change=change)

    def _report(self, done: int) -> None:
        before, self._done = self._done, self._done + done
        reported = self.options.pieces.reported
        if self.progress is not None and before // reported != self._done // reported:
            self.progress(self._done, self._total)


# --- the dump ------------------------------------------------------------------------------------


class Dumped(NamedTuple):
    """What a run has made; without a generation, nothing has changed."""

    generation: Generation | None
    problems: tuple[str, ...]


def make(
    copy: Path, folder: DumpFolder, options: DumpOptions, progress: Progress | None = None
) -> Dumped:
    """Make a dump of the copy, if it has changed since the last one."""
    published = options.published
    addresses = None if published is None else published.addresses
    with CopyReader(copy, options.pieces, addresses) as reader:
        at, last = reader.at(without_failed=options.leaves_out), _last(folder, reader.source)
        at = at if published is None else published.at
        failed = reader.failed()
        up = options.up or reader.source
        is_same = last and (last.up, last.addresses) == (up, addresses)
        before = last if last and is_same and last.base == options.base else None
        if before is not None and at <= (dumped := Position.parse(before.at)):
            if at < dumped:
                raise NotWhole(
                    f"{copy} is of {at}, and its last dump of {dumped}: take another folder if the "
                    "Source was set back"
                )
            return Dumped(None, tuple(failed))
        known = last.packages if last and is_same else ()
        old = [each for each in known if is_readable(folder.packages, each)]
        old.sort(key=lambda each: each.first)
        changes = None
        if options.makes_change_dumps and before is not None:
            if len(old) == len(known):
                changes = Changes(Position.parse(before.same_since or before.at), at)
            else:
                failed.append(
                    f"the Change Dump since {before.at}: the index of a package is damaged"
                )
        run, change_packages, same_since = _name(folder), None, None
        md = Md(capability="resourcedump-manifest", at=str(at))

        def new(number: int) -> PackageWriter:
            name = f"{run}-{number:04}"
            return PackageWriter(folder.packages, name, md, up, options.limits, options.pieces)

        packing = Packing(reader, folder.packages, new, options, old, changes, progress)
        packages = packing.packages()
        if changes is not None:
            for loc, position in reader.gone(changes.after, at):
                if addresses is None or changes.has(loc):  # by its own address, if that is known
                    changes.deleted(loc, position)
            made = changes.packages(folder.packages, run, up, options.limits, options.pieces)
            change_packages = tuple(made)
            same_since = None if change_packages else str(changes.after)
            changes.close()
        problems = (*failed, *packing.problems)
        unchanged = before.packages if before else None if last else ()
        if packages == unchanged and not change_packages:
            return Dumped(None, problems)
        completed = render_datetime(max(int(time() * MICROSECONDS), at))  # a clock may be behind
        generation = Generation(
            *(run, reader.source, up, options.base, str(at), completed, packages, change_packages),
            same_since=same_since,
            addresses=addresses,
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
    stem, _, number = last.partition("~")
    return name if name > last else f"{stem}~{int(number or 0) + 1:06}"
