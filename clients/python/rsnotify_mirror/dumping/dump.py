"""Make the next dump of a copy: packages, then documents, then a new generation.

Rules that hold here: a dump whose state cannot be told, or that would leave something out, is not
made; what stands stays as it is. Each generation is of a later moment than the one before.
"""

from pathlib import Path
from time import time
from typing import NamedTuple

from msgspec.structs import replace

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import MICROSECONDS, Position, render_datetime
from rsnotify_mirror.dumping.changes import Changes
from rsnotify_mirror.dumping.copy_reader import CopyReader, NotWhole
from rsnotify_mirror.dumping.dump_documents import Generation, documents_of, stretches_of
from rsnotify_mirror.dumping.generations import DumpFolder
from rsnotify_mirror.dumping.packing import Packing, Progress
from rsnotify_mirror.dumping.parts import MAX_ENTRIES, Limits
from rsnotify_mirror.state import GONE_SECONDS

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
        raise InvalidSettings([f"{folder.directory} holds dumps of {last.source}, not of {source}"])
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
