"""Applications that publish their papers: one with SQLAlchemy, one with Django, and their stories.

`python -m tests.support.applications ORM DATABASE` reads a seed and a number of steps from each
line of stdin, and forks a writer for it, which writes at random, and kills itself at the worst
moments.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import django
from django import db
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import connections, models, transaction
from sqlalchemy import Engine, String, create_engine, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify_client import Outbox
from rsnotify_client.change import Fields
from rsnotify_client.integrations.sqlalchemy import publish_model
from rsnotify_client.outbox import DROP, OutboxTable
from rsnotify_client.relay import table_of
from tests.support.hub_processes import HubProcess, eventually
from tests.support.running import TOKEN

ADDRESS = "http://a/"

OF_SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": ":memory:",
    "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
}

settings.configure(
    DATABASES={"default": OF_SQLITE},
    RSNOTIFY={"OUTBOX": "database", "BASE_URL": ""},
    INSTALLED_APPS=["rsnotify_client.integrations.django"],
    USE_TZ=True,
)
django.setup()

from rsnotify_client.integrations import django as of_django  # noqa: E402 - needs the settings


def now() -> datetime:
    """As SQLite gives it back: without a time zone."""
    return datetime.now(UTC).replace(tzinfo=None)


class Base(DeclarativeBase):
    pass


class Paper(Base):
    __tablename__ = "papers"

    id: Mapped[int] = mapped_column(primary_key=True)
    slug: Mapped[str | None] = mapped_column(String(50))
    is_public: Mapped[bool] = mapped_column(default=True)
    edition: Mapped[int] = mapped_column(default=1)
    changed: Mapped[datetime] = mapped_column(default=now, onupdate=now)


class DjangoPaper(models.Model):
    class Meta:
        app_label = "papers"
        db_table = "papers"

    slug = models.CharField(max_length=50, null=True)
    is_public = models.BooleanField(default=True)
    edition = models.IntegerField(default=1)
    changed = models.DateTimeField(auto_now=True)


class PaperProxy(DjangoPaper):
    class Meta:
        app_label = "papers"
        proxy = True


def loc(paper: Any) -> str | None:
    return paper.slug and f"{ADDRESS}{paper.slug}"


def is_public(paper: Any) -> bool:
    return bool(paper.is_public)


def fields(paper: Any) -> Fields:
    return {"lastmod": paper.changed, "length": paper.edition}


publish_model(Outbox(), Paper, "sqlalchemy", loc, fields, when=is_public, naive="utc")
of_django.publish_model(DjangoPaper, "django", loc, fields, when=is_public, naive="utc")


class Papers(Protocol):
    """Papers in a database, written by an ORM."""

    close: Callable[[], None]

    def transaction(self) -> AbstractContextManager[Any]:
        """What is not committed if it raises."""

    def savepoint(self) -> AbstractContextManager[Any]: ...

    def names(self) -> list[str]: ...

    def add(self, slug: str | None, *, is_public: bool = True) -> None: ...

    def change(self, name: str | None, /, **values: Any) -> None: ...

    def delete(self, name: str) -> None: ...


class OfSQLAlchemy:
    def __init__(self, engine: Engine) -> None:
        self._session = Session(engine)
        self.close = self._session.close

    def transaction(self) -> AbstractContextManager[Any]:
        return self._session.begin()

    def savepoint(self) -> AbstractContextManager[Any]:
        return self._session.begin_nested()

    def names(self) -> list[str]:
        return [name for name in self._session.scalars(select(Paper.slug)) if name]

    def add(self, slug: str | None, *, is_public: bool = True) -> None:
        self._session.add(Paper(slug=slug, is_public=is_public))
        self._session.flush()

    def change(self, name: str | None, /, **values: Any) -> None:
        paper = self._found(name)
        for field, value in values.items():
            setattr(paper, field, value)
        self._session.flush()

    def delete(self, name: str) -> None:
        self._session.delete(self._found(name))
        self._session.flush()

    def _found(self, slug: str | None) -> Paper:
        return self._session.scalars(select(Paper).where(Paper.slug == slug)).one()


class OfDjango:
    def __init__(self, *, saves_in_part: bool = False) -> None:
        self._saves_in_part = saves_in_part

    def transaction(self) -> AbstractContextManager[Any]:
        return transaction.atomic()

    def savepoint(self) -> AbstractContextManager[Any]:
        return transaction.atomic()

    def names(self) -> list[str]:
        return [name for name in DjangoPaper.objects.values_list("slug", flat=True) if name]

    def add(self, slug: str | None, *, is_public: bool = True) -> None:
        DjangoPaper.objects.create(slug=slug, is_public=is_public)

    def change(self, name: str | None, /, **values: Any) -> None:
        paper = DjangoPaper.objects.get(slug=name)
        for field, value in values.items():
            setattr(paper, field, value)
        paper.save(update_fields=values if self._saves_in_part else None)

    def delete(self, name: str) -> None:
        DjangoPaper.objects.get(slug=name).delete()

    def close(self) -> None:
        connections["default"].close()


def create_tables(database: str) -> None:
    """The papers and their outbox, in an empty SQLite file, or in the place of what was there."""
    engine = engine_of(database)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql(DROP)
        Outbox.create(connection)
    engine.dispose()


def allow_no_name_twice(database: str) -> None:
    with closing(connection_to(database)) as connection:
        connection.cursor().execute("CREATE UNIQUE INDEX papers_slug ON papers (slug)")
        connection.commit()


def papers_of(orm: str, database: str) -> Papers:
    if orm == "django":
        use_in_django(database)
        return OfDjango(saves_in_part=True)
    return OfSQLAlchemy(engine_of(database))


def engine_of(database: str, **options: Any) -> Engine:
    if database.startswith("sqlite"):
        return create_engine(database, connect_args={"timeout": 20}, **options)
    drivers = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
    kind, _, rest = database.partition(":")
    return create_engine(f"{drivers[kind]}:{rest}", **options)


def use_in_django(database: str) -> None:
    connections["default"].close()
    settings.DATABASES["default"] = in_django(database)
    connections.settings = connections.configure_settings(settings.DATABASES)
    connections["default"] = connections.create_connection("default")


def in_django(database: str) -> dict[str, Any]:
    """A URL, as Django's settings have it."""
    if database.startswith("sqlite"):
        return OF_SQLITE | {"NAME": database.removeprefix("sqlite:///")}
    parts = urlsplit(database)
    if parts.scheme == "mysql":
        import pymysql

        pymysql.version_info = (2, 2, 7, "final", 0)  # Django asks for that of mysqlclient
        pymysql.install_as_MySQLdb()
    return {
        "ENGINE": f"django.db.backends.{parts.scheme}",
        "NAME": parts.path[1:],
        "USER": unquote(parts.username or ""),
        "HOST": parts.hostname,
        "PORT": parts.port,
    }


# A writer -----------------------------------------------------------------------------------------

NAMES = 20_000
DEATHS = 0.01
"""How likely it is that a writer kills itself, at each of the moments where it may."""
HUB_DEATHS = 0.1
"""How likely it is that the hub is killed while writers write; the first time it always is."""

ENDED = "ended"


class RolledBack(Exception):
    """The transaction is not to be committed."""


class Writer:
    """Writes papers at random."""

    def __init__(self, papers: Papers, chance: random.Random) -> None:
        self._papers = papers
        self._chance = chance

    def transact(self) -> str:
        """How the transaction ended."""
        try:
            with self._papers.transaction():
                for _ in range(self._chance.randint(1, 4)):
                    self._act()
                    self._die_perhaps()
                if self._chance.random() < 0.15:
                    raise RolledBack
        except RolledBack:
            return "rolled back"
        except (SQLAlchemyError, db.Error, ObjectDoesNotExist):  # another one has the name
            return "refused"
        self._die_perhaps()
        return "committed"

    def _die_perhaps(self) -> None:
        if self._chance.random() < DEATHS:
            os.kill(os.getpid(), signal.SIGKILL)

    def _act(self) -> None:
        names = self._papers.names()
        if not names or self._chance.random() < 0.3:
            self._papers.add(self._new_name(), is_public=self._chance.random() < 0.7)
            return
        acts = (self._rename, self._rename_and_back, self._edit, self._show, self._delete)
        act = self._chance.choices(acts, (5, 1, 2, 4, 4))[0]
        name = self._chance.choice(names)
        if self._chance.random() < 0.1:
            with suppress(RolledBack), self._papers.savepoint():
                act(name)
                raise RolledBack
        else:
            act(name)

    def _new_name(self) -> str:
        return f"paper-{self._chance.randrange(NAMES)}"

    def _rename(self, name: str) -> None:
        self._papers.change(name, slug=self._new_name())

    def _rename_and_back(self, name: str) -> None:
        between = f"{self._new_name()}-{self._chance.randrange(NAMES)}"
        self._papers.change(name, slug=between)
        self._papers.change(between, slug=name)

    def _edit(self, name: str) -> None:
        self._papers.change(name, edition=self._chance.randrange(1_000))

    def _show(self, name: str) -> None:
        self._papers.change(name, is_public=self._chance.random() < 0.5)

    def _delete(self, name: str) -> None:
        self._papers.delete(name)


def write(orm: str, database: str, seed: int, steps: int) -> None:
    """Say how each transaction ended."""
    papers = papers_of(orm, database)
    writer = Writer(papers, random.Random(seed))
    for _ in range(steps):
        print(writer.transact(), flush=True)
    papers.close()


def main(orm: str, database: str) -> None:
    """Fork writers, each from a process that has loaded all and opened nothing."""
    for line in sys.stdin:
        seed, steps = map(int, line.split())
        child = os.fork()
        if child == 0:
            write(orm, database, seed, steps)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(ENDED, os.waitstatus_to_exitcode(status), flush=True)


# The story ----------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """What became of a story's transactions, and how often who was killed."""

    outcomes: Counter[str]
    relays_killed: int
    hubs_killed: int
    comparisons: int


class Story:
    """Writers, a relay and a hub that are killed; the hub holds what the database does.

    The hub has a set that is called as the ORM.
    """

    def __init__(self, hub: HubProcess, orm: str, database: str, seed: int) -> None:
        self._hub, self._orm, self._database = hub, orm, database
        self._chance = random.Random(seed)
        self._relay: subprocess.Popen[bytes] | None = None
        self._relays_killed = self._hubs_killed = self._comparisons = 0

    def run(self, steps: int, writers: int = 2, compare_every: int = 1_000) -> Ended:
        """Write so many transactions, and as many again while no writer has killed itself; compare
        the hub with the database every so many."""
        create_tables(self._database)
        allow_no_name_twice(self._database)
        applications = [self._new_application() for _ in range(writers)]
        outcomes: Counter[str] = Counter()
        try:
            with closing(table_of(self._database)) as table:
                while outcomes.total() < steps or not outcomes["killed"]:
                    left = steps - outcomes.total() % steps
                    until = outcomes.total() + min(left, compare_every)
                    while outcomes.total() < until:
                        outcomes += self._write(applications, until - outcomes.total())
                    self._compare(table)
        finally:
            self._kill_relay()
            for each in applications:
                each.communicate()
        return Ended(outcomes, self._relays_killed, self._hubs_killed, self._comparisons)

    def _write(self, applications: list[subprocess.Popen[str]], steps: int) -> Counter[str]:
        """Let a writer of each run until it has died or done its part."""
        self._relay = self._relay or self._new_relay()
        for each in applications:
            assert each.stdin is not None
            each.stdin.write(f"{self._chance.randrange(2**32)} {steps // len(applications) + 1}\n")
            each.stdin.flush()
        if not self._hubs_killed or self._chance.random() < HUB_DEATHS:
            self._hub.kill()
            self._hub.start()
            self._hubs_killed += 1
        outcomes = sum(map(_outcomes, applications), Counter())
        if self._chance.random() < 0.1:
            self._kill_relay()
        return outcomes

    def _new_application(self) -> subprocess.Popen[str]:
        words = ["-m", "tests.support.applications", self._orm, self._database]
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, *words], stdin=pipe, stdout=pipe, text=True)

    def _new_relay(self) -> subprocess.Popen[bytes]:
        words = ["-m", "rsnotify", "relay", "--database", self._database, "--url", self._hub.url]
        environ = dict(os.environ) | {"RSNOTIFY_TOKEN": TOKEN}
        null = subprocess.DEVNULL
        return subprocess.Popen([sys.executable, *words], stdout=null, stderr=null, env=environ)

    def _kill_relay(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait()
            self._relay = None
            self._relays_killed += 1

    def _compare(self, table: OutboxTable) -> None:
        """What the hub says of each address is what the database does."""
        self._relay = self._relay or self._new_relay()
        eventually(lambda: table.waiting() == 0, 60)
        with closing(connection_to(self._database)) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT slug, edition FROM papers WHERE is_public")
            public = {f"{ADDRESS}{slug}": edition for slug, edition in cursor.fetchall()}
        assert resources_of(self._hub, self._orm) == public
        self._comparisons += 1


def _outcomes(application: subprocess.Popen[str]) -> Counter[str]:
    """How the transactions of its writer ended."""
    assert application.stdout is not None
    outcomes: Counter[str] = Counter()
    while not (line := application.stdout.readline()).startswith(ENDED):
        assert line, "the application has ended"
        outcomes[line.rstrip()] += 1
    status = int(line.split()[-1])
    assert status in (0, -signal.SIGKILL), status
    outcomes["killed"] += status != 0
    return outcomes


def connection_to(database: str) -> Any:
    """One of the driver."""
    if database.startswith("sqlite"):
        return sqlite3.connect(database.removeprefix("sqlite:///"))
    connection = engine_of(database, poolclass=NullPool).raw_connection()
    connection.detach()  # the driver's alone from now on
    return connection.dbapi_connection


def resources_of(hub: HubProcess, set_name: str) -> dict[str, int | None]:
    """The set's resources and their lengths, from a Resource List that is made now."""
    request = Request(f"{hub.url}/api/sets/{set_name}/snapshot", b"", method="POST")
    request.add_header("Authorization", f"Bearer {TOKEN}")
    urlopen(request).close()
    with urlopen(f"{hub.url}/{set_name}/resourcelist.xml") as answer:
        document = parse_document(answer.read())
    return {each.loc: each.md.length if each.md else None for each in document.entries}


if __name__ == "__main__":
    main(*sys.argv[1:])
