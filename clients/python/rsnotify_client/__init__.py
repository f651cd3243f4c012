"""rsnotify's Python client: publish changes to a hub, follow any Source, mirror it, audit the copy.

>>> with Publisher("http://127.0.0.1:8080", token) as publisher:
...     publisher.updated("dataset1", "http://example.com/res1")

>>> async for change in follow("http://127.0.0.1:8080", cursor="cursor"):
...     async with change:
...         print(change.datetime, change.change, change.loc)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rsnotify.errors import Rejected as Rejected
    from rsnotify.errors import TryAgain as TryAgain
    from rsnotify.resourcesync.change import Change as Change
    from rsnotify.resourcesync.change import Link as Link
    from rsnotify.resourcesync.change import Position as Position
    from rsnotify_client.asyncpublisher import AsyncPublisher as AsyncPublisher
    from rsnotify_client.between import changes_between as changes_between
    from rsnotify_client.changelists import HistoryGone as HistoryGone
    from rsnotify_client.cursor import FileCursor as FileCursor
    from rsnotify_client.cursor import SqliteCursor as SqliteCursor
    from rsnotify_client.follower import Follower as Follower
    from rsnotify_client.following import FollowedChange as FollowedChange
    from rsnotify_client.following import follow as follow
    from rsnotify_client.following import follow_sets as follow_sets
    from rsnotify_client.following import follow_sets_sync as follow_sets_sync
    from rsnotify_client.following import follow_sync as follow_sync
    from rsnotify_client.loading import Loaded as Loaded
    from rsnotify_client.notification import Received as Received
    from rsnotify_client.notification import channel_url as channel_url
    from rsnotify_client.outbox import Outbox as Outbox
    from rsnotify_client.publisher import Publisher as Publisher
    from rsnotify_client.queue import OutboxError as OutboxError
    from rsnotify_client.queue import QueueFull as QueueFull
    from rsnotify_client.relay import Relay as Relay
    from rsnotify_client.sender import Counters as Counters
    from rsnotify_client.sender import RefusedChange as RefusedChange

_NAMES = {
    "rsnotify.errors": "Rejected TryAgain",
    "rsnotify.resourcesync.change": "Change Link Position",
    "rsnotify_client.asyncpublisher": "AsyncPublisher",
    "rsnotify_client.between": "changes_between",
    "rsnotify_client.changelists": "HistoryGone",
    "rsnotify_client.cursor": "FileCursor SqliteCursor",
    "rsnotify_client.follower": "Follower",
    "rsnotify_client.following": "FollowedChange follow follow_sets follow_sets_sync follow_sync",
    "rsnotify_client.loading": "Loaded",
    "rsnotify_client.notification": "Received channel_url",
    "rsnotify_client.outbox": "Outbox",
    "rsnotify_client.publisher": "Publisher",
    "rsnotify_client.queue": "OutboxError QueueFull",
    "rsnotify_client.relay": "Relay",
    "rsnotify_client.sender": "Counters RefusedChange",
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_PLACES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: publishing does not wait for the rest."""
    if name not in _PLACES:
        raise AttributeError(f"rsnotify_client has no {name!r}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value
