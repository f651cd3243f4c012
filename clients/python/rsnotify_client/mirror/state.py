"""All that a mirror knows, in one SQLite file in its directory.

Rules that hold here: the cursor moves in the same transaction in which the changes up to it are
recorded as work, so a mirror that is killed forgets nothing; how far the work has come is
recorded after it is done, so it is at worst done twice.
"""

import fcntl
import os
import sqlite3
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Position
from rsnotify_client.mirror.paths import OURS
from rsnotify_client.mirror.places import Places
from rsnotify_client.mirror.plan import Have, SourceResource, is_current

FILE = f"{OURS}.sqlite"
PARTS = f"{OURS}-parts"
AT_ONCE = 500

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


class Row(NamedTuple):
    """One resource: what is wanted, what is there, and what remains to be done."""

    loc: str
    path: str | None
    wanted: SourceResource
    have: Have | None
    part: Have | None
    version: int
    attempts: int
    problem: str | None


_ROW = "loc, path, wanted, have, part, version, attempts, problem"
_wanted = msgspec.json.Decoder(SourceResource)
_have = msgspec.json.Decoder(Have)
_encode = msgspec.json.Encoder().encode


class State:
    """The state of one mirror; only one process may hold it."""

    def __init__(self, directory: Path, *, is_writer: bool = True) -> None:
        self.directory = directory
        self._lock = -1
        self._places = Places(lambda: self._database)
        self._stored: list[tuple[bytes, int, str]] = []  # done, to be recorded together
        self.replanned = 0  # how often rows that were read before may have become old
        if is_writer:
            self._take(directory)
        try:
            self._open(directory / FILE, is_writer=is_writer)
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
                [f"{directory} is in use by another mirror: end that, or take another directory"]
            ) from None
        except OSError as error:
            raise InvalidSettings([f"{directory} cannot be used: {error.strerror}"]) from None
        if not (directory / FILE).exists() and any(directory.iterdir()):
            self.close()
            raise InvalidSettings(
                [f"{directory} holds files, but no mirror: give an empty directory or a new one"]
            )

    def _open(self, path: Path, *, is_writer: bool) -> None:
        if not is_writer and not path.exists():
            raise InvalidSettings([f"{path.parent} is no mirror: make one with rsnotify mirror"])
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA busy_timeout=10000")
        if is_writer:
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.executescript(_TABLES)

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

    @property
    def database(self) -> sqlite3.Connection:
        """With all that was done in it."""
        if self._stored:
            self._record_stored()
        return self._database

    @property
    def is_behind(self) -> bool:
        """Whether something was done that a kill would have done again."""
        return bool(self._stored) or self._database.in_transaction

    def begin(self) -> None:
        if self._database.in_transaction:
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise _unwritable(self.directory, error) from None

    def commit(self) -> None:
        if not self.database.in_transaction:
            return
        try:
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            with suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise _unwritable(self.directory, error) from None

    def _record_stored(self) -> None:
        self.begin()
        rows, self._stored = self._stored, []
        try:
            self._database.executemany(
                "UPDATE resource SET have = ?, part = NULL, problem = NULL, attempts = 0,"
                " due = CASE version WHEN ? THEN NULL ELSE due END WHERE loc = ?",
                rows,
            )
        except sqlite3.OperationalError as error:
            raise _unwritable(self.directory, error) from None

    # Facts --------------------------------------------------------------------------------------

    def fact(self, name: str) -> str | None:
        found = self.database.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        value: str | None = found[0] if found else None
        return value

    def set_fact(self, name: str, value: str | None) -> None:
        self.begin()
        self.database.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def claim(self, name: str, value: str, problem: str) -> None:
        """A fact that never changes in a mirror's life."""
        known = self.fact(name)
        if known is None:
            self.set_fact(name, value)
            self.commit()
        elif known != value:
            raise InvalidSettings([problem.format(known=known, given=value)])

    @property
    def cursor(self) -> Position | None:
        """Up to here all changes are recorded; None while a baseline is not complete."""
        text = self.fact("cursor")
        return Position.parse(text) if text else None

    @property
    def generation(self) -> int:
        return int(self.fact("generation") or 0)

    # The plan -----------------------------------------------------------------------------------

    def plan(self, wanted: Sequence[SourceResource], generation: int, now: float) -> int:
        """Record what the Source has; how many resources need work."""
        self.begin()
        needed = 0
        for start in range(0, len(wanted), AT_ONCE):
            part = wanted[start : start + AT_ONCE]
            known = self._known([each.loc for each in part])
            self.replanned += bool(known)
            rows = [self._planned(each, known.get(each.loc), generation, now) for each in part]
            needed += sum(row[3] is not None for row in rows)
            self.database.executemany(
                "INSERT INTO resource (loc, wanted, generation, due, version)"
                " VALUES (?, ?, ?, ?, 1) ON CONFLICT (loc) DO UPDATE SET wanted = excluded.wanted,"
                " generation = excluded.generation, due = excluded.due, attempts = 0,"
                " problem = NULL, version = version + 1",
                rows,
            )
        return needed

    def _planned(
        self, wanted: SourceResource, have: Have | None, generation: int, now: float
    ) -> tuple[str, bytes, int, float | None]:
        is_settled = not wanted.is_deleted and is_current(wanted, have)
        return wanted.loc, _encode(wanted), generation, None if is_settled else now

    def _known(self, locs: Sequence[str]) -> dict[str, Have | None]:
        """What the copy has of these resources; those that are new to it are not named."""
        marks = ",".join("?" * len(locs))
        found = self.database.execute(
            f"SELECT loc, have FROM resource WHERE loc IN ({marks})",  # noqa: S608
            locs,
        )
        return {loc: have and _have.decode(have) for loc, have in found}

    def plan_deletions(self, generation: int, now: float) -> int:
        """Resources that a complete baseline did not name are gone."""
        self.begin()
        gone = self.database.execute(
            "SELECT loc FROM resource WHERE generation < ?", (generation,)
        ).fetchall()
        for (loc,) in gone:
            self.plan([SourceResource(loc, "deleted")], generation, now)
        return len(gone)

    # The work -----------------------------------------------------------------------------------

    def due(self, now: float, limit: int, known: Container[str]) -> tuple[list[Row], int]:
        """What is due and not known yet; and how much is due in all, up to the limit."""
        found = self.database.execute(
            f"SELECT {_ROW} FROM resource WHERE due <= ? ORDER BY due LIMIT ?",  # noqa: S608
            (now, limit),
        ).fetchall()
        return [_row(each) for each in found if each[0] not in known], len(found)

    def next_due(self) -> float | None:
        found = self.database.execute("SELECT min(due) FROM resource WHERE due IS NOT NULL")
        value: float | None = found.fetchone()[0]
        return value

    def counts(self) -> tuple[int, int, int]:
        """Resources in all; of them with work to do; of them that failed."""
        query = "SELECT count(*), count(due), count(problem) FROM resource"
        found: tuple[int, int, int] = self.database.execute(query).fetchone()
        return found

    def failing(self, until: float) -> tuple[int, int]:
        """Resources that something is wrong with; how many of them are tried again before then."""
        found: tuple[int, int] = self.database.execute(
            "SELECT count(*), count(*) FILTER (WHERE due < ?) FROM resource"
            " WHERE due IS NOT NULL AND problem IS NOT NULL",
            (until,),
        ).fetchone()
        return found

    def row(self, loc: str) -> Row | None:
        found = self.database.execute(
            f"SELECT {_ROW} FROM resource WHERE loc = ?",  # noqa: S608
            (loc,),
        ).fetchone()
        return found and _row(found)

    def rows(self) -> Iterator[Row]:
        cursor = self.database.execute(f"SELECT {_ROW} FROM resource ORDER BY loc")  # noqa: S608
        return map(_row, cursor)

    def problems(self, limit: int = 20) -> list[tuple[str, str]]:
        return self.database.execute(
            "SELECT loc, problem FROM resource WHERE problem IS NOT NULL ORDER BY loc LIMIT ?",
            (limit,),
        ).fetchall()

    def stored(self, row: Row, have: Have) -> None:
        """The copy has it; if nothing newer was planned meanwhile, it is done."""
        self._stored.append((_encode(have), row.version, row.loc))
        if len(self._stored) >= AT_ONCE:
            self._record_stored()

    def removed(self, row: Row) -> None:
        """The file is gone; the row too, unless something newer was planned meanwhile."""
        self.begin()
        if row.path is not None:
            self._places.free(row.path)
        self.database.execute(
            "UPDATE resource SET path = NULL, have = NULL, part = NULL WHERE loc = ?", (row.loc,)
        )
        self.database.execute(
            "DELETE FROM resource WHERE loc = ? AND version = ?", (row.loc, row.version)
        )

    def failed(self, row: Row, problem: str, due: float) -> None:
        self.begin()
        self.database.execute(
            "UPDATE resource SET problem = ?, attempts = attempts + 1, due = ?"
            " WHERE loc = ? AND version = ?",
            (problem, due, row.loc, row.version),
        )

    def keep_part(self, loc: str, part: Have | None) -> None:
        """What a half-fetched file is the beginning of; durable before the file grows."""
        self.begin()
        encoded = None if part is None else _encode(part)
        self.database.execute("UPDATE resource SET part = ? WHERE loc = ?", (encoded, loc))
        self.commit()

    def begun(self) -> list[str]:
        """The resources of which a part is there to go on with."""
        found = self.database.execute("SELECT loc FROM resource WHERE part IS NOT NULL")
        return [loc for (loc,) in found]

    def ask_again(self, locs: Iterable[str], now: float) -> None:
        """These are not in the copy as they should be."""
        self.begin()
        self.database.executemany(
            "UPDATE resource SET have = NULL, due = ?, attempts = 0, version = version + 1"
            " WHERE loc = ?",
            ((now, loc) for loc in locs),
        )

    def retry_failed(self, now: float) -> None:
        """Whatever failed before gets a new chance."""
        self.begin()
        self.database.execute(
            "UPDATE resource SET due = ?, attempts = 0 WHERE due IS NOT NULL", (now,)
        )

    # Places -------------------------------------------------------------------------------------

    def settle(self, wishes: Sequence[tuple[str, str]]) -> list[str]:
        """Give resources their paths; a wish is a `loc` and the path that it would have alone."""
        self.begin()
        paths = self._places.settle(wishes)
        rows = [(path, loc) for path, (loc, _) in zip(paths, wishes, strict=True)]
        self._database.executemany("UPDATE resource SET path = ? WHERE loc = ?", rows)
        return paths

    def forget_folder(self, path: str) -> None:
        """It was empty and is removed."""
        self.begin()
        self._places.forget_folder(path)


def _unwritable(directory: Path, error: sqlite3.Error) -> InvalidSettings:
    return InvalidSettings(
        [f"{directory / FILE}: {error}: make room or give the right to write, then start again"]
    )


def _row(found: tuple[str, str | None, bytes, bytes | None, bytes | None, int, int, str]) -> Row:
    loc, path, wanted, have, part, version, attempts, problem = found
    return Row(
        loc,
        path,
        _wanted.decode(wanted),
        None if have is None else _have.decode(have),
        None if part is None else _have.decode(part),
        version,
        attempts,
        problem,
    )
