"""rsnotify's Python client: publish changes to a hub, follow its channels.

>>> with Publisher("http://127.0.0.1:8080", token) as publisher:
...     publisher.updated("dataset1", "http://example.com/res1")

>>> async for notification in Follower(channel_url("http://127.0.0.1:8080", "dataset1")):
...     for change in notification.changes:
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
    from rsnotify_client.batch import OutboxError as OutboxError
    from rsnotify_client.between import changes_between as changes_between
    from rsnotify_client.memory import QueueFull as QueueFull
    from rsnotify_client.outbox import Outbox as Outbox
    from rsnotify_client.publisher import Publisher as Publisher
    from rsnotify_client.relay import Relay as Relay
    from rsnotify_client.sender import Counters as Counters
    from rsnotify_client.sender import RefusedChange as RefusedChange
    from rsnotify_client.subscriber import Follower as Follower
    from rsnotify_client.subscriber import Received as Received
    from rsnotify_client.subscriber import channel_url as channel_url

_PLACES = {
    "AsyncPublisher": "rsnotify_client.asyncpublisher",
    "Change": "rsnotify.resourcesync.change",
    "Counters": "rsnotify_client.sender",
    "Follower": "rsnotify_client.subscriber",
    "Link": "rsnotify.resourcesync.change",
    "Outbox": "rsnotify_client.outbox",
    "OutboxError": "rsnotify_client.batch",
    "Position": "rsnotify.resourcesync.change",
    "Publisher": "rsnotify_client.publisher",
    "QueueFull": "rsnotify_client.memory",
    "Received": "rsnotify_client.subscriber",
    "RefusedChange": "rsnotify_client.sender",
    "Rejected": "rsnotify.errors",
    "Relay": "rsnotify_client.relay",
    "TryAgain": "rsnotify.errors",
    "changes_between": "rsnotify_client.between",
    "channel_url": "rsnotify_client.subscriber",
}
__all__ = sorted(_PLACES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Loaded when it is first asked for: whoever only publishes need not wait for the rest."""
    if name not in _PLACES:
        raise AttributeError(f"rsnotify_client has no {name!r}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value
