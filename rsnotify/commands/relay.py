"""`rsnotify relay`: publish the outbox table of an application's database, until told to end."""

import logging
import signal
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import NamedTuple

import msgspec
import typer

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify.process.sd_notify import READY, STATUS, STOPPING, notify
from rsnotify_client.answer import NotAHub, in_short
from rsnotify_client.batch import OutboxError
from rsnotify_client.outbox import Outbox
from rsnotify_client.outboxtable import OutboxTable
from rsnotify_client.relay import Relay, database_of, table_of
from rsnotify_client.textfile import exposition, write

log = logging.getLogger(__name__)


def print_table(database: str) -> None:
    """The statements that create the table, for a migration."""
    typer.echo(Outbox.sql(database_of(database)), nl=False)


def make(database: str, url: str, token: str | None) -> Relay:
    try:
        return Relay(database, url, token)
    except ValueError as error:
        raise InvalidSettings([str(error)]) from None


def create_table(database: str, relay: Relay) -> None:
    try:
        relay.table.create(database_of(database))
    except OutboxError as error:
        raise InvalidSettings([str(error)]) from None


def check(relay: Relay) -> None:
    """What the hub refuses is said at once; a hub that is away may come back."""
    try:
        relay.check()
    except OutboxError as error:
        raise InvalidSettings([str(error)]) from None
    except NotAHub as error:
        raise InvalidSettings([error.detail]) from None
    except TryAgain as error:
        log.warning("%s; it will be tried until it succeeds", in_short(error))


METRICS = {
    "rsnotify_relay_waiting": ("gauge", "Changes that wait in the outbox"),
    "rsnotify_relay_waiting_since_seconds": ("gauge", "When the oldest of them came; 0: none"),
    "rsnotify_relay_looked_timestamp_seconds": ("gauge", "When these numbers were written"),
    "rsnotify_relay_published_total": ("counter", "Changes published since the start"),
    "rsnotify_relay_refused_total": ("counter", "Changes that the hub refused for good"),
    "rsnotify_relay_requests_total": ("counter", "Requests since the start"),
    "rsnotify_relay_retries_total": ("counter", "Requests that failed and were repeated"),
}
LOOK_SECONDS = 10.0


class RelayStatus(NamedTuple):
    """What waits in an outbox table."""

    waiting: int
    since: str | None  # when the oldest of it came
    behind_seconds: float


def status_of(table: OutboxTable) -> RelayStatus:
    rows = table.waiting_by_channel()
    since = min((each.since for each in rows), default=None)
    behind = 0.0 if since is None else max(0.0, time() - _seconds(since))
    return RelayStatus(sum(each.changes for each in rows), since, round(behind, 1))


def _seconds(text: str) -> float:
    """As the database writes it; without a zone it is in UTC."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def show_status(database: str, *, json: bool, max_behind: float) -> int:
    """Print how far the relays of a table are; the exit status."""
    try:
        with closing(table_of(database)) as table:
            status = status_of(table)
    except OutboxError as error:
        raise InvalidSettings([str(error)]) from None
    is_well = status.behind_seconds <= max_behind
    if json:
        typer.echo(msgspec.json.encode(status._asdict()))
    elif status.since is None:
        typer.echo("IN STEP: nothing waits")
    else:
        said = f"{status.waiting} waiting, since {status.since} ({status.behind_seconds:.0f} s)"
        typer.echo(f"{'IN STEP' if is_well else 'OUT OF STEP'}: {said}")
    return 0 if is_well else 1


def write_metrics(metrics: Path, relay: Relay) -> None:
    status, counters = status_of(relay.table), relay.counters
    since = 0.0 if status.since is None else _seconds(status.since)
    done = (counters.published, counters.refused, counters.requests, counters.retries)
    numbers = zip(METRICS, (status.waiting, since, time(), *done), strict=True)
    write(metrics, exposition(METRICS, {None: dict(numbers)}))


def run(relay: Relay, metrics: Path | None = None) -> None:
    """Publish until SIGTERM or Ctrl-C; what waits then stays in the table."""
    try:
        waiting = relay.table.waiting()
    except OutboxError as error:
        raise InvalidSettings([str(error)]) from None
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with relay:
        if metrics is not None:
            write_metrics(metrics, relay)  # what cannot be written is said at once
        typer.echo(f"rsnotify relay ready, {waiting} waiting")
        notify(f"{READY}\n{STATUS}{waiting} waiting")
        while not ended.wait(LOOK_SECONDS):
            _look(relay, metrics)
        notify(STOPPING)


def _look(relay: Relay, metrics: Path | None) -> None:
    """The database or the disk may be away for a while, which is said elsewhere or here."""
    notify(f"{STATUS}{relay.counters.published} published")
    try:
        if metrics is not None:
            write_metrics(metrics, relay)
    except (OutboxError, InvalidSettings) as error:
        log.warning("%s", error)
