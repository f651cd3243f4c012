"""SQLAlchemy: what a session inserts, updates and deletes is published if it is committed.

With an `Outbox` the change is written in the session's own transaction, and a relay publishes it.
With a `Publisher` it is handed over after the commit, so it is lost if the process ends in between.

Rules that hold here: what is rolled back, a savepoint too, is never published. A commit never fails
because of a publisher; a change that it does not take is logged as lost. Before an object is
written its row is read, and locked until the commit: the address of that row is the one that goes.
Statements that pass the session by (bulk updates, SQL) are not seen.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import event, inspect
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, SessionTransaction, lazyload, object_session

from rsnotify.resourcesync.change import Change
from rsnotify_client.change import Fields
from rsnotify_client.integrations.models import BEFORE, Naive, PublishedModel, steps
from rsnotify_client.outbox import Outbox
from rsnotify_client.publisher import Publisher

log = logging.getLogger(__name__)

PENDING = "rsnotify_pending"
WRITTEN = "rsnotify_written"


class Pending(NamedTuple):
    """A change that awaits the commit of the transaction in which it was made."""

    transaction: SessionTransaction | None
    publisher: Publisher
    set_name: str
    change: Change


class Written(NamedTuple):
    """An object that a flush has written, and where it was public until then."""

    to: Outbox | Publisher
    model: PublishedModel
    connection: Connection
    before: str | None
    now: str | None
    target: Any


def publish_model(
    to: Outbox | Publisher,
    model: type[Any],
    set_name: str,
    loc: Callable[[Any], str | None],
    fields: Callable[[Any], Fields] | None = None,
    *,
    when: Callable[[Any], bool] | None = None,
    naive: Naive = None,
) -> None:
    """From now on publish the model's changes; `loc` and `fields` are asked for each object.

    An object is public if `loc` gives an address, not None, and `when`, if given, is true for it.
    If one stops to be public, or its address changes, the old address is published as deleted.
    `naive` says which zone the datetimes have that come without one.
    """
    published = PublishedModel(model, set_name, loc, fields, when, naive)

    def will_update(mapper: Any, connection: Connection, target: Any) -> None:
        if _is_modified(target):
            will_delete(mapper, connection, target)

    def will_delete(mapper: Any, connection: Connection, target: Any) -> None:  # noqa: ARG001
        addresses = vars(target).setdefault(BEFORE, {})
        addresses[published.key] = _address_of_row(published, connection, target)

    def was_inserted(mapper: Any, connection: Connection, target: Any) -> None:  # noqa: ARG001
        _note(Written(to, published, connection, None, published.address(target), target))

    def was_updated(mapper: Any, connection: Connection, target: Any) -> None:  # noqa: ARG001
        addresses = vars(target).get(BEFORE, {})
        if published.key in addresses:
            before, now = addresses.pop(published.key), published.address(target)
            _note(Written(to, published, connection, before, now, target))

    def was_deleted(mapper: Any, connection: Connection, target: Any) -> None:  # noqa: ARG001
        before = vars(target)[BEFORE].pop(published.key)
        _note(Written(to, published, connection, before, None, target))

    event.listen(model, "before_update", will_update, propagate=True)
    event.listen(model, "before_delete", will_delete, propagate=True)
    event.listen(model, "after_insert", was_inserted, propagate=True)
    event.listen(model, "after_update", was_updated, propagate=True)
    event.listen(model, "after_delete", was_deleted, propagate=True)


def _is_modified(target: Any) -> bool:
    """An object may be flushed because of its neighbours only."""
    session = object_session(target)
    return session is None or session.is_modified(target, include_collections=False)


def _address_of_row(published: PublishedModel, connection: Connection, target: Any) -> str | None:
    """Where the object is public by its row, which nobody else can change until the commit."""
    if connection.dialect.name == "sqlite":
        _begin_to_write(connection)
    state = inspect(target)
    with Session(connection, autoflush=False, join_transaction_mode="rollback_only") as reader:
        row = reader.get(
            state.mapper.class_,
            state.identity,
            options=[lazyload("*")],  # a row of an outer join cannot be locked
            with_for_update={"key_share": True},
        )
        return None if row is None else published.address(row)


def _begin_to_write(connection: Connection) -> None:
    """SQLite locks no rows, and its driver begins a transaction with the first write only."""
    if not getattr(connection.connection.driver_connection, "in_transaction", True):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _note(written: Written) -> None:
    inspect(written.target).session.info.setdefault(WRITTEN, []).append(written)


@event.listens_for(Session, "after_flush")
def _flushed(session: Session, flush_context: Any) -> None:  # noqa: ARG001
    """All objects of a flush together: one may take the address that another one has left."""
    flushed: dict[Any, list[Written]] = {}
    for each in session.info.pop(WRITTEN, ()):
        flushed.setdefault((each.to, each.model.set_name, each.connection), []).append(each)
    for (to, set_name, connection), written in flushed.items():
        now = {each.now: each for each in written if each.now is not None}
        before = {each.before: each for each in written if each.before is not None}
        for loc, kind in steps(before, now):
            each = now.get(loc) or before[loc]
            _hand_over(to, connection, session, set_name, each.model.change(loc, kind, each.target))


def _hand_over(
    to: Outbox | Publisher, connection: Connection, session: Session, set_name: str, change: Change
) -> None:
    if isinstance(to, Outbox):
        to.send(connection, set_name, change)
        return
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
    session.info.pop(WRITTEN, None)  # of a flush that failed
    pending = session.info.get(PENDING, [])
    pending[:] = [each for each in pending if not _lies_in(each.transaction, transaction)]


def _lies_in(inner: SessionTransaction | None, outer: SessionTransaction) -> bool:
    while inner is not None and inner is not outer:
        inner = inner.parent
    return inner is outer
