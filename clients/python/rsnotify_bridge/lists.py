"""ResourceSync and sitemaps: lists that are compared, Change Lists and channels that are followed.

Rules that hold here: a list that is older than the Change Lists is read together with them; parts
of an index that have not changed are not read again; a part that cannot be read deletes nothing.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_bridge.sources import AGAIN_SECONDS, Piece, Pieces, SourceAdapter, SourceGap
from rsnotify_client.address import joined
from rsnotify_client.changelists import ChangeLists, HistoryGone
from rsnotify_client.discovery import Source
from rsnotify_client.documents import RemoteDocument
from rsnotify_client.dumps import lists_of
from rsnotify_client.follower import Follower, Timeline
from rsnotify_client.notification import Received, position_of
from rsnotify_client.polite import PoliteWeb
from rsnotify_client.readers import ListReader
from rsnotify_client.web import Unchanged, Web


class ListedSource(SourceAdapter):
    """A Resource List or sitemap, Change Lists, or both."""

    overlays = True

    def __init__(self, web: PoliteWeb, source: Source) -> None:
        super().__init__(web)
        self.source = source
        self.via = source.url
        self._timeline = Timeline()  # it knows what was read at its very end
        self._lists: ChangeLists | None = lists_of(web, source, skip=self.skip)
        self.has_changes = self._lists is not None
        self.kind = "Change Lists" if self.has_changes else "Resource List or sitemap"
        self.compare_seconds = AGAIN_SECONDS if self.has_changes else None
        if source.resourcelist is None and source.resourcedump is not None:
            self.remarks.append("its Resource Dump is not read: only what changes is published")

    def how(self) -> str:
        names = ("resourcelist", "changelist", "changedump")
        found = {name: getattr(self.source, name) for name in names}
        return "; ".join(f"{name} {url}" for name, url in found.items() if url)

    # The whole state --------------------------------------------------------------------------

    async def state(self) -> Pieces:
        self.unchanged, self.cursor = set(), None
        self.is_whole = self.source.resourcelist is not None
        if self.source.resourcelist is None:
            return
        reader = ListReader(self.web, self.source.resourcelist, self.parts, self.skip)
        async with aclosing(reader.pieces()) as pieces:
            async for document, entries, part in pieces:
                yield self._piece(document, entries, part)
        if reader.is_unchanged:
            raise Unchanged
        self.parts, self.unchanged = reader.parts, reader.unchanged
        self.cursor = reader.at if position_of(reader.at) else None

    def _piece(self, document: RemoteDocument, entries: list[Entry], part: int) -> Piece:
        self.via = joined(document.url, document.head.link("up") or self.source.url)
        if nameless := sum(not each.loc for each in entries):
            self.skip(f"{nameless} entries of {document.url} without <loc>")
        found = [
            (loc, replace(change, loc=loc, change="created", datetime=None))
            for change in map(change_of, entries)
            if change.loc and (loc := joined(document.url, change.loc))
        ]
        return Piece(found, part)

    # What changes -----------------------------------------------------------------------------

    async def changes(self, cursor: str | None) -> Pieces:
        assert self._lists is not None  # noqa: S101 - `has_changes` says so
        if self._timeline.cursor is None or self._timeline.cursor != position_of(cursor):
            self._timeline = Timeline(position_of(cursor))
        try:
            async with aclosing(self._lists.after(self._timeline.cursor)) as pieces:
                async for received in pieces:
                    if (new := self._timeline.new_in(received)) is not None:
                        yield _changed(new)
        except HistoryGone as error:
            raise SourceGap(str(error), str(error.begins)) from None


def _changed(received: Received) -> Piece:
    return Piece([(change.loc, change) for change in received.changes], 0, str(received.until))


class ChannelSource(ListedSource):
    """A channel: WebSocket, event stream or both; lists fill what it leaves out."""

    is_live = True

    def __init__(self, web: PoliteWeb, channel_web: Web, source: Source) -> None:
        super().__init__(web, source)
        self._channel_web = channel_web  # a stream that stays open takes no turn of others
        self._follower: Follower | None = None
        self.kind = "channel"
        self.compare_seconds = AGAIN_SECONDS
        if not self.has_changes and source.resourcelist is None:
            self.remarks.append("it has no lists: what is missed while nobody listens is lost")

    def how(self) -> str:
        channel = f"channel {self.source.socket or self.source.topic}"
        return "; ".join(filter(None, (channel, super().how())))

    @property
    def trouble(self) -> str | None:  # type: ignore[override]
        return None if self._follower is None else self._follower.trouble

    async def live(self, cursor: str | None) -> AsyncGenerator[Piece, None]:
        follower = Follower(
            self.source.socket or self.source.topic or self.source.url,
            cursor=position_of(cursor),
            web=self._channel_web,
            source=self.source,
            lists=self._lists,
        )
        self._follower = follower
        try:
            async with aclosing(aiter(follower)) as pieces:
                async for received in pieces:
                    self.via = received.up or self.via
                    yield _changed(received)
        except HistoryGone as error:
            raise SourceGap(str(error), str(error.begins)) from None
