"""What is published of models whose objects move, hide and go: the same with both ORMs."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Case, F, Value, When
from sqlalchemy import create_engine, delete, insert, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from rsnotify_client import Outbox, Publisher
from rsnotify_client.integrations import django as integration
from rsnotify_client.integrations.django import update_published
from rsnotify_client.integrations.models import PublishedModel, steps
from rsnotify_client.integrations.sqlalchemy import publish_model
from rsnotify_client.outbox import DROP, with_marks
from tests.support import postgresql
from tests.support.applications import (
    ADDRESS,
    DjangoPaper,
    OfDjango,
    OfSQLAlchemy,
    Paper,
    PaperProxy,
    Papers,
    connection_to,
    create_tables,
    engine_of,
    loc,
    use_in_django,
)

NOON = datetime(2026, 11, 23, 12)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql.running() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with the empty tables of papers and of their outbox."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'papers.db'}"
    else:
        url = request.getfixturevalue("server")
    create_tables(url)
    return url


@pytest.fixture(params=["sqlalchemy", "django"])
def papers(request: pytest.FixtureRequest, database: str) -> Iterator[Papers]:
    if request.param == "django":
        use_in_django(database)
        made: Any = OfDjango()
        yield made
        made.close()
    else:
        engine = engine_of(database)
        made = OfSQLAlchemy(engine)
        yield made
        made.close()
        engine.dispose()


def told(database: str) -> list[tuple[str, str]]:
    """What was published until now, and not before."""
    changes = waiting(database)
    past(database, "DELETE FROM rsnotify_outbox")
    return [(each["change"], each["loc"].removeprefix("http://a/")) for each in changes]


def waiting(database: str) -> list[dict[str, Any]]:
    with closing(connection_to(database)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT body FROM rsnotify_outbox ORDER BY id")
        return [json.loads(body) for (body,) in cursor.fetchall()]


def past(database: str, statement: str) -> None:
    """Do this past the ORM."""
    with closing(connection_to(database)) as connection:
        connection.cursor().execute(statement)
        connection.commit()


# What happens to one paper, told by its address before and after ----------------------------------


def write(papers: Papers) -> None:
    papers.change("one", is_public=True)


def rename(papers: Papers) -> None:
    papers.change("one", slug="two")


def rename_twice(papers: Papers) -> None:
    papers.change("one", slug="two")
    papers.change("two", slug="three")


def rename_and_back(papers: Papers) -> None:
    papers.change("one", slug="two")
    papers.change("two", slug="one")


def rename_and_delete(papers: Papers) -> None:
    papers.change("one", slug="two")
    papers.delete("two")


def hide(papers: Papers) -> None:
    papers.change("one", is_public=False)


def hide_and_rename(papers: Papers) -> None:
    papers.change("one", is_public=False, slug="two")


def take_its_address(papers: Papers) -> None:
    papers.change("one", slug=None)


def delete_hidden(papers: Papers) -> None:
    hide(papers)
    papers.delete("one")


def replace(papers: Papers) -> None:
    papers.delete("one")
    papers.add("one")


def leave_its_address_to_another(papers: Papers) -> None:
    papers.add("other")
    papers.change("one", slug="two")
    papers.change("other", slug="one")


MOVED = [("deleted", "one"), ("created", "two")]
GONE = [("deleted", "one")]


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (rename, MOVED),
        (rename_twice, [*MOVED, ("deleted", "two"), ("created", "three")]),
        (rename_and_back, [*MOVED, ("deleted", "two"), ("created", "one")]),
        (rename_and_delete, [*MOVED, ("deleted", "two")]),
        (hide, GONE),
        (hide_and_rename, GONE),
        (take_its_address, GONE),
        (delete_hidden, GONE),
        (replace, [*GONE, ("created", "one")]),
        (
            leave_its_address_to_another,
            [("created", "other"), *MOVED, ("deleted", "other"), ("created", "one")],
        ),
    ],
)
def test_an_address_that_is_public_no_more_is_published_as_deleted(papers, database, act, expected):
    with papers.transaction():
        papers.add("one")
    assert told(database) == [("created", "one")]
    with papers.transaction():
        act(papers)
    assert told(database) == expected


def test_a_draft_is_published_when_it_becomes_public_and_not_before(papers, database):
    with papers.transaction():
        papers.add("one", is_public=False)
        papers.add(None)
    with papers.transaction():
        papers.change("one", slug="two")
        papers.delete("two")
        papers.add("one", is_public=False)
    assert told(database) == []
    with papers.transaction():
        papers.change("one", is_public=True)
        papers.change(None, slug="three")
    assert told(database) == [("created", "one"), ("created", "three")]


def test_a_rename_that_is_rolled_back_is_not_published(papers, database):
    with papers.transaction():
        papers.add("one")
    told(database)
    with suppress(ZeroDivisionError), papers.transaction():
        papers.change("one", slug="two")
        raise ZeroDivisionError
    assert told(database) == []


def test_after_a_savepoint_that_is_rolled_back_the_address_is_the_one_of_before(papers, database):
    with papers.transaction():
        papers.add("one")
        with suppress(ZeroDivisionError), papers.savepoint():
            papers.change("one", slug="two")
            raise ZeroDivisionError
        papers.change("one", slug="three")
    assert told(database) == [("created", "one"), ("deleted", "one"), ("created", "three")]


def test_what_was_written_past_the_orm_is_seen_with_the_next_write(papers, database):
    """The row counts, not what the object remembers of it."""
    with papers.transaction():
        papers.add("one")
    past(database, "UPDATE papers SET slug = 'two'")
    told(database)
    with papers.transaction():
        papers.delete("two")
    assert told(database) == [("deleted", "two")]


def test_objects_of_one_flush_may_hand_an_address_on(database):
    engine = engine_of(database)
    with Session(engine) as session, session.begin():
        session.add_all([Paper(id=1, slug="one"), Paper(id=2, slug="two")])
    told(database)
    with Session(engine) as session, session.begin():
        one, two = session.get_one(Paper, 1), session.get_one(Paper, 2)
        session.delete(one)
        two.slug = "one"
    engine.dispose()
    assert told(database) == [("deleted", "two"), ("updated", "one")]


def test_a_session_that_forgot_its_object_finds_the_old_address(database):
    engine = engine_of(database)
    with Session(engine) as session:
        session.add(paper := Paper(slug="one"))
        session.commit()
        paper.slug = "two"  # expired by the commit: its old value was never loaded
        session.commit()
    engine.dispose()
    assert told(database) == [("created", "one"), ("deleted", "one"), ("created", "two")]


def test_an_object_of_an_older_row_publishes_what_the_database_has_of_it(database):
    engine = engine_of(database)
    with Session(engine, expire_on_commit=False) as session:
        session.add(paper := Paper(slug="one"))
        session.commit()
        paper.edition = 2
        write_past_it(database)
        session.commit()
        assert not paper.is_public
        assert told(database) == [("created", "one"), *GONE]
        paper.edition = 3
        session.commit()
    engine.dispose()
    assert told(database) == []


def test_an_object_of_djangos_saved_in_part_publishes_what_the_database_has_of_it(database):
    use_in_django(database)
    paper = DjangoPaper.objects.create(slug="one")
    write_past_it(database)
    paper.edition = 2
    paper.save(update_fields=["edition"])
    assert told(database) == [("created", "one"), *GONE]
    paper.edition = F("edition") + 1
    paper.save()
    connections["default"].close()
    assert [each["length"] for each in waiting(database)] == [3]


def write_past_it(database: str) -> None:
    """Another process hides the paper, and says so."""
    past(database, "UPDATE papers SET is_public = false")
    with closing(connection_to(database)) as connection:
        Outbox().deleted(connection, "a", f"{ADDRESS}one")
        connection.commit()


def test_a_rename_goes_to_a_publisher_after_the_commit(database):
    class Base(DeclarativeBase):  # its own: stories create all tables of theirs in MariaDB
        pass

    class Note(Base):
        __tablename__ = "notes"

        id: Mapped[int] = mapped_column(primary_key=True)
        slug: Mapped[str | None]

    sent: list[tuple[str, str]] = []
    engine = engine_of(database)
    Base.metadata.create_all(engine)
    with patch.object(Publisher, "send") as send, Session(engine) as session:
        publish_model(Publisher("", enabled=False), Note, "a", loc=loc)
        session.add(note := Note(slug="one"))
        session.commit()
        note.slug = "two"
        session.flush()
        assert send.call_count == 1
        session.commit()
        sent = [(each.args[1].change, each.args[1].loc) for each in send.call_args_list]
    engine.dispose()
    names = [(change, loc.removeprefix("http://a/")) for change, loc in sent]
    assert names == [("created", "one"), *MOVED]


def test_a_proxy_of_djangos_writes_the_same_papers(database):
    papers = OfDjango()
    use_in_django(database)
    papers.add("one")
    paper = PaperProxy.objects.get()
    paper.slug = "two"
    paper.save()
    PaperProxy.objects.all().delete()
    papers.close()
    assert told(database) == [("created", "one"), *MOVED, ("deleted", "two")]


def hide_all() -> int:
    return update_published(DjangoPaper.objects.filter(slug__startswith="o"), is_public=False)


def edit_all() -> int:
    return update_published(PaperProxy.objects.order_by("slug"), edition=F("edition") + 1)


def show_all() -> int:
    return update_published(DjangoPaper.objects.all(), is_public=True)


def hand_on() -> int:
    names = {"one": "other", "other": "three"}
    to = Case(*(When(slug=old, then=Value(new)) for old, new in names.items()))
    return update_published(DjangoPaper.objects.filter(slug__in=names), slug=to)


@pytest.mark.parametrize(
    ("act", "found", "expected"),
    [
        (hide_all, 2, [("deleted", "one"), ("deleted", "other")]),
        (edit_all, 3, [("updated", "one"), ("updated", "other")]),
        (show_all, 3, [("updated", "one"), ("updated", "other"), ("created", "hidden")]),
        (hand_on, 2, [("deleted", "one"), ("updated", "other"), ("created", "three")]),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_an_update_of_many_of_djangos_publishes_each_that_is_public(database, act, found, expected):
    use_in_django(database)
    papers = OfDjango()
    papers.add("one")
    papers.add("other")
    papers.add("hidden", is_public=False)
    told(database)
    with patch.object(integration, "AT_ONCE", 2):
        with suppress(RuntimeError), papers.transaction():
            act()
            raise RuntimeError
        assert told(database) == []
        assert act() == found
    papers.close()
    assert told(database) == expected


def test_an_update_of_what_is_not_published_is_refused():
    with pytest.raises(ValueError, match="Migration is not published: call publish_model"):
        update_published(MigrationRecorder.Migration.objects.all(), name="")


# What a model says of itself ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([], [], []),
        ([], ["/a"], [("/a", "created")]),
        (["/a"], ["/a"], [("/a", "updated")]),
        (["/a"], ["/b"], [("/a", "deleted"), ("/b", "created")]),
        (["/a"], [], [("/a", "deleted")]),
        (["/a", "/b"], ["/b", "/a"], [("/b", "updated"), ("/a", "updated")]),
    ],
)
def test_what_happened_follows_from_the_addresses_before_and_now(before, now, expected):
    assert steps(before, now) == expected


def published(**options: Any) -> PublishedModel:
    given = {"loc": loc, "fields": None, "when": None, "naive": None} | options
    return PublishedModel(Paper, "a", **given)


@pytest.mark.parametrize(
    ("naive", "lastmod"),
    [
        ("utc", "2026-11-23T12:00:00Z"),
        (UTC, "2026-11-23T12:00:00Z"),
        (timezone(timedelta(hours=1)), "2026-11-23T11:00:00Z"),
    ],
)
def test_a_time_without_a_zone_is_in_the_one_that_was_said(naive, lastmod):
    model = published(fields=lambda _: {"lastmod": NOON}, naive=naive)
    assert model.change("http://a/1", "updated", None).lastmod == lastmod


def test_a_time_without_a_zone_is_refused_by_model_and_field_and_the_mend():
    model = published(fields=lambda _: {"lastmod": NOON})
    with pytest.raises(ValueError, match=r'^Paper: lastmod is .*: say .* naive="utc"'):
        model.change("http://a/1", "updated", None)


def test_a_time_with_a_zone_stays_what_it_is():
    model = published(fields=lambda _: {"lastmod": NOON.replace(tzinfo=UTC)}, naive=None)
    assert model.change("http://a/1", "updated", None).lastmod == "2026-11-23T12:00:00Z"


@pytest.mark.parametrize("address", ["", 5, b"http://a/1"])
def test_an_address_that_is_none_is_refused_with_the_name_of_the_model(address):
    with pytest.raises(ValueError, match=r"^Paper: the loc of publish_model gives "):
        published(loc=lambda _: address).address(None)


def test_a_zone_that_is_none_is_refused_at_once():
    with pytest.raises(ValueError, match=r'^naive is .*: give "utc"'):
        published(naive="local")


def test_an_outbox_refuses_a_change_without_an_address():
    with closing(sqlite3.connect(":memory:")) as connection:
        Outbox.create(connection)
        with pytest.raises(ValueError, match="loc is None"):
            Outbox().created(connection, "a", None)


# The table ----------------------------------------------------------------------------------------


def test_the_app_of_django_creates_the_table_and_drops_it(database):
    past(database, DROP)
    use_in_django(database)
    tables = connections["default"].introspection.table_names
    call_command("migrate", "rsnotify", verbosity=0)
    assert "rsnotify_outbox" in tables()
    call_command("migrate", "rsnotify", "zero", verbosity=0)
    assert not [name for name in tables() if name.startswith("rsnotify_")]
    connections["default"].close()


def test_the_check_of_django_misses_the_table(database):
    past(database, DROP)
    use_in_django(database)
    (found,) = [each for each in run_checks(databases=["default"]) if "rsnotify" in str(each.id)]
    assert found.msg == "DATABASES['default'] has no table rsnotify_outbox"
    assert found.hint == "`manage.py migrate` creates it"
    assert not run_checks()
    connections["default"].close()


@pytest.mark.parametrize(
    ("options", "is_named"),
    [
        ({}, True),
        ({"transaction_mode": "deferred"}, True),
        ({"transaction_mode": "IMMEDIATE"}, False),
    ],
)
def test_the_check_of_django_names_sqlite_that_does_not_wait(options, is_named, tmp_path):
    use_in_django(f"sqlite:///{tmp_path / 'papers.db'}")
    with patch.dict(connections["default"].settings_dict, OPTIONS=options):
        found = [each for each in run_checks() if each.id == "rsnotify.W001"]
    assert [each.msg.split(":")[0] for each in found] == (
        ["DATABASES['default'] is SQLite without IMMEDIATE"] if is_named else []
    )


def test_an_engine_a_session_and_a_driver_each_create_the_table(database):
    past(database, DROP)
    engine = engine_of(database)
    Outbox.create(engine)
    with Session(engine) as session:
        Outbox.create(session)
        Outbox().created(session, "a", "http://a/one")
        session.commit()
    engine.dispose()
    with closing(connection_to(database)) as connection:
        Outbox.create(connection)
        connection.commit()
    assert told(database) == [("created", "one")]


def test_a_database_that_can_have_no_outbox_is_named():
    class Connection:
        dialect = Mock()

    Connection.dialect.name = "mssql"
    with pytest.raises(ValueError, match=r"^an outbox table cannot be in mssql: only in p"):
        Outbox.create(Connection())


@pytest.mark.parametrize(
    ("style", "statement"),
    [("qmark", "?, ?"), ("pyformat", "%s, %s"), ("numeric_dollar", "$1, $2")],
)
def test_each_driver_gets_its_own_marks(style, statement):
    assert with_marks("?, ?", style) == statement


@pytest.mark.parametrize(
    "statement",
    [insert, lambda model: update(model).values(slug="two"), delete],
    ids=["insert", "update", "delete"],
)
def test_the_first_statement_that_passes_objects_by_is_named(tmp_path, caplog, statement):
    class Base(DeclarativeBase):
        pass

    class Preprint(Base):
        __tablename__ = "preprints"

        id: Mapped[int] = mapped_column(primary_key=True)
        slug: Mapped[str] = mapped_column(default="one")

    publish_model(Mock(Publisher), Preprint, "a", loc=lambda each: f"{ADDRESS}{each.slug}")
    engine = create_engine(f"sqlite:///{tmp_path / 'preprints.db'}")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Preprint())
        session.flush()
        session.scalars(select(Preprint)).one().slug = "three"
        session.flush()
        assert not caplog.messages
        for _ in range(2):
            session.execute(statement(Preprint))
    engine.dispose()
    said = ["a statement writes Preprint past its objects: publish what it changes yourself"]
    assert caplog.messages == said
