"""Django: what its models save and delete is published if the transaction commits.

`settings.RSNOTIFY` has `URL` and `TOKEN`, `BASE_URL` (put before `get_absolute_url()`), and
`OUTBOX`: `"database"` writes changes to a table in the same transaction, for `rsnotify relay` to
publish; a path keeps them in a SQLite file; without it they wait in memory. With `ENABLED` set to
False nothing is published, and nothing else is needed. `manage.py check` names what is missing or
wrong; with `"database"` it does not ask for `URL` and `TOKEN`, for a relay elsewhere may have them.

Rules that hold here: what is rolled back is never published; saving never waits for the hub; a
change that is not taken after the commit is logged as lost. Settings that cannot be meant are never
passed over: `manage.py check` names all that is wrong at once. Before an object is written its row
is read, in a transaction also locked: the address of that row is the one that goes.
`QuerySet.update()` and the bulk methods send no signals, so they publish nothing;
`update_published` is an update that does.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any
from urllib.parse import quote

from django.apps import apps as installed_apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Advice
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, router, transaction
from django.db.models import QuerySet
from django.db.models.signals import post_delete, post_save, pre_delete, pre_save
from django.utils.timezone import get_default_timezone

from rsnotify.resourcesync.change import Change
from rsnotify_client.address import wrong_address
from rsnotify_client.change import Fields
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.integrations.models import (
    BEFORE,
    Naive,
    PublishedModel,
    steps,
    wrong_outbox,
    wrong_settings,
)
from rsnotify_client.integrations.snapshots import (
    LEVELS,
    NoSnapshot,
    Query,
    check_all_given,
    check_level,
    check_place,
    level_for,
    newest_in_outbox,
    wait_for_outbox,
)
from rsnotify_client.loading import LOAD_SECONDS, Loaded
from rsnotify_client.outbox import DROP, DROP_REFUSED, Outbox, says_no_table
from rsnotify_client.publisher import Publisher, PublisherClosed
from rsnotify_client.queue import OutboxError, QueueFull, check_name
from rsnotify_client.relay import Relay

log = logging.getLogger(__name__)

IN_DATABASE = "database"
APP = "rsnotify_client.integrations.django"
TABLE = "rsnotify_outbox"
AT_ONCE = 500  # keys in one statement: each database has a limit

SETTINGS = ("URL", "TOKEN", "BASE_URL", "OUTBOX", "ENABLED")
SHOWN = 'settings.RSNOTIFY: "{}"'
HINT = 'Set it, or set "ENABLED": False if nothing is to be published'
INSTALL = f'Add "{APP}" to INSTALLED_APPS: its migration creates the table'
MIGRATE = "`manage.py migrate` creates it"
IMMEDIATE = (
    'Set "OPTIONS": {{"transaction_mode": "IMMEDIATE"}} in DATABASES[{!r}]: then requests wait for '
    'each other; without it they fail with "database is locked"'
)

published_models: dict[type[Any], list["_Receivers"]] = {}
need_base_url: set[type[Any]] = set()
"""Those whose objects' addresses begin with `BASE_URL`."""


def setting(name: str, default: Any = None) -> Any:
    given, problems = _settings()
    if problems:
        raise ImproperlyConfigured("; ".join(problems))
    return given.get(name, default)


def required(name: str) -> Any:
    if not (value := setting(name)):
        raise needs(name)
    return value


def needs(name: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f'settings.RSNOTIFY needs "{name}"')


def is_enabled() -> bool:
    return bool(setting("ENABLED", True))


def is_in_database() -> bool:
    return bool(setting("OUTBOX") == IN_DATABASE)


def wrong_place_of_outbox() -> list[str]:
    return [] if is_in_database() else wrong_outbox(setting("OUTBOX"), SHOWN)


def _settings() -> tuple[Mapping[str, Any], list[str]]:
    """They, and which of them cannot be meant."""
    given: Mapping[str, Any] = getattr(settings, "RSNOTIFY", None) or {}
    if not isinstance(given, Mapping):
        return {}, ["settings.RSNOTIFY must be a dict"]
    problems = wrong_settings(given, SETTINGS, SHOWN)
    outbox = str(given.get("OUTBOX"))
    if outbox != IN_DATABASE and outbox.lower() == IN_DATABASE:
        problems.append(f'{SHOWN.format("OUTBOX")} is {outbox!r}: did you mean "{IN_DATABASE}"?')
    return given, problems


# What is published ------------------------------------------------------------------------------


PUBLISHER = "publisher"

_made: dict[str, Publisher] = {}


def publish_model(
    model: type[Any],
    set_name: str,
    loc: Callable[[Any], str | None] | None = None,
    fields: Callable[[Any], Fields] | None = None,
    *,
    when: Callable[[Any], bool] | None = None,
    naive: Naive = None,
) -> None:
    """From now on publish the model's changes; call it in `AppConfig.ready`.

    `loc` gives the address of an object, else it is `BASE_URL` and `get_absolute_url()`. `fields`
    gives its other fields, such as `lastmod`. An object is public if its address is not None
    and `when`, if given, is true for it. If one stops to be public, or its address changes, the old
    address is published as deleted. `naive` says which zone the datetimes have that come without
    one; with `USE_TZ = False` it is Django's.
    """
    if naive is None and not settings.USE_TZ:
        naive = get_default_timezone()
    published = PublishedModel(model, set_name, loc or _absolute_url, fields, when, naive)
    if loc is None:
        need_base_url.add(model)
    receivers = _Receivers(published)
    receivers.connect(model)
    published_models.setdefault(model, []).append(receivers)


def update_published(objects: QuerySet[Any], /, **values: Any) -> int:
    """`objects.update(**values)`, and publish what it changes; how many rows it found.

    All of them are in memory meanwhile: take many in pieces.
    """
    model = objects.model
    mine = [
        receivers
        for published, all_of_it in published_models.items()
        if published._meta.concrete_model is model._meta.concrete_model
        for receivers in all_of_it
    ]
    if not mine:
        raise InvalidArgument(f"{model.__name__} is not published: call publish_model for it first")
    using = objects._db or router.db_for_write(model)
    with transaction.atomic(using=using):
        before = list(_locked(objects.using(using), using))
        rows = model._base_manager.using(using)
        keys = [row.pk for row in before]
        pieces = [keys[first : first + AT_ONCE] for first in range(0, len(keys), AT_ONCE)]
        count: int = sum(rows.filter(pk__in=piece).update(**values) for piece in pieces)
        if is_enabled():
            now = [row for piece in pieces for row in rows.filter(pk__in=piece).order_by("pk")]
            for each in mine:
                each.updated(before, now, using)
    return count


def load_model(
    *models: type[Any],
    using: str | None = None,
    publish: bool | None = None,
    max_delete: float | None = None,
    timeout: float = LOAD_SECONDS,
    progress: Callable[[int], object] | None = None,
) -> Loaded:
    """Load all public objects of these models, which are all that their set has.

    The position of the set is asked for first; then the objects are read in one snapshot, from the
    database that is written to, and what waits in the outbox since before is published; then the
    state is loaded. So whatever the application commits meanwhile stays as it is. `progress` is
    called with how many were read; the other options are those of `Publisher.load`.
    """
    if missing := [each.__name__ for each in models if each not in published_models]:
        raise InvalidArgument(f"{missing[0]} is not published: call publish_model for it first")
    mine = [each.published for model in models for each in published_models[model]]
    known = [each.published for all_of_it in published_models.values() for each in all_of_it]
    set_name = check_all_given(mine, known)
    using = using or router.db_for_write(models[0])
    to = Publisher(*_hub()) if is_enabled() and is_in_database() else publisher()
    try:
        states = _states(set_name, mine, using)
        return to.load(
            set_name,
            states,
            as_of=to.position(set_name),
            publish=publish,
            max_delete=max_delete,
            timeout=timeout,
            progress=progress,
        )
    finally:
        if to is not _made.get(PUBLISHER):
            to.close()


def _states(set_name: str, published: Sequence[PublishedModel], using: str) -> Iterator[Change]:
    """The public objects of one snapshot; at the end nothing older waits in the outbox."""
    newest, query = 0, partial(_query, using)
    with _snapshot(using, published):
        if is_in_database():
            newest = newest_in_outbox(set_name, query)
        for each in published:
            for one in _objects(each.model, using):
                if (loc := each.address(one)) is not None:
                    yield each.change(loc, "created", one)
    if is_in_database():
        wait_for_outbox(set_name, newest, query)


@contextmanager
def _snapshot(using: str, published: Sequence[PublishedModel]) -> Iterator[None]:
    """A transaction that sees one moment of the database."""
    connection = connections[using]
    level = level_for(connection.vendor)
    if connection.in_atomic_block or not connection.get_autocommit():
        raise NoSnapshot(
            "load_model begins a transaction of its own, after it has asked for the position: call "
            "it outside of atomic()"
        )
    query = partial(_query, using)
    check_place(connection.vendor, {str(each.model._meta.db_table) for each in published}, query)
    with connection.cursor() as cursor:
        for statement in _BEGINS[connection.vendor]:
            cursor.execute(statement.format(level))
        try:
            check_level(_level_of(connection.vendor, query))
            yield
        finally:
            try:
                cursor.execute("ROLLBACK")  # it has only read
            except DatabaseError:
                connection.close()


_BEGINS = {
    "postgresql": ["BEGIN ISOLATION LEVEL {} READ ONLY"],
    "mysql": ["SET TRANSACTION ISOLATION LEVEL {}", "START TRANSACTION WITH CONSISTENT SNAPSHOT"],
    "sqlite": ["BEGIN"],
}


def _level_of(vendor: str, query: Query) -> str:
    """What the transaction is that has begun."""
    if vendor == "postgresql":
        return str(query("SHOW transaction_isolation", ())[0][0])
    if vendor == "mysql":  # its variables say what the next one is; it warns if it ignores us
        return str(query("SHOW WARNINGS", ()) or LEVELS[vendor])
    return LEVELS[vendor]


def _objects(model: type[Any], using: str) -> Iterator[Any]:
    """All of the model, by primary key, so many at a time."""
    wanted = model._base_manager.using(using).order_by("pk")
    found = list(wanted[:AT_ONCE])
    while found:
        yield from found
        found = list(wanted.filter(pk__gt=found[-1].pk)[:AT_ONCE])


def _query(using: str, statement: str, values: tuple[Any, ...]) -> Sequence[Any]:
    with connections[using].cursor() as cursor:
        cursor.execute(statement.replace("?", "%s"), values or None)
        found: Sequence[Any] = cursor.fetchall()
        return found


class _Receivers:
    """What is done at the signals of a published model."""

    def __init__(self, published: PublishedModel) -> None:
        self.published = published

    def connect(self, model: type[Any]) -> None:
        for each in _with_proxies(model):
            pre_save.connect(self.will_change, sender=each, weak=False)
            pre_delete.connect(self.will_change, sender=each, weak=False)
            post_save.connect(self.saved, sender=each, weak=False)
            post_delete.connect(self.deleted, sender=each, weak=False)

    def will_change(self, instance: Any, using: str, raw: bool = False, **_: Any) -> None:
        if not raw and is_enabled():
            row = _row_of(instance, using)
            address = None if row is None else self.published.address(row)
            vars(instance).setdefault(BEFORE, {})[self.published.key] = address

    def saved(self, instance: Any, created: bool, using: str, raw: bool, **more: Any) -> None:
        if raw or not is_enabled():  # a fixture may come before what `loc` needs
            return
        is_whole = more.get("update_fields") is None and not _has_expressions(instance)
        written = instance if is_whole else _row_of(instance, using)
        now = self.published.address(written)
        # what another receiver has saved meanwhile has been published by that
        self._publish_change(written, using, self._before(instance, None if created else now), now)

    def deleted(self, instance: Any, using: str, **_: Any) -> None:
        if is_enabled():
            self._publish_change(instance, using, self._before(instance, None), None)

    def updated(self, before: list[Any], now: list[Any], using: str) -> None:
        """Many at once, as they were before and are now."""
        address, change = self.published.address, self.published.change
        was = [loc for each in before if (loc := address(each))]
        living = {loc: each for each in now if (loc := address(each))}
        for loc, kind in steps(was, living):
            publish(self.published.set_name, change(loc, kind, living.get(loc)), using)

    def _before(self, instance: Any, otherwise: str | None) -> str | None:
        """`otherwise` is where it was, if nobody said that it would be written."""
        address: str | None = vars(instance).get(BEFORE, {}).pop(self.published.key, otherwise)
        return address

    def _publish_change(self, instance: Any, using: str, was: str | None, now: str | None) -> None:
        for each, kind in steps([was] if was else [], [now] if now else []):
            publish(self.published.set_name, self.published.change(each, kind, instance), using)


def _with_proxies(model: type[Any]) -> set[type[Any]]:
    """A proxy writes the same rows, but sends signals of its own."""
    if model._meta.abstract:
        raise InvalidArgument(
            f"{model.__name__} is abstract: publish the models that inherit from it"
        )
    found = {model, model._meta.concrete_model}
    while more := {proxy for each in found for proxy in _proxies(each)} - found:
        found |= more
    return found


def _proxies(model: type[Any]) -> list[type[Any]]:
    return [each for each in model.__subclasses__() if each._meta.proxy]


def _has_expressions(instance: Any) -> bool:
    """Values that only the database knows, such as `F("edition") + 1`."""
    return any(hasattr(value, "resolve_expression") for value in vars(instance).values())


def _row_of(instance: Any, using: str) -> Any:
    """The object as the database has it; in a transaction nobody else can change it until the end.

    What is saved in part may have the rest of its values from an older row.
    """
    if instance.pk is None:
        return None
    rows = type(instance)._base_manager.using(using).filter(pk=instance.pk)
    return _locked(rows, using).first()


def _locked(rows: QuerySet[Any], using: str) -> QuerySet[Any]:
    connection = connections[using]
    if not connection.in_atomic_block:
        return rows
    return rows.select_for_update(no_key=connection.features.has_select_for_no_key_update)


def publish(set_name: str, change: Change, using: str = DEFAULT_DB_ALIAS) -> None:
    """Publish a change that no signal reports, if the transaction commits."""
    check_name(set_name)  # refused here: after the commit the caller would not see the error
    if not is_enabled():
        return
    if is_in_database():
        _write(set_name, change, using)
        return
    to = publisher()

    def send() -> None:
        try:
            to.send(set_name, change)
        except (QueueFull, PublisherClosed, OutboxError) as error:
            log.error("not published: %s; %s", change, error)

    transaction.on_commit(send, using=using, robust=True)


def _write(set_name: str, change: Change, using: str) -> None:
    try:
        Outbox().send(connections[using], set_name, change)
    except DatabaseError as error:
        if says_no_table(str(error)):
            error.add_note(f"{INSTALL}, and run `manage.py migrate`")
        raise


def start(using: str = DEFAULT_DB_ALIAS) -> None:
    """Publish from now on what waits in the outbox, in a thread; for `wsgi.py` or `asgi.py`.

    With `OUTBOX` in the database this is the relay, and `rsnotify relay` is not needed.
    """
    if not is_enabled():
        return
    if problems := wrong_place_of_outbox():
        raise ImproperlyConfigured(*problems)
    (_relay(using) if is_in_database() else publisher()).start()


def publisher() -> Publisher:
    """The publisher of this process, made from the settings.

    If several threads make one at once, all get the first: each set has its changes in one queue.
    """
    if not is_enabled():
        return Publisher("", enabled=False)
    if is_in_database():
        raise ImproperlyConfigured('OUTBOX is "database": call `publish`, which writes the table')
    if PUBLISHER not in _made:
        made = Publisher(*_hub(), outbox=setting("OUTBOX"), when_full="raise")
        _made.setdefault(PUBLISHER, made)
    return _made[PUBLISHER]


@cache
def _relay(using: str) -> Relay:
    settings_of = connections[using].settings_dict
    if connections[using].vendor == "sqlite":  # a file has a way of its own to lead and to begin
        return Relay(f"sqlite:///{quote(str(settings_of['NAME']))}", *_hub())
    return Relay(partial(_connect, using), *_hub())


def _connect(using: str) -> Any:
    """A connection of its own, whose transactions begin by themselves."""
    wrapper = connections.create_connection(using)
    wrapper.inc_thread_sharing()
    wrapper.ensure_connection()
    wrapper.set_autocommit(False)
    return wrapper.connection


def _hub() -> tuple[str, str]:
    return required("URL"), required("TOKEN")


def create_outbox_table(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001
    """For a migration; that of this app has it."""
    Outbox.create(schema_editor.connection)


def drop_outbox_table(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001
    """The way back, for a migration; what waits is not published."""
    for statement in (DROP, DROP_REFUSED):
        schema_editor.execute(statement)


def _absolute_url(instance: Any) -> str | None:
    if (base := setting("BASE_URL")) is None:
        raise needs("BASE_URL")
    if (path := instance.get_absolute_url()) is None:
        return None
    loc = f"{base.rstrip('/')}{path}"
    if not base and "://" not in loc:
        raise ImproperlyConfigured(f"{SHOWN.format('BASE_URL')} is empty, but {loc} is no address")
    return loc


# What `manage.py check` says ----------------------------------------------------------------------


def check_settings(**_: Any) -> list[CheckMessage]:
    problems = _settings()[1]
    if problems:
        return [Error(problem, id="rsnotify.E002") for problem in problems]
    if not is_enabled():
        return []
    missing = [Error(str(needs(name)), HINT, id="rsnotify.E001") for name in _missing()]
    for name in ("URL", "BASE_URL"):
        if (url := setting(name)) and (wrong := wrong_address(url)) is not None:
            problems.append(f"{SHOWN.format(name)} is {url!r}: {wrong}")
    problems += wrong_place_of_outbox()
    return missing + [Error(problem, id="rsnotify.E002") for problem in problems]


def _missing() -> list[str]:
    """With the table, the relay needs the hub's address and token, perhaps in another process."""
    needed = [] if is_in_database() else ["URL", "TOKEN"]
    missing = [name for name in needed if not setting(name)]
    is_base_missing = need_base_url and setting("BASE_URL") is None
    return [*missing, "BASE_URL"] if is_base_missing else missing


def check_sqlite(**_: Any) -> list[CheckMessage]:
    """A transaction that reads before it writes fails if another one has written meanwhile."""
    return [
        Advice(
            f"DATABASES[{alias!r}] is SQLite without IMMEDIATE: requests that publish at the same "
            "time fail",
            IMMEDIATE.format(alias),
            id="rsnotify.W001",
        )
        for alias in _databases()
        if connections[alias].vendor == "sqlite" and _is_deferred(connections[alias].settings_dict)
    ]


def _is_deferred(database: Mapping[str, Any]) -> bool:
    mode = str(database.get("OPTIONS", {}).get("transaction_mode") or "DEFERRED")
    return mode.upper() == "DEFERRED" and "memory" not in str(database["NAME"])


def check_table(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Only advice, and none to `migrate`, which is about to create it."""
    if sys.argv[1:2] == ["migrate"]:
        return []
    hint = MIGRATE if installed_apps.is_installed(APP) else INSTALL
    return [
        Advice(f"DATABASES[{alias!r}] has no table {TABLE}", hint, id="rsnotify.W002")
        for alias in _databases()
        if alias in (databases or ()) and is_in_database() and not _has_table(alias)
    ]


def _has_table(alias: str) -> bool:
    with connections[alias].cursor() as cursor:
        return TABLE in connections[alias].introspection.table_names(cursor)


def _databases() -> list[str]:
    """Those that published models are written to."""
    if _settings()[1] or not is_enabled() or not (published_models or is_in_database()):
        return []
    return sorted({router.db_for_write(each) for each in published_models} or {DEFAULT_DB_ALIAS})


register(check_settings)
register(check_sqlite)
register(check_table, Tags.database)
