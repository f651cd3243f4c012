"""Changes that survive their process: the outbox file, the table in a database of one's own."""

import asyncio
import json
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from rsnotify import cli
from rsnotify.cli.watched import Numbers
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client import (
    AsyncPublisher,
    Outbox,
    OutboxError,
    Publisher,
    Relay,
)
from rsnotify_client.commands.relay import drop_set, run
from rsnotify_client.outbox import INSERT, Execute, OutboxTable
from rsnotify_client.outboxfile import OutboxFile, SqliteTable
from rsnotify_client.queue import BATCH_BYTES, Refusal
from rsnotify_client.relay import table_of
from tests.support.hub_processes import (
    ACCEPTED,
    Answer,
    Posted,
    accept,
    eventually,
    problem,
    python,
    scripted_hub,
)

A = ChannelName("a", "change")
pytestmark = pytest.mark.usefixtures("quick_retries")

PUBLISH = """
import sys
from rsnotify_client import Publisher
publisher = Publisher(sys.argv[1], outbox=sys.argv[2])
for loc in sys.argv[3:]:
    publisher.updated("a", loc)
print("taken", flush=True)
"""


def never(_: Posted) -> Answer:
    threading.Event().wait(0.5)
    raise ConnectionAbortedError


async def test_an_async_publisher_begins_with_what_a_killed_process_left(tmp_path):
    path = tmp_path / "outbox"
    left = Publisher("http://127.0.0.1:9", outbox=path)
    left.updated("a", "http://a/1")
    left.close(0)
    with scripted_hub(accept) as (url, posted):
        async with AsyncPublisher(url, outbox=path):
            while not posted:
                await asyncio.sleep(0.01)
    assert [request.locs for request in posted] == [["http://a/1"]]


def test_a_publisher_begins_with_what_a_killed_process_left(tmp_path):
    path = tmp_path / "outbox"
    left = Publisher("http://127.0.0.1:9", outbox=path)
    left.updated("a", "http://a/1")
    left.close(0)
    with scripted_hub(accept) as (url, posted), Publisher(url, outbox=path):
        eventually(lambda: posted)


def test_what_a_late_answer_opens_again_is_closed(tmp_path, monkeypatch):
    connect, opened, may_answer = sqlite3.connect, [], threading.Event()

    def kept(*words: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*words, **options))
        return opened[-1]

    def late(_: Posted) -> Answer:
        may_answer.wait(20)
        return ACCEPTED

    monkeypatch.setattr(sqlite3, "connect", kept)
    others = set(threading.enumerate())
    with scripted_hub(late) as (url, posted):
        publisher = Publisher(url, outbox=tmp_path / "outbox")
        publisher.updated("a", "http://a/1")
        (sender,) = (each for each in {*threading.enumerate()} - others if "sender" in each.name)
        eventually(lambda: posted)
        publisher.close(0)
        may_answer.set()
        sender.join()
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.total_changes  # noqa: B018 - it is asked


def test_a_killed_application_s_changes_go_out_later_under_the_key_of_the_first_try(tmp_path):
    path = str(tmp_path / "outbox")
    with scripted_hub(never) as (url, posted):
        process = python("-c", PUBLISH + "publisher.flush()", url, path, "1", "2")
        assert process.stdout
        assert process.stdout.readline() == "taken\n"  # or the second may not be on disk
        eventually(lambda: posted)
        process.kill()
        process.communicate()
    with scripted_hub(accept) as (url, later), Publisher(url, outbox=path) as publisher:
        publisher.updated("a", "3")
        publisher.flush(10)
    assert later[0] == posted[0]
    assert [loc for request in later for loc in request.locs] == ["1", "2", "3"]


def test_processes_that_share_an_outbox_publish_each_change_once_and_each_in_its_order(tmp_path):
    path = str(tmp_path / "outbox")
    with scripted_hub(accept) as (url, posted):
        flushed = PUBLISH + "publisher.flush()"
        locs = [[f"{who}-{number:03}" for number in range(100)] for who in range(3)]
        processes = [python("-c", flushed, url, path, *each) for each in locs]
        for process in processes:
            _, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors
    requests = {request.key: request.locs for request in posted}  # two may send the same at once
    published = [loc for each in requests.values() for loc in each]
    for who, each in enumerate(locs):
        assert [loc for loc in published if loc.startswith(f"{who}-")] == each


def test_a_full_disk_refuses_the_change_and_keeps_those_before(tmp_path):
    path = tmp_path / "outbox"
    program = (
        "import resource, signal, sys\n"
        "from rsnotify_client import OutboxError, Publisher\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "publisher = Publisher('http://127.0.0.1:9', outbox=sys.argv[1])\n"
        "count = 0\n"
        "try:\n"
        "    while True:\n"
        "        publisher.updated('a', 'x' * 10_000)\n"
        "        count += 1\n"
        "except OutboxError as error:\n"
        "    print(count, error)\n"
    )
    process = python("-c", program, str(path))
    out, errors = process.communicate(timeout=200)
    count, _, message = out.partition(" ")
    assert "make room on its disk" in message, errors
    assert int(count) > 0
    with closing(OutboxFile(path)) as outbox:
        assert outbox.waiting() == int(count)


def test_a_change_is_kept_though_somebody_has_removed_the_file(tmp_path):
    with closing(OutboxFile(tmp_path / "outbox")) as outbox:
        outbox.put(A, b"1")
        for each in tmp_path.iterdir():
            each.unlink()
        outbox.put(A, b"2")
        with closing(OutboxFile(tmp_path / "outbox")) as next_one:
            batch = next_one.take((), 10)
    assert batch is not None
    assert list(batch.changes) == [b"2"]


def test_a_file_that_stays_locked_is_an_error_in_words(tmp_path):
    outbox = OutboxFile(tmp_path / "outbox", locked_seconds=0.1)
    outbox.put(A, b"{}")
    with closing(sqlite3.connect(tmp_path / "outbox", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OutboxError, match=r"another process kept it locked for 0\.1 s"):
            outbox.put(A, b"{}")
    outbox.put(A, b"{}")
    assert outbox.waiting() == 2
    outbox.close()


def test_ctrl_c_in_a_call_leaves_the_file_free_for_others_and_for_the_next_call(tmp_path):
    class Interrupted(bytes):
        def decode(self, *_: str) -> str:
            raise KeyboardInterrupt

    outbox = OutboxFile(tmp_path / "outbox")
    with pytest.raises(KeyboardInterrupt):
        outbox.put(A, Interrupted())
    with closing(sqlite3.connect(tmp_path / "outbox", isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN IMMEDIATE")
    outbox.put(A, b"{}")
    assert outbox.waiting() == 1
    outbox.close()


def test_a_handler_of_a_signal_that_publishes_amid_a_call_undoes_nothing(tmp_path, monkeypatch):
    outbox = OutboxFile(tmp_path / "outbox")
    refused = []

    def publish(*_: object) -> None:
        try:
            outbox.put(A, b"2")
        except OutboxError as error:
            refused.append(str(error))

    def interrupted(execute: Execute, statement: str, values: Sequence[object] = ()) -> Any:
        rows = call(execute, statement, values)
        if "1" in values:
            signal.raise_signal(signal.SIGUSR1)
        return rows

    call = Execute.__call__
    monkeypatch.setattr(Execute, "__call__", interrupted)
    before = signal.signal(signal.SIGUSR1, publish)
    try:
        outbox.put(A, b"1")
    finally:
        signal.signal(signal.SIGUSR1, before)
    outbox.put(A, b"3")
    batch = outbox.take((), 10)
    outbox.close()
    assert batch is not None
    assert list(batch.changes) == [b"1", b"3"]
    assert ["the handler of a signal cannot use it" in each for each in refused] == [True]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "its directory must exist"),
        (lambda path: path.mkdir(parents=True), "it is a directory; name a file in it"),
        (lambda path: _write(path, "no database " * 99), "give another path"),
    ],
)
def test_a_path_that_is_no_outbox_is_an_error_in_words(tmp_path, make, message):
    path = tmp_path / "folder" / "outbox"
    make(path)
    with pytest.raises(OutboxError, match=message):
        OutboxFile(path).put(A, b"{}")


def _write(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)


def test_a_file_that_was_large_while_the_hub_was_away_becomes_small_again(tmp_path):
    outbox = OutboxFile(tmp_path / "outbox")
    for number in range(1_000):
        outbox.put(A, b"%d" % number * 500)
    outbox.close()
    large = (tmp_path / "outbox").stat().st_size
    while (batch := outbox.take((), 1_000)) is not None:
        outbox.remove(batch, batch.ids)
    outbox.close()
    assert (tmp_path / "outbox").stat().st_size < large / 10


# In the application's own database -------------------------------------------------------------


def test_a_change_exists_exactly_if_its_transaction_was_committed(database):
    with closing(sqlite3.connect(database)) as connection:
        Outbox().created(connection, "a", "kept")
        connection.commit()
        Outbox().created(connection, "a", "rolled back")
        connection.rollback()
    with (
        scripted_hub(accept) as (url, posted),
        Relay(f"sqlite:///{database}", url) as relay,
    ):
        relay.flush(10)
        assert relay.counters.waiting == 0
    assert [request.locs for request in posted] == [["kept"]]


def insert(database: Path, *bodies: object) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.executemany(INSERT, [("a", "change", body) for body in bodies])
        connection.commit()


def test_a_change_that_was_written_as_bytes_is_published(database):
    insert(database, b'{"loc":"1","change":"updated"}', '{"loc":"2","change":"updated"}')
    with scripted_hub(accept) as (url, posted), Relay(f"sqlite:///{database}", url) as relay:
        relay.flush(10)
    assert [request.locs for request in posted] == [["1", "2"]]


def test_what_was_written_in_another_encoding_is_refused_by_the_hub_not_by_us(database):
    with closing(sqlite3.connect(database)) as connection:
        latin = "INSERT INTO rsnotify_outbox (set_name, body) VALUES ('a', CAST(? AS TEXT))"
        connection.execute(latin, ('{"loc":"\xfc"}'.encode("latin-1"),))
        connection.commit()
    with closing(SqliteTable(database)) as table:
        batch = table.take((), 10)
        assert batch is not None
        assert batch.body == b'[{"loc":"\xfc"}]'
        assert table.remove(batch, batch.ids, Refusal("no UTF-8", batch.changes[0])) == 1
        assert table.refused_by_channel()[0].last == '{"loc":"\ufffd"}'


def test_a_refused_row_that_is_no_change_hides_no_other(database, caplog):
    insert(database, '{"loc": 5, "change": "updated"}', '{"loc":"2","change":"updated"}')
    refused: list[str] = []
    wrong = problem(400, "wrong", (0, "loc is no text"), (1, "not here"))
    with (
        scripted_hub(lambda _: wrong) as (url, _),
        Relay(
            f"sqlite:///{database}", url, on_refused=lambda said: refused.append(said.change.loc)
        ) as relay,
    ):
        relay.flush(10)
        eventually(lambda: refused)
    assert refused == ["2"]
    assert "that is no change: Expected `str`, got `int` - at `$.loc`" in caplog.text


def test_a_batch_is_counted_in_bytes(database):
    insert(database, *["\u20ac" * (BATCH_BYTES // 6)] * 4)
    with closing(SqliteTable(database)) as table:
        batch = table.take((), 10)
        assert batch is not None
        assert len(batch.ids) == 2
        assert len(batch.body) <= BATCH_BYTES


def test_any_number_of_sets_in_trouble_hold_up_no_other(database):
    waits = [ChannelName(f"missing{number}", "change") for number in range(1_500)]
    table = SqliteTable(database)
    with closing(sqlite3.connect(database)) as connection:
        for channel in waits:
            Outbox().created(connection, channel.set_name, "1")
        Outbox().created(connection, "a", "2")
        connection.commit()
    batch = table.take(waits, 10)
    table.close()
    assert batch is not None
    assert batch.channel == A


def test_a_row_that_appears_late_with_a_lower_id_is_published_too(database):
    with (
        scripted_hub(accept) as (url, posted),
        closing(sqlite3.connect(database, isolation_level=None)) as connection,
        Relay(f"sqlite:///{database}", url) as relay,
    ):
        for number in (5, 3):
            row = f'({number}, \'a\', \'{{"loc": "{number}", "change": "updated"}}\')'
            connection.execute(f"INSERT INTO rsnotify_outbox (id, set_name, body) VALUES {row}")
            relay.wake()
            eventually(lambda: relay.table.waiting() == 0)
    assert [request.locs for request in posted] == [["5"], ["3"]]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_relay_goes_on_with_the_file_that_took_the_place_of_its_own(database, mode):
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    backup = database.with_name("backup")
    with closing(sqlite3.connect(backup)) as connection:
        Outbox.create(connection)
        Outbox().created(connection, "a", "1")
        connection.commit()
    with (
        scripted_hub(accept) as (url, posted),
        Relay(f"sqlite:///{database}", url) as relay,
    ):
        eventually(lambda: relay.counters.waiting == 0)
        database.unlink()
        with pytest.raises(OutboxError, match="there is no such file"):
            relay.flush()
        backup.rename(database)
        eventually(lambda: posted)
        relay.flush(10)
    assert [request.locs for request in posted] == [["1"]]


def test_two_relays_at_once_take_the_same_batch_under_the_same_key(database):
    one, other = SqliteTable(database), SqliteTable(database)
    with closing(sqlite3.connect(database)) as connection:
        Outbox().created(connection, "a", "1")
        connection.commit()
        batch = one.take((), 10)
        Outbox().created(connection, "a", "2")
        connection.commit()
    assert other.take((), 10) == batch
    assert [table.remove(batch, batch.ids) for table in (one, other)] == [1, 0]
    assert other.take((), 10).changes == [b'{"loc":"2","change":"created"}']
    one.close()
    other.close()


def test_a_batch_is_whole_even_if_late_rows_come_before_it(database):
    table = SqliteTable(database)
    insert = "INSERT INTO rsnotify_outbox (id, set_name, body) VALUES (?, 'a', '{}')"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.executemany(insert, [(10,), (11,)])
        batch = table.take((), 2)
        connection.execute(insert, (1,))
    assert table.take((), 2) == batch
    table.close()


class OtherRelay(sqlite3.Cursor):
    """A relay that removes what is oldest just before this one reads it."""

    before = ""

    def execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        if statement.startswith(self.before):
            super().execute("DELETE FROM rsnotify_outbox WHERE id = 1")
        return super().execute(statement, values)


@pytest.mark.parametrize("before", ["SELECT id, body, batch_key", "SELECT id, body FROM"])
def test_what_another_relay_removes_while_it_is_taken_is_passed_over(database, before):
    class Connection(sqlite3.Connection):
        def cursor(self, *_: object) -> sqlite3.Cursor:
            cursor = OtherRelay(self)
            cursor.before = before
            return cursor

    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        row = "INSERT INTO rsnotify_outbox (id, set_name, body, batch_key) VALUES"
        connection.execute(f"{row} (1, 'a', '1', 'its key'), (2, 'b', '2', NULL)")
    table = OutboxTable(partial(sqlite3.connect, database, factory=Connection), "in the database")
    batch = table.take((), 10)
    assert batch is not None
    assert batch.changes == [b"2"]
    table.close()


def test_one_relay_of_several_works(database):
    program = (
        "import sys\nfrom rsnotify_client.outboxfile import SqliteTable\n"
        "print(SqliteTable(sys.argv[1]).lead(), flush=True)\nsys.stdin.read()\n"
    )
    first = python("-c", program, str(database))
    assert first.stdout is not None
    assert first.stdout.readline() == "True\n"
    second = python("-c", program, str(database))
    assert second.communicate("")[0] == "False\n"
    first.kill()
    first.communicate()
    table = SqliteTable(database)
    assert table.lead()
    table.close()


def test_a_connection_may_be_of_a_class_made_from_its_drivers(database):
    class Connection(sqlite3.Connection):
        pass

    table = OutboxTable(partial(sqlite3.connect, database, factory=Connection), "in the database")
    with closing(sqlite3.connect(database, factory=Connection)) as connection:
        Outbox().created(connection, "a", "1")
        connection.commit()
    batch = table.take((), 10)
    assert batch is not None
    assert batch.changes == [b'{"loc":"1","change":"created"}']
    table.close()


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "sqlite"])
def test_every_database_has_its_statements(kind):
    assert Outbox.sql(kind).startswith("CREATE TABLE IF NOT EXISTS rsnotify_outbox (")
    assert (
        "set_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" in Outbox.sql(kind)
    ) is (kind == "mysql")


def test_a_database_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(InvalidSettings, match="postgresql://, postgres://, mysql://"):
        table_of("oracle://host/name")


def test_a_driver_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidSettings, match=r"pip install '.\[postgresql\]'"):
        table_of("postgresql://host/name")


def test_mysql_is_not_waited_for_longer_than_we_say(monkeypatch):
    told: list[dict[str, object]] = []

    def connect(*_: str, **options: object) -> None:
        told.append(options)
        raise OSError("no route")

    monkeypatch.setitem(sys.modules, "pymysql", SimpleNamespace(connect=connect))
    with pytest.raises(OutboxError, match="no route"):
        table_of("mysql://host/name").waiting()
    assert {"connect_timeout": 10, "read_timeout": 60}.items() <= told[0].items()


# The command -----------------------------------------------------------------------------------


def relay_command(*words: str, token: str = "") -> subprocess.Popen[str]:
    return python("-m", "rsnotify", "relay", *words, RSNOTIFY_TOKEN=token)


def test_the_command_creates_the_table_and_publishes_until_it_is_told_to_end(tmp_path):
    path = tmp_path / "app.db"
    with scripted_hub(lambda _: ACCEPTED) as (url, posted):
        words = ("--database", f"sqlite:///{path}", "--create-table", "--url", url)
        relay = relay_command(*words, token="good")
        assert relay.stdout is not None
        assert relay.stdout.readline() == "rsnotify relay ready, 0 waiting\n"
        with closing(sqlite3.connect(path)) as connection:
            Outbox().created(connection, "a", "1")
            connection.commit()
        eventually(lambda: posted)
        relay.send_signal(signal.SIGTERM)
        _, errors = relay.communicate(timeout=200)
        assert relay.returncode == 0, errors
    assert posted[0].locs == ["1"]


def test_the_command_outlives_a_database_that_is_away_for_a_while(database):
    """Longer than from one look at how it goes to the next."""
    program = "from rsnotify_client.commands import relay; relay.LOOK_SECONDS = 0.05\n"
    program += "from rsnotify.cli import main; main()"
    with scripted_hub(lambda _: ACCEPTED) as (url, posted):
        words = ("relay", "--database", f"sqlite:///{database}", "--url", url)
        relay = python("-c", program, *words, RSNOTIFY_TOKEN="good")
        assert relay.stdout is not None
        assert relay.stdout.readline() == "rsnotify relay ready, 0 waiting\n"
        database.rename(database.with_name("away"))
        assert relay.stderr is not None
        assert "it will be tried until it succeeds" in relay.stderr.readline()
        with suppress(subprocess.TimeoutExpired):
            relay.wait(1)
        database.with_name("away").rename(database)
        with closing(sqlite3.connect(database)) as connection:
            Outbox().created(connection, "a", "1")
            connection.commit()
        eventually(lambda: posted or relay.poll() is not None)
        relay.send_signal(signal.SIGTERM)
        _, errors = relay.communicate(timeout=200)
        assert relay.returncode == 0, errors
    assert posted[0].locs == ["1"]


def test_the_command_ends_at_once_without_a_token_though_no_hub_answers(database):
    words = ("--database", f"sqlite:///{database}", "--url", "http://127.0.0.1:9")
    relay = relay_command(*words, "--data", str(database.parent))
    out, errors = relay.communicate(timeout=200)
    assert (relay.returncode, out) == (2, ""), errors
    assert "a token is needed to publish, and none is given (none was sent, for there is" in errors


def write_changes(database: Path, *sets: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for name in sets:
            Outbox().created(connection, name, "http://a/1")


FORBIDDEN = problem(403, "the token has no right to publish 'a'")


def test_the_command_ends_at_once_if_its_token_may_publish_nothing_of_what_waits(database):
    write_changes(database, "a")
    with scripted_hub(lambda _: FORBIDDEN) as (url, _):
        relay = relay_command("--database", f"sqlite:///{database}", "--url", url, token="read")
        out, errors = relay.communicate(timeout=200)
    assert (relay.returncode, out) == (2, ""), errors
    assert "no right to publish 'a' (it is the one in RSNOTIFY_TOKEN)" in " ".join(errors.split())


def test_a_relay_names_the_sets_that_it_may_not_publish_and_serves_the_others(database, caplog):
    write_changes(database, "a", "b")

    def answer(request: Posted) -> Answer:
        return FORBIDDEN if request.set_name == "a" else ACCEPTED

    with (
        scripted_hub(answer) as (url, _),
        closing(Relay(f"sqlite:///{database}", url, "t")) as relay,
    ):
        relay.check()
    assert "no right to publish 'a'" in caplog.text
    with closing(table_of(f"sqlite:///{database}")) as table:
        assert table.waiting() == 2


def test_a_set_that_is_not_there_yet_holds_no_relay_up(database):
    write_changes(database, "later")
    unknown = problem(404, "there is no set 'later'")
    with (
        scripted_hub(lambda _: unknown) as (url, _),
        closing(Relay(f"sqlite:///{database}", url, "t")) as relay,
    ):
        relay.check()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "there is no such file; create it with: "),
        (Path.touch, "no such table: rsnotify_outbox; create it with: "),
    ],
)
def test_the_command_says_how_to_create_what_is_missing(tmp_path, make, message):
    path = tmp_path / "my app.db"
    make(path)
    with (
        closing(Relay(f"sqlite:///{path}", "http://127.0.0.1:9")) as relay,
        pytest.raises(InvalidSettings, match=message) as refused,
    ):
        run(relay, f"sqlite:///{path}", Numbers(None))
    words = shlex.split(str(refused.value).rpartition(message)[2])
    assert (*words[:3], words[4]) == ("rsnotify", "relay", "--database", "--create-table")
    with closing(table_of(words[3])) as table:
        table.create("sqlite")
    with closing(SqliteTable(path)) as table:
        assert table.waiting() == 0


def test_a_relay_makes_nothing_beside_a_database_that_is_not_there(tmp_path):
    with closing(SqliteTable(tmp_path / "app.db")) as table:
        for use in (table.lead, table.ends):
            with pytest.raises(OutboxError, match="there is no such file"):
                use()
    assert list(tmp_path.iterdir()) == []


def outbox_command(path: Path, *words: str, answer: str = "") -> Result:
    words = ("relay", "--database", f"sqlite:///{path}", *(words or ("--status",)))
    return CliRunner().invoke(cli.app, words, input=answer, env={"COLUMNS": "120"})


def test_what_waits_in_an_outbox_is_shown_by_set_and_dropped_beside_its_publisher(tmp_path):
    path = tmp_path / "my outbox"
    unknown = problem(404, "there is no set 'typo'")
    with (
        scripted_hub(lambda request: unknown if request.set_name == "typo" else ACCEPTED) as (
            url,
            posted,
        ),
        Publisher(url, outbox=path) as publisher,
    ):
        for number in range(3):
            publisher.updated("typo", str(number))
        with pytest.raises(Rejected, match="there is no set 'typo'"):
            publisher.flush(10)
        shown = json.loads(outbox_command(path, "--status", "--json").stdout)
        assert [(row["set_name"], row["kind"], row["changes"]) for row in shown["sets"]] == [
            ("typo", "change", 3)
        ]
        lines = outbox_command(path).stdout.splitlines()
        assert lines[0].startswith("ON TIME: 3 changes waiting, the oldest since ")
        assert lines[0].endswith(", and 300 s are allowed)")
        assert lines[1:] == [f"typo: 3 changes, since {shown['since']}"]
        assert outbox_command(path, "--drop", "typo", answer="n\n").exit_code == 1
        assert publisher.counters.waiting == 3
        dropped = outbox_command(path, "--drop", "typo", answer="y\n")
        assert dropped.stderr == "3 changes of typo dropped\n", dropped.output
        publisher.updated("a", "1")
        publisher.flush(10)
    assert posted[-1].locs == ["1"]


def refuse_bad(request: Posted) -> Answer:
    named = [(index, f"{loc} is no address") for index, loc in enumerate(request.locs)]
    faults = [each for each in named if each[1].startswith("bad")]
    return problem(400, "wrong changes", *faults) if faults else ACCEPTED


def write_locs(database: Path, *locs: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for loc in locs:
            Outbox().created(connection, "a", loc)


def test_what_was_refused_is_counted_with_its_reason_until_somebody_says_that_he_knows(database):
    with scripted_hub(refuse_bad) as (url, _), Relay(f"sqlite:///{database}", url) as relay:
        for number in range(2):
            write_locs(database, f"bad{number}", "good")
            relay.flush(10)
    told = outbox_command(database)
    first, refused, change, mend = told.stdout.splitlines()
    assert (told.exit_code, first) == (1, "OUT OF STEP: nothing waits; 2 changes refused")
    assert refused.startswith("a: 2 changes refused, the last at 20")
    assert refused.endswith(": bad1 is no address")
    assert json.loads(change)["loc"] == "bad1"
    assert "--forget SET" in mend
    shown = json.loads(outbox_command(database, "--status", "--json").stdout)
    assert (shown["waiting"], shown["refused"]) == (0, 2)
    (of_set,) = shown["refused_sets"]
    assert (of_set["set_name"], of_set["reason"]) == ("a", "bad1 is no address")
    forgotten = outbox_command(database, "--forget", "a")
    assert (forgotten.exit_code, forgotten.stderr) == (0, "what was refused of a is forgotten\n")
    assert outbox_command(database).stdout == "IN STEP: nothing waits\n"
    nothing = outbox_command(database, "--forget", "a").exception
    assert str(nothing).startswith("no change of the set 'a' was refused")


ESCAPE = "\x1b[2J\x9b31m\u202e\r\n"


def test_what_a_hub_or_a_trigger_has_written_steers_no_terminal(database, caplog):
    def refuse(request: Posted) -> Answer:
        return problem(400, "wrong", (0, ESCAPE + "why" * 9_000))

    with closing(sqlite3.connect(database)) as connection, connection:
        body = f'{{"loc": "\x9b1m\u202e", "change": "updated", "type": "{"x" * 9_000}"}}'
        connection.execute(INSERT, (f"a{ESCAPE}", "change", body))
    with scripted_hub(refuse) as (url, _), Relay(f"sqlite:///{database}", url) as relay:
        relay.flush(10)
    with closing(sqlite3.connect(database)) as connection, connection:
        earlier = "UPDATE rsnotify_refused SET reason = ?"  # as an earlier version wrote it
        connection.execute(earlier, (ESCAPE + "why" * 9_000,))
    (said,) = [each.message for each in caplog.records if "is given up" in each.message]
    lines = outbox_command(database).stdout.split("\n")
    in_json = outbox_command(database, "--status", "--json").stdout.removesuffix("\n")
    assert all(each.isprintable() for each in (said, *lines, in_json))
    assert "x" * 9_000 in said  # else nobody could publish it anew
    assert "x" * 9_000 in lines[2]
    assert len(lines[1]) < 2_100
    assert len(lines) == 5


def test_what_is_refused_and_cannot_be_counted_waits(database):
    write_locs(database, "bad")
    with closing(sqlite3.connect(database)) as connection, connection:
        stop = "BEFORE INSERT ON rsnotify_refused BEGIN SELECT RAISE(ABORT, 'no room'); END"
        connection.execute(f"CREATE TRIGGER stop {stop}")
    with closing(SqliteTable(database)) as table:
        batch = table.take((), 10)
        with pytest.raises(OutboxError, match="no room"):
            table.remove(batch, batch.ids, Refusal("why", batch.changes[-1]))
        assert (table.waiting(), table.refused_by_channel()) == (1, [])


def test_a_table_that_counts_nothing_refused_still_publishes_and_says_so(database, caplog):
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DROP TABLE rsnotify_refused")
    with scripted_hub(refuse_bad) as (url, posted), Relay(f"sqlite:///{database}", url) as relay:
        write_locs(database, "bad", "good")
        relay.flush(10)
        assert posted[-1].locs == ["good"]
    assert "what is refused is not counted" in caplog.text
    caplog.clear()
    told = outbox_command(database)
    assert (told.exit_code, told.stdout) == (0, "IN STEP: nothing waits\n")
    assert "nobody counts what is refused" in caplog.text
    assert "--create-table" in caplog.text
    shown = json.loads(outbox_command(database, "--status", "--json").stdout)
    assert shown["refused"] is None


def test_status_drop_and_forget_are_told_apart(database):
    told = outbox_command(database, "--status", "--forget", "a")
    assert told.exit_code == 2


def test_a_set_of_which_nothing_waits_is_told(database):
    nothing = outbox_command(database, "--drop", "a")
    assert str(nothing.exception) == f"no change of the set 'a' waits in sqlite:///{database}"


def test_an_empty_outbox_is_said_to_be_empty(database):
    assert outbox_command(database).stdout == "IN STEP: nothing waits\n"
    assert json.loads(outbox_command(database, "--status", "--json").stdout)["sets"] == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:hunter2@db/x?sslmode=require",
        "postgresql://app@db/x?password=hunter2&sslmode=require",
    ],
)
def test_a_set_of_which_nothing_waits_is_told_without_the_password(database, url):
    with closing(SqliteTable(database)) as table, pytest.raises(InvalidSettings) as refused:
        drop_set(table, url, "a", must_ask=True)
    told = "no change of the set 'a' waits in postgresql://app@db/x?sslmode=require"
    assert str(refused.value) == told


@pytest.mark.parametrize("url", ["oracle://app:hunter2@db/x", "mysql://app:hunter2/3@db/x"])
def test_a_database_that_is_refused_is_told_without_its_password(url):
    with pytest.raises(InvalidSettings) as refused:
        table_of(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda _: None, "there is no such file"),
        (Path.touch, "no such table: rsnotify_outbox"),
    ],
)
def test_who_looks_into_an_outbox_that_is_not_there_is_not_told_to_create_it(
    tmp_path, make, problem
):
    path = tmp_path / "mistyped.db"
    make(path)
    missing = outbox_command(path)
    assert str(missing.exception) == f"the outbox {path}: {problem}: look at --database"
