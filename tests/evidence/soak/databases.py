"""The outbox table in PostgreSQL and MySQL: in servers of its own, or where the environment says.

`SOAK_POSTGRESQL=postgresql://user@host/name SOAK_MYSQL=mysql://user@host/name make soak`. The table
`rsnotify_outbox` of that database is used, and emptied. Without these names it is PostgreSQL and
MariaDB as they are installed here, as in the client's `test_postgresql.py` and `test_mariadb.py`.
"""

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rsnotify_client import Outbox, Relay
from rsnotify_client.outbox import LOOSEN, OutboxTable, with_marks
from rsnotify_client.queue import Refusal
from rsnotify_client.relay import database_of, table_of
from tests.support import mariadb, postgresql
from tests.support.hub_processes import accept, eventually, scripted_hub
from tests.support.needs import find

WRITERS = 4
CHANGES = 200


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        for url in urls(Path(folder), servers):
            for proof in PROOFS:
                prepare(url)
                proof(url)
                print(f"{database_of(url)}: {proof.__name__} holds", flush=True)


def urls(folder: Path, servers: ExitStack) -> Iterator[str]:
    """A database of each kind: the one that the environment names, or one in a server of ours."""
    for name, needed, running in (
        ("SOAK_POSTGRESQL", postgresql.SERVER, postgresql.running()),
        ("SOAK_MYSQL", mariadb.SERVER, mariadb.running(folder)),
    ):
        if given := os.environ.get(name):
            yield given
        elif find(*needed):
            yield servers.enter_context(running)
        else:
            print(f"no {needed[0]} here, and {name} is not set: not tried", flush=True)


def prepare(url: str) -> None:
    """The table is there, and empty."""
    table = table_of(url)
    for _ in range(2):
        table.create(database_of(url))
    while (batch := table.take((), 1_000)) is not None:
        table.remove(batch, batch.ids)
    table.close()


def connect(url: str) -> Any:
    table = table_of(url)
    assert isinstance(table, OutboxTable)
    return table._connect()


def late_commits(url: str) -> None:
    """A row with a lower id that is committed later is published, one rolled back is not."""
    slow, quick = connect(url), connect(url)
    with scripted_hub(accept) as (hub, posted), Relay(url, hub) as relay:
        Outbox().created(slow, "a", "slow 100%")
        Outbox().created(quick, "a", "quick")
        quick.commit()
        eventually(lambda: posted)
        slow.commit()
        Outbox().created(slow, "a", "rolled back")
        slow.rollback()
        eventually(lambda: len(posted) == 2)
        relay.flush(10)
    assert [request.locs for request in posted] == [["quick"], ["slow 100%"]]
    slow.close()
    quick.close()


def slow_transactions(url: str) -> None:
    """What a relay does neither waits for the rows of a transaction nor stops other writers."""

    def impatient() -> Any:
        connections.append(connect(url))
        if database_of(url) == "mysql":
            connections[-1].cursor().execute("SET SESSION innodb_lock_wait_timeout = 1")
        return connections[-1]

    connections: list[Any] = []
    table, slow, quick = table_of(impatient), impatient(), impatient()
    Outbox().created(slow, "a", "slow")
    for number in range(20):
        Outbox().created(quick, "a", f"quick {number}")
    quick.commit()
    batch = table.take((), 20)
    assert batch is not None
    assert len(batch.ids) == 20
    of_table = connections[-1]
    of_table.cursor().execute(with_marks(LOOSEN, "format"), (batch.key,))
    Outbox().created(quick, "a", "while the relay has looked at all")
    quick.commit()
    of_table.rollback()
    assert table.remove(batch, batch.ids) == 20
    slow.commit()
    table.close()
    slow.close()
    quick.close()


def one_of_two_relays_works(url: str) -> None:
    one, other = table_of(url), table_of(url)
    assert (one.lead(), other.lead()) == (True, False)
    one.close()
    eventually(other.lead)
    other.close()


def writers_at_once(url: str) -> None:
    """Each writer's changes are published once and in its order, by two relays together."""

    def write(who: int) -> None:
        connection = connect(url)
        for number in range(CHANGES):
            Outbox().updated(connection, "a", f"{who}-{number}")
            connection.commit()
        connection.close()

    with scripted_hub(accept) as (hub, posted), Relay(url, hub) as one, Relay(url, hub):
        writers = [threading.Thread(target=write, args=(who,)) for who in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        one.flush(60)
    requests = {request.key: request.locs for request in posted}
    told = [loc for locs in requests.values() for loc in locs]
    for who in range(WRITERS):
        own = [loc for loc in told if loc.startswith(f"{who}-")]
        assert own == [f"{who}-{number}" for number in range(CHANGES)]


def lost_connection(url: str) -> None:
    """A relay whose database restarted goes on."""
    connection = connect(url)
    with scripted_hub(accept) as (hub, posted), Relay(url, hub) as relay:
        for number in range(2):
            Outbox().updated(connection, "a", str(number))
            connection.commit()
            eventually(lambda: [str(number)] in [each.locs for each in posted])  # noqa: B023
            _sever(relay.table)
    keys = {request.key: request.locs for request in posted}  # what was sent may be sent again
    assert list(keys.values()) == [["0"], ["1"]]
    connection.close()


def dropped_set(url: str) -> None:
    """What waits is counted by set, and a set's changes can be dropped."""
    connection, table = connect(url), table_of(url)
    for name in ("a", "typo", "typo"):
        Outbox().updated(connection, name, "1")
    connection.commit()
    waiting = table.waiting_by_channel()
    assert [(each.set_name, each.changes) for each in waiting] == [("a", 1), ("typo", 2)]
    assert [table.drop("typo"), table.drop("a"), table.waiting()] == [2, 1, 0]
    connection.close()
    table.close()


def counted_refusals(url: str) -> None:
    """What is refused of a channel is one row, with the last reason, until it is forgotten."""
    connection, table = connect(url), table_of(url)
    table.forget_refused("a")
    for count, reason in enumerate(("first", "last"), 1):
        for _ in range(count):
            Outbox().updated(connection, "a", "1")
        connection.commit()
        batch = table.take((), 10)
        assert batch is not None
        assert table.remove(batch, batch.ids, Refusal(reason, b'{"loc":"\xc3\xbc"}')) == count
    (found,) = table.refused_by_channel()
    assert (found.changes, found.reason, found.last) == (3, "last", '{"loc":"ü"}')
    assert table.forget_refused("a") == 1
    assert table.refused_by_channel() == []
    connection.close()
    table.close()


PROOFS = (
    late_commits,
    slow_transactions,
    one_of_two_relays_works,
    writers_at_once,
    lost_connection,
    dropped_set,
    counted_refusals,
)


def _sever(table: OutboxTable) -> None:
    """Cut the connection; its descriptor stays with the driver, which closes it."""
    connection = table._connection
    number = (connection if hasattr(connection, "fileno") else connection._sock).fileno()
    with socket.socket(fileno=os.dup(number)) as same:
        same.shutdown(socket.SHUT_RDWR)
