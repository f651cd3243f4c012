"""The outbox table in an application's own database: its changes, and the relay's way to them.

Rules that hold here: a change exists exactly if the transaction that wrote it was committed;
`Outbox` writes on the application's own connection, and commits nothing. What was sent is removed
by its ids, never below a mark, because a row of a slow transaction may appear after later ones are
gone. A batch's key is in its rows, committed, before the batch is tried. What the hub refuses for
good is counted beside the table, a row for each channel. Any number of relays may share a table;
two at once do the same work twice, without harm. In `OutboxTable` a driver's errors
become `OutboxError` and go no further.
"""

import logging
import shlex
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from time import sleep
from typing import Any, Literal, NamedTuple, get_args

from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.notification import ChannelName, Kind
from rsnotify_client.change import Time, fields, make_change
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.queue import (
    Batch,
    OutboxError,
    Refusal,
    channel_of,
    encode,
    fitting,
    new_key,
)
from rsnotify_client.threads import notify_of_forks

Database = Literal["postgresql", "mysql", "sqlite"]

_COLUMNS = """
    set_name VARCHAR(64){exact} NOT NULL,
    kind VARCHAR(9) NOT NULL DEFAULT 'change',
    body {text} NOT NULL,
    queued_at {moment} NOT NULL DEFAULT CURRENT_TIMESTAMP,
    batch_key CHAR(32)
"""
_REFUSED_COLUMNS = """
    set_name VARCHAR(64){exact} NOT NULL,
    kind VARCHAR(9) NOT NULL,
    changes BIGINT NOT NULL,
    reason {text} NOT NULL,
    body {text} NOT NULL,
    refused_at VARCHAR(32) NOT NULL,
    PRIMARY KEY (set_name, kind)
"""
_IDS = {
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
}
_TEXTS = {"postgresql": "TEXT", "mysql": "MEDIUMTEXT CHARACTER SET utf8mb4", "sqlite": "TEXT"}
_EXACT = {"postgresql": "", "mysql": " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "sqlite": ""}
"""Else MySQL takes a wrong name in capitals for the set, and each stands in the other's way."""
_MOMENTS = {
    "postgresql": "TIMESTAMP WITH TIME ZONE",
    "mysql": "TIMESTAMP",
    "sqlite": "TIMESTAMP",
}
"""Else PostgreSQL keeps what the clock shows in the zone of the application's session."""

INSERT = "INSERT INTO rsnotify_outbox (set_name, kind, body) VALUES (?, ?, ?)"
DROP = "DROP TABLE IF EXISTS rsnotify_outbox"
DROP_REFUSED = "DROP TABLE IF EXISTS rsnotify_refused"

DATABASES: dict[str, Database] = {
    "asyncpg": "postgresql",
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "MySQLdb": "mysql",
    "mariadb": "mysql",
    "mysql": "mysql",
    "pymysql": "mysql",
    "sqlite": "sqlite",
    "sqlite3": "sqlite",
}
"""As SQLAlchemy, Django and URLs call them, and by the names of their drivers."""

AMID = "the handler of a signal cannot use it while the call that it interrupted does"
LET_GO_SECONDS = 10.0  # that a fork, or the end, waits for who uses the connection


class Outbox:
    """Writes changes to the table `rsnotify_outbox`."""

    @staticmethod
    def sql(database: Database) -> str:
        """The statements that create the table; harmless where it is there already."""
        return ";\n".join(statements(database)) + ";\n"

    @staticmethod
    def create(connection: Any) -> None:
        """Create the table, unless it is there.

        The connection is one that `send` takes, and the caller commits; or an Engine of SQLAlchemy.
        """
        if hasattr(connection, "begin") and hasattr(connection, "connect"):  # an Engine
            with connection.begin() as begun:
                Outbox.create(begun)
            return
        if hasattr(connection, "get_bind"):
            connection = connection.connection()
        for statement in statements(database_behind(connection)):
            _execute(connection, statement)

    def created(
        self,
        connection: Any,
        set_name: str,
        loc: str,
        *,
        lastmod: Time = None,
        datetime: Time = None,
        hash: str | None = None,
        length: int | None = None,
        type: str | None = None,
        encoding: str | None = None,
        changefreq: str | None = None,
        priority: float | None = None,
        links: Sequence[Link] = (),
    ) -> None:
        """The resource at `loc` is new."""
        said = fields(lastmod, datetime, hash, length, type, encoding, changefreq, priority, links)
        self.send(connection, set_name, make_change(loc, "created", said))

    def updated(
        self,
        connection: Any,
        set_name: str,
        loc: str,
        *,
        lastmod: Time = None,
        datetime: Time = None,
        hash: str | None = None,
        length: int | None = None,
        type: str | None = None,
        encoding: str | None = None,
        changefreq: str | None = None,
        priority: float | None = None,
        links: Sequence[Link] = (),
    ) -> None:
        """The resource at `loc` has changed."""
        said = fields(lastmod, datetime, hash, length, type, encoding, changefreq, priority, links)
        self.send(connection, set_name, make_change(loc, "updated", said))

    def deleted(
        self,
        connection: Any,
        set_name: str,
        loc: str,
        *,
        lastmod: Time = None,
        datetime: Time = None,
        hash: str | None = None,
        length: int | None = None,
        type: str | None = None,
        encoding: str | None = None,
        changefreq: str | None = None,
        priority: float | None = None,
        links: Sequence[Link] = (),
    ) -> None:
        """The resource at `loc` is no more."""
        said = fields(lastmod, datetime, hash, length, type, encoding, changefreq, priority, links)
        self.send(connection, set_name, make_change(loc, "deleted", said))

    def send(
        self, connection: Any, set_name: str, change: Change, *, kind: Kind = "change"
    ) -> None:
        """Write any change, within the transaction of the connection.

        The connection is a DB-API one, Django's, or a Connection or Session of SQLAlchemy.
        """
        if hasattr(connection, "get_bind"):  # a Session
            connection = connection.connection()
        _execute(connection, INSERT, (*channel_of(set_name, kind), encode(change).decode()))


def _execute(connection: Any, statement: str, values: tuple[str, ...] = ()) -> None:
    if hasattr(connection, "exec_driver_sql"):
        marked = with_marks(statement, connection.dialect.paramstyle)
        connection.exec_driver_sql(marked, values)
        return
    cursor = connection.cursor()
    try:
        cursor.execute(with_marks(statement, style_of(connection)), values)
    finally:
        cursor.close()


def database_behind(connection: Any) -> Database:
    """The kind of database behind a connection, from SQLAlchemy, Django or its driver."""
    dialect = getattr(connection, "dialect", None)
    said = getattr(dialect, "name", None) or getattr(connection, "vendor", None)
    names = [said] if isinstance(said, str) else packages_of(connection)
    if (found := _known(names)) is None:
        known = ", ".join(get_args(Database))
        raise InvalidArgument(f"an outbox table cannot be in {names[0]}: only in {known}")
    return found


def _known(names: Sequence[str]) -> Database | None:
    return next((DATABASES[name] for name in names if name in DATABASES), None)


def statements(database: Database) -> list[str]:
    """The statements that create the tables and their indexes, one by one."""
    kinds = {"text": _TEXTS[database], "exact": _EXACT[database], "moment": _MOMENTS[database]}
    columns = _COLUMNS.format(**kinds)
    refused = _REFUSED_COLUMNS.format(**kinds)
    refused = f"CREATE TABLE IF NOT EXISTS rsnotify_refused ({refused})"
    table = f"CREATE TABLE IF NOT EXISTS rsnotify_outbox (\n    id {_IDS[database]},{columns}"
    if database == "mysql":  # has no CREATE INDEX IF NOT EXISTS
        indexes = "INDEX (set_name, kind, id),\n    INDEX (batch_key)"
        return [f"{table.rstrip()},\n    {indexes}\n)", refused]
    batches = " WHERE batch_key IS NOT NULL" if database == "postgresql" else ""
    index = "CREATE INDEX IF NOT EXISTS rsnotify_outbox"
    return [
        f"{table})",
        f"{index}_channel ON rsnotify_outbox (set_name, kind, id)",
        f"{index}_batch ON rsnotify_outbox (batch_key){batches}",
        refused,
    ]


def style_of(connection: Any) -> str:
    """How this driver marks a parameter."""
    for package in packages_of(connection):
        if (style := getattr(sys.modules.get(package), "paramstyle", None)) is not None:
            return str(style)
    return "format"


def packages_of(connection: Any) -> list[str]:
    """The packages of its class and their bases: an application may have derived its own class."""
    return [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]


def with_marks(statement: str, paramstyle: str) -> str:
    """The statement with a driver's marks in place of each `?`.

    >>> with_marks("VALUES (?, ?)", "numeric_dollar")
    'VALUES ($1, $2)'
    """
    if paramstyle in ("qmark", "numeric"):
        return statement
    if paramstyle != "numeric_dollar":
        return statement.replace("?", "%s")
    first, *others = statement.split("?")
    return first + "".join(f"${number}{each}" for number, each in enumerate(others, 1))


log = logging.getLogger(__name__)

_TABLE = "FROM rsnotify_outbox"
OLDEST_CHANNEL = f"SELECT set_name, kind {_TABLE} WHERE :others ORDER BY id LIMIT 1"
ANOTHER = "NOT (set_name = ? AND kind = ?)"
OLDEST = (
    f"SELECT id, body, batch_key {_TABLE} WHERE set_name = ? AND kind = ? ORDER BY id LIMIT :count"
)
OF_BATCH = f"SELECT id, body {_TABLE} WHERE batch_key = ? ORDER BY id"
MARK = "UPDATE rsnotify_outbox SET batch_key = ? WHERE batch_key IS NULL AND id IN (:ids)"
DELETE = f"DELETE {_TABLE} WHERE batch_key = ? AND id IN (:ids)"
LOOSEN = "UPDATE rsnotify_outbox SET batch_key = NULL WHERE batch_key = ?"
ENDS = f"SELECT MIN(id), MAX(id) {_TABLE}"
COUNT = f"SELECT COUNT(*) {_TABLE}"
BY_CHANNEL = (
    f"SELECT set_name, kind, COUNT(*), MIN(queued_at) {_TABLE} "
    "GROUP BY set_name, kind ORDER BY MIN(id)"
)
SETS = f"SELECT DISTINCT set_name {_TABLE}"
DROP_SET = f"DELETE {_TABLE} WHERE set_name = ?"

REFUSED = "SELECT set_name, kind, changes, reason, body, refused_at FROM rsnotify_refused"
REFUSED_BY_CHANNEL = f"{REFUSED} ORDER BY refused_at DESC, set_name, kind"
MORE_REFUSED = (
    "UPDATE rsnotify_refused SET changes = changes + ?, reason = ?, body = ?, refused_at = ? "
    "WHERE set_name = ? AND kind = ?"
)
FIRST_REFUSED = (
    "INSERT INTO rsnotify_refused (changes, reason, body, refused_at, set_name, kind) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
FORGET_SET = "DELETE FROM rsnotify_refused WHERE set_name = ?"
REFUSED_AGAIN = (
    "INSERT INTO rsnotify_refused (changes, reason, body, refused_at, set_name, kind) "
    "SELECT changes, reason, body, refused_at, set_name, kind FROM rsnotify_refused WHERE 1 = 0"
)
"""Of no row: whether one may be inserted."""

TIME_OF_POSTGRESQL = (
    "SELECT format_type(atttypid, NULL) FROM pg_attribute "
    "WHERE attrelid = to_regclass('rsnotify_outbox') AND attname = 'queued_at'"
)
WITHOUT_ZONE = (
    "its times have no zone, as an earlier version made it, so nobody can say how long a change "
    "has waited: in a session with the time zone of the application, run ALTER TABLE "
    "rsnotify_outbox ALTER COLUMN queued_at TYPE TIMESTAMP WITH TIME ZONE"
)

RIGHTS = {
    "rsnotify_outbox": "SELECT, UPDATE, DELETE",
    "rsnotify_refused": "SELECT, INSERT, UPDATE, DELETE",
}
"""What a relay needs, by the table."""
DENIED = ("42501", 1142)
"""The codes of PostgreSQL and MySQL for a right that is not there."""

LEAD: dict[Database | None, str] = {
    "postgresql": "SELECT pg_try_advisory_lock('rsnotify_outbox'::regclass::oid::bigint)",
    "mysql": "SELECT GET_LOCK(CONCAT('rsnotify_outbox.', DATABASE()), 0)",
}
"""Held by the connection until it ends."""

OF_SESSION: dict[Database | None, tuple[str, ...]] = {
    "mysql": (
        # Else InnoDB locks the gaps between rows too: a writer may end in a deadlock.
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        # Else it gives times in the zone of the server, and does not name that.
        "SET SESSION time_zone = '+00:00'",
        # Else the server keeps the session of a machine that is off for eight hours.
        "SET SESSION wait_timeout = LEAST(@@SESSION.wait_timeout, 300)",
    ),
    "postgresql": (
        # Else texts of a database without an encoding (SQL_ASCII) are bytes.
        "SET SESSION client_encoding TO 'UTF8'",
        # Else the server keeps the session of a machine that is off for two hours.
        "SELECT set_config(name, wanted.setting, FALSE) FROM pg_settings JOIN (VALUES "
        "('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '10'), "
        "('tcp_keepalives_count', '3'), ('tcp_user_timeout', '30000')"
        ") AS wanted (name, setting) USING (name) WHERE source = 'default'",
    ),
}
"""Said once to each session of ours."""
BY_ID = f"DELETE one {_TABLE} AS one FORCE INDEX (PRIMARY) WHERE batch_key = ? AND id IN (:ids)"
"""Else InnoDB looks at all rows, and waits for those that a transaction has not committed yet."""

AS_WRITTEN = "surrogateescape"

Rows = Sequence[tuple[Any, ...]]

_not_ours: list[Any] = []
"""Connections of a parent process, kept so that nobody closes them."""


class NoOutbox(OutboxError):
    """The table or its file is missing; `problem` is the sentence without the advice."""

    def __init__(self, problem: str, creation: str) -> None:
        super().__init__(f"{problem}; create it with: {creation}")
        self.problem = problem


class WaitingChanges(NamedTuple):
    """How many changes of one set and kind wait, and since when, in UTC."""

    set_name: str
    kind: str
    changes: int
    since: str


class RefusedChanges(NamedTuple):
    """How many changes of one set and kind the hub has refused for good; why, of the last one."""

    set_name: str
    kind: str
    changes: int
    reason: str
    last: str
    at: str


class OutboxTable:
    """A table of changes, reached by a connection of its own."""

    lasts = True

    def __init__(
        self,
        connect: Callable[[], Any],
        name: str,
        url: str = "URL",
        *,
        let_go_seconds: float = LET_GO_SECONDS,
    ) -> None:
        self._connect = connect
        self.let_go_seconds = let_go_seconds
        """How long a fork, or the end, waits for the one that uses the connection."""
        self._name = name
        self._creation = f"rsnotify relay --database {shlex.quote(url)} --create-table"
        self._lock = threading.RLock()
        self._connection: Any = None
        self._leads = False
        self._must_close = self._is_amid = False
        self._database: Database | None = None
        notify_of_forks(self)

    def create(self, database: Database) -> None:
        """Create the table, unless it is there."""
        with self._transaction() as execute:
            for statement in statements(database):
                execute(statement)

    def lead(self) -> bool:
        with self._transaction() as execute:
            if not self._leads:
                question = LEAD.get(self._database)
                self._leads = question is None or bool(execute(question)[0][0])
            return self._leads

    def rest(self) -> None:
        """A leader leads until its connection ends."""

    def take(self, postponed: Collection[ChannelName], at_most: int) -> Batch | None:
        oldest = OLDEST_CHANNEL.replace(":others", _all(ANOTHER, len(postponed)))
        others = tuple(part for channel in postponed for part in channel)
        with self._transaction() as execute:
            while found := execute(oldest, others):
                batch = _oldest_batch(execute, ChannelName(*found[0]), at_most)
                if batch is not None:
                    return batch
            return None

    def remove(self, batch: Batch, ids: Collection[int], refusal: Refusal | None = None) -> int:
        try:
            return self._removed(batch, ids, refusal)
        except NoOutbox as error:  # or only no table that counts, as of an earlier version
            if refusal is None:
                raise
            log.warning("what is refused is not counted: %s", error)
            return self._removed(batch, ids)

    def _removed(self, batch: Batch, ids: Collection[int], refusal: Refusal | None = None) -> int:
        with self._transaction() as execute:
            delete = BY_ID if self._database == "mysql" else DELETE
            gone = execute.count(_of(delete, ids), (batch.key,)) if ids else 0
            execute(LOOSEN, (batch.key,))
            if gone and refusal is not None:
                _count_refused(execute, batch.channel, gone, refusal)
            return gone

    def try_rights(self) -> None:
        """Do all that publishing does, to no row: what this user may not do is an error at once."""
        with self._transaction(writes=False) as execute:
            execute(ENDS)
            if self._database != "sqlite":  # has no users, and a file that is locked is waited for
                execute(LOOSEN, ("",))
                execute(_of(BY_ID if self._database == "mysql" else DELETE, (0,)), ("",))
        with suppress(NoOutbox), self._transaction(writes=False) as execute:  # of earlier versions
            execute(REFUSED_BY_CHANNEL)
            if self._database != "sqlite":
                execute(MORE_REFUSED, (0, *[""] * 5))
                execute(REFUSED_AGAIN)

    def ends(self) -> tuple[int, int] | None:
        with self._transaction(writes=False) as execute:
            oldest, newest = execute(ENDS)[0]
            return None if oldest is None else (oldest, newest)

    def waiting(self) -> int:
        with self._transaction(writes=False) as execute:
            return int(execute(COUNT)[0][0])

    def waiting_sets(self) -> list[str]:
        """The sets of which a change waits."""
        with self._transaction(writes=False) as execute:
            return sorted(name for (name,) in execute(SETS))

    def waiting_by_channel(self) -> list[WaitingChanges]:
        """The changes that wait by channel, the channel with the oldest change first."""
        with self._transaction(writes=False) as execute:
            if (problem := self._wrong_times(execute)) is not None:
                raise OutboxError(problem)
            rows = execute(BY_CHANNEL)
        return [WaitingChanges(name, kind, count, _in_utc(at)) for name, kind, count, at in rows]

    def wrong_times(self) -> str | None:
        """Why nobody can say since when a change waits, and how to mend that; None if it shows."""
        with self._transaction(writes=False) as execute:
            return self._wrong_times(execute)

    def _wrong_times(self, execute: "Execute") -> str | None:
        if self._database != "postgresql":
            return None
        is_wrong = "timestamp without time zone" in {
            kind for (kind,) in execute(TIME_OF_POSTGRESQL)
        }
        return f"the outbox {self._name}: {WITHOUT_ZONE}" if is_wrong else None

    def refused_by_channel(self) -> list[RefusedChanges]:
        """The changes that were given up by channel, the channel with the newest first."""
        with self._transaction(writes=False) as execute:
            return [RefusedChanges(*row) for row in execute(REFUSED_BY_CHANNEL)]

    def forget_refused(self, set_name: str) -> int:
        """Count no more what was refused of a set; return of how many channels that was."""
        with self._transaction() as execute:
            return execute.count(FORGET_SET, (set_name,))

    def drop(self, set_name: str) -> int:
        """Remove the waiting changes of a set without publishing them; return how many."""
        with self._transaction() as execute:
            return execute.count(DROP_SET, (set_name,))

    def close(self) -> None:
        """A thread that the driver holds up keeps its connection."""
        try:
            self._lock_closed()
        except OutboxError as error:
            log.warning("%s", error)
        else:
            self._stop_leading()
            self._lock.release()

    def _stop_leading(self) -> None:
        """Nothing to do: leading has ended with the connection."""

    def before_fork(self) -> None:
        """A database connection must not be in two processes."""
        self._lock_closed()

    def _lock_closed(self) -> None:
        """Hold the lock, with nothing open."""
        self._must_close = True
        has_lock = self._lock.acquire(timeout=self.let_go_seconds)
        self._must_close = False
        if not has_lock:
            raise OutboxError(f"the outbox {self._name}: no answer for {self.let_go_seconds:g} s")
        try:
            self._let_go()
        except BaseException:
            self._lock.release()
            raise

    def _let_go(self) -> None:
        """Close what is open."""
        self._leads = False
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # what cannot be closed is dropped
                connection.close()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._lock = threading.RLock()
            self._leads = self._must_close = self._is_amid = False
            connection, self._connection = self._connection, None
            if connection is not None:  # nobody said that there would be a fork
                self._leave(connection)
        else:
            self._lock.release()

    def _leave(self, connection: Any) -> None:
        """Leave the connection to the parent: to close it here would end it there."""
        _not_ours.append(connection)

    @contextmanager
    def _transaction(self, *, writes: bool = True) -> "Iterator[Execute]":
        with self._lock:
            if self._is_amid:  # a transaction of this very thread, which must not be undone
                raise OutboxError(f"the outbox {self._name}: {AMID}")
            self._give_way()
            execute: Execute | None = None
            try:
                self._is_amid = True
                if self._connection is not None and self._is_replaced():
                    self._let_go()
                if self._connection is None:
                    self._connection = self._connected()
                execute = Execute(self._connection)
                try:
                    if writes:
                        self._begin(execute)
                    yield execute
                    self._connection.commit()
                finally:
                    execute.close()
            except BaseException as error:  # Ctrl-C too: others wait for what a transaction holds
                self._give_back()
                if isinstance(error, OutboxError) or not isinstance(error, Exception):
                    raise
                raise self._failure(error, execute.verb if execute else "") from error
            finally:
                self._is_amid = False

    def _connected(self) -> Any:
        connection = self._connect()
        self._database = _known(packages_of(connection))
        if statements := OF_SESSION.get(self._database):
            execute = Execute(connection)
            for statement in statements:
                execute(statement)
            execute.close()
            connection.commit()
        return connection

    def _give_way(self) -> None:
        """A fork, or the end, goes before those that wait, however many they are."""
        while self._must_close:
            self._lock.release()
            try:
                sleep(0.01)
            finally:
                self._lock.acquire()

    def _is_replaced(self) -> bool:
        """Whether the connection leads elsewhere than a new one would: nobody can tell."""
        return False

    def _begin(self, execute: "Execute") -> None:
        """Nothing to do: DB-API connections begin a transaction by themselves."""

    def _give_back(self) -> None:
        """Roll back; drop a connection that cannot even do that."""
        try:
            self._connection.rollback()
        except Exception:
            self._leads, self._connection = False, None

    def _failure(self, error: Exception, verb: str = "") -> OutboxError:
        text = " ".join(str(error).split()) or type(error).__name__
        if (table := _denied(error, text)) is not None:
            return OutboxError(
                f"the outbox {self._name}: this user lacks the right to {verb} {table}: "
                f"GRANT {RIGHTS[table]} ON {table} TO that user"
            )
        if (missing := self._missing(text)) is not None:
            return NoOutbox(f"the outbox {self._name}: {missing}", self._creation)
        return OutboxError(f"the outbox {self._name}: {self._with_advice(text)}")

    def _missing(self, text: str) -> str | None:
        """The message of the error, if it says that there is no outbox; else None."""
        return text if says_no_table(text) else None

    def _with_advice(self, text: str) -> str:
        """The message of the driver, and what to do."""
        return f"{text} Connect with check_same_thread=False" if "same thread" in text else text


def _in_utc(at: datetime | str) -> str:
    """A time as a driver gives it; without a zone it is in UTC.

    >>> _in_utc("2026-11-29 08:30:00"), _in_utc(datetime.fromisoformat("2026-11-29T09:30:00+01:00"))
    ('2026-11-29T08:30:00+00:00', '2026-11-29T08:30:00+00:00')
    """
    found = datetime.fromisoformat(at) if isinstance(at, str) else at
    found = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    return found.isoformat(timespec="seconds")


def _count_refused(
    execute: "Execute", channel: ChannelName, changes: int, refusal: Refusal
) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    values = (changes, refusal.reason, refusal.last.decode(errors="replace"), now, *channel)
    if not execute.count(MORE_REFUSED, values):
        execute(FIRST_REFUSED, values)


def _denied(error: Exception, text: str) -> str | None:
    """The table of ours that a driver's error says this user may not use so; None if of none."""
    codes = [getattr(error, name, None) for name in ("sqlstate", "pgcode")] + [*error.args[:1]]
    if not any(code in codes for code in DENIED):
        return None
    return next((each for each in RIGHTS if each in text), None)


def says_no_table(text: str) -> bool:
    """Whether a driver's error means that the table was not created."""
    is_ours = any(name in text for name in ("rsnotify_outbox", "rsnotify_refused"))
    return is_ours and any(word in text for word in ("no such", "exist"))


class Execute:
    """A cursor that answers with rows, whatever its driver calls a parameter."""

    def __init__(self, connection: Any) -> None:
        self.verb = ""  # of what was executed last
        self._cursor = connection.cursor()
        self._style = style_of(connection)
        self.close = self._cursor.close

    def __call__(self, statement: str, values: Sequence[object] = ()) -> Rows:
        self.verb = statement.partition(" ")[0]
        self._cursor.execute(with_marks(statement, self._style), tuple(values))
        return self._cursor.fetchall() if self._cursor.description else ()

    def count(self, statement: str, values: Sequence[object] = ()) -> int:
        """How many rows the statement touched."""
        self(statement, values)
        return int(self._cursor.rowcount)


def _oldest_batch(execute: Execute, channel: ChannelName, at_most: int) -> Batch | None:
    """None if another relay has removed it meanwhile."""
    rows = execute(OLDEST.replace(":count", str(at_most)), channel)
    keys = [key for _, _, key in rows if key is not None]
    if keys:
        return _batch(channel, keys[0], execute(OF_BATCH, (keys[0],)))
    rows = rows[: fitting([len(as_bytes(body)) for _, body, _ in rows])]
    batch = _batch(channel, new_key(), rows)
    if batch is None:
        return None
    execute(_of(MARK, batch.ids), (batch.key,))
    if len(execute(OF_BATCH, (batch.key,))) != len(batch.ids):
        raise OutboxError("another relay took the same changes")  # undoes the mark
    return batch


def _all(condition: str, count: int) -> str:
    """The condition so many times; in pairs of pairs, for SQLite takes no more than 1,000 in a row.

    >>> _all("a", 3)
    '(a AND (a AND a))'
    """
    if count < 2:
        return condition if count else "1 = 1"
    return f"({_all(condition, count // 2)} AND {_all(condition, count - count // 2)})"


def _of(statement: str, ids: Collection[int]) -> str:
    return statement.replace(":ids", ",".join(map(str, ids)))


def _batch(channel: ChannelName, key: str, rows: Rows) -> Batch | None:
    if not rows:
        return None
    ids, bodies = zip(*((row[0], row[1]) for row in rows), strict=True)
    return Batch(channel, key, ids, list(map(as_bytes, bodies)))


def as_bytes(body: str | bytes) -> bytes:
    """A change as it was written: what is wrong with it is for the hub to say, or nobody learns it.

    SQLite keeps what it is given, be it no text, or not in UTF-8; see `as_text`.
    """
    return body.encode(errors=AS_WRITTEN) if isinstance(body, str) else bytes(body)


def as_text(text: bytes) -> str:
    return text.decode(errors=AS_WRITTEN)
