"""The SQLite file of a mirror: its one writer, its transactions, and facts of the whole copy.

Rules that hold here: what stands in the file can be read while another process writes it; an error
of the disk is reported with the file's name and what to do.
"""

import fcntl
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Self

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Position
from rsnotify_mirror.paths import OURS

FILE = f"{OURS}.sqlite"
BUSY_SECONDS = 10.0

_TABLES = """
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS resource (
  loc TEXT PRIMARY KEY, path TEXT, wanted BLOB, have BLOB, part BLOB,
  generation INTEGER NOT NULL, version INTEGER NOT NULL,
  due REAL, attempts INTEGER NOT NULL DEFAULT 0, problem TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS due ON resource (due) WHERE due IS NOT NULL;
CREATE TABLE IF NOT EXISTS place (
  key TEXT PRIMARY KEY, is_file INTEGER NOT NULL, path TEXT NOT NULL
) WITHOUT ROWID;
"""
_TABLES_MADE = "SELECT count(*) FROM sqlite_master WHERE type = 'table'"


def mirror_around(path: Path) -> Path | None:
    """The mirror that has this directory, or is it; `path` is without symlinks."""
    return next((each for each in (path, *path.parents) if os.path.lexists(each / FILE)), None)


class StateFile:
    """The file in which a mirror keeps what it knows; only one process may write it."""

    def __init__(self, directory: Path, *, is_writer: bool = True) -> None:
        self.directory = directory
        self._lock = -1
        if is_writer:
            self._take(directory)
        try:
            if is_writer:
                self._open(directory / FILE)
            else:
                self._open_to_read(directory / FILE)
        except sqlite3.OperationalError as error:
            self.close()
            raise self.unwritable(error) if is_writer else self._unreadable(error) from None
        except sqlite3.Error as error:
            self.close()
            raise InvalidSettings([f"{directory / FILE}: {error}"]) from None

    def _take(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InvalidSettings(
                [f"{directory} is in use by another mirror: end that first"]
            ) from None
        except (FileExistsError, NotADirectoryError):
            raise InvalidSettings([f"{directory} cannot be used: it is no directory"]) from None
        except OSError as error:
            raise InvalidSettings([f"{directory} cannot be used: {error.strerror}"]) from None
        if not (directory / FILE).exists() and any(directory.iterdir()):
            self.close()
            raise InvalidSettings(
                [f"{directory} holds files, but no mirror: give an empty directory or a new one"]
            )

    def _open(self, path: Path) -> None:
        self._database = _connected(path)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.executescript(_TABLES)

    def _open_to_read(self, path: Path) -> None:
        if not path.exists():
            raise InvalidSettings([f"{path.parent} is no mirror: make one with rsnotify mirror"])
        self._database = _connected_to_read(path)
        made = self._database.execute(_TABLES_MADE).fetchone()[0]
        if made < _TABLES.count("CREATE TABLE"):  # a mirror was killed before
            self.close()
            raise InvalidSettings([f"{path.parent} holds no copy yet: run rsnotify mirror again"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if hasattr(self, "_database"):
            self.commit()
            self._database.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # Transactions -------------------------------------------------------------------------------

    def flush(self) -> None:
        """What was kept back, to write more at once, is written here."""

    @property
    def database(self) -> sqlite3.Connection:
        """With all that was done in it."""
        self.flush()
        return self._database

    def begin(self) -> None:
        if self._database.in_transaction:
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise self.unwritable(error) from None

    def commit(self) -> None:
        if not self.database.in_transaction:
            return
        try:
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            with suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise self.unwritable(error) from None

    def unwritable(self, error: sqlite3.Error) -> InvalidSettings:
        advice = "make room or give the right to write, then start again"
        return InvalidSettings([f"{self.directory / FILE}: {error}: {advice}"])

    def _unreadable(self, error: sqlite3.Error) -> InvalidSettings:
        advice = "give the right to read it, or to write in its directory"
        return InvalidSettings([f"{self.directory / FILE}: {error}: {advice}"])

    # Facts --------------------------------------------------------------------------------------

    def fact(self, name: str) -> str | None:
        found = self.database.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        value: str | None = found[0] if found else None
        return value

    def set_fact(self, name: str, value: str | None) -> None:
        self.begin()
        self.database.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def claim(self, name: str, value: str) -> str | None:
        """Record a fact that never changes in a mirror's life; if it is another, that one."""
        known = self.fact(name)
        if known is None:
            self.set_fact(name, value)
            self.commit()
        return None if known == value else known

    @property
    def cursor(self) -> Position | None:
        """Up to here all changes are recorded; None while a baseline is not complete."""
        text = self.fact("cursor")
        return Position.parse(text) if text else None

    @property
    def generation(self) -> int:
        return int(self.fact("generation") or 0)


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)


def _connected_to_read(path: Path) -> sqlite3.Connection:
    """SQLite needs to make files beside the database.

    Where it may not, and no process has it open, a copy is read.
    """
    database = _connected(path)
    try:
        database.execute(_TABLES_MADE).fetchall()
    except sqlite3.OperationalError:
        database.close()
        if path.with_name(f"{FILE}-wal").exists():
            raise
        return _copied(path)
    return database


def _copied(path: Path) -> sqlite3.Connection:
    """Into a file without a name."""
    there = f"{path.absolute().as_uri()}?immutable=1"
    copy = sqlite3.connect("", isolation_level=None)
    with closing(sqlite3.connect(there, uri=True)) as database:
        database.backup(copy)
    return copy
