"""Flask: a publisher made from the application's configuration.

`RSNOTIFY_URL` and `RSNOTIFY_TOKEN` say where to publish. `RSNOTIFY_OUTBOX`, the path of a file,
keeps what is not published yet. With `RSNOTIFY_ENABLED` set to False nothing is published, and
no other setting is needed. Settings that cannot work are refused when the application is made.

Rules that hold here: a request never waits for the hub, and never fails because of it; a change
that finds no room, a publisher that is closed, or an outbox that fails, is logged as lost.
"""

from typing import Any, cast

from flask import Flask, current_app

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import Kind
from rsnotify_client.change import ChangeMethods
from rsnotify_client.integrations.models import wrong_outbox, wrong_settings
from rsnotify_client.publisher import Publisher, PublisherClosed
from rsnotify_client.queue import OutboxError, QueueFull

NAME = "rsnotify"
PREFIX = "RSNOTIFY_"
SHOWN = f"{PREFIX}{{}}"
NEEDED = ("URL", "TOKEN")
SETTINGS = (*NEEDED, "OUTBOX", "ENABLED")


class RSNotify(ChangeMethods[None]):
    """The extension: `rsnotify = RSNotify(app)`, or `rsnotify.init_app(app)` later."""

    def __init__(self, app: Flask | None = None) -> None:
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        given = _given(app)
        app.extensions[NAME] = Publisher(
            given.get("URL") or "",
            given.get("TOKEN"),
            outbox=given.get("OUTBOX"),
            when_full="raise",
            enabled=given.get("ENABLED", True),
        )

    @property
    def publisher(self) -> Publisher:
        """The publisher of the application that is being served."""
        return cast("Publisher", current_app.extensions[NAME])

    def start(self, app: Flask) -> None:
        """Publish what an earlier process left in the outbox, without waiting for a change."""
        cast("Publisher", app.extensions[NAME]).start()

    def send(self, set_name: str, change: Change, *, kind: Kind = "change") -> None:
        try:
            self.publisher.send(set_name, change, kind=kind)
        except (QueueFull, PublisherClosed, OutboxError) as error:
            current_app.logger.error("not published: %s; %s", change, error)


def _given(app: Flask) -> dict[str, Any]:
    """The settings, without their prefix; what cannot work is refused."""
    config = app.config.items()
    given = {name.removeprefix(PREFIX): each for name, each in config if name.startswith(PREFIX)}
    problems = wrong_settings(given, SETTINGS, SHOWN)
    if not problems and given.get("ENABLED", True):
        missing = [SHOWN.format(name) for name in NEEDED if not given.get(name)]
        if missing:
            problems.append(
                f"set {' and '.join(missing)} in the app's configuration, "
                "or RSNOTIFY_ENABLED to False"
            )
        problems += wrong_outbox(given.get("OUTBOX"), SHOWN)
    if problems:
        raise InvalidSettings(*problems)
    return given
