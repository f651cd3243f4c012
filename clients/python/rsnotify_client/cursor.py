"""Where a follower keeps its place: a file, an SQLite database, or two functions of the caller's.

Rules that hold here: killed at any moment, a store holds one cursor or the other; it moves only
when all changes up to there are dealt with, in whatever order. A file and a database also keep the
address that was followed: for another one, their place means nothing.
"""

import os
import re
import shlex
import sqlite3
import weakref
from bisect import bisect_left
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlencode

from rsnotify.errors import InvalidSettings, shown
from rsnotify.resourcesync.change import Position
from rsnotify_client.database import FULL, check_path, checked, keep, open_file, wrong_place

POSITION = ("from", "since")  # parameters of a channel's address that say where to begin


ANEW = "give another, or move it away: all is then followed from the beginning"


class CursorError(InvalidSettings):
    """A cursor cannot be read or kept, or holds the place in something else."""


class CursorStore(Protocol):
    """Anything that can load and save a cursor.

    If it has `keep_for(url)`, that is called first: it may refuse to be used for this address.
    """

    def load(self) -> Position | None:
        """The position that was kept; None at first."""

    def save(self, position: Position) -> None:
        """Keep this position in place of the one before."""


class FileCursor:
    """Keeps a cursor in a file: a datetime, and on the second line the followed address.

    `moved_from` is the address at which the same was followed until now.
    """

    def __init__(self, path: str | Path, *, moved_from: str | None = None) -> None:
        check_path(path, lambda said: CursorError(f"cursor {said}"))
        self.path = Path(path)
        self._moved_from = moved_from
        self._address = ""

    def keep_for(self, url: str) -> None:
        """It is the place in what is followed at this address; refused if it was another's."""
        self._address = _plain(url)
        _, known = self._read()
        if known not in ("", self._address) and not _is_moved(known, self._moved_from):
            raise _of_another(self.path, known, self._address, "remove its second line")

    def load(self) -> Position | None:
        """The cursor that was kept; refuses at once a place where none could be kept later."""
        folder = self.path.parent
        if not os.access(folder, os.W_OK | os.X_OK):
            wrong = "cannot be written to" if folder.is_dir() else "is not there: make it first"
            raise CursorError(f"cursor {self.path}: the directory {folder} {wrong}")
        return self._read()[0]

    def _read(self) -> tuple[Position | None, str]:
        try:
            place, _, address = self.path.read_text().strip().partition("\n")
            return Position.parse(place), address
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            raise self._unusable(error) from None
        except UnicodeDecodeError:
            raise CursorError(f"cursor {self.path}: it is no text: {ANEW}") from None
        except ValueError as error:
            raise CursorError(f"cursor {self.path}: {shown(str(error))}: {ANEW}") from None

    def save(self, position: Position) -> None:
        """Keep this position; killed meanwhile, the file has the one or the other."""
        part = self.path.with_name(self.path.name + ".part")
        try:
            part.write_text(f"{position}\n{self._address}".strip() + "\n")
            part.replace(self.path)
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> CursorError:
        said = error.strerror or str(error)
        advice = "make room on its disk" if error.errno in FULL else wrong_place(self.path)
        if advice in (None, said.lower()):
            advice = ANEW
        return CursorError(f"cursor {self.path}: {said}: {advice}")


class SqliteCursor:
    """Keeps cursors in a small database, by name, so that several channels share one.

    `moved_from` is the address at which the same was followed until now.
    """

    def __init__(
        self, path: str | Path, name: str = "cursor", *, moved_from: str | None = None
    ) -> None:
        self._path = Path(path)
        self._moved_from = moved_from
        self._name = name
        self._to_mark = ""
        with self._checked():
            self._database = open_file(path, any_thread=True)
            weakref.finalize(self, self._database.close)  # who follows a path has nothing to close
            keep(self._database)
            self._database.execute("CREATE TABLE IF NOT EXISTS cursor (name PRIMARY KEY, position)")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS cursor_source (name PRIMARY KEY, address)"
            )

    def keep_for(self, url: str) -> None:
        """It is the place in what is followed at this address; refused if it was another's."""
        address = _plain(url)
        known = self._found("SELECT address FROM cursor_source WHERE name = ?")
        if known not in (None, address) and not _is_moved(str(known), self._moved_from):
            command = shlex.join(["sqlite3", str(self._path), "DELETE FROM cursor_source"])
            advice = f"forget the addresses of all its cursors: {command}"
            raise _of_another(self._path, str(known), address, advice)
        self._to_mark = "" if known == address else address

    def load(self) -> Position | None:
        """The position that was kept; None at first."""
        found = self._found("SELECT position FROM cursor WHERE name = ?")
        return None if found is None else parsed(found, f"cursor {self._path}")

    def _found(self, query: str) -> str | None:
        rows = self._execute(query, self._name).fetchall()
        return str(rows[0][0]) if rows else None

    def save(self, position: Position) -> None:
        """Keep this position."""
        if self._to_mark:
            self._put("INSERT OR REPLACE INTO cursor_source VALUES (?, ?)", self._to_mark)
            self._to_mark = ""
        self._put("INSERT OR REPLACE INTO cursor VALUES (?, ?)", str(position))

    def _put(self, statement: str, value: str) -> None:
        self._execute(statement, self._name, value)

    def _execute(self, statement: str, *values: str) -> sqlite3.Cursor:
        with self._checked():
            return self._database.execute(statement, values)

    def _checked(self) -> AbstractContextManager[None]:
        return checked(self._path, ANEW, lambda said: CursorError(f"cursor {said}"))

    def close(self) -> None:
        """Close the database; it is closed by itself once nobody has this any more."""
        self._database.close()


def _plain(url: str) -> str:
    """The address without user, password and token, and without a position.

    >>> _plain("http://user:password@example.com/a/?access_token=b&set=c")
    'http://example.com/a?set=c'
    """
    address, _, query = url.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    kept = urlencode([pair for pair in pairs if pair[0] not in ("access_token", *POSITION)])
    return re.sub(r"://[^/]*@", "://", address).rstrip("/") + (kept and f"?{kept}")


def _is_moved(known: str, moved_from: str | None) -> bool:
    """Whether what was followed there has moved: whoever follows it says so."""
    return moved_from is not None and known == _plain(moved_from)


def _of_another(path: str | Path, known: str, address: str, advice: str) -> CursorError:
    return CursorError(
        f"cursor {path}: it keeps the place in {known}, not in {address}: take another, "
        f"or, if both are the same set, give moved_from or --moved, or {advice}"
    )


class FunctionCursor:
    """Keeps a cursor with two functions: one returns its text or None, the other takes it."""

    def __init__(self, load: Callable[[], str | None], save: Callable[[str], object]) -> None:
        self._load = load
        self._save = save

    def load(self) -> Position | None:
        text = self._load()
        return parsed(text, "the cursor") if text else None

    def save(self, position: Position) -> None:
        self._save(str(position))


def parsed(text: str, where: str) -> Position:
    """The position that a store had kept."""
    try:
        return Position.parse(text)
    except ValueError as error:
        raise CursorError(f"{where}: {error}") from None


Cursor = CursorStore | str | Path | tuple[Callable[[], str | None], Callable[[str], object]]


def store_of(cursor: Cursor | None) -> CursorStore | None:
    """The store for a path, which is a file unless its name says SQLite, or for two functions."""
    if cursor is None:
        return None
    if isinstance(cursor, tuple):
        return FunctionCursor(*cursor)
    if isinstance(cursor, str | Path):
        is_database = Path(cursor).suffix in (".db", ".sqlite", ".sqlite3")
        return SqliteCursor(cursor) if is_database else FileCursor(cursor)
    return cursor


class Ledger:
    """Knows which changes are not dealt with. The cursor is the place up to which all are."""

    def __init__(self) -> None:
        self._open: list[int] = []
        self._reached: dict[int, Position | None] = {}  # once it, too, is dealt with
        self._number = 0

    def expect(self, after: Position, *, is_last: bool) -> int:
        """Note a change that is handed on; `after` is the cursor once all up to it are dealt with.

        `is_last`: of those at its position. Only behind the last one may the cursor stand there.
        """
        self._number += 1
        self._open.append(self._number)
        self._reached[self._number] = after if is_last else None
        return self._number

    def done(self, number: int) -> Position | None:
        """The new cursor, if it moves. What is dealt with counts once, however often it is said."""
        if number not in self._reached:
            return None
        at = bisect_left(self._open, number)
        del self._open[at]
        reached = self._reached.pop(number)
        if at == 0 or reached is None:
            return reached
        self._reached[self._open[at - 1]] = reached
        return None
