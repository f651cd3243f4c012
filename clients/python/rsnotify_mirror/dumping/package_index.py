"""Where each resource lies in the packages of a dump, and what was known of it: for the next dump.

Rules that hold here: it is a shortcut. What is not as it was written, to the last bit, is not read,
and the packages are written anew. Members stand in a package, in its manifest and in its directory
in the order of their addresses, so what lies between two of them is copied as it lies.
"""

import hashlib
import os
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

_TABLE = """
CREATE TABLE {0}.member (
  loc TEXT PRIMARY KEY, package TEXT, n INTEGER, zip INTEGER, manifest INTEGER, directory INTEGER,
  seen TEXT
) WITHOUT ROWID
"""
SEEN = """(
  {path} || json_extract({wanted}, '$.type', '$.links') || CASE
  WHEN json_extract({have}, '$.hash') IS NULL THEN {have}
  ELSE json_extract({have}, '$.lastmod', '$.length', '$.hash') END
)"""  # all that a package has or says of a resource; without a digest, all that is known of it
_ADD = f"INSERT INTO member VALUES (?, ?, ?, ?, ?, ?, {SEEN})".format(  # noqa: S608
    path="?7", wanted="?8", have="?9"
)
_MARK = "loc, n, zip, manifest, directory"
AT_ONCE = 500
AFTER_ALL = b""  # to SQLite, any text is less


class Mark(NamedTuple):
    """A place in a package, after the member of this address."""

    loc: str
    n: int = 0  # so many members are before it
    zip: int = 0  # and so many bytes, of them and of what is said of them
    manifest: int = 0
    directory: int = 0

    def since(self, begin: "Mark") -> "Mark":
        """How much lies between the two."""
        return self.plus(begin, -1)

    def plus(self, size: "Mark", times: int = 1) -> "Mark":
        found = (mine + times * other for mine, other in zip(self[1:], size[1:], strict=True))
        return Mark(self.loc, *found)

    @property
    def bytes(self) -> int:
        return self.zip + self.manifest + self.directory

    def is_within(self, room: "Mark") -> bool:
        """Whether it is not more; `zip` is the room for all bytes."""
        return (
            self.n <= room.n
            and self.bytes <= room.zip
            and self.manifest <= room.manifest
            and self.directory <= room.directory
        )


def attach(database: sqlite3.Connection, path: Path | None) -> None:
    """Let it read an index as `old`; without one, it is empty."""
    database.execute("ATTACH ? AS old", (":memory:" if path is None else str(path),))
    if path is None:
        database.execute(_TABLE.format("old"))


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class PackageIndex:
    """The index of a dump that is being made, beside that of the last one.

    It is written by a thread, which leaves the interpreter to copy what is as it was.
    """

    def __init__(self, path: Path, old: Path | None) -> None:
        self.path = path
        path.unlink(missing_ok=True)
        self._old = sqlite3.connect(":memory:", isolation_level=None)
        attach(self._old, old)
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for words in ("page_size = 16384", "journal_mode = OFF", "synchronous = OFF"):
            self._database.execute(f"PRAGMA {words}")
        attach(self._database, old)
        self._database.execute(_TABLE.format("main"))
        self._database.execute("BEGIN")
        self._added: list[tuple[object, ...]] = []
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[object] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        self._database.close()
        self._old.close()

    def close(self) -> str:
        """It is complete; its digest."""
        self._flush()
        self._wait()
        self._database.execute("COMMIT")
        return digest_of(self.path)

    def add(self, package: str, mark: Mark, path: str, wanted: str, have: str) -> None:
        """A member, which ends there; and what the mirror knows of it."""
        self._added.append((mark.loc, package, *mark[1:], path, wanted, have))
        if len(self._added) >= AT_ONCE:
            self._flush()

    def copy(self, begin: Mark, end: Mark, package: str, at: Mark) -> None:
        """Members that are in another package now, at another place; `at` is where they begin."""
        self._flush()
        self._write(
            "INSERT INTO member SELECT loc, ?, n + ?, zip + ?, manifest + ?, directory + ?, seen"
            " FROM old.member WHERE loc >= ? AND loc <= ? AND n > ?",
            [(package, *at.since(begin)[1:], begin.loc, end.loc, begin.n)],
        )

    def _flush(self) -> None:
        if self._added:
            rows, self._added = self._added, []
            self._write(_ADD, rows)

    def _write(self, query: str, rows: list[tuple[object, ...]]) -> None:
        self._wait()
        self._writing = self._thread.submit(self._database.executemany, query, rows)

    def _wait(self) -> None:
        """What failed is raised here."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    # Where something is ---------------------------------------------------------------------------

    def place(self, loc: str) -> tuple[str, Mark]:
        """In which package a member is now, and where it ends."""
        self._flush()
        self._wait()
        query = f"SELECT package, {_MARK} FROM main.member WHERE loc = ?"  # noqa: S608
        package, *mark = self._database.execute(query, (loc,)).fetchone()
        return package, Mark(*mark)

    def begin(self, loc: str, start: Mark) -> Mark:
        """Where a member begins, in the package that begins at `start`."""
        return self._before(self._database, "main", loc, start)

    def before(self, loc: str | bytes, start: Mark) -> Mark:
        """The end of what the last dump has before an address, in the package from `start` on."""
        return self._before(self._old, "old", loc, start)

    def _before(self, where: sqlite3.Connection, name: str, loc: str | bytes, start: Mark) -> Mark:
        found = where.execute(
            f"SELECT {_MARK} FROM {name}.member WHERE loc < ? AND loc >= ?"  # noqa: S608
            " ORDER BY loc DESC LIMIT 1",
            (loc, start.loc),
        ).fetchone()
        return Mark(*found) if found else start

    def at(self, loc: str) -> Mark:
        """The end of a member of the last dump."""
        query = f"SELECT {_MARK} FROM old.member WHERE loc = ?"  # noqa: S608
        return Mark(*self._old.execute(query, (loc,)).fetchone())

    def fitting(self, begin: Mark, end: Mark, room: Mark) -> Mark:
        """As much of this stretch as there is room for."""
        if end.since(begin).is_within(room):
            return end
        found = self._old.execute(
            f"SELECT {_MARK} FROM old.member WHERE loc >= ? AND loc <= ? AND n > ?"  # noqa: S608
            " AND n <= ? AND zip + manifest + directory <= ? AND manifest <= ? AND directory <= ?"
            " ORDER BY loc DESC LIMIT 1",
            (
                *(begin.loc, end.loc, begin.n, begin.n + room.n, begin.bytes + room.zip),
                *(begin.manifest + room.manifest, begin.directory + room.directory),
            ),
        ).fetchone()
        return Mark(*found) if found else begin

    def after(self, begin: Mark) -> Mark:
        """The end of the next member."""
        query = f"SELECT {_MARK} FROM old.member WHERE loc >= ? AND n = ? ORDER BY loc LIMIT 1"  # noqa: S608
        return Mark(*self._old.execute(query, (begin.loc, begin.n + 1)).fetchone())


def is_as_written(path: Path, digest: str) -> bool:
    """Whether an index is there, to the last bit."""
    return bool(digest) and os.path.exists(path) and digest_of(path) == digest
