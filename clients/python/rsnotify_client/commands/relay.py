"""`rsnotify relay`: publish the outbox of an application, see what waits, drop it.

Rules that hold here: what waits is shown and dropped beside whatever publishes the outbox.
"""

import logging
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from time import time
from typing import Annotated, NamedTuple

import typer
from typer import Option

from rsnotify.cli.options import (
    Commands,
    Json,
    Metrics,
    Status,
    Yes,
)
from rsnotify.cli.output import counted, print_found
from rsnotify.cli.root import wrong_use
from rsnotify.cli.target import HERE, Hub
from rsnotify.cli.watched import LOOK_SECONDS, MaxBehind, Numbers, judge
from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify.sd_notify import READY, STATUS, STOPPING, notify
from rsnotify_client.answer import hub_trouble
from rsnotify_client.outbox import NoOutbox, Outbox, OutboxTable, WaitingChanges
from rsnotify_client.queue import OutboxError
from rsnotify_client.relay import Relay, database_of, table_of, without_password
from rsnotify_client.sender import ThreadBell
from rsnotify_client.textfile import exposition

commands = Commands()
log = logging.getLogger(__name__)


Database = Annotated[
    str,
    Option(
        envvar="RSNOTIFY_DATABASE",
        metavar="URL",
        help="Such as postgresql://user@host/name, mysql://…, sqlite:///file.db.",
    ),
]


@commands.command()
def relay(
    database: Database,
    create_table: Annotated[
        bool, Option("--create-table", help="Create the table first, if it is not there.")
    ] = False,
    print_sql: Annotated[
        bool, Option("--print-sql", help="Print what creates the table, and end.")
    ] = False,
    status: Status = False,
    max_behind: MaxBehind = 300,
    drop: Annotated[
        str | None, Option("--drop", metavar="SET", help="Drop what waits of this set, and end.")
    ] = None,
    yes: Yes = False,
    json: Json = False,
    metrics: Metrics = None,
    hub: Hub = HERE,
) -> None:
    """Publish the outbox table of an application's database.

    It runs until SIGTERM or Ctrl-C. The application writes its changes to the table
    `rsnotify_outbox` in its own transactions; see `docs/applications.md`. Any number of relays may
    run for one table: one of them works.

    With `--status` and `--drop` it may also be the outbox file of a publisher, such as
    `--database sqlite:///outbox.db`, and whatever publishes it may go on meanwhile.
    """
    if drop is not None and status:
        raise typer.BadParameter("--drop goes without --status")
    if yes and drop is None:
        raise typer.BadParameter("--yes goes with --drop")
    if print_sql:
        typer.echo(Outbox.sql(database_of(database)), nl=False)
        return
    if status:
        raise typer.Exit(show_status(database, json=json, max_behind=max_behind))
    if drop is not None:
        with _outbox(database) as table:
            drop_set(table, database, drop, must_ask=not yes)
        return
    numbers = Numbers(metrics)
    try:
        with wrong_use(ValueError, OutboxError), hub.token() as token:
            relay = Relay(database, hub.url, token)
            if create_table:
                relay.table.create(database_of(database))
            relay.check()  # what the hub refuses is reported at once
    except TryAgain as error:  # a hub that is away may come back
        log.warning("%s; it will be tried until it succeeds", hub_trouble(error))
    run(relay, database, numbers)


METRICS = {
    "rsnotify_relay_waiting": ("gauge", "Changes that wait in the outbox"),
    "rsnotify_relay_waiting_since_seconds": ("gauge", "When the oldest of them came; 0: none"),
    "rsnotify_relay_looked_timestamp_seconds": ("gauge", "When these numbers were written"),
    "rsnotify_relay_published_total": ("counter", "Changes published since the start"),
    "rsnotify_relay_refused_total": ("counter", "Changes that the hub refused for good"),
    "rsnotify_relay_requests_total": ("counter", "Requests since the start"),
    "rsnotify_relay_retries_total": ("counter", "Requests that failed and were repeated"),
}


class RelayStatus(NamedTuple):
    """What waits in an outbox."""

    waiting: int
    since: str | None  # when the oldest of it came
    behind_seconds: float
    sets: list[WaitingChanges]

    def lines(self) -> Iterator[str]:
        """Of each set, for a person."""
        for each in self.sets:
            name = each.set_name if each.kind == "change" else f"{each.set_name}, {each.kind}"
            yield f"{name}: {counted(each.changes, 'change')}, since {each.since}"


def status_of(table: OutboxTable) -> RelayStatus:
    rows = table.waiting_by_channel()
    since = min((each.since for each in rows), default=None)
    behind = 0.0 if since is None else max(0.0, time() - _seconds(since))
    return RelayStatus(sum(each.changes for each in rows), since, round(behind, 1), rows)


def _seconds(text: str) -> float:
    """As the database writes it; without a zone it is in UTC."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def show_status(database: str, *, json: bool, max_behind: float) -> int:
    """Print how far the relays of a table are; the exit status."""
    with _outbox(database) as table:
        status = status_of(table)
    behind = status.behind_seconds
    verdict = judge(is_in_step=True, behind_seconds=behind, max_behind=max_behind)
    said = f"{status.waiting} waiting, since {status.since} ({behind:.0f} s)"
    if status.since is None:
        said = "nothing waits"
    line = str(verdict._replace(why=said))
    found = status._asdict() | {"sets": [each._asdict() for each in status.sets]}
    print_found(found, [line, *status.lines()], json=json)
    return verdict.exit_status


def numbers_of(relay: Relay, database: str) -> str:
    """A machine may have several relays, whose numbers one collector reads: the label is needed."""
    status, counters = status_of(relay.table), relay.counters
    since = 0.0 if status.since is None else _seconds(status.since)
    labels = (("database", without_password(database)),)
    done = (counters.published, counters.refused, counters.requests, counters.retries)
    return exposition(METRICS, {labels: (status.waiting, since, time(), *done)})


def run(relay: Relay, database: str, numbers: Numbers) -> None:
    """Publish until SIGTERM or Ctrl-C; what waits then stays in the table."""
    with wrong_use(OutboxError):
        waiting = relay.table.waiting()
    ended = rung_by_signals()
    count = partial(numbers_of, relay, database)
    with relay:
        numbers.write(count)
        typer.echo(f"rsnotify relay ready, {waiting} waiting")
        notify(f"{READY}\n{STATUS}{waiting} waiting")
        while not ended.wait(LOOK_SECONDS):
            notify(f"{STATUS}{relay.counters.published} published")
            numbers.write(count)
        notify(STOPPING)
    with closing(relay.table):  # which is opened once more, to count what waits at the end
        numbers.write(count)


def rung_by_signals() -> ThreadBell:
    """Rung by SIGTERM and Ctrl-C.

    An Event's lock is held by the thread that begins to wait; a handler that runs in this very
    thread just then would wait for it for ever.
    """
    ended = ThreadBell()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.ring())
    return ended


def drop_set(outbox: OutboxTable, database: str, set_name: str, *, must_ask: bool) -> None:
    """Remove all that waits of a set."""
    waiting = [each for each in outbox.waiting_by_channel() if each.set_name == set_name]
    if not waiting:
        where = without_password(database)
        raise InvalidSettings(f"no change of the set {set_name!r} waits in {where}")
    count = sum(each.changes for each in waiting)
    if must_ask:
        question = f"Drop {counted(count, 'change')} of {set_name}, unpublished?"
        typer.confirm(question, abort=True)
    dropped = outbox.drop(set_name)
    typer.echo(f"{counted(dropped, 'change')} of {set_name} dropped", err=True)


@contextmanager
def _outbox(database: str) -> Iterator[OutboxTable]:
    try:
        with closing(table_of(database)) as outbox:
            yield outbox
    except NoOutbox as error:
        raise InvalidSettings(f"{error.problem}: look at --database") from None
    except OutboxError as error:
        raise InvalidSettings(str(error)) from None
