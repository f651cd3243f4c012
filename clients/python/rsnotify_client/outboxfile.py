"""An outbox in SQLite: a table in an application's database, or a file of its own.

Rules that hold here: when `put` returns, its change is in the file, whatever becomes of the
process. No SQLite connection is open during a fork, as it would work in neither process afterwards.
If one was in use at a fork that was not announced, or that waited too long for it, the child has
no outbox. A file that took the place of the one that was opened is opened instead.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import quote

from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.database import Mode, check_path, keep, open_file, with_advice
from rsnotify_client.outbox import (
    INSERT,
    LET_GO_SECONDS,
    Database,
    Execute,
    OutboxTable,
    as_text,
    statements,
)
from rsnotify_client.queue import Batch, OutboxError, Refusal

LOCKED_SECONDS = 5.0
"""How long another process may keep the file locked."""


RESERVE_BYTES = 512 * 1024
"""Kept beside the outbox, and given up when the disk is full."""

T = TypeVar("T")


class SqliteTable(OutboxTable):
    """The outbox table in a SQLite file, which must be there: a mistyped path makes no new one."""

    _mode: Mode = "rw"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        let_go_seconds: float = LET_GO_SECONDS,
        locked_seconds: float = LOCKED_SECONDS,
    ) -> None:
        check_path(path, lambda said: OutboxError(f"the outbox {said}"))
        self._path = Path(path).absolute()
        self._lead_file: IO[bytes] | None = None
        self._opened: os.stat_result | None = None
        self._is_unusable = False
        self._locked_seconds = locked_seconds
        super().__init__(
            self._open,
            str(self._path),
            f"sqlite:///{quote(str(self._path))}",
            let_go_seconds=let_go_seconds,
        )

    def create(self, database: Database) -> None:
        self._mode = "rwc"
        super().create(database)

    def lead(self) -> bool:
        """Lead by a lock that the system releases whenever its holder ends."""
        with self._lock:
            self._lead_file = self._lead_file or self._open_lead_file()
            try:
                fcntl.lockf(self._lead_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            return True

    def rest(self) -> None:
        with self._lock:
            if self._lead_file is not None:
                fcntl.lockf(self._lead_file, fcntl.LOCK_UN)

    def _stop_leading(self) -> None:
        """Not at a fork: the lock stays with the parent, and the child has to ask for it."""
        if self._lead_file is not None:
            self._lead_file.close()
            self._lead_file = None

    def after_fork(self, *, in_child: bool) -> None:
        if in_child and not self._lock.acquire(blocking=False):
            self._is_unusable = True
        super().after_fork(in_child=in_child)

    def _leave(self, connection: Any) -> None:
        """SQLite takes the locks that its parent has for its own, until it has closed the file."""
        if self._is_unusable:
            super()._leave(connection)
        else:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._is_unusable:
            raise OutboxError(
                f"the outbox {self._path} was still in use when this process was forked:"
                " publish nothing, and start no publisher, before the fork"
            )
        self._opened = self._state()  # before: else it might be that of one that came meanwhile
        connection = open_file(
            self._path, mode=self._mode, locked_seconds=self._locked_seconds, any_thread=True
        )
        connection.text_factory = as_text
        self._opened = self._opened or self._state()
        return connection

    def _is_replaced(self) -> bool:
        """SQLite goes on with a file that was removed or moved, as when a backup was restored."""
        now = self._state()
        return not (now and self._opened and os.path.samestat(now, self._opened))

    def _state(self) -> os.stat_result | None:
        """None if no file is there."""
        try:
            return self._path.stat()
        except OSError:
            return None

    def _open_lead_file(self) -> IO[bytes]:
        try:
            if self._mode == "rw":
                self._path.stat()
            return Path(f"{self._path}-lead").open("ab")
        except OSError as error:
            raise self._failure(error) from error

    def _begin(self, execute: Execute) -> None:
        execute("BEGIN IMMEDIATE")

    def _missing(self, text: str) -> str | None:
        with suppress(OSError):  # such as of a name that is too long
            if self._mode == "rw" and not self._path.exists():
                return "there is no such file"
        return super()._missing(text)

    def _with_advice(self, text: str) -> str:
        found = with_advice(text, self._path, locked_seconds=self._locked_seconds)
        return found or super()._with_advice(text)


class OutboxFile(SqliteTable):
    """A file that holds nothing but changes; made when the first one comes."""

    _mode = "rwc"

    taken = 0
    """How many changes this process has put."""

    @property
    def _reserve(self) -> Path:
        return Path(f"{self._path}-reserve")

    def put(
        self,
        channel: ChannelName,
        change: bytes,
        is_sender: Callable[[], bool] = lambda: False,  # noqa: ARG002
    ) -> None:
        with self._transaction() as execute:
            execute(INSERT, (*channel, change.decode()))
            self.taken += 1

    def take(self, postponed: Collection[ChannelName], at_most: int) -> Batch | None:
        return self._with_room(lambda: super(OutboxFile, self).take(postponed, at_most))

    def remove(self, batch: Batch, ids: Collection[int], refusal: Refusal | None = None) -> int:
        return self._with_room(lambda: super(OutboxFile, self).remove(batch, ids, refusal))

    def _with_room(self, work: Callable[[], T]) -> T:
        """On a full disk, free the reserve: sending what waits needs room before it makes more."""
        try:
            return work()
        except OutboxError as error:
            cause = error.__cause__
            is_full = isinstance(cause, sqlite3.OperationalError) and "full" in str(cause)
            if not is_full or not self._reserve.exists():
                raise
        self._reserve.unlink(missing_ok=True)
        with self._transaction(writes=False) as execute:
            execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return work()

    def after_fork(self, *, in_child: bool) -> None:
        super().after_fork(in_child=in_child)
        if in_child:
            self.taken = 0

    def _open(self) -> sqlite3.Connection:
        connection = super()._open()
        try:
            _prepare(connection, self._locked_seconds)
        except BaseException:
            connection.close()
            raise
        _keep(self._reserve)
        return connection


def _keep(reserve: Path) -> None:
    """Keep a reserve on the disk, if there is room for it."""
    if not reserve.exists():
        try:
            reserve.write_bytes(bytes(RESERVE_BYTES))
        except OSError:
            reserve.unlink(missing_ok=True)


def _prepare(connection: sqlite3.Connection, locked_seconds: float) -> None:
    connection.execute("PRAGMA auto_vacuum = FULL")  # a file that grew while the hub was away
    keep(connection, locked_seconds)
    for statement in statements("sqlite"):
        connection.execute(statement)
