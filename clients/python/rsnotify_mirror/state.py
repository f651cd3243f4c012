"""What a mirror knows of each resource: what is wanted, what is there, what remains to be done.

Rules that hold here: the cursor moves in the same transaction in which the changes up to it are
recorded as work, so a mirror that is killed forgets nothing; how far the work has come is
recorded after it is done, so it is at worst done twice. A resource has the name by which the Source
called it first, and is found by every equivalent way of writing that. What stands in the file can
be read while another process writes it; an error of the disk is reported with the file's name and
what to do.
"""

import os
import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any, Self, cast

import msgspec
from msgspec.structs import replace

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify_client.address import canonical
from rsnotify_client.database import checked, format_of, keep, open_file, unusable
from rsnotify_client.locks import lock_directory
from rsnotify_client.moved import moved_by
from rsnotify_client.outbox import INSERT, statements
from rsnotify_client.resource import SourceResource, digests
from rsnotify_mirror.paths import OURS, Map, Places, place_of
from rsnotify_mirror.plan import Have, contradiction, is_current
from rsnotify_mirror.selection import Selection

FILE = f"{OURS}.sqlite"
FORMAT = 1
ANEW = "take an empty directory, into which all is copied anew"
GONE_SECONDS = 90 * 86_400.0  # how long it is remembered when a resource was deleted

_TABLES = """
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS resource (
  loc TEXT PRIMARY KEY, path TEXT, wanted BLOB, have BLOB, part BLOB,
  generation INTEGER NOT NULL, version INTEGER NOT NULL,
  due REAL, attempts INTEGER NOT NULL DEFAULT 0, problem TEXT,
  canonical TEXT -- the canonical way to write `loc`, if that is another one
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS due ON resource (due) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS canonical ON resource (canonical) WHERE canonical IS NOT NULL;
CREATE TABLE IF NOT EXISTS place (
  key TEXT PRIMARY KEY, is_file INTEGER NOT NULL, path TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gone (
  loc TEXT PRIMARY KEY, position INTEGER NOT NULL, canonical TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS gone_canonical ON gone (canonical) WHERE canonical IS NOT NULL;
"""
_TABLES_MADE = "SELECT count(*) FROM sqlite_master WHERE type = 'table'"
_OF_NO_LIST = 1 << 62  # a generation that no baseline reaches, and so none finds missing
# Copies were made without the column: the same resource may be there in two ways, with two files.
_COLUMN = "SELECT count(*), sum(name = 'canonical') FROM pragma_table_info('resource')"
_UPGRADE = f"""
BEGIN IMMEDIATE;
ALTER TABLE resource ADD COLUMN canonical TEXT;
UPDATE resource SET canonical = canonical_of(loc) WHERE canonical_of(loc) <> loc;
ALTER TABLE gone ADD COLUMN canonical TEXT;
UPDATE gone SET canonical = canonical_of(loc) WHERE canonical_of(loc) <> loc;
CREATE TEMP TABLE twin AS SELECT loc FROM (
  SELECT loc, row_number() OVER (
    PARTITION BY coalesce(canonical, loc) ORDER BY canonical IS NOT NULL, loc
  ) AS number FROM resource
) WHERE number > 1;
UPDATE resource SET canonical = NULL, wanted = json_object('loc', loc, 'change', 'deleted'),
  generation = {_OF_NO_LIST}, version = version + 1, due = 0, attempts = 0, problem = NULL
  WHERE loc IN (SELECT loc FROM twin);
UPDATE fact SET value = NULL WHERE name = 'cursor' AND EXISTS (SELECT 1 FROM twin);
DROP TABLE twin;
COMMIT;
"""  # noqa: S608


def mirror_around(path: Path) -> Path | None:
    """The mirror that this directory belongs to or is; `path` is without symlinks."""
    return next((each for each in (path, *path.parents) if os.path.lexists(each / FILE)), None)


def _connected_to_read(path: Path) -> sqlite3.Connection:
    """Connect only to read. SQLite needs to make files beside the database for that.

    Where it may not, and no process has the database open, a copy of it is read.
    """
    database = open_file(path, mode="rw")
    try:
        database.execute(_TABLES_MADE).fetchall()
    except sqlite3.OperationalError:
        database.close()
        if path.with_name(f"{FILE}-wal").exists():
            raise
        return _copied(path)
    if not _is_older(database):
        return database
    copy = sqlite3.connect("", isolation_level=None)
    with closing(database):
        database.backup(copy)
    _upgrade(copy)
    return copy


def _copied(path: Path) -> sqlite3.Connection:
    """Copy the database into a file without a name."""
    there = f"{path.absolute().as_uri()}?immutable=1"
    copy = sqlite3.connect("", isolation_level=None)
    with closing(sqlite3.connect(there, uri=True)) as database:  # which nobody else may have open
        database.backup(copy)
    _upgrade(copy)
    return copy


def _is_older(database: sqlite3.Connection) -> bool:
    """Whether a version has made it that took each way of writing a URI for a resource."""
    columns, found = database.execute(_COLUMN).fetchone()
    return bool(columns) and not found


def _upgrade(database: sqlite3.Connection) -> None:
    """Find resources by every way of writing them; of two that are the same, one is to go.

    Which of the two the Source described last is unknown, so its lists are read from the beginning.
    """
    if not _is_older(database):
        return
    database.create_function("canonical_of", 1, canonical, deterministic=True)
    try:
        database.executescript(_UPGRADE)
    except sqlite3.Error:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


_MOVING = (
    "CREATE TABLE IF NOT EXISTS moved (path TEXT PRIMARY KEY, new TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TEMP TABLE moving (number INTEGER PRIMARY KEY, loc TEXT)",
)
_TO_MOVE = (
    "INSERT INTO moving (loc) SELECT loc FROM resource"
    " WHERE substr(loc, 1, ?) = ? OR substr(canonical, 1, ?) = ?"
)
_NEXT_TO_MOVE = "SELECT number, loc FROM moving WHERE number > ? ORDER BY number LIMIT ?"
_GONE_MOVES = (
    "UPDATE OR REPLACE gone SET loc = ? || substr(loc, ?), canonical = NULL"
    " WHERE substr(loc, 1, ?) = ?"
)

AT_ONCE = 500
FILLED = "filled"  # the packages that an empty copy was filled from, until all are
PART = "part "  # in the names of facts, before a package's address
MOVED = "moved"  # what addresses began with and begin with, as far as the versions do not know it
GIVEN = "given"  # the address at which a person let the Source be looked for
READ = "read"  # when a baseline was read to its end first
PLACE = "published_to"  # the hub, the set and the base that changes of the copy wait for
LOADED = "published"  # whether that set has had the whole copy

Outgoing = tuple[str, str, str]
"""A change that waits to be published: the set, the kind of channel, and the change in JSON."""

DueMark = tuple[float, str]
"""How far what is due was read: it is read in the order of its time, then of its address."""
START: DueMark = (0.0, "")


class StateRow(msgspec.Struct):
    """One resource: what is wanted, what is there, and what remains to be done."""

    loc: str
    path: str | None
    wanted: SourceResource
    have: Have | None
    part: Have | None
    version: int
    attempts: int
    problem: str | None

    @property
    def held_bytes(self) -> int:
        """How much of it is in the copy."""
        return 0 if self.have is None else self.have.length or 0


_ROW = "loc, path, wanted, have, part, version, attempts, problem"
_IS = "(loc = ?1 OR canonical = ?1)"  # the resource that is written so in the canonical way
JUST_PLANNED_SECONDS = 5.0
_PLANNED = """
SELECT total(CASE WHEN is_gone THEN 0 ELSE length END),
  total(CASE WHEN is_gone THEN 0 ELSE coalesce(length, before) END - before)
FROM (
  SELECT json_extract(wanted, '$.change') = 'deleted' AS is_gone,
    json_extract(wanted, '$.length') AS length,
    coalesce(json_extract(have, '$.length'), 0) AS before
  FROM resource WHERE due IS NOT NULL
)
"""
HELD_BACK_SECONDS = 3_600.0
"""Planned so much later, what a package may hold is not fetched before it is unpacked."""
_HELD_BACK = "due > ? AND problem IS NULL"
_wanted = msgspec.json.Decoder(SourceResource)
_have = msgspec.json.Decoder(Have)
_encoder = msgspec.json.Encoder()


def _encode(struct: SourceResource | Have) -> str:
    """Encode as text: the driver takes that as it is, but seeks an adapter for each `bytes`."""
    return _encoder.encode(struct).decode()


class State:
    """The file in which a mirror keeps what it knows; only one process may write it."""

    def __init__(self, directory: Path, *, is_writer: bool = True) -> None:
        self.directory = directory
        self.replanned = 0  # how often rows may have become out of date since they were read
        self._contradiction: str | None = None  # the first that the Source has said
        self._contradicted = 0  # resources
        self._places = Places(lambda: self._database)
        self._stored: list[tuple[str, int, str]] = []  # to be recorded together
        self._outgoing: list[Outgoing] = []  # with them
        self._lock = -1
        if is_writer:
            self._take(directory)
        try:
            if is_writer:
                self._open(directory / FILE)
            else:
                self._open_to_read(directory / FILE)
        except sqlite3.Error as error:
            self.close()
            is_closed = not is_writer and isinstance(error, sqlite3.OperationalError)
            raise self._unreadable(error) if is_closed else self.unusable(error) from None
        except InvalidSettings:
            self.close()
            raise

    def _take(self, directory: Path) -> None:
        self._lock = lock_directory(directory, "mirror")
        if not (directory / FILE).exists() and any(directory.iterdir()):
            self.close()
            raise InvalidSettings(
                f"{directory} holds files, but no mirror: give an empty directory or a new one"
            )

    def _open(self, path: Path) -> None:
        self._database = open_file(path)
        found = format_of(self._database, path, FORMAT)
        keep(self._database)
        _upgrade(self._database)
        self._database.executescript(_TABLES)
        if found < FORMAT:
            self._database.execute(f"PRAGMA user_version = {FORMAT}")

    def _open_to_read(self, path: Path) -> None:
        if not path.exists():
            raise InvalidSettings(f"{path.parent} is no mirror: make one with rsnotify mirror")
        self._database = _connected_to_read(path)
        format_of(self._database, path, FORMAT)
        made = self._database.execute(_TABLES_MADE).fetchone()[0]
        if made < _TABLES.count("CREATE TABLE"):  # a mirror was killed before
            raise InvalidSettings(f"{path.parent} holds no copy yet: run rsnotify mirror again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            if hasattr(self, "_database"):
                with closing(self._database), self.checked():
                    self.commit()
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    # Transactions -------------------------------------------------------------------------------

    @property
    def database(self) -> sqlite3.Connection:
        """The database, with everything that was done recorded in it."""
        self.flush()
        return self._database

    def begin(self) -> None:
        if self._database.in_transaction:
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self.unusable(error) from None

    def _ask(self, query: str, *values: object) -> Any:
        """The first row of the answer; None if there is none."""
        return self.database.execute(query, values).fetchone()

    def _change(self, query: str, *values: object) -> int:
        """Change something, in a transaction; how many rows it was."""
        self.begin()
        return self.database.execute(query, values).rowcount

    def commit(self) -> None:
        if not self.database.in_transaction:
            return
        try:
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise self.unusable(error) from None

    def unusable(self, error: sqlite3.Error) -> InvalidSettings:
        return InvalidSettings(unusable(self.directory / FILE, error, ANEW))

    def checked(self) -> AbstractContextManager[None]:
        """Where the file is worked with: what is wrong with it is said."""
        return checked(self.directory / FILE, ANEW)

    def _unreadable(self, error: sqlite3.Error) -> InvalidSettings:
        advice = "give the right to read it, or to write in its directory"
        return InvalidSettings(f"{self.directory / FILE}: {error}: {advice}")

    # Facts --------------------------------------------------------------------------------------

    def fact(self, name: str) -> str | None:
        found = self._ask("SELECT value FROM fact WHERE name = ?", name)
        return found and cast("str | None", found[0])

    def set_fact(self, name: str, value: str | None) -> None:
        self._change("INSERT OR REPLACE INTO fact VALUES (?, ?)", name, value)

    def claim(self, name: str, value: str) -> str | None:
        """Record a fact that never changes in a mirror's life; return it if another is recorded."""
        known = self.fact(name)
        if known is None:
            self.set_fact(name, value)
            self.commit()
        return None if known == value else known

    @property
    def known_addresses(self) -> set[str]:
        """Where its Source was found: at its own address, and at the one that was given for it."""
        return {each for name in ("source", GIVEN) if (each := self.fact(name)) is not None}

    @property
    def cursor(self) -> Position | None:
        """Up to here all changes are recorded; None while a baseline is not complete."""
        text = self.fact("cursor")
        return Position.parse(text) if text else None

    @property
    def selection(self) -> Selection:
        """Which resources the copy is to hold, as its mirror was told last."""
        return msgspec.json.decode(self.fact("selection") or "{}", type=Selection)

    @property
    def generation(self) -> int:
        return int(self.fact("generation") or 0)

    @property
    def is_behind(self) -> bool:
        """Whether something was done that a kill would have done again."""
        return bool(self._stored) or self._database.in_transaction

    def flush(self) -> None:
        """Record what was stored."""
        if not self._stored:
            return
        self.begin()
        rows, self._stored = self._stored, []
        try:
            self._database.executemany(
                "UPDATE resource SET have = ?, part = NULL, problem = NULL, attempts = 0,"
                " due = CASE version WHEN ? THEN NULL ELSE due END WHERE loc = ?",
                rows,
            )
            if self._outgoing:
                outgoing, self._outgoing = self._outgoing, []
                self._database.executemany(INSERT, outgoing)
        except sqlite3.Error as error:
            raise self.unusable(error) from None

    # The plan -----------------------------------------------------------------------------------

    def plan(self, wanted: Sequence[SourceResource], generation: int, now: float) -> int:
        """Record what the Source has; return how many resources need work."""
        self.begin()
        needed = 0
        for start in range(0, len(wanted), AT_ONCE):
            part = wanted[start : start + AT_ONCE]
            names = [canonical(each.loc) for each in part]
            known = self._known(names)
            self.replanned += bool(known)
            rows = [
                self._planned(each, name, *known.setdefault(name, (each.loc, None)), generation)
                for each, name in zip(part, names, strict=True)
            ]
            needed += [is_settled for *_, is_settled in rows].count(False)
            self.database.executemany(
                "INSERT INTO resource (loc, canonical, wanted, generation, due, version)"
                " VALUES (?, ?, ?, ?, CASE WHEN NOT ? THEN ? END, 1)"
                " ON CONFLICT (loc) DO UPDATE SET canonical = excluded.canonical,"
                " wanted = excluded.wanted, generation = excluded.generation, due = excluded.due,"
                " attempts = 0, problem = NULL, version = version + 1",
                ((*row, now) for row in rows),
            )
        return needed

    def _planned(
        self, wanted: SourceResource, name: str, loc: str, have: Have | None, generation: int
    ) -> tuple[str, str | None, str, int, bool]:
        if (why := contradiction(wanted, have)) is not None:
            self._contradiction = self._contradiction or why
            self._contradicted += 1
        is_done = have is not None and not have.hook_failed
        is_settled = is_done and is_current(wanted, have) and not wanted.is_deleted
        return loc, None if name == loc else name, _encode(wanted), generation, is_settled

    def doubt(self) -> str | None:
        """What the Source has said against itself in all that was planned since this was asked."""
        why, count = self._contradiction, self._contradicted
        self._contradiction, self._contradicted = None, 0
        return f"{why} ({count} in all)" if count > 1 else why

    def _known(self, names: Sequence[str]) -> dict[str, tuple[str, Have | None]]:
        """How these resources were called first, and what the copy has of them; by their canonical
        names. The ones that are new to it are left out."""
        return {
            name: (loc, have and _have.decode(have))
            for name, loc, have in self._named("loc, have", names)
        }

    def _named(self, columns: str, names: Sequence[str]) -> sqlite3.Cursor:
        """These columns of the resources with these canonical names, behind the name."""
        marks = ",".join(f"?{number + 1}" for number in range(len(names)))
        return self.database.execute(
            f"SELECT loc, {columns} FROM resource WHERE loc IN ({marks})"  # noqa: S608
            f" UNION ALL SELECT canonical, {columns} FROM resource WHERE canonical IN ({marks})",
            names,
        )

    def written_in(self, locs: Sequence[str], generation: int) -> dict[str, str]:
        """How the baseline has written these resources, which it has named before."""
        names, written = {canonical(loc): loc for loc in locs}, dict[str, str]()
        for start in range(0, len(names), AT_ONCE):
            part = list(names)[start : start + AT_ONCE]
            for name, number, wanted in self._named("generation, wanted", part):
                if number == generation:
                    written[names[name]] = _wanted.decode(wanted).loc
        return written

    def known_of(self, locs: Iterable[str]) -> dict[str, SourceResource]:
        """What is wanted of these resources, as far as they are known and not to go; by their
        canonical names."""
        names, known = list({canonical(loc) for loc in locs}), dict[str, SourceResource]()
        for start in range(0, len(names), AT_ONCE):
            for name, encoded in self._named("wanted", names[start : start + AT_ONCE]):
                if not (wanted := _wanted.decode(encoded)).is_deleted:
                    known[name] = wanted
        return known

    def unlisted(self, generation: int) -> list[tuple[str, SourceResource, bool]]:
        """The resources that the baseline did not name, what was wanted of each, and whether the
        copy has it."""
        query = "SELECT loc, wanted, have IS NOT NULL FROM resource WHERE generation < ?"
        found = self.database.execute(query, (generation,))
        return [(loc, _wanted.decode(wanted), bool(is_held)) for loc, wanted, is_held in found]

    def listed(self, generation: int) -> int:
        """How many resources the baseline named."""
        return int(self._ask("SELECT count(*) FROM resource WHERE generation = ?", generation)[0])

    def has_held_back(self, now: float) -> bool:
        """Whether something is put off because a package may hold it."""
        query = f"SELECT 1 FROM resource WHERE {_HELD_BACK} LIMIT 1"  # noqa: S608
        return self._ask(query, now) is not None

    def release(self, now: float) -> None:
        """Make due what was held back."""
        self._change(f"UPDATE resource SET due = ? WHERE {_HELD_BACK}", now, now)  # noqa: S608

    # The work -----------------------------------------------------------------------------------

    def due(
        self, now: float, after: DueMark, limit: int, known: Container[str]
    ) -> tuple[list[StateRow], DueMark | None]:
        """What is due and not in `known`; and where to go on, if there may be more."""
        found = self.database.execute(
            f"SELECT {_ROW}, due FROM resource"  # noqa: S608
            " WHERE due <= ? AND (due, loc) > (?, ?) ORDER BY due, loc LIMIT ?",
            (now, *after, limit),
        ).fetchall()
        last = (found[-1][-1], found[-1][0]) if len(found) == limit else None
        return [_row(each) for each in found if each[0] not in known], last

    def next_due(self) -> float | None:
        found: tuple[float | None] = self._ask(
            "SELECT min(due) FROM resource WHERE due IS NOT NULL"
        )
        return found[0]

    def counts(self) -> tuple[int, int, int]:
        """The number of resources, of those with work to do, and of those that failed."""
        found: tuple[int, int, int] = self._ask(
            "SELECT count(*), count(due), count(problem) FROM resource"
        )
        return found

    def held_bytes(self) -> int:
        """How much is in the copy."""
        (found,) = self._ask("SELECT total(json_extract(have, '$.length')) FROM resource")
        return int(found)

    def planned_bytes(self) -> tuple[int, int]:
        """What is to be fetched, and by how much the copy grows, as far as lengths are stated."""
        fetched, growth = self._ask(_PLANNED)
        return int(fetched), int(growth)

    def failing(self, until: float) -> tuple[int, int]:
        """How many resources are in trouble, and how many of them are tried again before then."""
        found: tuple[int, int] = self._ask(
            "SELECT count(*), count(*) FILTER (WHERE due < ?) FROM resource"
            " WHERE due IS NOT NULL AND problem IS NOT NULL",
            until,
        )
        return found

    def row(self, loc: str) -> StateRow | None:
        """The row of a resource, in whatever way that is written."""
        query = f"SELECT {_ROW} FROM resource WHERE {_IS}"  # noqa: S608
        found = self._ask(query, canonical(loc))
        return found and _row(found)

    def again(self, row: StateRow) -> StateRow | None:
        """The row as it is now."""
        found = self._ask(f"SELECT {_ROW} FROM resource WHERE loc = ?", row.loc)  # noqa: S608
        return found and _row(found)

    def has_name(self, row: StateRow) -> bool:
        """Whether the resource is found in this row, not in one of the same that is to stay."""
        if (name := canonical(row.loc)) == row.loc:
            return True
        found = self.row(name)
        return found is not None and found.loc == row.loc

    def rows_of(self, locs: Sequence[str]) -> dict[str, StateRow]:
        """The rows of these resources, some hundreds at most, as far as they are known."""
        names = {loc: canonical(loc) for loc in locs}
        found = {name: _row(row) for name, *row in self._named(_ROW, list(set(names.values())))}
        return {loc: found[name] for loc, name in names.items() if name in found}

    def rows(self) -> Iterator[StateRow]:
        cursor = self.database.execute(f"SELECT {_ROW} FROM resource ORDER BY loc")  # noqa: S608
        return map(_row, cursor)

    def held(self) -> Iterator[tuple[str, SourceResource]]:
        """The resources of which the copy has some version, and what is wanted of each."""
        cursor = self.database.execute("SELECT loc, wanted FROM resource WHERE have IS NOT NULL")
        return ((loc, _wanted.decode(wanted)) for loc, wanted in cursor)

    def is_done(self, loc: str) -> bool:
        """Whether the copy knows it, and nothing remains to be done for it."""
        query = f"SELECT 1 FROM resource WHERE {_IS} AND due IS NULL"  # noqa: S608
        return self._ask(query, canonical(loc)) is not None

    def is_under_way(self, loc: str) -> bool:
        """Whether it is to be fetched or removed, and has not failed at that."""
        which = f"{_IS} AND due IS NOT NULL AND problem IS NULL"
        query = f"SELECT 1 FROM resource WHERE {which}"  # noqa: S608
        return self._ask(query, canonical(loc)) is not None

    def has_place(self, path: str) -> bool:
        """Whether a resource is stored, or about to be, in the file of this name."""
        query = "SELECT 1 FROM place WHERE path = ? AND is_file"
        return self._ask(query, path) is not None

    def problems(self, limit: int = 20) -> list[tuple[str, str]]:
        return self.database.execute(
            "SELECT loc, problem FROM resource WHERE problem IS NOT NULL ORDER BY loc LIMIT ?",
            (limit,),
        ).fetchall()

    def stored(self, row: StateRow, have: Have, outgoing: Outgoing | None = None) -> None:
        """The copy has it: it is done, unless something newer was planned meanwhile; what is to be
        published of it waits from then on."""
        self._stored.append((_encode(have), row.version, row.loc))
        if outgoing is not None:
            self._outgoing.append(outgoing)
        if len(self._stored) >= AT_ONCE:
            self.flush()

    def hook_failed(self, row: StateRow, have: Have, outgoing: Outgoing | None = None) -> None:
        """The copy has it, but it is not done: its hook failed."""
        self.begin()
        if outgoing is not None:
            self._change(INSERT, *outgoing)
        self._change(
            "UPDATE resource SET have = ?, part = NULL WHERE loc = ?", _encode(have), row.loc
        )

    def removed(self, row: StateRow, outgoing: Outgoing | None = None) -> None:
        """The file is gone: so is the row, unless something newer was planned meanwhile."""
        self.begin()
        if outgoing is not None:
            self._change(INSERT, *outgoing)
        if row.path is not None:
            self._places.free(row.path)
        self._change(
            "UPDATE resource SET path = NULL, have = NULL, part = NULL WHERE loc = ?", row.loc
        )
        self._change("DELETE FROM resource WHERE loc = ? AND version = ?", row.loc, row.version)
        if row.wanted.position is not None:
            name = canonical(row.loc)
            gone = row.loc, row.wanted.position, None if name == row.loc else name
            self._change("INSERT OR REPLACE INTO gone VALUES (?, ?, ?)", *gone)

    def failed(self, row: StateRow, problem: str, due: float) -> bool:
        """Record a failure; False if it was planned again meanwhile: then it is due at once."""
        query = (
            "UPDATE resource SET problem = ?, attempts = attempts + 1, due = ?"
            " WHERE loc = ? AND version = ?"
        )
        return self._change(query, problem, due, row.loc, row.version) > 0

    def keep_part(self, loc: str, part: Have | None) -> None:
        """Record what a half-fetched file is a part of; durable before the file grows."""
        encoded = None if part is None else _encode(part)
        if not self._change("UPDATE resource SET part = ? WHERE loc = ?", encoded, loc):
            self._change("DELETE FROM fact WHERE name = ?", PART + loc)
            if encoded is not None:
                self.set_fact(PART + loc, encoded)
        self.commit()

    def part_of_package(self, loc: str) -> Have | None:
        """The same for a package, which is no resource of the copy."""
        found = self.fact(PART + loc)
        return None if found is None else _have.decode(found)

    def begun(self) -> list[str]:
        """The resources and packages that were begun, with a part to continue."""
        found = self.database.execute(
            "SELECT loc FROM resource WHERE part IS NOT NULL"
            " UNION ALL SELECT substr(name, ?) FROM fact WHERE substr(name, 1, ?) = ?",
            (len(PART) + 1, len(PART), PART),
        )
        return [loc for (loc,) in found]

    def ask_again(self, locs: Iterable[str], now: float) -> None:
        """Plan these again, which are wrong or missing in the copy; failed hooks stay marked."""
        self.begin()
        marked = _encode(Have(hook_failed=True))
        self.database.executemany(
            "UPDATE resource SET have = CASE WHEN json_extract(have, '$.hook_failed') THEN ?2 END,"  # noqa: S608
            f" due = ?3, attempts = 0, version = version + 1 WHERE {_IS}",
            ((canonical(loc), marked, now) for loc in locs),
        )

    def doubt_times(self) -> None:
        """The Source may have older files than the copy: let no server compare their times."""
        self._change("UPDATE resource SET have = json_remove(have, '$.modified')")
        self.replanned += 1

    def retry_failed(self, now: float) -> None:
        """Retry whatever failed; what a package may hold still waits for the package."""
        which = "due" if self.fact(FILLED) is None else "problem"
        query = f"UPDATE resource SET due = ?, attempts = 0 WHERE {which} IS NOT NULL"  # noqa: S608
        self._change(query, now)

    def call_again(self, now: float) -> None:
        """Make due what a hook failed for, even though the run before had no hook."""
        query = "UPDATE resource SET due = ?, attempts = 0"
        self._change(f"{query} WHERE json_extract(have, '$.hook_failed')", now)

    def retry_failed_of(self, host: str, now: float) -> None:
        """Retry what failed at one host; what is under way there begins to count again, too."""
        self._change(
            "UPDATE resource SET due = min(due, ?), attempts = 0"
            " WHERE loc >= ? AND loc < ? AND problem IS NOT NULL",
            *(now, f"{host}/", f"{host}0"),  # what begins with the host and a slash
        )

    def attempts_of(self, row: StateRow) -> int:
        """How often it has failed by now: less than when it was read, if the host came back."""
        found = self._ask("SELECT attempts FROM resource WHERE loc = ?", row.loc)
        return row.attempts if found is None else int(found[0])

    def gone_at(self, loc: str) -> int | None:
        """The moment at which a change has deleted it, of what the copy has no more."""
        query = f"SELECT max(position) FROM gone WHERE {_IS}"  # noqa: S608
        found: tuple[int | None] = self._ask(query, canonical(loc))
        return found[0]

    def forget_gone(self, before: float) -> None:
        """Forget what was deleted before this time: no list of changes needs it any more."""
        self._change("DELETE FROM gone WHERE position < ?", int(before * MICROSECONDS))

    # What is to be published ---------------------------------------------------------------------

    def keep_outbox(self) -> None:
        """Make room for changes that wait to be published."""
        for statement in statements("sqlite"):
            self._change(statement)
        self.commit()

    def outgoing(self) -> int:
        """How many changes wait to be published."""
        return int(self._ask("SELECT count(*) FROM rsnotify_outbox")[0])

    def newest_outgoing(self) -> int:
        """The number of the newest change that waits."""
        return int(self._ask("SELECT coalesce(max(id), 0) FROM rsnotify_outbox")[0])

    def drop_outgoing(self, newest: int) -> None:
        """What waited until then is published: with the whole."""
        self._change("DELETE FROM rsnotify_outbox WHERE id <= ?", newest)

    def is_filled(self, now: float, begun: float) -> bool:
        """Whether all of a baseline is in the copy, but for what failed.

        Changes that keep coming do not put that off: what they have just planned does not count,
        if it came after this run had begun.
        """
        read = self.fact(READ)
        if read is None and self.cursor is None:
            return False
        since = max(now - JUST_PLANNED_SECONDS, float(read or 0.0), begun)
        query = (
            "SELECT 1 FROM resource WHERE due IS NOT NULL AND due NOT BETWEEN ? AND ?"
            " AND have IS NULL AND problem IS NULL LIMIT 1"
        )
        return self._ask(query, since, now) is None

    def held_files(self) -> int:
        """How many resources the copy has in files."""
        query = "SELECT count(*) FROM resource WHERE have IS NOT NULL AND path IS NOT NULL"
        return int(self._ask(query)[0])

    # A Source that moves --------------------------------------------------------------------------

    def move(self, old: str, new: str, maps: Sequence[Map]) -> int:
        """Let the addresses that begin with `old` begin with `new`; how many did.

        What no digest proves is asked for again: the new server may have something else. Files
        follow (`file_moves`), unless the copy is published: then their addresses stay.
        """
        keeps_places = self.fact(PLACE) is not None
        for statement in (*_MOVING, "DELETE FROM fact WHERE substr(name, 1, 5) = 'part '"):
            self._change(statement)
        begins = (len(old), old)
        self._change(_TO_MOVE, *begins, *begins)
        count, number = 0, 0
        while some := self._database.execute(_NEXT_TO_MOVE, (number, AT_ONCE)).fetchall():
            number = some[-1][0]
            wishes: dict[str, str] = {}
            paths: dict[str, str] = {}
            for _, loc in some:
                row = self._moved_row(loc, old, new)
                count += row is not None
                if row is None or row.path is None or keeps_places:
                    continue
                if (wish := place_of(row.loc, maps)) != row.path:
                    wishes[row.loc], paths[row.loc] = wish, row.path
            moved = [(paths[loc], path) for loc, path in self.settle(wishes).items()]
            self._database.executemany("INSERT OR REPLACE INTO moved VALUES (?, ?)", moved)
        self._change(_GONE_MOVES, new, len(old) + 1, *begins)
        self.set_fact(MOVED, msgspec.json.encode([*self.moves_of_names(), (old, new)]).decode())
        self.set_fact(LOADED, None)  # what is published names where it comes from
        self._change("DROP TABLE moving")
        self.replanned += 1
        return count

    def _moved_row(self, loc: str, old: str, new: str) -> StateRow | None:
        """The row under its new address; None if another has that, or it cannot have one."""
        found = self._ask(f"SELECT {_ROW} FROM resource WHERE loc = ?", loc)  # noqa: S608
        moved = moved_by(loc, old, new)
        if moved is None or self.row(moved) is not None:
            return None
        row = _row(found)
        row.loc, name = moved, canonical(moved)
        row.wanted = replace(row.wanted, loc=moved_by(row.wanted.loc, old, new) or moved)
        if row.have is not None:
            is_proven = bool(digests(row.have.hash))
            lastmod = row.have.lastmod if is_proven else None
            row.have = replace(row.have, lastmod=lastmod, etag=None, modified=None)
        self._change(
            "UPDATE resource SET loc = ?, canonical = ?, wanted = ?, have = ?, part = NULL,"
            " version = version + 1 WHERE loc = ?",
            *(moved, None if name == moved else name, _encode(row.wanted)),
            None if row.have is None else _encode(row.have),
            loc,
        )
        return row

    def moves_of_names(self) -> list[tuple[str, str]]:
        """What addresses began with and begin with, which the versions are still to learn."""
        return msgspec.json.decode(self.fact(MOVED) or "[]", type=list[tuple[str, str]])

    def file_moves(self, limit: int = AT_ONCE) -> list[tuple[str, str]]:
        """Files that stand elsewhere now than they did: the old path and the new one."""
        if self._ask("SELECT 1 FROM sqlite_master WHERE name = 'moved'") is None:
            return []
        query = "SELECT path, new FROM moved LIMIT ?"
        return self.database.execute(query, (limit,)).fetchall()

    def file_moved(self, path: str) -> None:
        self._change("DELETE FROM moved WHERE path = ?", path)
        self._places.free(path)

    # Places -------------------------------------------------------------------------------------

    def settle(self, wishes: Mapping[str, str]) -> dict[str, str]:
        """Give resources their paths, by `loc`; `wishes` are the paths they would have alone."""
        if not wishes:
            return {}
        self.begin()
        paths = self._places.settle(wishes)
        rows = [(path, loc) for loc, path in paths.items()]
        self._database.executemany("UPDATE resource SET path = ? WHERE loc = ?", rows)
        return paths

    def forget_folder(self, path: str) -> None:
        """A folder was empty and is removed: its name is free."""
        self.begin()
        self._places.forget_folder(path)


def _row(
    found: Sequence[Any],
) -> StateRow:
    loc, path, wanted, have, part, version, attempts, problem = found[:8]
    return StateRow(
        loc,
        path,
        _wanted.decode(wanted),
        None if have is None else _have.decode(have),
        None if part is None else _have.decode(part),
        version,
        attempts,
        problem,
    )
