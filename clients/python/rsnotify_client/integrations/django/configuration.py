"""`settings.RSNOTIFY` and the models that are published, and the checks of both.

Rules that hold here: settings that cannot be meant are never passed over. `manage.py check` names
all that is wrong at once; what only a database can say, it says with `--database default`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Advice
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, router

from rsnotify_client.address import wrong_address
from rsnotify_client.integrations.models import wrong_outbox, wrong_settings

IN_DATABASE = "database"
APP = "rsnotify_client.integrations.django"
TABLE = "rsnotify_outbox"

SETTINGS = ("URL", "TOKEN", "BASE_URL", "OUTBOX", "ENABLED")
SHOWN = 'settings.RSNOTIFY: "{}"'
HINT = 'Set it, or set "ENABLED": False if nothing is to be published'
INSTALL = f'Add "{APP}" to INSTALLED_APPS: its migration creates the table'
MIGRATE = "`manage.py migrate` creates it"
IMMEDIATE = (
    'Set "OPTIONS": {{"transaction_mode": "IMMEDIATE"}} in DATABASES[{!r}]: then requests wait for '
    'each other; without it they fail with "database is locked"'
)

published_models: set[type[Any]] = set()
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
    hint = MIGRATE if apps.is_installed(APP) else INSTALL
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
