"""SQLAlchemy: what a session inserts, updates and deletes is published if it is committed.

With an `Outbox` the change is written in the session's own transaction, and a relay publishes it.
With a `Publisher` it is handed over after the commit, so it is lost if the process ends in between.

Rules that hold here: what is rolled back, a savepoint too, is never published. A commit never fails
because of a publisher; a change that it does not take is logged as lost. Statements that pass the
session by (bulk updates, SQL) are not seen.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import event, inspect
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, SessionTransaction, object_session

from rsnotify.resourcesync.change import Change
from rsnotify_client.batch import check_name
from rsnotify_client.change import Fields, make_change
from rsnotify_client.outbox import Outbox
from rsnotify_client.publisher import Publisher

log = logging.getLogger(__name__)

PENDING = "rsnotify_pending"
EVENTS = {"after_insert": "created", "after_update": "updated", "after_delete": "deleted"}


class Pending(NamedTuple):
    """A change that awaits the commit of the transaction in which it was made."""

    transaction: SessionTransaction | None
    publisher: Publisher
    set_name: str
    change: Change


def publish_model(
    to: Outbox | Publisher,
    model: type[Any],
    set_name: str,
    loc: Callable[[Any], str],
    fields: Callable[[Any], Fields] | None = None,
) -> None:
    """From now on publish the model's changes; `loc` and `fields` are asked for each object."""
    check_name(set_name)  # refused here: after the commit the caller would not see the error

    def listen(name: str, change: str) -> None:
        def changed(mapper: Any, connection: Connection, target: Any) -> None:  # noqa: ARG001
            if change == "updated" and not _is_modified(target):
                return
            told = {} if fields is None or change == "deleted" else fields(target)
            _hand_over(to, connection, target, set_name, make_change(loc(target), change, told))

        event.listen(model, name, changed, propagate=True)

    for name, change in EVENTS.items():
        listen(name, change)


def _is_modified(target: Any) -> bool:
    """An object may be flushed because of its neighbours only."""
    session = object_session(target)
    return session is None or session.is_modified(target, include_collections=False)


def _hand_over(
    to: Outbox | Publisher, connection: Connection, target: Any, set_name: str, change: Change
) -> None:
    if isinstance(to, Outbox):
        to.send(connection, set_name, change)
        return
    session = inspect(target).session
    transaction = session.get_nested_transaction() or session.get_transaction()
    session.info.setdefault(PENDING, []).append(Pending(transaction, to, set_name, change))


@event.listens_for(Session, "after_commit")
def _committed(session: Session) -> None:
    if session.in_nested_transaction():  # a savepoint is no commit
        return
    for each in session.info.pop(PENDING, ()):
        try:
            each.publisher.send(each.set_name, each.change)
        except Exception as error:
            log.error("not published: %s; %s", each.change, error)


@event.listens_for(Session, "after_soft_rollback")
def _rolled_back(session: Session, transaction: SessionTransaction) -> None:
    pending = session.info.get(PENDING, [])
    pending[:] = [each for each in pending if not _lies_in(each.transaction, transaction)]


def _lies_in(inner: SessionTransaction | None, outer: SessionTransaction) -> bool:
    while inner is not None and inner is not outer:
        inner = inner.parent
    return inner is outer
