"""rsnotify's Python client: publish changes to a hub, follow its channels.

>>> with Publisher("http://127.0.0.1:8080", token) as publisher:
...     publisher.updated("dataset1", "http://example.com/res1")

>>> async for notification in Follower(channel_url("http://127.0.0.1:8080", "dataset1")):
...     for change in notification.changes:
...         print(change.datetime, change.change, change.loc)

What is asked for is loaded then, so that the import costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rsnotify.core.change import Change, Link, Position
    from rsnotify.errors import Rejected, TryAgain
    from rsnotify_client.batch import OutboxError
    from rsnotify_client.between import changes_between
    from rsnotify_client.memory import QueueFull
    from rsnotify_client.outbox import Outbox
    from rsnotify_client.publisher import AsyncPublisher, Publisher
    from rsnotify_client.relay import Relay
    from rsnotify_client.sender import Counters, Refused
    from rsnotify_client.subscriber import Follower, Received, channel_url

_HOMES = {
    "AsyncPublisher": "rsnotify_client.publisher",
    "Change": "rsnotify.core.change",
    "Counters": "rsnotify_client.sender",
    "Follower": "rsnotify_client.subscriber",
    "Link": "rsnotify.core.change",
    "Outbox": "rsnotify_client.outbox",
    "OutboxError": "rsnotify_client.batch",
    "Position": "rsnotify.core.change",
    "Publisher": "rsnotify_client.publisher",
    "QueueFull": "rsnotify_client.memory",
    "Received": "rsnotify_client.subscriber",
    "Refused": "rsnotify_client.sender",
    "Rejected": "rsnotify.errors",
    "Relay": "rsnotify_client.relay",
    "TryAgain": "rsnotify.errors",
    "changes_between": "rsnotify_client.between",
    "channel_url": "rsnotify_client.subscriber",
}

__all__ = [
    "AsyncPublisher",
    "Change",
    "Counters",
    "Follower",
    "Link",
    "Outbox",
    "OutboxError",
    "Position",
    "Publisher",
    "QueueFull",
    "Received",
    "Refused",
    "Rejected",
    "Relay",
    "TryAgain",
    "changes_between",
    "channel_url",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found
