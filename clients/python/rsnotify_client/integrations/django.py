"""Django: what its models save and delete is published if the transaction commits.

`settings.RSNOTIFY` has `URL` and `TOKEN`, `BASE_URL` (put before `get_absolute_url()`), and
`OUTBOX`: `"database"` writes changes to a table in the same transaction, for `rsnotify relay` to
publish; a path keeps them in a SQLite file; without it they wait in memory. With `ENABLED` set to
False nothing is published, and nothing else is needed. `manage.py check` names what is missing or
wrong; with `"database"` it does not ask for `URL` and `TOKEN`, for a relay elsewhere may have them.

Rules that hold here: what is rolled back is never published; saving never waits for the hub; a
change that is not taken after the commit is logged as lost.
`QuerySet.update()` and the bulk methods send no signals, so they publish nothing.
"""

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, transaction
from django.db.models.signals import post_delete, post_save

from rsnotify.resourcesync.change import Change
from rsnotify_client.address import wrong_address
from rsnotify_client.batch import OutboxError, check_name
from rsnotify_client.change import Fields, make_change
from rsnotify_client.integrations.settings import wrong_outbox, wrong_settings
from rsnotify_client.memory import QueueFull
from rsnotify_client.outbox import Outbox, statements
from rsnotify_client.outboxtable import says_no_table
from rsnotify_client.publisher import Publisher, PublisherClosed
from rsnotify_client.relay import Relay

log = logging.getLogger(__name__)

IN_DATABASE = "database"
PUBLISHER = "publisher"

SETTINGS = ("URL", "TOKEN", "BASE_URL", "OUTBOX", "ENABLED")
SHOWN = 'settings.RSNOTIFY: "{}"'
HINT = 'Set it, or set "ENABLED": False if nothing is to be published'

_made: dict[str, Publisher] = {}
_need_base_url: set[type[Any]] = set()
"""The models whose objects' addresses begin with `BASE_URL`."""


def publish_model(
    model: type[Any],
    set_name: str,
    loc: Callable[[Any], str] | None = None,
    fields: Callable[[Any], Fields] | None = None,
) -> None:
    """From now on publish the model's changes; call it in `AppConfig.ready`.

    `loc` gives the address of an object, else it is `BASE_URL` and `get_absolute_url()`. `fields`
    gives what else is told of it, such as `lastmod`.
    """
    check_name(set_name)
    where = loc or _absolute_url
    if loc is None:
        _need_base_url.add(model)

    def saved(instance: Any, created: bool, using: str, raw: bool, **_: Any) -> None:
        if not raw and _is_enabled():  # a fixture may come before what `loc` needs
            told = {} if fields is None else fields(instance)
            change = make_change(where(instance), "created" if created else "updated", told)
            publish(set_name, change, using)

    def deleted(instance: Any, using: str, **_: Any) -> None:
        if _is_enabled():
            publish(set_name, make_change(where(instance), "deleted", {}), using)

    post_save.connect(saved, sender=model, weak=False)
    post_delete.connect(deleted, sender=model, weak=False)


def publish(set_name: str, change: Change, using: str = DEFAULT_DB_ALIAS) -> None:
    """Publish a change that no signal tells of, if the transaction commits."""
    check_name(set_name)  # refused here: after the commit the caller would not see the error
    if not _is_enabled():
        return
    if _is_in_database():
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
            error.add_note("Create it in a migration: RunPython(create_outbox_table)")
        raise


def start(using: str = DEFAULT_DB_ALIAS) -> None:
    """Publish from now on what waits in the outbox, in a thread; for `wsgi.py` or `asgi.py`.

    With `OUTBOX` in the database this is the relay, and `rsnotify relay` is not needed.
    """
    if not _is_enabled():
        return
    if problems := _wrong_outbox():
        raise ImproperlyConfigured(*problems)
    (_relay(using) if _is_in_database() else publisher()).start()


def publisher() -> Publisher:
    """The publisher of this process, made from the settings.

    If several threads make one at once, all get the first: each set has its changes in one queue.
    """
    if not _is_enabled():
        return Publisher("", enabled=False)
    if _is_in_database():
        raise ImproperlyConfigured('OUTBOX is "database": call `publish`, which writes the table')
    if PUBLISHER not in _made:
        made = Publisher(*_hub(), outbox=_setting("OUTBOX"), when_full="raise")
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
    return _required("URL"), _required("TOKEN")


def _is_enabled() -> bool:
    return bool(_setting("ENABLED", True))


def _is_in_database() -> bool:
    return bool(_setting("OUTBOX") == IN_DATABASE)


def create_outbox_table(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001
    """For a migration: `RunPython(create_outbox_table, RunPython.noop)`."""
    for statement in statements(schema_editor.connection.vendor):
        schema_editor.execute(statement)


def _absolute_url(instance: Any) -> str:
    if (base := _setting("BASE_URL")) is None:
        raise _needs("BASE_URL")
    loc = f"{base.rstrip('/')}{instance.get_absolute_url()}"
    if not base and "://" not in loc:
        raise ImproperlyConfigured(f"{SHOWN.format('BASE_URL')} is empty, but {loc} is no address")
    return loc


def _setting(name: str, default: Any = None) -> Any:
    given, problems = _settings()
    if problems:
        raise ImproperlyConfigured("; ".join(problems))
    return given.get(name, default)


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


def _required(name: str) -> Any:
    if not (value := _setting(name)):
        raise _needs(name)
    return value


def _needs(name: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f'settings.RSNOTIFY needs "{name}"')


def _wrong_outbox() -> list[str]:
    return [] if _is_in_database() else wrong_outbox(_setting("OUTBOX"), SHOWN)


def check_settings(**_: Any) -> list[CheckMessage]:
    """What is wrong with the settings: for `manage.py check`."""
    problems = _settings()[1]
    if problems:
        return [Error(problem, id="rsnotify.E002") for problem in problems]
    if not _is_enabled():
        return []
    missing = [Error(str(_needs(name)), HINT, id="rsnotify.E001") for name in _missing()]
    for name in ("URL", "BASE_URL"):
        if (url := _setting(name)) and (wrong := wrong_address(url)) is not None:
            problems.append(f"{SHOWN.format(name)} is {url!r}: {wrong}")
    problems += _wrong_outbox()
    return missing + [Error(problem, id="rsnotify.E002") for problem in problems]


def _missing() -> list[str]:
    """With the table, the relay needs the hub's address and token, perhaps in another process."""
    needed = [] if _is_in_database() else ["URL", "TOKEN"]
    missing = [name for name in needed if not _setting(name)]
    is_base_missing = _need_base_url and _setting("BASE_URL") is None
    return [*missing, "BASE_URL"] if is_base_missing else missing


register(check_settings)
