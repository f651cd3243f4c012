"""An outbox in MariaDB, the server itself: its table, its relays, TLS, and whole stories."""

from collections.abc import Iterator
from contextlib import closing
from itertools import permutations

import pytest

from rsnotify.errors import InvalidSettings
from rsnotify_client.outbox import RIGHTS, Outbox, OutboxError, OutboxTable
from rsnotify_client.relay import table_of
from tests.evidence.soak import databases
from tests.support import mariadb
from tests.support.applications import Story
from tests.support.redis_tls import AUTHORITY, HUB, SERVER


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mariadb.running(tmp_path_factory.mktemp("mariadb")) as url:
        yield url


@pytest.mark.parametrize("proof", databases.PROOFS, ids=lambda proof: proof.__name__)
def test_an_outbox_in_mariadb_is_published(database, proof):
    databases.prepare(database)
    proof(database)


@pytest.mark.parametrize("orm", ["sqlalchemy", pytest.param("django", marks=pytest.mark.evidence)])
def test_a_hub_holds_what_is_public_in_mariadb(real_hub, database, orm):
    real_hub.add_set(orm)
    ended = Story(real_hub, orm, database, seed=24).run(300)
    assert ended.outcomes["committed"] > 100
    assert ended.outcomes["killed"] > 2
    assert ended.hubs_killed > 0
    assert ended.outcomes["rolled back"] > 20


def test_what_waits_is_dated_in_utc_whatever_zone_the_server_and_the_application_have(database):
    databases.prepare(database)
    with closing(databases.connect(database)) as application, closing(table_of(database)) as table:
        for each in ("GLOBAL time_zone = '+02:00'", "time_zone = '-05:00'", "timestamp = 1e9"):
            application.cursor().execute(f"SET {each}")
        Outbox().created(application, "a", "1")
        application.commit()
        (found,) = table.waiting_by_channel()
        assert table.drop("a") == 1
        application.cursor().execute("SET GLOBAL time_zone = 'SYSTEM'")
    assert found.since == "2001-09-09T01:46:40+00:00"


@pytest.mark.parametrize(("of_server", "asked"), [(28_800, 300), (60, 60)])
def test_the_server_is_asked_to_end_the_session_of_a_relay_whose_machine_is_off(
    database, of_server, asked
):
    """So that another one leads within minutes, or as soon as the server has it."""
    databases.prepare(database)
    session = databases.connect(database)
    with closing(OutboxTable(lambda: session, "in it")) as table, session.cursor() as cursor:
        cursor.execute(f"SET SESSION wait_timeout = {of_server}")
        assert table.lead()
        cursor.execute("SELECT @@SESSION.wait_timeout")
        assert cursor.fetchone() == (asked,)


READS = {
    "rsnotify_outbox": OutboxTable.waiting,
    "rsnotify_refused": OutboxTable.refused_by_channel,
}


def test_the_right_that_a_relay_lacks_is_named_with_its_table(tmp_path):
    with mariadb.running(tmp_path) as url, closing(databases.connect(url)) as admin:
        databases.prepare(url)
        execute = admin.cursor().execute
        execute("FLUSH PRIVILEGES")  # from now on it asks who somebody is
        for lacks, has in permutations(READS):
            user = f"lacks_{lacks}@localhost"
            execute(f"CREATE USER {user}")
            execute(f"GRANT {RIGHTS[has]} ON papers.{has} TO {user}")
            own = url.replace("root@127.0.0.1", f"lacks_{lacks}@localhost")
            problem = f": this user lacks the right to SELECT {lacks}: GRANT {RIGHTS[lacks]} ON "
            with closing(table_of(own)) as table:
                READS[has](table)
                with pytest.raises(OutboxError, match=problem):
                    READS[lacks](table)


NEEDED = [(table, right) for table in RIGHTS for right in RIGHTS[table].split(", ")]
NEEDED.remove(("rsnotify_refused", "DELETE"))  # only `--forget` needs it


def test_a_right_that_publishing_needs_is_asked_for_before_anything_is_published(tmp_path):
    with mariadb.running(tmp_path) as url, closing(databases.connect(url)) as admin:
        databases.prepare(url)
        execute = admin.cursor().execute
        execute("FLUSH PRIVILEGES")
        execute("CREATE USER lesser@localhost")
        for table in RIGHTS:
            execute(f"GRANT {RIGHTS[table]} ON papers.{table} TO lesser@localhost")
        Outbox().created(admin, "a", "1")
        admin.commit()
        with closing(table_of(url.replace("root@127.0.0.1", "lesser@localhost"))) as relay:
            for table, right in NEEDED:
                relay.try_rights()
                execute(f"REVOKE {right} ON papers.{table} FROM lesser@localhost")
                with pytest.raises(OutboxError, match=f"lacks the right to {right} {table}: GRANT"):
                    relay.try_rights()
                execute(f"GRANT {right} ON papers.{table} TO lesser@localhost")
            assert (relay.waiting(), relay.refused_by_channel()) == (1, [])


# TLS ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def over_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a certificate of its own, for `localhost`, and nothing in plain."""
    ways = (f"--ssl-ca={AUTHORITY}", f"--ssl-cert={SERVER}", f"--ssl-key={SERVER}")
    ways += ("--require-secure-transport=ON",)
    with mariadb.running(tmp_path_factory.mktemp("tls"), *ways) as url:
        databases.prepare(url)
        yield url


TRUSTED = [
    f"ssl_ca={AUTHORITY}",
    f"ssl_ca={AUTHORITY}&ssl_verify_cert=true",
    f"ssl_ca={AUTHORITY}&ssl_verify_identity=true",
    f"ssl_ca={AUTHORITY}&ssl_cert={HUB}&ssl_key={HUB}",
    "ssl_verify_cert=false",
]


@pytest.mark.parametrize("options", TRUSTED)
def test_a_relay_that_is_asked_for_tls_uses_it(over_tls, options):
    url = f"{over_tls}?{options}".replace("127.0.0.1", "localhost")
    assert table_of(url).waiting() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("ssl_verify_cert=true", "certificate verify failed"),
        (f"ssl_ca={AUTHORITY}&ssl_verify_identity=true", "certificate verify failed"),
        (f"ssl_ca={SERVER.with_name('hub.pem')}", "certificate verify failed"),
    ],
)
def test_a_server_that_is_not_the_one_that_was_meant_is_not_spoken_to(over_tls, options, words):
    with pytest.raises(OutboxError, match=words):
        table_of(f"{over_tls}?{options}").waiting()  # its certificate is for localhost


def test_no_plain_connection_is_made_where_tls_was_asked_for(tmp_path):
    with mariadb.running(tmp_path, "--skip-ssl") as url:
        databases.prepare(url)
        assert table_of(url).waiting() == 0
        for options in TRUSTED:
            with pytest.raises(OutboxError, match="SSL is required but the server doesn't support"):
                table_of(f"{url}?{options}").waiting()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://a@h/b?ssl-ca=/x", "the option 'ssl-ca': there are ssl_ca, ssl_cert"),
        ("mysql://a@h/b?charset=utf8", "the option 'charset'"),
        ("mysql://a@h/b?ssl_ca=", "the option ssl_ca without a value"),
        ("mysql://a@h/b?ssl_ca=/nowhere", "cannot read ssl_ca"),
        ("mysql://a@h/b?ssl_verify_cert=maybe", "write true or false"),
        ("mysql://a@h/b?ssl_verify_identity=2", "write true or false"),
        ("sqlite:///a.db?mode=ro", "has options: there are none"),
    ],
)
def test_an_option_that_is_not_known_is_refused(url, words):
    with pytest.raises(InvalidSettings) as refused:
        table_of(url)
    assert words in refused.value.problems[0]
