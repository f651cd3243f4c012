"""`rsnotify relay`: publish the outbox table of an application's database, until told to end."""

import logging
import signal
import threading

import typer

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify_client.answer import NotAHub, in_short
from rsnotify_client.batch import OutboxError
from rsnotify_client.outbox import Outbox
from rsnotify_client.relay import Relay, database_of

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


def run(relay: Relay) -> None:
    """Publish until SIGTERM or Ctrl-C; what waits then stays in the table."""
    try:
        waiting = relay.table.waiting()
    except OutboxError as error:
        raise InvalidSettings([str(error)]) from None
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with relay:
        typer.echo(f"rsnotify relay ready, {waiting} waiting")
        ended.wait()
