"""An outbox in PostgreSQL, the server itself: its table, its relays, stories and troubles."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from time import time
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from flask import Flask
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from rsnotify.errors import InvalidSettings
from rsnotify_client import Outbox, Relay
from rsnotify_client.outbox import RIGHTS, OutboxError, OutboxTable
from rsnotify_client.queue import Refusal
from rsnotify_client.relay import table_of, without_password
from tests.evidence.soak import databases
from tests.support import postgresql
from tests.support.applications import (
    ADDRESS,
    Paper,
    Story,
    allow_no_name_twice,
    create_tables,
    engine_of,
)
from tests.support.hub_processes import accept, eventually, python, scripted_hub
from tests.support.postgresql import PostgreSQL
from tests.support.redis_tls import AUTHORITY


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    with postgresql.server() as running:
        yield running


@pytest.fixture
def outbox(server: PostgreSQL) -> str:
    """The URL of a database with an empty outbox."""
    databases.prepare(server.url)
    return server.url


@pytest.mark.parametrize("proof", databases.PROOFS, ids=lambda proof: proof.__name__)
def test_an_outbox_in_postgresql_is_published(outbox, proof):
    proof(outbox)


@pytest.mark.parametrize("orm", [pytest.param("sqlalchemy", marks=pytest.mark.evidence), "django"])
def test_a_hub_holds_what_is_public_in_postgresql(real_hub, server, orm):
    real_hub.add_set(orm)
    ended = Story(real_hub, orm, server.url, seed=24).run(300)
    assert ended.outcomes["committed"] > 100
    assert ended.outcomes["killed"] > 2
    assert ended.hubs_killed > 0
    assert ended.outcomes["rolled back"] > 20


def test_of_relays_with_a_class_made_from_their_driver_s_one_leads(outbox):
    class Connection(psycopg.Connection[Any]):
        pass

    one, other = (OutboxTable(lambda: Connection.connect(outbox), "in it") for _ in range(2))
    with closing(one), closing(other):
        assert (one.lead(), other.lead()) == (True, False)


def flask_application(url: str) -> Flask:
    """Papers of Flask, in a database; a name that is there already is refused by it."""
    create_tables(url)
    allow_no_name_twice(url)
    app, engine = Flask("papers"), engine_of(url)

    @app.put("/papers/<name>")
    def write(name: str) -> tuple[str, int]:
        with Session(engine) as session, session.begin():
            session.add(Paper(slug=name))
        return "", 201

    @app.errorhandler(IntegrityError)
    def refuse(_: IntegrityError) -> tuple[str, int]:
        return "", 409

    app.extensions["engine"] = engine
    return app


def test_requests_of_flask_at_once_publish_what_each_has_committed(outbox):
    app = flask_application(outbox)
    names = [f"paper{number // 2}" for number in range(60)]  # each is asked for twice
    with scripted_hub(accept) as (hub, posted), Relay(outbox, hub) as relay:
        with ThreadPoolExecutor(6) as many:
            answers = many.map(lambda name: app.test_client().put(f"/papers/{name}"), names)
            statuses = Counter(answer.status_code for answer in answers)
        relay.flush(60)
    app.extensions["engine"].dispose()
    assert statuses == {201: 30, 409: 30}
    told = [loc for request in posted for loc in request.locs]
    assert sorted(told) == sorted(f"{ADDRESS}{name}" for name in set(names))


# Troubles of the server ---------------------------------------------------------------------------


def ask(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize("end", [PostgreSQL.kill, PostgreSQL.stop])
def test_a_server_that_ends_again_and_again_loses_no_change_and_doubles_none(server, outbox, end):
    """What is published is what the database says was committed, for the writer cannot know."""
    ask(outbox, "DROP TABLE IF EXISTS log")
    ask(outbox, "CREATE TABLE log (name TEXT)")
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            try:
                with psycopg.connect(outbox) as connection:
                    while not ended.is_set():
                        name, number = f"{number}", number + 1
                        connection.execute("INSERT INTO log VALUES (%s)", (name,))
                        Outbox().created(connection, "a", name)
                        connection.commit()
            except psycopg.OperationalError:
                pass

    with scripted_hub(accept) as (hub, posted), Relay(outbox, hub) as relay:
        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(3):
            seen = len(posted)
            eventually(lambda: len(posted) > seen + 3, 60)  # noqa: B023
            end(server)
            server.start()
        ended.set()
        writer.join()
        relay.flush(60)
    requests = {request.key: request.locs for request in posted}
    told = sorted(loc for locs in requests.values() for loc in locs)
    assert told == sorted(name for (name,) in ask(outbox, "SELECT name FROM log"))


def test_a_relay_of_a_server_that_stands_still_ends_and_the_next_one_goes_on(
    server, outbox, caplog
):
    with scripted_hub(accept) as (hub, posted), psycopg.connect(outbox) as connection:
        with Relay(outbox, hub) as relay:
            relay.table.let_go_seconds = 0.1
            Outbox().created(connection, "a", "1")
            connection.commit()
            relay.flush(60)
            with server.frozen():
                eventually(lambda: is_held(relay.table._lock))
                relay.close()
        assert "no answer for 0.1 s" in caplog.text
        Outbox().created(connection, "a", "2")
        connection.commit()
        with Relay(outbox, hub):
            eventually(lambda: len(posted) == 2, 60)
    assert [request.locs for request in posted] == [["1"], ["2"]]


def is_held(lock: Any) -> bool:
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


def test_a_server_that_stands_still_while_it_is_connected_to_is_given_up(server, outbox):
    with (
        server.frozen(),
        closing(table_of(f"{outbox}?connect_timeout=2")) as table,
        pytest.raises(OutboxError, match="timeout expired"),
    ):
        table.waiting()


def options(url: str, **settings: str) -> str:
    """The URL, with settings of its sessions."""
    words = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return f"{url}?options={quote(words)}"


def test_a_relay_that_may_not_wait_says_so_and_goes_on_when_a_lock_is_gone(outbox, caplog):
    with (
        scripted_hub(accept) as (hub, posted),
        psycopg.connect(outbox) as connection,
        psycopg.connect(outbox) as migration,
    ):
        migration.execute("LOCK TABLE rsnotify_outbox")
        with Relay(options(outbox, statement_timeout="50ms"), hub) as relay:
            eventually(lambda: "canceling statement due to statement timeout" in caplog.text)
            migration.rollback()
            Outbox().created(connection, "a", "1")
            connection.commit()
            relay.flush(60)
    assert [request.locs for request in posted] == [["1"]]


def test_a_relay_whose_idle_session_is_ended_leads_again(outbox):
    """As `idle_session_timeout` and some poolers do."""
    impatient = options(outbox, idle_session_timeout="50ms")
    with (
        scripted_hub(accept) as (hub, posted),
        psycopg.connect(outbox) as connection,
        Relay(impatient, hub, look_seconds=0.2) as relay,
    ):
        for number in range(4):
            Outbox().created(connection, "a", str(number))
            connection.commit()
            # One may be posted twice, under its key: its session was ended before that was noted.
            eventually(lambda: len({each.key for each in posted}) > number)  # noqa: B023
        relay.flush(60)
    keys = {request.key: request.locs for request in posted}
    assert list(keys.values()) == [["0"], ["1"], ["2"], ["3"]]


KEEPALIVES = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")


@pytest.mark.parametrize(
    ("chosen", "idle"), [({}, "10"), ({"tcp_keepalives_idle": "60"}, "60")], ids=["ours", "own"]
)
def test_the_server_is_asked_to_miss_a_relay_whose_machine_is_off(outbox, chosen, idle):
    """So that another one leads soon; what the URL says comes first."""
    session = psycopg.connect(options(outbox, **chosen))
    with closing(OutboxTable(lambda: session, "in it")) as table:
        assert table.lead()
        shown = [session.execute(f"SHOW {name}").fetchone() for name in KEEPALIVES]
        limit = session.execute("SHOW tcp_user_timeout").fetchone()
    assert shown == [(idle,), ("10",), ("3",)]
    assert limit == ("30000",)


@pytest.mark.parametrize("level", [r"repeatable\ read", "serializable"])
def test_a_relay_of_a_strict_isolation_level_publishes_each_change_once(outbox, level):
    databases.writers_at_once(options(outbox, default_transaction_isolation=level))


def test_a_transaction_that_cannot_be_serialized_publishes_nothing_until_it_is_done_again(outbox):
    ask(outbox, "DROP TABLE IF EXISTS counters")
    ask(outbox, "CREATE TABLE counters (n INTEGER)")
    ask(outbox, "INSERT INTO counters VALUES (0)")
    strict = options(outbox, default_transaction_isolation="serializable")

    def count(connection: Any, loc: str) -> None:
        connection.execute("SELECT n FROM counters")
        connection.execute("UPDATE counters SET n = n + 1")
        Outbox().updated(connection, "a", loc)

    with (
        scripted_hub(accept) as (hub, posted),
        Relay(outbox, hub) as relay,
        psycopg.connect(strict) as one,
        psycopg.connect(strict) as other,
    ):
        other.execute("SELECT n FROM counters")
        count(one, "one")
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            count(other, "other")
        other.rollback()
        count(other, "other, again")
        other.commit()
        relay.flush(60)
    assert [loc for request in posted for loc in request.locs] == ["one", "other, again"]


def test_of_two_transactions_in_a_deadlock_the_one_that_is_committed_is_published(outbox):
    ask(outbox, "DROP TABLE IF EXISTS counters")
    ask(outbox, "CREATE TABLE counters (id INTEGER, n INTEGER)")
    ask(outbox, "INSERT INTO counters VALUES (1, 0), (2, 0)")
    quick = options(outbox, deadlock_timeout="10ms")
    first_done = threading.Barrier(2)
    committed = []

    def write(name: str, first: int, second: int) -> None:
        with closing(psycopg.connect(quick)) as connection:
            count = "UPDATE counters SET n = n + 1 WHERE id = %s"
            connection.execute(count, (first,))
            Outbox().updated(connection, "a", name)
            first_done.wait(60)
            try:
                connection.execute(count, (second,))
            except psycopg.errors.DeadlockDetected:
                return
            connection.commit()
            committed.append(name)

    with scripted_hub(accept) as (hub, posted), Relay(outbox, hub) as relay:
        writers = [threading.Thread(target=write, args=each) for each in (("x", 1, 2), ("y", 2, 1))]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        relay.flush(60)
    assert len(committed) == 1
    assert [request.locs for request in posted] == [committed]


def test_a_database_that_may_only_be_read_is_told(outbox):
    with closing(table_of(options(outbox, default_transaction_read_only="on"))) as table:
        ask(outbox, "INSERT INTO rsnotify_outbox (set_name, body) VALUES ('a', '{}')")
        with pytest.raises(OutboxError, match="read-only transaction"):
            table.take((), 10)


# Its URL ------------------------------------------------------------------------------------------


def session(url: str, asked: str) -> Any:
    """What the server says of a session of a relay with this URL."""
    with closing(databases.connect(url)) as connection:
        return connection.execute(asked).fetchone()[0]


ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.mark.parametrize(
    ("host", "mode", "is_encrypted"),
    [
        ("127.0.0.1", "disable", False),
        ("127.0.0.1", "require", True),
        ("127.0.0.1", f"verify-ca&sslrootcert={quote(str(AUTHORITY))}", True),
        ("localhost", f"verify-full&sslrootcert={quote(str(AUTHORITY))}", True),
    ],
)
def test_a_connection_is_encrypted_as_its_url_says(outbox, host, mode, is_encrypted):
    url = f"{outbox.replace('127.0.0.1', host)}?sslmode={mode}"
    assert session(url, ENCRYPTED) is is_encrypted


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (f"sslmode=verify-full&sslrootcert={quote(str(AUTHORITY))}", "does not match host name"),
        ("sslmode=verify-ca&sslrootcert=/nowhere.pem", "nowhere.pem"),
        ("sslmode=requires", "invalid sslmode value"),
        ("target_session_attrs=standby", "server is not in hot standby mode"),
    ],
)
def test_an_option_that_cannot_be_kept_is_told_and_nothing_is_sent_without_it(
    outbox, query, problem
):
    with closing(table_of(f"{outbox}?{query}")) as table, pytest.raises(OutboxError, match=problem):
        table.waiting()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"application_name": "rsnotify relay", "connect_timeout": "10"}),
        ("?application_name=papers&connect_timeout=3", {"application_name": "papers"}),
        ("?tcp_user_timeout=9", {"tcp_user_timeout": "9", "connect_timeout": "10"}),
    ],
)
def test_the_options_of_a_url_come_before_ours(outbox, query, expected):
    with closing(databases.connect(f"{outbox}{query}")) as connection:
        assert expected.items() <= connection.info.get_parameters().items()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://app@db/papers?sslmod=require", 'invalid URI query parameter: "sslmod"'),
        ("postgresql://app@db,hunter:x/papers", "write the special characters of a password"),
        ("postgresql://app:hunter%zz2@db/papers", "write the special characters of a password"),
        ("postgresql://app:hunter 2@db/papers", "write the special characters of a password"),
        ("postgresql://app@db/papers?password=hunter%zz2", "write the special characters of a"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_at_once_and_without_its_password(url, problem):
    with pytest.raises(InvalidSettings, match=problem) as refused:
        table_of(url)
    assert "hunter" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_scheme_of_postgresql_may_be_written_as_others_write_it(outbox, scheme):
    assert session(outbox.replace("postgresql", scheme), "SELECT 1") == 1


def test_a_url_may_name_several_servers_of_which_the_first_that_answers_is_asked(outbox):
    several = outbox.replace("app@", "app:hunter2@127.0.0.1:9,")
    assert session(several, "SELECT 1") == 1
    assert without_password(several) == several.replace(":hunter2", "")


@pytest.mark.parametrize("connect", [str, lambda url: lambda: psycopg.connect(url)])
def test_a_database_without_an_encoding_is_read_as_utf_8(server, connect):
    """As `initdb` makes it where no locale is set: the driver gives bytes for texts then."""
    with server.admin() as admin:
        admin.execute("DROP DATABASE IF EXISTS plain WITH (FORCE)")
        admin.execute("CREATE DATABASE plain ENCODING SQL_ASCII TEMPLATE template0")
    url = server.url.replace("/papers", "/plain")
    databases.prepare(url)
    with closing(table_of(connect(url))) as table, psycopg.connect(url) as connection:
        Outbox().created(connection, "a", "http://example.com/ü")
        connection.commit()
        assert [each.set_name for each in table.waiting_by_channel()] == ["a"]
        batch = table.take((), 10)
        assert batch is not None
        assert b"http://example.com/\xc3\xbc" in batch.changes[0]
        assert table.remove(batch, batch.ids) == 1


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "UTC"])
def test_what_waits_is_dated_in_utc_whatever_zone_the_sessions_have(outbox, zone):
    """The application's and the relay's: a server gives them that of its machine."""
    in_zone = f"{outbox}?options={quote(f'-c TimeZone={zone}')}"
    with closing(table_of(in_zone)) as table, psycopg.connect(in_zone) as application:
        Outbox().created(application, "a", "1")
        (queued_at,) = application.execute("SELECT CURRENT_TIMESTAMP").fetchone() or ()
        application.commit()
        (found,) = table.waiting_by_channel()
        assert table.drop("a") == 1
    assert found.since == queued_at.astimezone(UTC).isoformat(timespec="seconds")


def test_a_table_whose_times_have_no_zone_is_named_with_what_mends_it(outbox, tmp_path):
    """As an earlier version made it: a relay publishes, and nobody is told a wrong age."""
    in_zone = options(outbox, TimeZone="Asia/Tokyo")
    ask(outbox, "ALTER TABLE rsnotify_outbox ALTER COLUMN queued_at TYPE TIMESTAMP")
    numbers, words = tmp_path / "relay.prom", ("-m", "rsnotify", "relay", "--database", outbox)
    with scripted_hub(accept) as (hub, posted), psycopg.connect(in_zone) as application:
        relay = python(*words, "--url", hub, "--metrics", str(numbers), RSNOTIFY_TOKEN="good")
        assert relay.stdout is not None
        assert relay.stdout.readline() == "rsnotify relay ready, 0 waiting\n"
        Outbox().created(application, "a", "1")
        application.commit()
        eventually(lambda: any(request.locs for request in posted))
        relay.terminate()
        assert (relay.communicate()[1].count("its times have no zone"), relay.returncode) == (2, 0)
        assert not numbers.exists()
        Outbox().created(application, "a", "2")
        application.commit()
    with closing(table_of(outbox)) as table, pytest.raises(OutboxError) as refused:
        table.waiting_by_channel()
    ask(in_zone, str(refused.value).rpartition("run ")[2])
    with closing(table_of(outbox)) as table, psycopg.connect(in_zone) as application:
        Outbox().created(application, "b", "3")
        application.commit()
        ages = [
            time() - datetime.fromisoformat(at.since).timestamp()
            for at in table.waiting_by_channel()
        ]
        assert table.wrong_times() is None
        assert [table.drop(each) for each in table.waiting_sets()] == [1, 1]
    assert all(-60 < age < 600 for age in ages)
    assert len(ages) == 2


TABLES = tuple(RIGHTS)


@pytest.fixture
def lesser(server: PostgreSQL, outbox: str) -> Iterator[str]:
    """The URL of the outbox for a user who has no right yet."""
    ask(outbox, "CREATE ROLE lesser LOGIN")
    yield outbox.replace("app@", "lesser@")
    ask(outbox, "DROP OWNED BY lesser; DROP ROLE lesser")


@pytest.mark.parametrize(("lacks", "has"), [TABLES, TABLES[::-1]])
def test_a_relay_that_has_rights_for_one_table_only_names_the_other_at_once(
    outbox, lesser, lacks, has
):
    ask(outbox, f"GRANT {RIGHTS[has]} ON {has} TO lesser")
    with scripted_hub(accept) as (hub, _):
        words = ("--database", lesser, "--url", hub)
        relay = python("-m", "rsnotify", "relay", *words, RSNOTIFY_TOKEN="good")
        _, said = relay.communicate()
    right = f"this user lacks the right to SELECT {lacks}: GRANT {RIGHTS[lacks]} ON {lacks} TO that"
    assert relay.returncode == 2
    assert said == f"error: the outbox {lesser}: {right} user\n"


def give_up(url: str) -> int:
    """A relay of this user gives up what waits; how many changes that is."""
    with closing(table_of(url)) as table:
        batch = table.take((), 10)
        assert batch is not None
        return table.remove(batch, batch.ids, Refusal("why", batch.changes[-1]))


@pytest.mark.parametrize(
    ("table", "right"),
    [(table, right) for table in TABLES for right in RIGHTS[table].split(", ")[1:]],
)
def test_the_right_that_a_relay_lacks_is_named_with_its_table(outbox, lesser, table, right):
    for each in TABLES:
        ask(outbox, f"GRANT {RIGHTS[each]} ON {each} TO lesser")
    ask(outbox, f"REVOKE {right} ON {table} FROM lesser")
    with psycopg.connect(outbox) as application:
        Outbox().created(application, "a", "1")
    problem = f": this user lacks the right to {right} {table}: "
    with closing(table_of(lesser)) as relay:
        if (table, right) == ("rsnotify_refused", "DELETE"):  # to publish it is not needed
            assert give_up(lesser) == 1
            with pytest.raises(OutboxError, match=problem):
                relay.forget_refused("a")
        else:
            with pytest.raises(OutboxError, match=problem):
                give_up(lesser)
            ask(outbox, f"GRANT {right} ON {table} TO lesser")
            assert give_up(lesser) == 1
    ask(outbox, "DELETE FROM rsnotify_refused")


@pytest.mark.parametrize(
    ("table", "right"),
    [(table, right) for table in TABLES for right in RIGHTS[table].split(", ")],
)
def test_a_right_that_publishing_needs_is_asked_for_before_anything_is_published(
    outbox, lesser, table, right
):
    for each in TABLES:
        ask(outbox, f"GRANT {RIGHTS[each]} ON {each} TO lesser")
    with psycopg.connect(outbox) as application:
        Outbox().created(application, "a", "1")
    before = ask(outbox, "SELECT * FROM rsnotify_outbox")
    with scripted_hub(accept) as (hub, posted), closing(Relay(lesser, hub, "good")) as relay:
        relay.check()
        ask(outbox, f"REVOKE {right} ON {table} FROM lesser")
        if (table, right) == ("rsnotify_refused", "DELETE"):  # only `--forget` needs it
            relay.check()
        else:
            problem = f": this user lacks the right to {right} {table}: GRANT {RIGHTS[table]} ON "
            with pytest.raises(OutboxError, match=problem):
                relay.check()
        assert [each.locs for each in posted if each.locs] == []
    assert ask(outbox, "SELECT * FROM rsnotify_outbox") == before
    assert ask(outbox, "SELECT * FROM rsnotify_refused") == []
    ask(outbox, "DELETE FROM rsnotify_outbox")
