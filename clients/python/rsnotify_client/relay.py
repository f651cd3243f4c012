"""The relay: publishes the outbox table of an application's own database.

Rules that hold here: the relay needs nothing of the application but its database. Any number of
relays may run for one table; one of them works. Nothing here knows how the table is written.
"""

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.answer import WrongToken
from rsnotify_client.hub import HubClient
from rsnotify_client.network import NetworkOptions
from rsnotify_client.outbox import DATABASES, Database, OutboxTable
from rsnotify_client.publisher import BATCH_SECONDS
from rsnotify_client.sender import Counters, RefusedChange, Sender
from rsnotify_client.token import HeldToken, Token

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
CHECK_SECONDS = 3.0
SETS_ASKED = 20
"""Of those that wait at the start; each is a request."""

SCHEMES = ("postgresql", "postgres", "mysql", "mariadb", "sqlite")

OF_POSTGRESQL: dict[str, Any] = {
    "application_name": "rsnotify relay",
    "connect_timeout": 10,
    "tcp_user_timeout": 30_000,  # ms; the network is cut
    "keepalives_idle": 10,  # …while an answer is awaited
    "keepalives_interval": 10,
}
"""The options of a connection that its URL does not set."""

OF_MYSQL = {"connect_timeout": 10, "write_timeout": 30, "read_timeout": 60}
"""In seconds; MySQL waits 50 s for the lock of a row."""

OF_MYSQL_URL = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity")
"""The options that a URL may have; with any of them the connection uses TLS, or fails."""

ESCAPED = "write the special characters of a password, such as / and #, as %2F and %23"


class Relay:
    """Publishes a table in a thread of this process; `wake` after a commit saves it a look.

    `database` is a URL, such as `postgresql://user@host/name`, or a function that makes a new
    DB-API connection.
    """

    def __init__(
        self,
        database: str | Callable[[], Any],
        url: str,
        token: Token | None = None,
        *,
        look_seconds: float = LOOK_SECONDS,
        on_refused: Callable[[RefusedChange], object] | None = None,
        network: NetworkOptions | None = None,
    ) -> None:
        self.table = table_of(database)
        held = HeldToken.of(token)
        self._hub = HubClient(url, held, network=network)
        self._soon = HubClient(
            url, held, network=network, connect_seconds=CHECK_SECONDS, answer_seconds=CHECK_SECONDS
        )
        self._sender = Sender(
            self.table,
            self._hub,
            batch_seconds=BATCH_SECONDS,
            look_seconds=look_seconds,
            on_refused=on_refused,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin to publish what waits in the table."""
        self._sender.start()

    def wake(self) -> None:
        """Look into the table now, as after a commit of this process."""
        self._sender.wake()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until what waits now is published or refused; raises what `Publisher.flush` does."""
        self._sender.flush(timeout)

    def check(self) -> None:
        """Try what publishing needs: rights in the database, a token that the hub knows.

        `TryAgain` if the hub does not answer soon. Sets that it refuses beside others are logged.
        """
        self.table.try_rights()
        self._soon.check()
        sets = self.table.waiting_sets()
        refused: list[WrongToken] = []
        for each in sets[:SETS_ASKED]:
            try:
                self._soon.check_right(ChannelName(each, "change"))
            except WrongToken as wrong:
                refused.append(wrong)
        if refused and len(refused) == len(sets):
            raise refused[0]
        for error in refused:
            log.warning("%s", error)

    def close(self) -> None:
        """End the relay; what waits stays in the table."""
        self._sender.stop()
        self.table.close()
        self._hub.close()
        self._soon.close()

    @property
    def counters(self) -> Counters:
        """What it has done in this process so far; `taken` counts nothing here."""
        return self._sender.counters()

    @property
    def published(self) -> int:
        """How many changes it has published so far; unlike `counters`, it asks no database."""
        return self._sender.published


def database_of(url: str) -> Database:
    """The kind of database that a URL names."""
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme not in SCHEMES or "://" not in url:
        raise InvalidSettings(
            f"the database is {without_password(url)!r}: "
            f"give a URL that begins with {'://, '.join(SCHEMES)}://"
        )
    return DATABASES[scheme]


def table_of(database: str | Callable[[], Any]) -> OutboxTable:
    """The outbox table of a database."""
    if callable(database):
        return OutboxTable(database, "in the database")
    kind, shown = database_of(database), without_password(database)
    match kind:
        case "sqlite":
            from rsnotify_client.outboxfile import SqliteTable  # noqa: PLC0415

            path = unquote(database.partition("://")[2].removeprefix("/"))
            if "?" in database:
                raise InvalidSettings(f"{database!r} has options: there are none (%3F is a ?)")
            if not path or "\0" in path:
                raise InvalidSettings(f"{database!r} names no file: write sqlite:///file.db")
            return SqliteTable(path)
        case "postgresql":
            return OutboxTable(_postgresql(database), shown, shown)
        case "mysql":
            return OutboxTable(_mysql(database), shown, shown)


def _postgresql(url: str) -> Callable[[], Any]:
    try:
        import psycopg  # noqa: PLC0415
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415
    except ImportError:
        raise _missing("psycopg", "postgresql") from None
    read = f"postgresql://{url.partition('://')[2]}"
    try:
        said = conninfo_to_dict(read)
    except psycopg.Error as error:
        raise _unreadable(url, str(error)) from None
    options = {name: value for name, value in OF_POSTGRESQL.items() if name not in said}
    return lambda: psycopg.connect(read, **options)


def _unreadable(url: str, said: str) -> InvalidSettings:
    """What the driver says of a URL, unless it quotes what may not be shown: a password."""
    _, *quoted = said.split('"')
    is_shown = "".join(quoted[:1]) in without_password(url)
    return InvalidSettings(f"cannot read the database's URL: {said if is_shown else ESCAPED}")


def _mysql(url: str) -> Callable[[], Any]:
    try:
        import pymysql  # noqa: PLC0415
    except ImportError:
        raise _missing("PyMySQL", "mysql") from None
    parts = urlsplit(url)
    options = {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username and unquote(parts.username),
        "password": parts.password and unquote(parts.password),
        "database": unquote(parts.path[1:]),
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value}
    if (tls := _mysql_tls(parts.query)) is not None:
        given["ssl"] = tls
    return lambda: pymysql.connect(charset="utf8mb4", **OF_MYSQL, **given)


def _mysql_tls(query: str) -> "ssl.SSLContext | None":
    """What the options of a URL ask for; None if they ask for nothing.

    The server's certificate is checked unless the URL says otherwise, because without that whoever
    is in between can read all. The host's name in it is checked only if the URL says so: the
    certificates that database servers make for themselves seldom have it.
    """
    said = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := said.keys() - OF_MYSQL_URL:
        raise InvalidSettings(
            f"the database's URL has the option {min(unknown)[:80]!r}: "
            f"there are {', '.join(OF_MYSQL_URL)}"
        )
    if empty := next((name for name, value in said.items() if not value), None):
        raise InvalidSettings(f"the database's URL has the option {empty} without a value")
    if not said:
        return None
    import ssl  # noqa: PLC0415 - slow, and seldom needed

    is_checked = _is_true(said, "ssl_verify_cert", default=True)
    try:
        context = ssl.create_default_context(cafile=said.get("ssl_ca"))
        if "ssl_cert" in said:
            context.load_cert_chain(said["ssl_cert"], said.get("ssl_key"))
    except (OSError, ValueError) as error:
        why = f"cannot read ssl_ca, ssl_cert or ssl_key of the database's URL: {error}"
        raise InvalidSettings(why) from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # those that servers make are not
    context.check_hostname = is_checked and _is_true(said, "ssl_verify_identity", default=False)
    context.verify_mode = ssl.CERT_REQUIRED if is_checked else ssl.CERT_NONE
    return context


def _is_true(said: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = said.get(name, str(default)).lower()
    if value not in ("true", "1", "false", "0"):
        raise InvalidSettings(f"the database's URL has {name}={value[:80]}: write true or false")
    return value in ("true", "1")


def _missing(driver: str, extra: str) -> InvalidSettings:
    how = f"in a clone of rsnotify, pip install '.[{extra}]'"
    return InvalidSettings(f"{driver} is not installed: {how}")


def without_password(url: str) -> str:
    """The URL of a database as it may be shown."""
    try:
        parts = urlsplit(url)
        for host in _hosts(parts):
            _ = urlsplit(f"//{host}").port
    except ValueError as error:
        why = ESCAPED if "@" in url else error  # which may quote a part of a password
        raise InvalidSettings(f"cannot read the database's URL: {why}") from None
    query = "&".join(each for each in parts.query.split("&") if not _is_password(each))
    if parts.password is None and query == parts.query:
        return url
    netloc = parts.netloc.replace(f":{parts.password}@", "@")
    return parts._replace(netloc=netloc, query=query).geturl()


def _hosts(parts: SplitResult) -> list[str]:
    """Each with its port; PostgreSQL may have several, of which one answers."""
    hosts = parts.netloc.rpartition("@")[2]
    return hosts.split(",") if parts.scheme.startswith("postgres") else [hosts]


def _is_password(pair: str) -> bool:
    return pair.partition("=")[0] in ("password", "passwd", "sslpassword")
