"""A folder of files as a Source: what has changed since its state was last written down.

Rules that hold here: a change stands in the state's outbox exactly if the state holds it, so a
process may be killed at any moment; what cannot be read, or is still being written, stays what it
was; a file counts as updated if its content differs. Nothing here knows a hub.
"""

import hashlib
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import ChangeKind
from rsnotify.resourcesync.delete_guard import FEW, MAX_DELETE, too_many
from rsnotify_client.address import wrong_address
from rsnotify_client.change import Fields, make_change
from rsnotify_client.database import checked, format_of, keep, open_file
from rsnotify_client.locks import lock_beside
from rsnotify_client.outbox import Outbox
from rsnotify_client.queue import BATCH_CHANGES

SETTLE_SECONDS = 2.0
"""A file that was written in the last moments may be written still."""

LOC_CHARACTERS = 2_048  # of a `loc`, by the schema of Sitemaps
READ_SECONDS = 1.0  # what has been read meanwhile is published
MOST = 2**63 - 1  # that SQLite counts; as a time in ns, in the year 2262

_CREATE = """
CREATE TABLE IF NOT EXISTS files (
    path BLOB PRIMARY KEY, size INTEGER, mtime INTEGER, ctime INTEGER, inode INTEGER,
    hash TEXT, lastmod TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS published (place TEXT);
CREATE TEMP TABLE seen (
    path BLOB PRIMARY KEY, size INTEGER, mtime INTEGER, ctime INTEGER, inode INTEGER
) WITHOUT ROWID;
CREATE INDEX temp.seen_inode ON seen (inode);
"""
_SEE = "REPLACE INTO seen VALUES (?, ?, ?, ?, ?)"  # a list may have a name twice
_IS_SEEN = "SELECT 1 FROM seen WHERE inode = ?"
_WRITE = "REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)"
_DIFFERENT = """
SELECT seen.*, files.hash, files.lastmod FROM seen LEFT JOIN files USING (path)
WHERE files.path IS NULL OR (seen.size, seen.mtime, seen.ctime, seen.inode)
    != (files.size, files.mtime, files.ctime, files.inode)
ORDER BY path
"""
_GONE = "SELECT path FROM files WHERE path NOT IN (SELECT path FROM seen) ORDER BY path"
_MOVED = """
SELECT COUNT(*) FROM files WHERE path NOT IN (SELECT path FROM seen) AND EXISTS (
    SELECT 1 FROM seen
    WHERE (seen.inode, seen.size, seen.mtime) = (files.inode, files.size, files.mtime)
)
"""


class Signature(NamedTuple):
    """What differs as soon as a file is written."""

    size: int
    mtime: int
    ctime: int
    inode: int


class ReadFile(NamedTuple):
    """One that was read, and what is known of it: its digest, and since when it has that."""

    path: bytes
    signature: Signature
    digest: str
    before: str | None
    lastmod: str | None


class Look(NamedTuple):
    """What a look at the folder has found."""

    files: int
    found: Counter[str]
    """How many were created, updated and deleted."""
    unsettled: list[str]
    """Files that are still being written; the next look may find them whole."""
    unread: list[str]
    """Why something could not be read; of its files nothing has changed."""
    left_out: list[str]
    """Links, devices, addresses that are too long."""
    held_back: str | None
    """Why nothing was deleted."""


FORMAT = 1
ELSEWHERE = "--state FILE keeps the state elsewhere"
ANEW = f"move it away, and the whole folder is loaded again, or {ELSEWHERE}"


class Folder:
    """A folder, and the file in which its state and its outbox are: beside it, as it is served.

    With `is_loaded` False what is found is written down only: the hub gets it as a whole.
    """

    def __init__(self, path: Path, base: str, set_name: str, state: Path | None = None) -> None:
        self._path = path
        self._base = checked_base(base)
        self._set_name = set_name
        if not path.is_dir():
            raise InvalidSettings(f"--dir {path}: there is no such directory")
        whole = Path(os.path.abspath(path))
        self.state = state or whole.parent / f".{whole.name}.rsnotify-{set_name}.db"
        if _is_found_in(whole, self.state):  # it changes with each look
            raise InvalidSettings(f"{self.state}: it would be published itself; {ELSEWHERE}")
        try:
            self.state.touch(0o600)
        except OSError as error:
            raise InvalidSettings(f"{self.state}: {error}; {ELSEWHERE}") from None
        self._lock = lock_beside(self.state, "publisher")
        self._opened = self.state.stat()
        with self.checked():
            self._database = open_file(self.state, isolation_level="IMMEDIATE")
            try:
                self._prepare()
            except BaseException:
                self.close()
                raise

    def _prepare(self) -> None:
        found = format_of(self._database, self.state, FORMAT)
        keep(self._database)
        self._database.executescript(_CREATE)
        Outbox.create(self._database)
        if found < FORMAT:
            self._database.execute(f"PRAGMA user_version = {FORMAT}")

    def checked(self) -> AbstractContextManager[None]:
        """Where the file of the state is worked with: what is wrong with it is said."""
        return checked(self.state, ANEW)

    def close(self) -> None:
        self._database.close()
        os.close(self._lock)

    # What was published, and where -------------------------------------------------------------

    def is_loaded(self, hub: str) -> bool:
        """Whether the hub has the state as a whole, under this base and in this set."""
        row = self._database.execute("SELECT place FROM published").fetchone()
        return bool(row == (self._place(hub),))

    def has_loaded(self, hub: str) -> None:
        with self._database:
            self._database.execute("DELETE FROM published")
            self._database.execute("INSERT INTO published VALUES (?)", (self._place(hub),))

    def forget_changes(self) -> None:
        """What waits to be published will be in the whole state."""
        with self._database:
            self._database.execute("DELETE FROM rsnotify_outbox")

    def resources(self) -> Iterator[tuple[str, Fields]]:
        """The whole state: each address, and what is said of it."""
        rows = self._database.execute("SELECT path, size, hash, lastmod FROM files ORDER BY path")
        for path, size, digest, lastmod in rows:
            yield self._loc(path), {"hash": digest, "length": size, "lastmod": lastmod}

    def _place(self, hub: str) -> str:
        return " ".join((hub.rstrip("/"), self._set_name, self._base))

    def _loc(self, path: bytes) -> str:
        return self._base + quote(path)

    # A look at it ------------------------------------------------------------------------------

    def look(self, *, max_delete: float = MAX_DELETE, is_loaded: bool = True) -> Look:
        """Write down what has changed, and its changes in the outbox if the rest is published."""
        self._check_state()
        scan = _Scan(os.fsencode(self._path), LOC_CHARACTERS - len(self._base))
        with self._database:
            self._database.execute("BEGIN")  # not IMMEDIATE: nothing is written to the file itself
            self._database.execute("DELETE FROM seen")
            self._database.executemany(_SEE, ((path, *each) for path, each in scan.files()))
        found = self._renew_all(scan, is_loaded=is_loaded)
        rows = self._database.execute(_GONE)
        gone = [path for (path,) in rows.fetchall() if self._is_gone(scan, path)]
        held_back = self._too_many(len(gone), max_delete)
        if held_back is None:
            found["deleted"] = len(gone)
            self._delete(gone, is_loaded=is_loaded)
        files = self._count("SELECT COUNT(*) FROM files")
        return Look(files, found, scan.unsettled, scan.unread, scan.left_out, held_back)

    def _check_state(self) -> None:
        """Whoever publishes the outbox opens a file anew; what SQLite keeps open may be none."""
        try:
            is_there = os.path.samestat(self.state.stat(), self._opened)
        except OSError:
            is_there = False
        if not is_there:
            raise InvalidSettings(
                f"{self.state} was removed or replaced: start again, and what it lacks is published"
            )

    def _renew_all(self, scan: "_Scan", *, is_loaded: bool) -> Counter[str]:
        """A sender waits for a transaction at most, and never while files are read."""
        found: Counter[str] = Counter()
        read: list[ReadFile] = []
        until = time.monotonic() + READ_SECONDS
        for path, *signature, before, lastmod in self._database.execute(_DIFFERENT).fetchall():
            each = Signature(*signature)
            if (digest := scan.digest(path, each)) is not None:
                read.append(ReadFile(path, each, digest, before, lastmod))
            if len(read) == BATCH_CHANGES or time.monotonic() > until:
                found += self._renew(read, is_loaded=is_loaded)
                read, until = [], time.monotonic() + READ_SECONDS
        return found + self._renew(read, is_loaded=is_loaded)

    def _renew(self, files: Sequence[ReadFile], *, is_loaded: bool) -> Counter[str]:
        found: Counter[str] = Counter()
        kind: ChangeKind
        with self._database:
            for path, signature, digest, before, since in files:
                lastmod = since
                if digest != before:
                    kind, lastmod = "updated" if before else "created", _time(signature.mtime)
                    found[kind] += 1
                    if is_loaded:
                        fields: Fields = {
                            "hash": digest,
                            "length": signature.size,
                            "lastmod": lastmod,
                        }
                        self._record(path, kind, fields)
                self._database.execute(_WRITE, (path, *signature, digest, lastmod))
        return found

    def _is_gone(self, scan: "_Scan", path: bytes) -> bool:
        """A list of a folder may lack a file that is replaced just then; what was found under
        another name, as where capitals do not count, was renamed."""
        if scan.is_below_unread(path):
            return False
        if (inode := scan.inode(path)) is None:
            return not scan.is_below_unread(path)
        return self._database.execute(_IS_SEEN, (inode,)).fetchone() is not None

    def _too_many(self, gone: int, max_delete: float) -> str | None:
        seen = self._count("SELECT COUNT(*) FROM seen")
        lost = gone - self._count(_MOVED)
        known = self._count("SELECT COUNT(*) FROM files")
        return too_many(max(0, lost), known, max_delete, "files", few=FEW if seen else 0)

    def _delete(self, gone: Sequence[bytes], *, is_loaded: bool) -> None:
        with self._database:
            for path in gone:
                self._database.execute("DELETE FROM files WHERE path = ?", (path,))
                if is_loaded:
                    self._record(path, "deleted", {})

    def _record(self, path: bytes, kind: ChangeKind, fields: Fields) -> None:
        Outbox().send(self._database, self._set_name, make_change(self._loc(path), kind, fields))

    def _count(self, query: str) -> int:
        return int(self._database.execute(query).fetchone()[0])


class _Scan:
    """The files of a folder, as far as they can be read."""

    def __init__(self, root: bytes, room: int) -> None:
        self._root = root
        self._room = room
        self._unread_paths: list[bytes] = []
        self.unsettled: list[str] = []
        self.unread: list[str] = []
        self.left_out: list[str] = []

    def files(self) -> Iterator[tuple[bytes, Signature]]:
        """Without what is hidden: names that begin with a dot."""
        folders = [b""]
        while folders:
            folder = folders.pop()
            for path, found in self._visible(folder):
                if not self._is_published(path, found.st_mode):
                    continue
                if stat.S_ISDIR(found.st_mode):
                    folders.append(path)
                else:
                    yield path, signature_of(found)

    def _visible(self, folder: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        try:
            with os.scandir(self._path(folder)) as entries:
                visible = [each for each in entries if not each.name.startswith(b".")]
        except OSError as error:
            self._note_unread(folder, error)
            return
        for entry in visible:
            path = folder + b"/" + entry.name if folder else entry.name
            try:
                yield path, entry.stat(follow_symlinks=False)
            except OSError as error:
                self._note_unread(path, error)

    def _is_published(self, path: bytes, mode: int) -> bool:
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            kind = "a link" if stat.S_ISLNK(mode) else "no file"
            self.left_out.append(f"{_shown(path)} is {kind}")
        elif not self._has_room(path):
            self.left_out.append(f"{_shown(path)} makes an address of more than {LOC_CHARACTERS:,}")
        else:
            return True
        return False

    def digest(self, path: bytes, signature: Signature) -> str | None:
        """Of the file's content; None if it is still being written, or cannot be read."""
        age = time.time() - signature.ctime / 1e9
        if -SETTLE_SECONDS < age < SETTLE_SECONDS:
            self.unsettled.append(_shown(path))
            return None
        try:
            with open(self._path(path), "rb", opener=_open_at_once) as file:
                is_same = signature_of(os.fstat(file.fileno())) == signature
                digest = hashlib.file_digest(file, "sha256").hexdigest() if is_same else ""
                is_same = is_same and signature_of(self._found(path)) == signature
        except FileNotFoundError:
            is_same = False
        except OSError as error:
            self._note_unread(path, error)
            return None
        if not is_same:
            self.unsettled.append(_shown(path))
            return None
        return f"sha-256:{digest}"

    def inode(self, path: bytes) -> int | None:
        """Of a file that can be published, as `files` finds one; None if none is there."""
        folders = accumulate(path.split(b"/")[:-1], lambda folder, name: folder + b"/" + name)
        try:
            are_folders = all(stat.S_ISDIR(self._found(each).st_mode) for each in folders)
            found = self._found(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._note_unread(path, error)
            return None
        is_published = are_folders and stat.S_ISREG(found.st_mode) and self._has_room(path)
        return signature_of(found).inode if is_published else None

    def _found(self, path: bytes) -> os.stat_result:
        return os.stat(self._path(path), follow_symlinks=False)

    def _has_room(self, path: bytes) -> bool:
        return len(quote(path)) <= self._room

    def is_below_unread(self, path: bytes) -> bool:
        unread = self._unread_paths
        return any(not each or (path + b"/").startswith(each + b"/") for each in unread)

    def _note_unread(self, path: bytes, error: OSError) -> None:
        self._unread_paths.append(path)
        self.unread.append(f"{_shown(self._path(path))}: {error.strerror}")

    def _path(self, path: bytes) -> bytes:
        return self._root + b"/" + path if path else self._root


def _is_found_in(folder: Path, file: Path) -> bool:
    inner = os.path.relpath(os.path.realpath(file), os.path.realpath(folder))
    return not any(part.startswith(".") for part in inner.split(os.sep))  # nor ".."


def _open_at_once(path: str, flags: int) -> int:
    """A pipe that took the place of a file would be waited for until somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def signature_of(found: os.stat_result) -> Signature:
    """As SQLite can keep it: some file systems use the highest bit of an inode's number, too."""
    mtime, ctime = (max(-MOST, min(ns, MOST)) for ns in (found.st_mtime_ns, found.st_ctime_ns))
    inode = found.st_ino if found.st_ino <= MOST else found.st_ino - 2**64
    return Signature(found.st_size, mtime, ctime, inode)


def _time(nanoseconds: int) -> str | None:
    if abs(nanoseconds) == MOST:
        return None
    try:
        when = datetime.fromtimestamp(nanoseconds // 10**9, UTC)
    except (ValueError, OverflowError, OSError):  # before the year 1 or after 9999
        return None
    return f"{when:%Y-%m-%dT%H:%M:%S}Z" if when.year >= 1000 else None


def _shown(path: bytes) -> str:
    return path.decode(errors="backslashreplace")


def checked_base(base: str) -> str:
    """The address that stands for the folder, with a slash at its end."""
    wrong = wrong_address(base)
    if wrong is None and ("?" in base or "#" in base):
        wrong = "it must have neither ? nor #"
    elif wrong is None and not base.isascii():
        wrong = "write other characters than ASCII as %XX, of UTF-8"
    if wrong is not None:
        raise InvalidSettings(f"--base {base}: {wrong}")
    return base.rstrip("/") + "/"
