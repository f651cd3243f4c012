"""SQLAlchemy: what a session inserts, updates and deletes is published if it is committed.

With an `Outbox` the change is written in the session's own transaction, and a relay publishes it.
With a `Publisher` it is handed over after the commit, so it is lost if the process ends in between.

Rules that hold here: what is rolled back, a savepoint too, is never published. A commit never fails
because of a publisher; a change that it does not take is logged as lost. Before an object is
written its row is read, and locked until the commit: the address of that row is the one that goes,
and what the object has from an older row is forgotten.
Statements that pass the objects by are not published; those that SQLAlchemy shows are named once.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import event, inspect, select, tuple_
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import (
    ColumnProperty,
    ORMExecuteState,
    Session,
    SessionTransaction,
    lazyload,
    object_session,
)
from sqlalchemy.orm.attributes import History

from rsnotify.resourcesync.change import Change
from rsnotify_client.change import Fields
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.integrations.models import BEFORE, Naive, PublishedModel, steps
from rsnotify_client.integrations.snapshots import (
    AT_ONCE,
    WAIT_SECONDS,
    NoSnapshot,
    check_all_given,
    check_level,
    check_place,
    level_for,
    newest_in_outbox,
    wait_for_outbox,
)
from rsnotify_client.loading import LOAD_SECONDS, Loaded
from rsnotify_client.outbox import Outbox, with_marks
from rsnotify_client.publisher import Publisher

log = logging.getLogger(__name__)

PENDING = "rsnotify_pending"
WRITTEN = "rsnotify_written"

_not_warned: set[type[Any]] = set()
"""Published models of which nobody has said yet that a statement passed their objects by."""


_published: list[tuple[Outbox | Publisher, PublishedModel]] = []


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
    _not_warned.add(model)
    published = PublishedModel(model, set_name, loc, fields, when, naive)
    _published.append((to, published))
    listeners = _Listeners(to, published)
    event.listen(model, "before_update", listeners.will_update, propagate=True)
    event.listen(model, "before_delete", listeners.will_delete, propagate=True)
    event.listen(model, "after_insert", listeners.was_inserted, propagate=True)
    event.listen(model, "after_update", listeners.was_updated, propagate=True)
    event.listen(model, "after_delete", listeners.was_deleted, propagate=True)


def load_model(
    publisher: Publisher,
    engine: Engine,
    *models: type[Any],
    publish: bool | None = None,
    max_delete: float | None = None,
    timeout: float = LOAD_SECONDS,
    progress: Callable[[int], object] | None = None,
) -> Loaded:
    """Load all public objects of these models, which are all that their set has.

    The position of the set is asked for first; then the objects are read in one snapshot, and what
    `publish_model` has put into the outbox before that is published; then the state is loaded. So
    whatever the application commits meanwhile stays as it is. `progress` is called with how many
    were read; the other options are those of `Publisher.load`.
    """
    mine = [(to, each) for to, each in _published if each.model in models]
    if missing := [each.__name__ for each in models if each not in {one.model for _, one in mine}]:
        raise InvalidArgument(f"{missing[0]} is not published: call publish_model for it first")
    published = [each for _, each in mine]
    set_name = check_all_given(published, [each for _, each in _published])
    waiting = {to for to, _ in mine}
    as_of = publisher.position(set_name)
    states = _states(engine, set_name, published, waiting)
    return publisher.load(
        set_name,
        states,
        as_of=as_of,
        publish=publish,
        max_delete=max_delete,
        timeout=timeout,
        progress=progress,
    )


def _states(
    engine: Engine,
    set_name: str,
    published: Sequence[PublishedModel],
    waiting: set[Outbox | Publisher],
) -> Iterator[Change]:
    """The public objects of one snapshot; at the end nothing older waits to be published."""
    newest, has_outbox = 0, any(isinstance(each, Outbox) for each in waiting)
    with _snapshot(engine, published) as session:
        if has_outbox:
            newest = newest_in_outbox(set_name, partial(_query, session.connection()))
        for each in published:
            for one in _objects(session, each.model):
                if (loc := each.address(one)) is not None:
                    yield each.change(loc, "created", one)
    for to in waiting:
        if isinstance(to, Publisher):
            to.flush(WAIT_SECONDS)
    if has_outbox:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            wait_for_outbox(set_name, newest, partial(_query, connection))


@contextmanager
def _snapshot(engine: Engine, published: Sequence[PublishedModel]) -> Iterator[Session]:
    """A session that sees one moment of the database."""
    database = engine.dialect.name
    level = level_for(database)
    with engine.connect() as connection:
        if database != "sqlite":
            connection.execution_options(isolation_level=level)
        with connection.begin():
            if database == "sqlite":
                _begin_to_read(connection)
            check_level(connection.get_isolation_level())
            tables = {str(table.name) for each in published for table in _tables(each.model)}
            check_place(database, tables, partial(_query, connection))
            # else the session would end the transaction of the connection
            with Session(
                connection, autoflush=False, join_transaction_mode="rollback_only"
            ) as session:
                yield session


def _tables(model: type[Any]) -> Sequence[Any]:
    tables: Sequence[Any] = inspect(model).tables
    return tables


def _begin_to_read(connection: Connection) -> None:
    """SQLite's driver begins a transaction with the first write only."""
    driver = connection.connection.driver_connection
    if not getattr(driver, "in_transaction", False):
        connection.exec_driver_sql("BEGIN")
    if not getattr(driver, "in_transaction", False):
        raise NoSnapshot("the connection begins no transaction: give load_model another engine")


def _objects(session: Session, model: type[Any]) -> Iterator[Any]:
    """All of the model, by primary key, so many at a time: what is read of one is forgotten then,
    and `loc` may load what it needs, which the cursor of a long result does not let it."""
    keys = inspect(model).primary_key
    key = keys[0] if len(keys) == 1 else tuple_(*keys)
    wanted = select(model).options(lazyload("*")).order_by(*keys).limit(AT_ONCE)
    found = session.scalars(wanted).all()
    while found:
        yield from found
        last = inspect(found[-1]).identity
        session.expunge_all()
        after = key > (last[0] if len(keys) == 1 else tuple_(*last))
        found = session.scalars(wanted.where(after)).all()


def _query(connection: Connection, statement: str, values: tuple[Any, ...]) -> Sequence[Any]:
    marked = with_marks(statement, connection.dialect.paramstyle)
    return connection.exec_driver_sql(marked, values).fetchall()


class _Listeners:
    """What is done while a flush writes an object of a published model."""

    def __init__(self, to: Outbox | Publisher, published: PublishedModel) -> None:
        self._to = to
        self._published = published

    def will_update(self, _: Any, connection: Connection, target: Any) -> None:
        if _is_modified(target):
            with _row_of(target, connection) as row:
                self._remember(target, row)
                if row is not None:
                    _forget_what_differs(target, row)

    def will_delete(self, _: Any, connection: Connection, target: Any) -> None:
        with _row_of(target, connection) as row:
            self._remember(target, row)

    def was_inserted(self, _: Any, connection: Connection, target: Any) -> None:
        self._note(connection, None, self._published.address(target), target)

    def was_updated(self, _: Any, connection: Connection, target: Any) -> None:
        addresses = vars(target).get(BEFORE, {})
        if self._published.key in addresses:
            before = addresses.pop(self._published.key)
            self._note(connection, before, self._published.address(target), target)

    def was_deleted(self, _: Any, connection: Connection, target: Any) -> None:
        self._note(connection, vars(target)[BEFORE].pop(self._published.key), None, target)

    def _remember(self, target: Any, row: Any) -> None:
        address = None if row is None else self._published.address(row)
        vars(target).setdefault(BEFORE, {})[self._published.key] = address

    def _note(
        self, connection: Connection, before: str | None, now: str | None, target: Any
    ) -> None:
        written = Written(self._to, self._published, connection, before, now, target)
        inspect(target).session.info.setdefault(WRITTEN, []).append(written)


def _is_modified(target: Any) -> bool:
    """An object may be flushed because of its neighbours only."""
    session = object_session(target)
    return session is None or session.is_modified(target, include_collections=False)


@contextmanager
def _row_of(target: Any, connection: Connection) -> Iterator[Any]:
    """The object as the database has it, where nobody else can change it until the commit."""
    if connection.dialect.name == "sqlite":
        _begin_to_write(connection)
    state = inspect(target)
    with Session(connection, autoflush=False, join_transaction_mode="rollback_only") as reader:
        yield reader.get(
            state.mapper.class_,
            state.identity,
            options=[lazyload("*")],
            # of its first table: the others may be joined from outside, which cannot be locked
            with_for_update={"key_share": True, "of": state.mapper.base_mapper.local_table},
        )


def _forget_what_differs(target: Any, row: Any) -> None:
    """What another transaction has written since the object was loaded, and this one does not."""
    state = inspect(target)
    differing = [
        each.key
        for each in state.mapper.column_attrs
        if each.columns[0] is not state.mapper.version_id_col
        if _differs(each, state.attrs[each.key].history, row)
    ]
    if differing:
        state.session.expire(target, differing)


def _differs(attribute: ColumnProperty[Any], history: History, row: Any) -> bool:
    """Whether a value that is loaded, and will not be written, is not the row's."""
    if not history.unchanged:
        return False
    is_same = attribute.columns[0].type.compare_values
    return not is_same(history.unchanged[0], getattr(row, attribute.key))


def _begin_to_write(connection: Connection) -> None:
    """SQLite locks no rows, and its driver begins a transaction with the first write only."""
    if not getattr(connection.connection.driver_connection, "in_transaction", True):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


@event.listens_for(Session, "do_orm_execute")
def _executed(state: ORMExecuteState) -> None:
    if state.is_select or not _not_warned or state.bind_mapper is None:
        return
    for model in _not_warned.intersection(state.bind_mapper.class_.__mro__):
        _not_warned.discard(model)
        log.warning(
            "a statement writes %s past its objects: publish what it changes yourself",
            model.__name__,
        )


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
