"""How two dumps differ: what a Change Dump of the time between them tells, and its packages.

Rules that hold here: of each resource only the last change is told. A change whose time is not
known, or is not within the time of the dump, gets its end: so nobody who reads on from within takes
it for one that he has. What is kept on the way is in an unnamed file, never in memory.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.xml_writer import Entry, Md, render_entries
from rsnotify_client.resource import SourceResource
from rsnotify_mirror.dumping.copy_reader import CopyReader
from rsnotify_mirror.dumping.package_index import Mark, PackageIndex
from rsnotify_mirror.dumping.package_writer import XML, ZIP, MadePackage, OldPackage, PackageWriter
from rsnotify_mirror.dumping.parts import Limits

CACHE_KIB = 8 * 1024
OPEN_PACKAGES = 64
_TABLE = "CREATE TABLE change (loc TEXT PRIMARY KEY, time INTEGER, change TEXT) WITHOUT ROWID"


class Changes:
    """The changes after one moment, up to another."""

    def __init__(self, after: Position, until: Position) -> None:
        self.after = after
        self._until = until
        self._changes = sqlite3.connect("", isolation_level=None)
        self._changes.execute("PRAGMA journal_mode = OFF")
        self._changes.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._changes.execute(_TABLE)
        self._changes.execute("BEGIN")
        self.close = self._changes.close

    def covers(self, position: int | None) -> bool:
        return position is not None and self.after < position <= self._until

    def changed(self, wanted: SourceResource, change: str) -> None:
        """It is so now."""
        is_known = self.covers(wanted.position) and not wanted.is_deleted
        time = wanted.position if is_known else int(self._until)
        row = (wanted.loc, time, wanted.change if is_known else change)
        self._changes.execute("INSERT OR REPLACE INTO change VALUES (?, ?, ?)", row)

    def deleted(self, loc: str, time: int | None = None) -> None:
        """It is no more; what was noted of it otherwise is newer."""
        when = time if self.covers(time) else int(self._until)
        self._changes.execute(
            "INSERT INTO change VALUES (?, ?, 'deleted') ON CONFLICT DO UPDATE"
            " SET time = excluded.time WHERE change = 'deleted'",
            (loc, when),
        )

    def __len__(self) -> int:
        count: int = self._changes.execute("SELECT count(*) FROM change").fetchone()[0]
        return count

    def __iter__(self) -> Iterator[tuple[str, int, str]]:
        """Oldest first."""
        return self._changes.execute("SELECT loc, time, change FROM change ORDER BY time, loc")

    # Packages -----------------------------------------------------------------------------------

    def packages(
        self,
        folder: Path,
        run: str,
        up: str,
        limits: Limits,
        index: PackageIndex,
        made: Mapping[str, MadePackage],
    ) -> Iterator[MadePackage]:
        """Each with the changes of a time of its own, oldest first."""
        files: dict[str, OldPackage] = {}
        after, time, number = self.after, int(self.after), 1
        writer = self._writer(folder, f"{run}-changes-{number:04}", up, limits, after)
        try:
            for loc, when, change in self:
                if change == "deleted":
                    entry = _deleted(loc, when)
                    size = Mark(loc, 1, 0, len(entry))
                else:
                    name, end = index.place(loc)
                    old = _opened(files, folder, made[name])
                    begin = index.begin(loc, old.made.start)
                    entry = _told(b"".join(old.entries(begin, end)), when, change)
                    size = end.since(begin)._replace(manifest=len(entry))
                if not writer.has_room(size):
                    yield writer.close(str(Position(time)))
                    after, number = Position(time), number + 1
                    writer = self._writer(folder, f"{run}-changes-{number:04}", up, limits, after)
                if change == "deleted":
                    writer.tell(loc, entry)
                else:
                    writer.copy(old, begin, end, entry)
                time = when
            yield writer.close(str(self._until))
        except BaseException:
            writer.abandon()
            raise
        finally:
            for file in files.values():
                file.close()

    def into_one(self, zipped: Path, copy: CopyReader) -> None:
        """One package, for whoever asks for it; what is in it is read from the copy."""
        folder, name = zipped.parent, zipped.name.removesuffix(ZIP)
        writer = self._writer(folder, name, copy.source, Limits(), self.after)
        try:
            for loc, when, change in self:
                content = None if change == "deleted" else copy.read(copy.row(loc))
                if content is None:
                    writer.tell(loc, _deleted(loc, when))
                else:
                    writer.add(content._replace(entry=_told(content.entry, when, change)))
            writer.close()
        except BaseException:
            writer.abandon()
            raise
        (folder / f"{name}{XML}").unlink()

    def _writer(
        self, folder: Path, name: str, up: str, limits: Limits, after: Position
    ) -> PackageWriter:
        md = Md(capability="changedump-manifest", from_=str(after), until=str(self._until))
        return PackageWriter(folder, name, md, up, limits)


def _deleted(loc: str, time: int) -> bytes:
    md = Md(change="deleted", datetime=str(Position(time)))
    return render_entries("urlset", [Entry(loc, md=md)])


def _told(entry: bytes, time: int, change: str) -> bytes:
    """What a manifest says of a resource, and that it changed."""
    told = f'<rs:md change="{change}" datetime="{Position(time)}"'
    return entry.replace(b"<rs:md", told.encode(), 1)


def _opened(files: dict[str, OldPackage], folder: Path, made: MadePackage) -> OldPackage:
    if made.name not in files:
        if len(files) >= OPEN_PACKAGES:
            files.pop(next(iter(files))).close()
        files[made.name] = OldPackage(folder, made)
    return files[made.name]
