"""Flask: a publisher made from the application's configuration.

`RSNOTIFY_URL` and `RSNOTIFY_TOKEN` say where to publish. `RSNOTIFY_OUTBOX`, the path of a file,
keeps what is not published yet. With `RSNOTIFY_ENABLED` set to False nothing is published, and
no other setting is needed.

Rules that hold here: a request never waits for the hub, and never fails because of it; a change
that finds no room, or a publisher that is closed, is logged as lost.
"""

from typing import cast

from flask import Flask, current_app

from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import Kind
from rsnotify_client.batch import OutboxError
from rsnotify_client.change import ChangeMethods
from rsnotify_client.memory import QueueFull
from rsnotify_client.publisher import Publisher, PublisherClosed

NAME = "rsnotify"


class RSNotify(ChangeMethods[None]):
    """The extension: `rsnotify = RSNotify(app)`, or `rsnotify.init_app(app)` later."""

    def __init__(self, app: Flask | None = None) -> None:
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        url = app.config.get("RSNOTIFY_URL") or ""
        enabled = app.config.get("RSNOTIFY_ENABLED", True)
        if enabled and not url:
            raise RuntimeError(
                "set RSNOTIFY_URL to the hub's address in the app's configuration, "
                "or RSNOTIFY_ENABLED to False"
            )
        app.extensions[NAME] = Publisher(
            url,
            app.config.get("RSNOTIFY_TOKEN"),
            outbox=app.config.get("RSNOTIFY_OUTBOX"),
            when_full="raise",
            enabled=enabled,
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
