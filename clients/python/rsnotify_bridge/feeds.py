"""What says its changes page by page: feeds, collections of activities, a topic that is polled.

Rules that hold here: what leaves a feed is old, not gone, unless it says that it has everything.
"""

import re
from typing import NamedTuple

from rsnotify_bridge.sources import Piece, Pieces, SourceAdapter
from rsnotify_client.feeds import PageReader, activity_page, feed_page, notification_page
from rsnotify_client.notification import position_of
from rsnotify_client.polite import PoliteWeb
from rsnotify_client.readers import FeedReader
from rsnotify_client.web import Tag, Unchanged

BEGINNING_BYTES = 2_048
_COMPLETE = re.compile(rb"<(?:\w+:)?complete\b")


class FeedKind(NamedTuple):
    """What its pages are called, known by, read by; and what is to be known of it."""

    name: str
    mark: re.Pattern[bytes]
    read: PageReader
    remark: str

    def is_in(self, body: bytes) -> bool:
        return self.mark.search(body[:BEGINNING_BYTES]) is not None


FEED = FeedKind(
    "feed", re.compile(rb"<(?:\w+:)?(feed|rss|RDF)\b"), feed_page,
    "a feed does not say what is deleted, unless it has tombstones or is complete",
)  # fmt: skip
ACTIVITIES = FeedKind(
    "Activity Streams", re.compile(rb'^\s*\{[^\0]*"type"\s*:\s*"OrderedCollection(Page)?"'),
    activity_page, "of several activities of one object the newest is published",
)  # fmt: skip
TOPIC = FeedKind(
    "topic, polled", re.compile(rb"capability\s*=\s*[\"']change-notification[\"']"),
    notification_page, "it has neither a channel nor lists: only its latest notification is read",
)  # fmt: skip


class FeedSource(SourceAdapter):
    """Pages of changes. One that says that it is complete is compared, again and again."""

    is_partial = True

    def __init__(self, web: PoliteWeb, url: str, kind: FeedKind, body: bytes) -> None:
        super().__init__(web)
        self.kind, self.via = kind.name, url
        self.has_changes = _COMPLETE.search(body) is None
        self.remarks.append(kind.remark)
        self._reader = FeedReader(web, url, kind.read, self.skip)
        self._known: Tag | None = None  # by what was dealt with

    def how(self) -> str:
        return f"read at {self.via}"

    async def state(self) -> Pieces:
        _, known = self.parts.get(self.via, (0, None))
        entries, until = await self._reader.after(None, known)
        self.cursor = None if until is None else str(until)
        self.is_whole = self._reader.is_complete
        self.parts = {self.via: (0, self._reader.tag)}
        yield Piece(entries)

    async def changes(self, cursor: str | None) -> Pieces:
        at = position_of(cursor)
        try:
            entries, until = await self._reader.after(at, self._known if at else None)
        except Unchanged:
            return
        yield Piece(entries, 0, None if until is None else str(until))
        self._known = self._reader.tag
