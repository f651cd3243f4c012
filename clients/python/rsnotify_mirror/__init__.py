"""A copy of a Source's resources in a directory: made, kept in step, verified.

>>> with Mirror("https://example.org/", "copy") as mirror:
...     mirror.once()

`Mirror` is the face, and `AsyncMirror` in an event loop. `planning` reads what the Source has and
records in the `state` what is to be done; `plan` has the rules. `workers` do it, many at once:
`fetch` gets a resource and checks it, `storing` puts it in its place (`paths`, `disk`) and calls
the hook; `report` says what was done. `audit` compares a copy with its Source, `inspection`
validates a whole Source, `dumping` makes dumps of a copy, and `republishing` publishes it to a hub.
Nothing else here needs a hub: any ResourceSync Source will do. Whatever is raised on purpose is a
`rsnotify_client.Error`.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from rsnotify import __version__

if TYPE_CHECKING:
    from rsnotify_mirror.blocking import Mirror
    from rsnotify_mirror.mirror import AsyncMirror
    from rsnotify_mirror.plan import Options
    from rsnotify_mirror.report import Event
    from rsnotify_mirror.republication import Republication
    from rsnotify_mirror.selection import Selection

_PLACES = {
    "AsyncMirror": "rsnotify_mirror.mirror",
    "Event": "rsnotify_mirror.report",
    "Mirror": "rsnotify_mirror.blocking",
    "Options": "rsnotify_mirror.plan",
    "Republication": "rsnotify_mirror.republication",
    "Selection": "rsnotify_mirror.selection",
}

__all__ = ["AsyncMirror", "Event", "Mirror", "Options", "Republication", "Selection", "__version__"]

if not TYPE_CHECKING:  # which would take every name for one of ours

    def __getattr__(name):
        """Import a name when it is first used."""
        if name not in _PLACES:
            raise AttributeError(f"module 'rsnotify_mirror' has no attribute {name!r}")
        value = getattr(_import_module(_PLACES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
