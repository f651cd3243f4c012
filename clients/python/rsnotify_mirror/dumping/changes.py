"""How two dumps differ: what a Change Dump of the time between them has, and its packages.

Rules that hold here: of each resource only the last change is listed. A change whose time is not
known, or is not within the time of the dump, gets its end: so nobody who reads on from within takes
it for one that he has. What is kept on the way is in an unnamed file, never in memory.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import msgspec

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.xml_writer import Entry, Md, render_entries
from rsnotify_client.database import open_scratch
from rsnotify_client.locks import lock_directory
from rsnotify_client.resource import SourceResource
from rsnotify_mirror.dumping.copy_reader import CopyReader, NotWhole
from rsnotify_mirror.dumping.package_writer import ZIP, MadePackage, PackageWriter
from rsnotify_mirror.dumping.parts import PIECES, Limits, Pieces
from rsnotify_mirror.dumping.zip_records import ZipMember
from rsnotify_mirror.paths import OURS, digest
from rsnotify_mirror.state import GONE_SECONDS

CACHE_KIB = 8 * 1024
WINDOW = "window"
WHOLE = Limits(bytes=1 << 63)  # however long the resources of a window are, they are in one ZIP
_TABLE = """
CREATE TABLE change (
  loc TEXT PRIMARY KEY, time INTEGER, change TEXT, package TEXT, member BLOB, named TEXT
) WITHOUT ROWID;
"""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ZipMember)


class Changes:
    """The changes after one moment, up to another."""

    def __init__(self, after: Position, until: Position) -> None:
        self.after = after
        self._until = until
        self._changes = open_scratch(_TABLE, cache_kib=CACHE_KIB)

    def close(self) -> None:
        self._changes.close()

    def covers(self, position: int | None) -> bool:
        return position is not None and self.after < position <= self._until

    def changed(self, package: str, member: ZipMember, wanted: SourceResource, change: str) -> None:
        """It is so now, and in this package."""
        is_known = self.covers(wanted.position) and not wanted.is_deleted
        time = wanted.position if is_known else int(self._until)
        said = wanted.change if is_known else change
        row = (member.loc, time, said, package, _encoder.encode(member))
        self._changes.execute("INSERT OR REPLACE INTO change VALUES (?, ?, ?, ?, ?, NULL)", row)

    def deleted(self, loc: str, time: int | None = None, named: str | None = None) -> None:
        """It is no more; what was noted of it otherwise is newer. `named`: how dumps call it."""
        when = time if self.covers(time) else int(self._until)
        self._changes.execute(
            "INSERT INTO change VALUES (?, ?, 'deleted', NULL, NULL, ?) ON CONFLICT DO UPDATE"
            " SET time = excluded.time WHERE change = 'deleted'",
            (loc, when, named or loc),
        )

    def has(self, loc: str) -> bool:
        """Whether something was noted of it."""
        query = "SELECT 1 FROM change WHERE loc = ?"
        return self._changes.execute(query, (loc,)).fetchone() is not None

    # Packages -----------------------------------------------------------------------------------

    def packages(
        self, folder: Path, run: str, up: str, limits: Limits, pieces: Pieces = PIECES
    ) -> Iterator[MadePackage]:
        """Each with the changes of a time of its own, oldest first; none if nothing has changed."""

        def new(number: int, after: Position) -> PackageWriter:
            name, md = f"{run}-changes-{number:04}", _manifest(after, self._until)
            return PackageWriter(folder, name, md, up, limits, pieces)

        last, numbers = int(self.after), count(1)
        writer = new(next(numbers), self.after)
        try:
            for _, when, change, package, encoded, named in self._changes.execute(
                "SELECT * FROM change ORDER BY time, loc"
            ):
                if encoded is None:
                    member = _deleted(named, when)
                else:
                    member = _decoder.decode(encoded)
                    member.entry = _as_change(member.entry, when, change)
                if not writer.has_room([member], limits):
                    yield writer.close(str(Position(last)))
                    writer = new(next(numbers), Position(last))
                writer.put([member], package)
                last = when
            if writer.entries or writer.deleted:
                yield writer.close(str(self._until))
        finally:
            writer.abandon()


def make_window(
    copy: Path,
    zipped: Path,
    after: Position,
    progress: Callable[[int, int], None] = lambda *_: None,
    limits: Limits = WHOLE,
) -> int:
    """What has changed since a moment, as one ZIP with a Change Dump's manifest; how many changes.

    It is made of the changes that the mirror got, one by one.
    """
    with CopyReader(copy) as reader:
        at = reader.at(without_failed=False)
        begins = reader.knows_changes_from(time.time() - GONE_SECONDS)
        if after < begins:
            raise NotWhole(
                f"{copy} knows single changes from {begins} on: give that or a later time"
            )
        if after > at:
            raise NotWhole(f"{copy} is of {at}: give that or an earlier time")
        number = sum(1 for _ in reader.changed(after, at))
        too_many = NotWhole(f"{number} changes since {after} are too many for one package")
        if number > limits.entries:
            raise too_many
        with _aside(zipped) as folder:
            writer = PackageWriter(folder, WINDOW, _manifest(after, at), reader.source, limits)
            try:
                for done, (when, change, loc, seen) in enumerate(reader.changed(after, at)):
                    progress(done, number)
                    content = None if seen is None else reader.read(loc, seen)
                    member = _deleted(loc, when) if content is None else content.member
                    if content is not None:
                        member.entry = _as_change(member.entry, when, change)
                    if not writer.has_room([member], limits):
                        raise too_many
                    writer.put([member], None if content is None else {loc: content.data})
                writer.close()
            finally:
                writer.abandon()
            os.rename(folder / f"{WINDOW}{ZIP}", zipped)
    return number


@contextmanager
def _aside(zipped: Path) -> Iterator[Path]:
    """A folder beside a ZIP for what is written before it has its name, of one run at a time."""
    folder = zipped.parent / f"{OURS}-{digest(zipped.name)}"
    lock = lock_directory(folder, "rsnotify dump")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(lock)


def _manifest(after: Position, until: Position) -> Md:
    return Md(capability="changedump-manifest", from_=str(after), until=str(until))


def _deleted(loc: str, time: int) -> ZipMember:
    md = Md(change="deleted", datetime=str(Position(time)))
    return ZipMember(loc, render_entries("urlset", [Entry(loc, md=md)]), b"", 0, 0, 0)


def _as_change(entry: bytes, time: int, change: str) -> bytes:
    """What a manifest says of a resource, and that it changed."""
    md = f'<rs:md change="{change}" datetime="{Position(time)}"'
    return entry.replace(b"<rs:md", md.encode(), 1)
