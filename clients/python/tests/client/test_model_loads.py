"""What models have, loaded in one snapshot while their application goes on writing."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from django.db import connections, transaction
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from rsnotify.errors import TryAgain
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify_client import Publisher, Relay
from rsnotify_client.integrations import django as of_django
from rsnotify_client.integrations import snapshots
from rsnotify_client.integrations.models import PublishedModel
from rsnotify_client.integrations.snapshots import NoSnapshot
from rsnotify_client.integrations.sqlalchemy import load_model
from rsnotify_client.loading import Loaded
from rsnotify_client.outbox import style_of, with_marks
from tests.support import mariadb, postgresql
from tests.support.amount import amount
from tests.support.applications import (
    ADDRESS,
    Base,
    DjangoPaper,
    OfSQLAlchemy,
    Paper,
    Papers,
    allow_no_name_twice,
    connection_to,
    create_tables,
    engine_of,
    loc,
    papers_of,
    resources_of,
    settings,
    use_in_django,
)
from tests.support.hub_processes import HubProcess, python
from tests.support.running import TOKEN

EXAMPLES = Path(__file__).parents[4] / "clients/python/examples"
STEPS, ROUNDS = amount(400, evidence=1_000), 5  # so at least as many loads begin while others write
PAPERS = 40


@pytest.fixture(scope="module")
def in_postgresql() -> Iterator[str]:
    with postgresql.running() as url:
        yield url


@pytest.fixture(scope="module")
def in_mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mariadb.running(tmp_path_factory.mktemp("mariadb")) as url:
        yield url


@pytest.fixture
def in_sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'papers.db'}"


Load = Callable[..., Loaded]


@contextmanager
def loading(orm: str, database: str, hub: HubProcess) -> Iterator[Load]:
    """Loads what the papers of the application have."""
    if orm == "django":
        use_in_django(database)
        settings.RSNOTIFY |= {"URL": hub.url, "TOKEN": TOKEN}
        try:
            yield partial(of_django.load_model, DjangoPaper, max_delete=100)
        finally:
            connections["default"].close()
            settings.RSNOTIFY.pop("URL")
            settings.RSNOTIFY.pop("TOKEN")
        return
    engine = engine_of(database, poolclass=NullPool)
    with Publisher(hub.url, TOKEN) as publisher:
        yield partial(load_model, publisher, engine, Paper, max_delete=100)


def opened(orm: str, database: str) -> Papers:
    """Papers that leave no connection open once they are closed."""
    if orm == "django":
        return papers_of(orm, database)
    return OfSQLAlchemy(engine_of(database, poolclass=NullPool))


class Application:
    """Writes papers, one at a time; each version has a number of its own, its edition.

    Some are written past the ORM: then nothing is published, and a load has to find it.
    """

    def __init__(self, orm: str, database: str, seed: int) -> None:
        self._orm, self._database = orm, database
        self._chance = random.Random(seed)
        self._names: set[str] = set()
        self._edition = 0
        self.versions: dict[str, list[int | None]] = {}  # of each address that was ever public

    def write(self, steps: int) -> None:
        papers = opened(self._orm, self._database)
        with closing(papers), closing(connection_to(self._database)) as past:
            for number in range(self._edition + 1, self._edition + steps + 1):
                name, is_public = f"p{self._chance.randrange(PAPERS)}", self._chance.random() < 0.6
                # before it is seen by anybody
                self.versions.setdefault(f"{ADDRESS}{name}", [None]).append(
                    number if is_public else None
                )
                self._write(papers, past, name, is_public=is_public, edition=number)
        self._edition += steps

    def _write(self, papers: Any, past: Any, name: str, *, is_public: bool, edition: int) -> None:
        if name in self._names and self._chance.random() < 0.2:
            past.cursor().execute(
                f"UPDATE papers SET is_public = {is_public}, edition = {edition} "
                f"WHERE slug = '{name}'"
            )
            past.commit()
            return
        with papers.transaction():
            if name not in self._names:
                papers.add(name, is_public=False)
            papers.change(name, is_public=is_public, edition=edition)
            if not is_public and self._chance.random() < 0.3:
                papers.delete(name)
                self._names.discard(name)
            else:
                self._names.add(name)


def told(hub: HubProcess, set_name: str) -> list[tuple[str, int | None]]:
    """Every notification of the set: an address, and its version, None if it is deleted."""
    with urlopen(f"{hub.url}/{set_name}/changelist.xml") as answer:
        document = parse_document(answer.read())
    return [
        (each.loc, None if each.md.change == "deleted" else each.md.length)
        for each in document.entries
        if each.md
    ]


def check_never_back(
    told: list[tuple[str, int | None]], versions: dict[str, list[int | None]]
) -> None:
    """Each notification has the version of the one before, or a later one."""
    reached = dict.fromkeys(versions, 0)
    for number, (address, version) in enumerate(told):
        following = versions[address][reached[address] :]
        assert version in following, (number, address, version, versions[address])
        reached[address] += following.index(version)


def public_in(database: str) -> dict[str, int]:
    with closing(connection_to(database)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT slug, edition FROM papers WHERE is_public")
        return {f"{ADDRESS}{slug}": edition for slug, edition in cursor.fetchall()}


@pytest.fixture
def place(request: pytest.FixtureRequest, real_hub: HubProcess) -> tuple[str, str]:
    """An ORM whose set is new and empty, and the URL of its database."""
    orm, kind = request.param
    real_hub.add_set(orm)
    real_hub.ask("DELETE", f"/api/sets/{orm}")
    real_hub.add_set(orm)
    database = request.getfixturevalue(f"in_{kind}")
    create_tables(database)
    if kind == "sqlite":  # else a reader stops every writer
        with closing(connection_to(database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    return orm, database


HERE = [("sqlalchemy", "sqlite"), ("django", "postgresql"), ("sqlalchemy", "mariadb")]
ELSEWHERE = [("django", "sqlite"), ("sqlalchemy", "postgresql"), ("django", "mariadb")]


@pytest.mark.parametrize(
    "place", [*HERE, *(pytest.param(each, marks=pytest.mark.evidence) for each in ELSEWHERE)],
    indirect=True, ids=str,
)  # fmt: skip
def test_no_load_takes_back_what_the_application_publishes_meanwhile(real_hub, place):
    """Each changes while its state is read and loaded again and again."""
    orm, database = place
    allow_no_name_twice(database)
    application = Application(orm, database, seed=11)
    with Relay(database, real_hub.url, TOKEN) as relay, loading(orm, database, real_hub) as load:
        for _ in range(ROUNDS):
            writing = threading.Thread(target=application.write, args=(STEPS // ROUNDS,))
            writing.start()
            while writing.is_alive():
                load()
            writing.join()
        relay.flush(60)
        load()
        assert resources_of(real_hub, orm) == public_in(database)
    changes = told(real_hub, orm)
    assert len(changes) > STEPS / 4
    check_never_back(changes, application.versions)


def test_a_version_that_comes_back_is_noticed():
    versions: dict[str, list[int | None]] = {"a": [None, 1, None, 3]}
    check_never_back([("a", 1), ("a", 1), ("a", None), ("a", 3)], versions)
    with pytest.raises(AssertionError):
        check_never_back([("a", 1), ("a", None), ("a", 1)], versions)


def test_the_django_example_does_not_load_what_would_delete_too_much(tmp_path):
    with HubProcess(tmp_path / "data", "dataset1") as hub:
        environ = {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN, "OUTBOX": "database"}
        environ["DATABASE"] = str(tmp_path / "django.db")
        with Publisher(hub.url, TOKEN) as publisher:
            publisher.created("dataset1", "http://example.com/one")
        manage = str(EXAMPLES / "django/manage.py")
        for words in (["migrate", "--verbosity", "0"], ["load_papers"]):
            _, errors = python(manage, *words, **environ).communicate(timeout=200)
        assert "would delete 1 of 1" in errors  # the guard holds for it, too


# What is one moment, and what cannot be -----------------------------------------------------------


MANY = 1_500
LAST = "p1499"


def add_many(database: str) -> None:
    """Past the ORM, so that nothing of it is published."""
    with closing(connection_to(database)) as connection:
        cursor = connection.cursor()
        statement = with_marks(
            "INSERT INTO papers (slug, is_public, edition, changed) "
            "VALUES (?, TRUE, 1, '2026-01-01 00:00:00')",
            style_of(connection),
        )
        cursor.executemany(statement, [(f"p{number}",) for number in range(MANY)])
        connection.commit()


@pytest.mark.parametrize("place", [*HERE, *ELSEWHERE], indirect=True, ids=str)
def test_what_is_committed_while_the_state_is_read_is_not_read(real_hub, place):
    orm, database = place
    add_many(database)

    def withdraw_the_last(read: int) -> None:
        if read == 1_000:
            with closing(connection_to(database)) as other:
                other.cursor().execute(f"DELETE FROM papers WHERE slug = '{LAST}'")
                other.commit()

    with loading(orm, database, real_hub) as load:
        assert load(progress=withdraw_the_last).resources == MANY
        assert load().resources == MANY - 1


@pytest.mark.parametrize("place", [*HERE, *ELSEWHERE], indirect=True, ids=str)
def test_what_waits_in_the_outbox_is_published_before_the_state(real_hub, place, monkeypatch):
    """Else a paper that was shown and withdrawn would be public again after the load."""
    orm, database = place
    papers = opened(orm, database)
    with closing(papers), papers.transaction():
        papers.add("p1")
        papers.change("p1", is_public=False)
    said = r"2 changes wait in the outbox .* does `rsnotify relay`"
    with loading(orm, database, real_hub) as load:
        with monkeypatch.context() as impatient:
            impatient.setattr(snapshots, "WAIT_SECONDS", 0.2)
            with pytest.raises(TryAgain, match=said):
                load()
        with Relay(database, real_hub.url, TOKEN):
            assert load().resources == 0
    assert told(real_hub, orm) == [(f"{ADDRESS}p1", 1), (f"{ADDRESS}p1", None)]


@pytest.mark.parametrize("orm", ["sqlalchemy", "django"])
def test_tables_without_snapshots_are_refused(real_hub, in_mariadb, orm):
    create_tables(in_mariadb)
    with closing(connection_to(in_mariadb)) as connection:
        connection.cursor().execute("ALTER TABLE papers ENGINE = MyISAM")
    with (
        loading(orm, in_mariadb, real_hub) as load,
        pytest.raises(NoSnapshot, match=r"papers is MyISAM.* ALTER TABLE papers ENGINE = InnoDB"),
    ):
        load()


SQLITE = [(orm, "sqlite") for orm in ("sqlalchemy", "django")]


@pytest.mark.parametrize("place", SQLITE, indirect=True, ids=str)
def test_a_load_of_models_waits_no_longer_than_it_was_told(real_hub, place):
    said = pytest.raises(TryAgain, match=r"no answer in time|took more than")
    with loading(*place, real_hub) as load, said:
        load(timeout=0.0001)


def test_a_transaction_that_has_begun_is_too_late(real_hub, in_sqlite):
    create_tables(in_sqlite)
    with (
        loading("django", in_sqlite, real_hub) as load,
        transaction.atomic(),
        pytest.raises(NoSnapshot, match="outside of atomic"),
    ):
        load()


@pytest.mark.parametrize("level", ["READ COMMITTED", "READ-UNCOMMITTED", "AUTOCOMMIT", None])
def test_a_weaker_transaction_is_refused(level):
    with pytest.raises(NoSnapshot, match="REPEATABLE READ"):
        snapshots.check_level(level)


def test_a_database_of_which_nothing_is_known_is_refused():
    with pytest.raises(NoSnapshot, match=r"publisher.load\(set_name, states, as_of=position\)"):
        snapshots.level_for("oracle")


def test_a_replica_is_refused():
    with pytest.raises(NoSnapshot, match="may lag behind"):
        snapshots.check_place("postgresql", set(), lambda *_: [(True,)])


def test_each_model_of_a_set_has_to_be_named(real_hub):
    with Publisher(real_hub.url, TOKEN) as publisher:
        engine = create_engine("sqlite://")
        with pytest.raises(ValueError, match="Base is not published"):
            load_model(publisher, engine, Base)
        with pytest.raises(ValueError, match="these models have none"):
            load_model(publisher, engine)
    papers, others = (
        PublishedModel(each, "papers", loc, None, None, None) for each in (Paper, Base)
    )
    assert snapshots.check_all_given([papers, others], [papers, others]) == "papers"
    with pytest.raises(ValueError, match="papers also has Base"):
        snapshots.check_all_given([papers], [papers, others])
    elsewhere = PublishedModel(Base, "others", loc, None, None, None)
    with pytest.raises(ValueError, match="these models have others, papers"):
        snapshots.check_all_given([papers, elsewhere], [papers, elsewhere])
