"""SQLite as the clients use it: files that are kept, and room for what does not fit into memory.

Rules that hold here: whoever reads a file never waits for its writer, and a writer waits for
another as long as everywhere. What SQLite says is wrong with a file is reported with the file's
name and what to do; that is one sentence for a disk that is full, a file that is locked, damaged,
or may not be written. Nothing here knows what is in a file.
"""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Literal

from rsnotify.errors import InvalidSettings

LOCKED_SECONDS = 10.0
"""How long another process may keep a file locked."""
CACHE_KIB = 16 * 1024
"""What SQLite may keep in memory of what it has written down."""
AGAIN_SECONDS = 0.01
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""How the system says that there is no more room for a file."""
UNWRITABLE = "the file and its directory must be writable"
READ_ONLY = "its file system may only be read: mount it so that it may be written"

Mode = Literal["ro", "rw", "rwc"]
"""To read, to write what is there, or to make it, too."""


def open_file(
    path: str | os.PathLike[str],
    *,
    mode: Mode = "rwc",
    locked_seconds: float = LOCKED_SECONDS,
    isolation_level: Literal["IMMEDIATE"] | None = None,
    any_thread: bool = False,
) -> sqlite3.Connection:
    """Connect to a file; without an isolation level, each statement is a transaction of its own."""
    check_path(path)
    return sqlite3.connect(
        f"{Path(path).absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=locked_seconds,
        isolation_level=isolation_level,
        check_same_thread=not any_thread,
    )


def keep(database: sqlite3.Connection, locked_seconds: float = LOCKED_SECONDS) -> None:
    """Let what is written survive the process, and readers go on while others write.

    To go over to that SQLite does not wait for others by itself.
    """
    until = monotonic() + locked_seconds
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or monotonic() > until:
                raise
            sleep(AGAIN_SECONDS)
        else:
            return


def format_of(database: sqlite3.Connection, path: Path, newest: int) -> int:
    """The format of a file of ours, 0 if none is noted; one that is not known is not touched."""
    (found,) = database.execute("PRAGMA user_version").fetchone()
    if found > newest:
        raise InvalidSettings(
            f"{path} was written by another version of rsnotify: use that, or a later one"
        )
    return int(found)


def open_scratch(
    tables: str, *, cache_kib: int = CACHE_KIB, any_thread: bool = False
) -> sqlite3.Connection:
    """Room for what does not fit into memory, in a file without a name that goes with its use."""
    scratch = sqlite3.connect("", isolation_level=None, check_same_thread=not any_thread)
    scratch.executescript(
        f"PRAGMA cache_size = -{cache_kib}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
        f"{tables}"
    )
    scratch.execute("BEGIN")
    return scratch


# --- what is wrong with a file -------------------------------------------------------------------


def with_advice(
    problem: str,
    path: str | os.PathLike[str],
    anew: str = "give another path, or move that file away",
    locked_seconds: float = LOCKED_SECONDS,
) -> str | None:
    """What SQLite says of a file, and what to do; None if that is not the file's fault.

    `anew` is what to do with one that is damaged, or none of SQLite's.

    >>> with_advice("database or disk is full", "/a.db")
    'database or disk is full: make room on its disk'
    """
    if "locked" in problem:
        return f"another process kept it locked for {locked_seconds:g} s"
    if "disk I/O" in problem and is_read_only(path):
        return f"{problem}: {READ_ONLY}"
    if "full" in problem or "disk I/O" in problem:
        return f"{problem}: make room on its disk"
    if "unable to open" in problem or "readonly" in problem:
        return f"{problem}: {wrong_place(path) or UNWRITABLE}"
    if "not a database" in problem or "malformed" in problem:
        return f"{problem}: {anew}"
    return None


def check_path(
    path: str | os.PathLike[str], error_of: Callable[[str], Exception] = InvalidSettings
) -> None:
    """Refuse what cannot be the name of any file."""
    if not isinstance(path, str | os.PathLike):
        raise error_of(f"{path!r} cannot be a path: give text, or a Path")
    name = os.fspath(path)
    try:
        has_nul = b"\0" in os.fsencode(name)
    except UnicodeEncodeError:
        raise error_of(
            f"{name!r} cannot be a path: it has a character that none can have"
        ) from None
    if has_nul:
        raise error_of(f"{name!r} cannot be a path: it has a NUL")


def wrong_place(path: str | os.PathLike[str]) -> str | None:
    """Why no file can be there, as far as that shows without opening one."""
    file = Path(path).absolute()
    try:
        if file.is_dir():
            return "it is a directory; name a file in it"
        if not file.parent.is_dir():
            return "its directory must exist"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if is_read_only(file):
        return READ_ONLY
    is_writable = all(os.access(each, os.W_OK) for each in (file.parent, file) if each.exists())
    return None if is_writable else UNWRITABLE


def is_read_only(path: str | os.PathLike[str]) -> bool:
    """Whether this is in a file system that may only be read, as a damaged one often is."""
    with suppress(OSError):
        return bool(os.statvfs(Path(path).absolute().parent).f_flag & os.ST_RDONLY)
    return False


@contextmanager
def checked(
    path: Path, anew: str, error_of: Callable[[str], Exception] = InvalidSettings
) -> Iterator[None]:
    """Whatever SQLite cannot do with the file is an error that a user can understand."""
    try:
        yield
    except sqlite3.Error as error:
        raise error_of(unusable(path, error, anew)) from None


def unusable(path: Path, error: sqlite3.Error, anew: str) -> str:
    """The whole sentence; whatever else is wrong with a file of ours calls for another one."""
    problem = str(error)
    return f"{path} cannot be used: {with_advice(problem, path, anew) or f'{problem}: {anew}'}"
