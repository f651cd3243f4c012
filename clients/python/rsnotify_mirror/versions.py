"""Earlier versions of a copy's resources: kept as they are replaced or deleted, and shown.

Rules that hold here: a version is kept before the copy loses it, and only if its file has the
digest that it had when it was fetched. What was recorded as replaced is not recorded again, so a
mirror that was killed between the two keeps nothing twice and nothing under a wrong name. A version
is a link to the file of the copy where the disk can do that: what stays the same takes no room. The
times are those at which the Source has changed the resource, as far as it says them.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Self

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify_client.address import canonical
from rsnotify_client.database import checked, format_of, keep, open_file
from rsnotify_client.notification import position_of
from rsnotify_client.resource import Check, SourceResource
from rsnotify_mirror.disk import Disk, InTheWay, write_all
from rsnotify_mirror.plan import Have
from rsnotify_mirror.state import State, StateRow

INDEX = ".rsnotify-versions.sqlite"
FORMAT = 1
ANEW = "take another directory for the versions"
DELETED = "deleted"
_TABLES = """
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS version (
  loc TEXT, begins INTEGER, hash TEXT, ended INTEGER NOT NULL, length INTEGER NOT NULL,
  path TEXT NOT NULL, file TEXT NOT NULL, PRIMARY KEY (loc, begins, hash)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ended ON version (ended);
CREATE INDEX IF NOT EXISTS file ON version (file);
CREATE TABLE IF NOT EXISTS now (loc TEXT PRIMARY KEY, begins INTEGER, said TEXT) WITHOUT ROWID;
"""
_BETWEEN = "SELECT loc, begins, ended, hash, length, path, file FROM version"
_NEXT = "SELECT min(begins) FROM version WHERE loc = ? AND begins > ?"
_LAST = "SELECT loc, max(begins), ended, hash, length, path, file FROM version"


class Budget(NamedTuple):
    """How much is kept of versions that have ended; None: without end."""

    bytes: int | None = None
    seconds: float | None = None


class KeptVersion(NamedTuple):
    """One version of a resource; `begins` is 0 if it is unknown, `ended` None of the newest."""

    loc: str
    begins: int
    ended: int | None
    hash: str
    length: int
    path: str
    file: str

    def holds(self, at: Position) -> bool:
        """Whether the resource was this at that moment."""
        return self.begins <= at and (self.ended is None or at < self.ended)


def said_of(have: Have) -> str:
    """What distinguishes a version from the one before."""
    return f"{have.lastmod or ''} {have.length} {have.hash or ''}"


def began(wanted: SourceResource, have: Have, now: float) -> int:
    """When the Source has made this version: by its change, by its time, or else at last now."""
    found = wanted.position or position_of(have.lastmod)
    return int(found or now * MICROSECONDS)


class Versions:
    """The versions of one copy, in a directory of their own; one process writes it."""

    def __init__(self, directory: Path, *, copy: Path | None = None) -> None:
        self.directory = directory
        path = directory / INDEX
        if copy is None and not path.exists():
            raise InvalidSettings(f"{directory} has no versions: keep some with --keep-versions")
        self._disk = Disk(directory)
        with self.checked():
            self._database = open_file(path, mode="rw" if copy is None else "rwc")
            format_of(self._database, path, FORMAT)
            if copy is not None:
                keep(self._database)
                self._database.executescript(f"{_TABLES} PRAGMA user_version = {FORMAT};")
        if copy is not None:
            self._claim(copy.absolute())
            self._disk.sweep(list)  # what a killed mirror left
        self._bytes: int = self._ask("SELECT coalesce(sum(length), 0) FROM version")

    def _claim(self, copy: Path) -> None:
        known = self.copy
        if known is not None and known != copy:
            self.close()
            raise InvalidSettings(f"{self.directory} has the versions of {known}: take another")
        self._run("INSERT OR REPLACE INTO fact VALUES ('copy', ?)", str(copy))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()
        self._disk.close()

    def checked(self) -> AbstractContextManager[None]:
        return checked(self.directory / INDEX, ANEW)

    def _run(self, query: str, *values: object) -> sqlite3.Cursor:
        with self.checked():
            return self._database.execute(query, values)

    def _ask(self, query: str, *values: object) -> int:
        return int(self._run(query, *values).fetchone()[0])

    @property
    def copy(self) -> Path | None:
        """The copy whose versions these are."""
        found = self._run("SELECT value FROM fact WHERE name = 'copy'").fetchone()
        return None if found is None else Path(found[0])

    # Keeping --------------------------------------------------------------------------------------

    def is_kept(self, row: StateRow, new: Have | None) -> bool:
        """Whether nothing is to be kept of what the copy has: it stays the same, or it is done."""
        if row.have is None or row.have.length is None or row.path is None:
            return True
        if new is not None and said_of(new) == said_of(row.have):
            return True
        _, said = self._now(row.loc)
        return said == (DELETED if new is None else said_of(new))

    async def keep(self, row: StateRow, disk: Disk, digest: str, ended: int) -> None:
        """Keep the version that the copy has: its file, whose digest was found to be this one."""
        assert row.have is not None  # noqa: S101 - `is_kept` says so
        assert row.path is not None  # noqa: S101
        begins, said = self._now(row.loc)
        if begins is None or said != said_of(row.have):
            if self._last_of(row.loc) == digest:
                return  # a mirror was killed before it could replace it
            begins = int(position_of(row.have.lastmod) or 0)
        name = digest.rpartition(":")[2]
        file = f"{name[:2]}/{name}"
        if self._disk.status(file) is None:
            await disk.link_to(self._disk, row.path, file)
        length = row.have.length or 0
        next_ = self._run(_NEXT, row.loc, begins).fetchone()[0]  # of a Change Dump
        self._insert((row.loc, begins, digest, min(ended, next_ or ended), length, row.path, file))

    def _insert(self, values: tuple[str, int, str, int, int, str, str]) -> None:
        added = self._run("INSERT OR IGNORE INTO version VALUES (?, ?, ?, ?, ?, ?, ?)", *values)
        self._bytes += values[4] * added.rowcount

    async def add(
        self, version: SourceResource, path: str, ended: int, pieces: Iterable[bytes]
    ) -> None:
        """Keep a version that the copy never had; nothing, if it is not what is said of it."""
        check, found, loc = Check(version.length, version.hash), sha256(), version.loc
        begins = version.position or 0
        try:
            with self._disk.open_part(loc) as part:
                for piece in pieces:
                    check.update(piece)
                    found.update(piece)
                    write_all(part, piece)
            if check.problem() is not None:
                return
            name = found.hexdigest()
            file = f"{name[:2]}/{name}"
            if self._disk.status(file) is None:
                await self._disk.put_part(loc, file, None)
        finally:
            self._disk.drop_part(loc)
        before = "UPDATE version SET ended = ?2 WHERE loc = ?1 AND begins < ?2 AND ended > ?2"
        self._run(before, loc, begins)
        self._insert((loc, begins, f"sha-256:{name}", ended, check.length, path, file))

    def _last_of(self, loc: str) -> str | None:
        query = "SELECT hash FROM version WHERE loc = ? ORDER BY ended DESC LIMIT 1"
        found = self._run(query, loc).fetchone()
        return None if found is None else str(found[0])

    def now_is(self, loc: str, begins: int, have: Have | None) -> None:
        """The copy is about to have this version; None: none."""
        said = DELETED if have is None else said_of(have)
        self._run("INSERT OR REPLACE INTO now VALUES (?, ?, ?)", loc, begins, said)

    def _now(self, loc: str) -> tuple[int | None, str | None]:
        found = self._run("SELECT begins, said FROM now WHERE loc = ?", loc).fetchone()
        return (None, None) if found is None else (found[0], found[1])

    def move(self, old: str, new: str) -> None:
        """The resources whose addresses begin with `old` have one that begins with `new`."""
        for table in ("version", "now"):
            self._run(
                f"UPDATE OR IGNORE {table} SET loc = ? || substr(loc, ?)"  # noqa: S608
                " WHERE substr(loc, 1, ?) = ?",
                *(new, len(old) + 1, len(old), old),
            )

    def forget(self, budget: Budget, now: float) -> int:
        """Remove what the budget has no room for, the version that ended first before others."""
        removed = 0
        while (oldest := self._oldest()) is not None:
            is_old = budget.seconds is not None and oldest.ended is not None
            is_old = is_old and now - (oldest.ended or 0) / MICROSECONDS > (budget.seconds or 0.0)
            if not is_old and (budget.bytes is None or self._bytes <= budget.bytes):
                break
            self._remove(oldest)
            removed += 1
        return removed

    def _oldest(self) -> KeptVersion | None:
        found = self._run(f"{_BETWEEN} ORDER BY ended LIMIT 1").fetchone()
        return found and KeptVersion(*found)

    def _remove(self, version: KeptVersion) -> None:
        key = (version.loc, version.begins, version.hash)
        self._run("DELETE FROM version WHERE loc = ? AND begins = ? AND hash = ?", *key)
        self._bytes -= version.length
        if not self._ask("SELECT count(*) FROM version WHERE file = ?", version.file):
            self._disk.remove(version.file)

    # Reading --------------------------------------------------------------------------------------

    def of(self, loc: str) -> list[KeptVersion]:
        """All known versions of a resource, the oldest first, that of the copy included."""
        names = {loc, canonical(loc)}
        marks = ",".join("?" * len(names))
        query = f"{_BETWEEN} WHERE loc IN ({marks}) ORDER BY begins, ended"
        kept = [KeptVersion(*each) for each in self._run(query, *names)]
        with self._state() as state:
            row = state.row(loc)
            return [*kept, *([] if row is None else self._newest(row))]

    def at(self, moment: Position) -> Iterator[KeptVersion]:
        """Each resource as it was at a moment, as far as that is known."""
        with self._state() as state:
            for row in state.rows():
                yield from (each for each in self._newest(row) if each.holds(moment))
        query = f"{_LAST} WHERE begins <= ? AND ended > ? GROUP BY loc"
        for found in self._run(query, int(moment), int(moment)):
            yield KeptVersion(*found)

    def _state(self) -> State:
        if self.copy is None or not self.copy.exists():
            raise InvalidSettings(f"{self.directory}: its copy {self.copy} is not there")
        return State(self.copy, is_writer=False)

    def _newest(self, row: StateRow) -> Iterator[KeptVersion]:
        have = row.have
        if have is None or have.length is None or row.path is None:
            return
        begins, said = self._now(row.loc)
        if begins is None or said != said_of(have):
            begins = int(position_of(have.lastmod) or 0)
        digest = have.hash or ""
        yield KeptVersion(row.loc, begins, None, digest, have.length, row.path, "")

    def write(self, version: KeptVersion, out: Disk) -> bool:
        """Write a version to its place; False if something is there, or its file has gone.

        It is a file of its own: whoever works with it changes no version.
        """
        if out.status(version.path) is not None:
            return False
        assert self.copy is not None  # noqa: S101
        with suppress(FileNotFoundError, InTheWay):
            if version.ended is not None:
                self._disk.copy_to(out, version.file, version.path)
            else:
                with closing(Disk(self.copy)) as copy:
                    copy.copy_to(out, version.path, version.path)
            return True
        return False
