"""The outbox table in an application's own database: changes written in its own transactions.

Rules that hold here: a change exists exactly if the transaction that wrote it was committed; the
connection is the application's, and nothing is committed here. Who publishes the table is not known
here.
"""

import sys
from typing import Any, Literal, Unpack, get_args

from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import Kind
from rsnotify_client.change import Fields, make_change
from rsnotify_client.queue import channel_of, encode

Database = Literal["postgresql", "mysql", "sqlite"]

_COLUMNS = """
    set_name VARCHAR(64){exact} NOT NULL,
    kind VARCHAR(9) NOT NULL DEFAULT 'change',
    body {text} NOT NULL,
    queued_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    batch_key CHAR(32)
"""
_IDS = {
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
}
_TEXTS = {"postgresql": "TEXT", "mysql": "MEDIUMTEXT CHARACTER SET utf8mb4", "sqlite": "TEXT"}
_EXACT = {"postgresql": "", "mysql": " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "sqlite": ""}
"""Else MySQL takes a wrong name in capitals for the set, and each stands in the other's way."""
_OF_BATCHES = {"postgresql": " WHERE batch_key IS NOT NULL", "mysql": "", "sqlite": ""}

INSERT = "INSERT INTO rsnotify_outbox (set_name, kind, body) VALUES (?, ?, ?)"
DROP = "DROP TABLE IF EXISTS rsnotify_outbox"

_DATABASES: dict[str, Database] = {
    "asyncpg": "postgresql",
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
"""As SQLAlchemy and Django call them, and by the names of their drivers."""


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

    def created(self, connection: Any, set_name: str, loc: str, **fields: Unpack[Fields]) -> None:
        """The resource at `loc` is new."""
        self.send(connection, set_name, make_change(loc, "created", fields))

    def updated(self, connection: Any, set_name: str, loc: str, **fields: Unpack[Fields]) -> None:
        """The resource at `loc` has changed."""
        self.send(connection, set_name, make_change(loc, "updated", fields))

    def deleted(self, connection: Any, set_name: str, loc: str, **fields: Unpack[Fields]) -> None:
        """The resource at `loc` is no more."""
        self.send(connection, set_name, make_change(loc, "deleted", fields))

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
    """Which database a connection leads to, by what SQLAlchemy or Django say, or by its driver."""
    dialect = getattr(connection, "dialect", None)
    said = getattr(dialect, "name", None) or getattr(connection, "vendor", None)
    names = [said] if isinstance(said, str) else packages_of(connection)
    for name in names:
        if name in _DATABASES:
            return _DATABASES[name]
    known = ", ".join(get_args(Database))
    raise ValueError(f"an outbox table cannot be in {names[0]}: only in {known}")


def statements(database: Database) -> list[str]:
    """What creates the table and its indexes, one by one."""
    columns = _COLUMNS.format(text=_TEXTS[database], exact=_EXACT[database])
    if_new = "" if database == "mysql" else "IF NOT EXISTS "
    table = f"CREATE TABLE IF NOT EXISTS rsnotify_outbox (\n    id {_IDS[database]},{columns})"
    by_channel = "rsnotify_outbox_channel ON rsnotify_outbox (set_name, kind, id)"
    by_batch = f"rsnotify_outbox_batch ON rsnotify_outbox (batch_key){_OF_BATCHES[database]}"
    if database == "mysql":  # has no CREATE INDEX IF NOT EXISTS
        inside = ",\n    INDEX (set_name, kind, id),\n    INDEX (batch_key)\n)"
        return [table.removesuffix("\n)") + inside]
    return [table, f"CREATE INDEX {if_new}{by_channel}", f"CREATE INDEX {if_new}{by_batch}"]


def style_of(connection: Any) -> str:
    """How this driver marks a parameter."""
    for package in packages_of(connection):
        if (style := getattr(sys.modules.get(package), "paramstyle", None)) is not None:
            return str(style)
    return "format"


def packages_of(connection: Any) -> list[str]:
    """Its driver is one of these: an application may have made a class of its own from it."""
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
