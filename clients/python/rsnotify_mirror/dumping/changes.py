"""How two dumps differ: what a Change Dump of the time between them tells, and its packages.

Rules that hold here: of each resource only the last change is told. A change whose time is not
known, or is not within the time of the dump, gets its end: so nobody who reads on from within takes
it for one that he has. What is kept on the way is in an unnamed file, never in memory.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.xml_writer import Entry, Md, render_entries
from rsnotify_client.resource import SourceResource
from rsnotify_mirror.dumping.copy_reader import CopyReader
from rsnotify_mirror.dumping.package_writer import INDEX, XML, ZIP, MadePackage, PackageWriter
from rsnotify_mirror.dumping.parts import Limits
from rsnotify_mirror.dumping.zip_records import ZipMember

CACHE_KIB = 8 * 1024
OPEN_PACKAGES = 64
_TABLE = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE change (loc TEXT PRIMARY KEY, time INTEGER, change TEXT, package TEXT, member BLOB)
WITHOUT ROWID;
"""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ZipMember)


class Changes:
    """The changes after one moment, up to another."""

    def __init__(self, after: Position, until: Position) -> None:
        self.after = after
        self._until = until
        self._changes = sqlite3.connect("", isolation_level=None)
        self._changes.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._changes.executescript(_TABLE)
        self._changes.execute("BEGIN")

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
        self._changes.execute("INSERT OR REPLACE INTO change VALUES (?, ?, ?, ?, ?)", row)

    def deleted(self, loc: str, time: int | None = None) -> None:
        """It is no more; what was noted of it otherwise is newer."""
        when = time if self.covers(time) else int(self._until)
        self._changes.execute(
            "INSERT INTO change VALUES (?, ?, 'deleted', NULL, NULL) ON CONFLICT DO UPDATE"
            " SET time = excluded.time WHERE change = 'deleted'",
            (loc, when),
        )

    def told(self, loc: str, wanted: SourceResource) -> None:
        """It is so now, in the copy."""
        row = (loc, wanted.position, wanted.change)
        self._changes.execute("INSERT OR REPLACE INTO change VALUES (?, ?, ?, NULL, NULL)", row)

    def gone(self, found: Iterable[tuple[str, Position]]) -> None:
        """Deletions of which it is known when they were."""
        for loc, position in found:
            self.deleted(loc, position)

    def __len__(self) -> int:
        count: int = self._changes.execute("SELECT count(*) FROM change").fetchone()[0]
        return count

    # Packages -----------------------------------------------------------------------------------

    def packages(self, folder: Path, run: str, up: str, limits: Limits) -> Iterator[MadePackage]:
        """Each with the changes of a time of its own, oldest first."""
        files: dict[str, BinaryIO] = {}
        after, time, number = self.after, int(self.after), 1
        writer = self._writer(folder, run, number, up, limits, after)
        try:
            for loc, when, change, package, encoded in self._changes.execute(
                "SELECT * FROM change ORDER BY time, loc"
            ):
                member = None if encoded is None else _decoder.decode(encoded)
                entry = _entry(loc, when, change, member)
                if not writer.has_room(member, entry):
                    yield writer.close(str(Position(time)))
                    after, number = Position(time), number + 1
                    writer = self._writer(folder, run, number, up, limits, after)
                if member is None:
                    writer.tell(loc, entry)
                else:
                    member.entry = entry
                    writer.copy(_opened(files, folder, package, writer), member)
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
        times = {"from_": str(self.after), "until": str(self._until)}
        md = Md(capability="changedump-manifest", **times)  # type: ignore[arg-type]
        writer = PackageWriter(folder, name, md, copy.source, Limits())
        try:
            for loc, when, change in self._changes.execute(
                "SELECT loc, time, change FROM change ORDER BY time, loc"
            ):
                content = None if change == "deleted" else copy.read(copy.row(loc))
                if content is None:
                    writer.tell(loc, _entry(loc, when, "deleted", None))
                else:
                    content.member.entry = _told(content.member.entry, when, change)
                    writer.add(content)
            writer.close()
        except BaseException:
            writer.abandon()
            raise
        for end in (XML, INDEX):
            (folder / f"{name}{end}").unlink()

    def _writer(
        self, folder: Path, run: str, number: int, up: str, limits: Limits, after: Position
    ) -> PackageWriter:
        times = {"from_": str(after), "until": str(self._until)}
        md = Md(capability="changedump-manifest", **times)  # type: ignore[arg-type]
        return PackageWriter(folder, f"{run}-changes-{number:04}", md, up, limits)


def _entry(loc: str, time: int, change: str, member: ZipMember | None) -> bytes:
    if member is None:
        md = Md(change=change, datetime=str(Position(time)))
        return render_entries("urlset", [Entry(loc, md=md)])
    return _told(member.entry, time, change)


def _told(entry: bytes, time: int, change: str) -> bytes:
    """What a manifest says of a resource, and that it changed."""
    told = f'<rs:md change="{change}" datetime="{Position(time)}"'
    return entry.replace(b"<rs:md", told.encode(), 1)


def _opened(
    files: dict[str, BinaryIO], folder: Path, package: str, writer: PackageWriter
) -> BinaryIO:
    if package not in files:
        if len(files) >= OPEN_PACKAGES:
            writer.settle()
            for file in files.values():
                file.close()
            files.clear()
        files[package] = (folder / f"{package}{ZIP}").open("rb")
    return files[package]
