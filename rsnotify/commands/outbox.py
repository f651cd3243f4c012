"""`rsnotify outbox`: what waits in an outbox, in a table or a file, and how to drop it.

Rules that hold here: it may be run beside whoever publishes the outbox.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import typer

from rsnotify.commands.administer import print_table
from rsnotify.errors import InvalidSettings
from rsnotify_client.batch import OutboxError
from rsnotify_client.outboxtable import NoOutbox, OutboxTable, WaitingChanges
from rsnotify_client.relay import table_of, without_password


def show(database: str, *, json: bool) -> None:
    """What waits of each set."""
    with _outbox(database) as outbox:
        rows = [each._asdict() for each in outbox.waiting_by_channel()]
    if rows or json:
        print_table(rows, WaitingChanges._fields, json=json)
    else:
        typer.echo("nothing waits")


def drop(database: str, set_name: str, *, must_ask: bool) -> None:
    """Remove all that waits of a set."""
    with _outbox(database) as outbox:
        waiting = [each for each in outbox.waiting_by_channel() if each.set_name == set_name]
        if not waiting:
            where = without_password(database)
            raise InvalidSettings([f"no change of the set {set_name!r} waits in {where}"])
        count = sum(each.changes for each in waiting)
        if must_ask:
            typer.confirm(f"Drop {_changes(count)} of {set_name}, unpublished?", abort=True)
        dropped = outbox.drop(set_name)
    typer.echo(f"{_changes(dropped)} of {set_name} dropped", err=True)


@contextmanager
def _outbox(database: str) -> Iterator[OutboxTable]:
    try:
        with closing(table_of(database)) as outbox:
            yield outbox
    except NoOutbox as error:
        raise InvalidSettings([f"{error.problem}: look at --database"]) from None
    except OutboxError as error:
        raise InvalidSettings([str(error)]) from None


def _changes(count: int) -> str:
    return "1 change" if count == 1 else f"{count} changes"
