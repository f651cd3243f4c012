"""rsnotify's Python client: publish changes to a hub, follow any Source.

>>> with Publisher("http://127.0.0.1:8080", token) as publisher:
...     publisher.updated("dataset1", "http://example.com/res1")

>>> for change in follow("http://127.0.0.1:8080", sets=["dataset1"], cursor="cursors.db"):
...     with change:
...         print(change.datetime, change.change, change.loc)

What has `Async` or `async` in its name is for an event loop: what of it may wait is a coroutine, or
an asynchronous iterator. All else blocks. `except Error` catches whatever a call raises on purpose.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from rsnotify import __version__

if TYPE_CHECKING:
    from rsnotify.errors import Error, InvalidSettings, Rejected, TryAgain
    from rsnotify.resourcesync.change import Change, ChangeKind, Link, Position
    from rsnotify_client.answer import HubUnreachable, NotAHub, WrongToken
    from rsnotify_client.asyncpublisher import AsyncPublisher
    from rsnotify_client.between import Unreadable, changes_between
    from rsnotify_client.changelists import HistoryGone, SetBack
    from rsnotify_client.cursor import CursorError, CursorStore, FileCursor, SqliteCursor
    from rsnotify_client.discovery import NotASource, NotOneSet
    from rsnotify_client.documents import Malformed
    from rsnotify_client.errors import InvalidArgument, TimedOut, TokenUnavailable
    from rsnotify_client.following import (
        FollowedChange,
        follow,
        follow_async,
        notifications,
        notifications_async,
    )
    from rsnotify_client.hub import Accepted
    from rsnotify_client.loading import Loaded
    from rsnotify_client.network import NetworkOptions
    from rsnotify_client.notification import NoChannel, Received, channel_url
    from rsnotify_client.outbox import NoOutbox, Outbox
    from rsnotify_client.publisher import Publisher, PublisherClosed
    from rsnotify_client.queue import OutboxError, QueueFull
    from rsnotify_client.relay import Relay
    from rsnotify_client.sender import Counters, RefusedChange
    from rsnotify_client.token import Token, TokenFile
    from rsnotify_client.web import Refused, Unreachable

_NAMES = {
    "rsnotify.errors": "Error InvalidSettings Rejected TryAgain",
    "rsnotify.resourcesync.change": "Change ChangeKind Link Position",
    "rsnotify_client.answer": "HubUnreachable NotAHub WrongToken",
    "rsnotify_client.asyncpublisher": "AsyncPublisher",
    "rsnotify_client.between": "Unreadable changes_between",
    "rsnotify_client.changelists": "HistoryGone SetBack",
    "rsnotify_client.cursor": "CursorError CursorStore FileCursor SqliteCursor",
    "rsnotify_client.discovery": "NotASource NotOneSet",
    "rsnotify_client.documents": "Malformed",
    "rsnotify_client.errors": "InvalidArgument TimedOut TokenUnavailable",
    "rsnotify_client.following": (
        "FollowedChange follow follow_async notifications notifications_async"
    ),
    "rsnotify_client.hub": "Accepted",
    "rsnotify_client.loading": "Loaded",
    "rsnotify_client.network": "NetworkOptions",
    "rsnotify_client.notification": "NoChannel Received channel_url",
    "rsnotify_client.outbox": "NoOutbox Outbox",
    "rsnotify_client.publisher": "Publisher PublisherClosed",
    "rsnotify_client.queue": "OutboxError QueueFull",
    "rsnotify_client.relay": "Relay",
    "rsnotify_client.sender": "Counters RefusedChange",
    "rsnotify_client.token": "Token TokenFile",
    "rsnotify_client.web": "Refused Unreachable",
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Accepted",
    "AsyncPublisher",
    "Change",
    "ChangeKind",
    "Counters",
    "CursorError",
    "CursorStore",
    "Error",
    "FileCursor",
    "FollowedChange",
    "HistoryGone",
    "HubUnreachable",
    "InvalidArgument",
    "InvalidSettings",
    "Link",
    "Loaded",
    "Malformed",
    "NetworkOptions",
    "NoChannel",
    "NoOutbox",
    "NotAHub",
    "NotASource",
    "NotOneSet",
    "Outbox",
    "OutboxError",
    "Position",
    "Publisher",
    "PublisherClosed",
    "QueueFull",
    "Received",
    "Refused",
    "RefusedChange",
    "Rejected",
    "Relay",
    "SetBack",
    "SqliteCursor",
    "TimedOut",
    "Token",
    "TokenFile",
    "TokenUnavailable",
    "TryAgain",
    "Unreachable",
    "Unreadable",
    "WrongToken",
    "__version__",
    "changes_between",
    "channel_url",
    "follow",
    "follow_async",
    "notifications",
    "notifications_async",
]


if not TYPE_CHECKING:  # which would take every name for one of ours

    def __getattr__(name):
        """Import a name when it is first used: publishing does not wait for the rest."""
        if name not in _PLACES:
            raise AttributeError(f"module 'rsnotify_client' has no attribute {name!r}")
        value = getattr(_import_module(_PLACES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
