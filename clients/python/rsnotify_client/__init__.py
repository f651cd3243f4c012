"""rsnotify's Python client: publish changes to a hub, follow its channels.

>>> async with Publisher("http://127.0.0.1:8080", token) as publisher:
...     await publisher.publish("dataset1", [Change("http://example.com/res1", "updated")])

>>> async for notification in Follower(channel_url("http://127.0.0.1:8080", "dataset1")):
...     for change in notification.changes:
...         print(change.datetime, change.change, change.loc)
"""

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify_client.publisher import Publisher
from rsnotify_client.subscriber import Follower, Received, channel_url

__all__ = [
    "Change",
    "Follower",
    "Link",
    "Position",
    "Publisher",
    "Received",
    "Rejected",
    "TryAgain",
    "channel_url",
]
