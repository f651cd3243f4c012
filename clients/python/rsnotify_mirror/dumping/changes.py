"""How two dumps differ: what a Change Dump of the time between them tells, and its packages.

Rules that hold here: of each resource only the last change is told. A change whose time is not
known, or is not within the time of the dump, gets its end: so nobody who reads on from within takes
it for one that he has. What is kept on the way is in an unnamed file, never in memory.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.xml_writer import Entry, Md, render_entries
from rsnotify_client.resource import SourceResource
from rsnotify_mirror.dumping.copy_reader import Content
from rsnotify_mirror.dumping.package_index import Mark, PackageIndex
from rsnotify_mirror.dumping.package_writer import MadePackage, OldPackage, PackageWriter, PackedRun
from rsnotify_mirror.dumping.parts import Limits

CACHE_KIB = 8 * 1024
OPEN_PACKAGES = 64
Find = Callable[[str], PackedRun | Content | None]
"""Where the content of a resource is; None if it has been deleted since."""
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
        self, folder: Path, run: str, up: str, limits: Limits, find: Find
    ) -> Iterator[MadePackage]:
        """Each with the changes of a time of its own, oldest first."""
        after, time, number = self.after, int(self.after), 1
        writer = self._writer(folder, f"{run}-{number:04}", up, limits, after)
        try:
            for loc, when, change in self:
                found = None if change == "deleted" else find(loc)
                entry = _entry(loc, when, change, found)
                size = Mark(loc, 1) if found is None else found.size
                if not writer.has_room(size._replace(manifest=len(entry))):
                    yield writer.close(str(Position(time)))
                    after, number = Position(time), number + 1
                    writer = self._writer(folder, f"{run}-{number:04}", up, limits, after)
                if isinstance(found, PackedRun):
                    writer.copy(*found, entry)
                elif found is not None:
                    writer.add(found._replace(entry=entry))
                else:
                    writer.tell(loc, entry)
                time = when
            yield writer.close(str(self._until))
        except BaseException:
            writer.abandon()
            raise

    def _writer(
        self, folder: Path, name: str, up: str, limits: Limits, after: Position
    ) -> PackageWriter:
        md = Md(capability="changedump-manifest", from_=str(after), until=str(self._until))
        return PackageWriter(folder, name, md, up, limits)


def _entry(loc: str, time: int, change: str, found: PackedRun | Content | None) -> bytes:
    """What a manifest says of a resource, and that it changed."""
    if found is None:
        md = Md(change="deleted", datetime=str(Position(time)))
        return render_entries("urlset", [Entry(loc, md=md)])
    told = f'<rs:md change="{change}" datetime="{Position(time)}"'
    return found.entry.replace(b"<rs:md", told.encode(), 1)


class Members:
    """The members of packages that were just made; so many of those are open."""

    def __init__(self, folder: Path, index: PackageIndex, made: Iterable[MadePackage]) -> None:
        self._folder = folder
        self._index = index
        self._made = {each.name: each for each in made}
        self._open: dict[str, OldPackage] = {}

    def __call__(self, loc: str) -> PackedRun:
        name, end = self._index.place(loc)
        if name not in self._open:
            if len(self._open) >= OPEN_PACKAGES:
                self._open.pop(next(iter(self._open))).close()
            self._open[name] = OldPackage(self._folder, self._made[name])
        old = self._open[name]
        return PackedRun(old, self._index.begin(loc, old.made.start), end)

    def close(self) -> None:
        for each in self._open.values():
            each.close()
