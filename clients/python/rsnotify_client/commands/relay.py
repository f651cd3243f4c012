"""`rsnotify relay`: publish the outbox of an application, see what waits and was refused, drop it.

Rules that hold here: what waits is shown and dropped beside whatever publishes the outbox. No word
says that all is published while something waits, or was refused and nobody has said that he knows.
What a hub answered, or a trigger wrote into the table, is shown as a stranger's text.
"""

import logging
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
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
from rsnotify.cli.terminal import echo
from rsnotify.cli.watched import LOOK_SECONDS, MaxBehind, Numbers
from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify.sd_notify import READY, STATUS, STOPPING, notify
from rsnotify_client.address import printable, shown
from rsnotify_client.answer import hub_trouble
from rsnotify_client.outbox import NoOutbox, Outbox, OutboxTable, RefusedChanges, WaitingChanges
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
    forget: Annotated[
        str | None,
        Option("--forget", metavar="SET", help="Forget what was refused of this set, and end."),
    ] = None,
    json: Json = False,
    metrics: Metrics = None,
    hub: Hub = HERE,
) -> None:
    """Publish the outbox table of an application's database.

    It runs until SIGTERM or Ctrl-C. The application writes its changes to the table
    `rsnotify_outbox` in its own transactions; see `docs/applications.md`. Any number of relays may
    run for one table: one of them works.

    With `--status`, `--drop` and `--forget` it may also be the outbox file of a publisher, such as
    `--database sqlite:///outbox.db`, and whatever publishes it may go on meanwhile.
    """
    asked = {"--status": status, "--drop": drop is not None, "--forget": forget is not None}
    first, *others = [name for name, is_given in asked.items() if is_given] or [""]
    if others:
        raise typer.BadParameter(f"{others[0]} goes without {first}")
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
    if forget is not None:
        with _outbox(database) as table:
            forget_set(table, database, forget)
        return
    numbers = Numbers(metrics)
    try:
        with wrong_use(ValueError, OutboxError), hub.token() as token:
            relay = Relay(database, hub.url, token)
            if create_table:
                relay.table.create(database_of(database))
            if (problem := relay.table.wrong_times()) is not None:
                log.warning("%s", problem)  # it publishes all the same
            relay.check()  # what the database or the hub refuses is reported at once
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
    """What waits in an outbox, and what the hub has refused of it for good."""

    waiting: int
    since: str | None  # when the oldest of it came
    behind_seconds: float
    sets: list[WaitingChanges]
    refused: int | None  # None: there is no table that counts them
    refused_sets: list[RefusedChanges]

    def exit_status(self, max_behind: float) -> int:
        """
        >>> [RelayStatus(1, "", behind, [], 0, []).exit_status(300) for behind in (300.0, 300.1)]
        [0, 1]
        """
        return 1 if self.refused or self.behind_seconds > max_behind else 0

    def verdict(self, max_behind: float) -> str:
        """In one line: whether all is published, and if not, what waits or was refused.

        >>> RelayStatus(0, None, 0.0, [], 0, []).verdict(300)
        'IN STEP: nothing waits'
        >>> RelayStatus(21, "2026-11-29 08:30", 2.0, [], 0, []).verdict(9)
        'ON TIME: 21 changes waiting, the oldest since 2026-11-29 08:30 (2 s, and 9 s are allowed)'
        >>> RelayStatus(0, None, 0.0, [], 3, []).verdict(300)
        'OUT OF STEP: nothing waits; 3 changes refused'
        """
        said = "nothing waits"
        if self.since is not None:
            how_long = f"{self.behind_seconds:.0f} s, and {max_behind:g} s are allowed"
            waiting = counted(self.waiting, "change")
            said = f"{waiting} waiting, the oldest since {self.since} ({how_long})"
        if self.refused:
            said += f"; {counted(self.refused, 'change')} refused"
        if self.exit_status(max_behind):
            return f"OUT OF STEP: {said}"
        return f"IN STEP: {said}" if self.since is None else f"ON TIME: {said}"

    def lines(self) -> Iterator[str]:
        """Of each set, for a person."""
        for each in self.sets:
            yield f"{_shown(each)}: {counted(each.changes, 'change')}, since {each.since}"
        for one in self.refused_sets:
            changes = counted(one.changes, "change")
            yield f"{_shown(one)}: {changes} refused, the last at {one.at}: {shown(one.reason)}"
            yield f"  {printable(one.last)}"
        if self.refused:
            yield "readers lack what was refused: publish it anew, mended; then --forget SET"


def _shown(row: WaitingChanges | RefusedChanges) -> str:
    return shown(row.set_name if row.kind == "change" else f"{row.set_name}, {row.kind}")


def status_of(table: OutboxTable) -> RelayStatus:
    waiting = _waiting(table)
    try:
        refused = table.refused_by_channel()
    except NoOutbox as error:  # a table that an earlier version made
        log.warning("nobody counts what is refused: %s", error)
        return RelayStatus(*waiting, None, [])
    return RelayStatus(*waiting, sum(each.changes for each in refused), refused)


def _waiting(table: OutboxTable) -> tuple[int, str | None, float, list[WaitingChanges]]:
    """How many, since when, how many seconds that is, and of which sets."""
    rows = table.waiting_by_channel()
    since = min((each.since for each in rows), default=None)
    behind = 0.0 if since is None else max(0.0, time() - _seconds(since))
    return sum(each.changes for each in rows), since, round(behind, 1), rows


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def show_status(database: str, *, json: bool, max_behind: float) -> int:
    """Print how far the relays of a table are; the exit status."""
    with _outbox(database) as table:
        status = status_of(table)
    found = status._asdict()
    for name in ("sets", "refused_sets"):
        found[name] = [each._asdict() for each in found[name]]
    print_found(found, [status.verdict(max_behind), *status.lines()], json=json)
    return status.exit_status(max_behind)


def numbers_of(relay: Relay, database: str) -> str:
    """A machine may have several relays, whose numbers one collector reads: the label is needed."""
    (waiting, oldest, _, _), counters = _waiting(relay.table), relay.counters
    since = 0.0 if oldest is None else _seconds(oldest)
    labels = (("database", without_password(database)),)
    done = (counters.published, counters.refused, counters.requests, counters.retries)
    return exposition(METRICS, {labels: (waiting, since, time(), *done)})


def run(relay: Relay, database: str, numbers: Numbers) -> None:
    """Publish until SIGTERM or Ctrl-C; what waits then stays in the table."""
    with wrong_use(OutboxError):
        waiting = relay.table.waiting()
    ended = rung_by_signals()
    count = partial(numbers_of, relay, database)
    with relay:
        numbers.write(count)
        echo(f"rsnotify relay ready, {waiting} waiting")
        notify(f"{READY}\n{STATUS}{waiting} waiting")
        while not ended.wait(LOOK_SECONDS):
            notify(f"{STATUS}{relay.published} published")
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
    echo(f"{counted(dropped, 'change')} of {set_name} dropped", err=True)


def forget_set(outbox: OutboxTable, database: str, set_name: str) -> None:
    """Count no more what was refused of a set: somebody knows."""
    if not outbox.forget_refused(set_name):
        where = without_password(database)
        raise InvalidSettings(f"no change of the set {set_name!r} was refused, says {where}")
    echo(f"what was refused of {set_name} is forgotten", err=True)


@contextmanager
def _outbox(database: str) -> Iterator[OutboxTable]:
    try:
        with closing(table_of(database)) as outbox:
            yield outbox
    except NoOutbox as error:
        raise InvalidSettings(f"{error.problem}: look at --database") from None
    except OutboxError as error:
        raise InvalidSettings(str(error)) from None
