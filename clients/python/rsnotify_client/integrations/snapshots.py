"""Reading what an application's models have in one snapshot, and waiting for what its outbox holds.

Rules that hold here: a state is of one moment, or it is refused with a sentence that says how to
mend it. The position of the set is asked for before the snapshot begins. What was written to the
outbox before the snapshot is published before the state is loaded: else the load would come first,
and older changes of the same resources after it.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from rsnotify.errors import Error, TryAgain
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.integrations.models import PublishedModel
from rsnotify_client.threads import waited

AT_ONCE = 1_000  # objects, by their primary keys
WAIT_SECONDS = 60.0
"""For the outbox, since it has become shorter."""
LOOK_SECONDS = 0.1

LEVELS = {
    "postgresql": "REPEATABLE READ",
    "mysql": "REPEATABLE READ",
    "mariadb": "REPEATABLE READ",
    "sqlite": "SERIALIZABLE",
}
"""The isolation that is one snapshot, by what SQLAlchemy and Django call their databases."""
STRONG = {"REPEATABLE READ", "SERIALIZABLE"}

NEWEST = "SELECT MAX(id) FROM rsnotify_outbox WHERE set_name = ?"
LEFT = "SELECT COUNT(*) FROM rsnotify_outbox WHERE set_name = ? AND id <= ?"
TRANSACTIONAL = "InnoDB"
ENGINES = (
    "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE'"
)
IS_REPLICA = "SELECT pg_is_in_recovery()"

Query = Callable[[str, tuple[Any, ...]], Sequence[Sequence[Any]]]
"""Executes a statement with `?` for its values; its rows."""


class NoSnapshot(Error, RuntimeError):
    """The state cannot be read in one snapshot."""


_OTHERWISE = (
    "read the state yourself, in one transaction that sees one moment, and give it to "
    "publisher.load(set_name, states, as_of=position)"
)


def level_for(database: str) -> str:
    """The isolation with which this kind of database is read."""
    if database not in LEVELS:
        known = ", ".join(LEVELS)
        raise NoSnapshot(
            f"load_model knows no snapshots of {database}, only of {known}: {_OTHERWISE}"
        )
    return LEVELS[database]


def check_level(level: str | None) -> None:
    """Refuse a transaction that sees what others commit meanwhile."""
    if (level or "").upper().replace("-", " ") not in STRONG:
        raise NoSnapshot(
            f"the transaction is {level}, and sees what others commit meanwhile: let the "
            "connection begin transactions that are REPEATABLE READ"
        )


def check_place(database: str, tables: set[str], query: Query) -> None:
    """Refuse a copy that may lag behind, and tables that know no snapshots."""
    if database == "postgresql" and query(IS_REPLICA, ())[0][0]:
        raise NoSnapshot(
            "this PostgreSQL is a replica, which may lag behind what was published already: give "
            "load_model the database that the application writes to"
        )
    if database in ("mysql", "mariadb"):
        for name, engine in query(ENGINES, ()):
            if name in tables and engine != TRANSACTIONAL:
                raise NoSnapshot(
                    f"the table {name} is {engine}, which knows no snapshots: ALTER TABLE {name} "
                    f"ENGINE = {TRANSACTIONAL}"
                )


def newest_in_outbox(set_name: str, query: Query) -> int:
    """The newest change in the outbox, as the snapshot has it."""
    return int(query(NEWEST, (set_name,))[0][0] or 0)


def wait_for_outbox(set_name: str, newest: int, query: Query) -> None:
    """Until nothing waits that the snapshot has seen waiting."""
    since, before = monotonic(), None
    while left := int(query(LEFT, (set_name, newest))[0][0]):
        if before is None or left < before:
            since, before = monotonic(), left
        if monotonic() - since > WAIT_SECONDS or not waited(LOOK_SECONDS):
            changes = "1 change waits" if left == 1 else f"{left} changes wait"
            raise TryAgain(
                f"{changes} in the outbox for {set_name!r} and must be published before the state: "
                "does `rsnotify relay` run? (`rsnotify relay --status` says what is in the way)"
            )


def check_all_given(given: Sequence[PublishedModel], known: Sequence[PublishedModel]) -> str:
    """The set of these models, if they are all that it has."""
    names = {each.set_name for each in given}
    if len(names) != 1:
        said = ", ".join(sorted(names)) or "none"
        raise InvalidArgument(f"load_model loads one set at a time, and these models have {said}")
    (set_name,) = names
    left_out = [each.name for each in known if each.set_name == set_name and each not in given]
    if left_out:
        raise InvalidArgument(
            f"{set_name} also has {', '.join(left_out)}: name all models of the set, or their "
            "resources would be deleted"
        )
    return set_name
