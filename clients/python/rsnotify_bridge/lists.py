"""ResourceSync and sitemaps: lists that are compared, Change Lists and channels that are followed.

Rules that hold here: a list that is older than the Change Lists is read together with them; parts
of an index that have not changed are not read again; a part that cannot be read deletes nothing.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from msgspec.structs import replace

from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_bridge.sources import Piece, Pieces, SourceAdapter, SourceGap
from rsnotify_client.address import joined
from rsnotify_client.changelists import ChangeLists, HistoryGone
from rsnotify_client.discovery import Source
from rsnotify_client.documents import RemoteDocument
from rsnotify_client.dumps import lists_of
from rsnotify_client.follower import Follower, Timeline
from rsnotify_client.notification import Received, position_of
from rsnotify_client.web import Refused, Tag, Unchanged, Web

MAX_PARTS = 50_000
AGAIN_SECONDS = 86_400.0


class ListedSource(SourceAdapter):
    """A Resource List or sitemap, Change Lists, or both."""

    overlays = True

    def __init__(self, web: Web, source: Source) -> None:
        super().__init__()
        self.source = source
        self.via = source.url
        self._web = web
        self._timeline = Timeline()  # it knows what was read at its very end
        self._lists: ChangeLists | None = lists_of(web, source, skip=self._skip_of_lists)
        self.has_changes = self._lists is not None
        self.kind = "Change Lists" if self.has_changes else "Resource List or sitemap"
        self.compare_seconds = AGAIN_SECONDS if self.has_changes else None
        if source.resourcelist is None and source.resourcedump is not None:
            self.remarks.append("its Resource Dump is not read: only what changes is published")

    def how(self) -> str:
        names = ("resourcelist", "changelist", "changedump")
        found = {name: getattr(self.source, name) for name in names}
        return "; ".join(f"{name} {url}" for name, url in found.items() if url)

    def _skip_of_lists(self, what: str) -> None:
        self.skip(what)

    # The whole state --------------------------------------------------------------------------

    async def state(self) -> Pieces:
        url = self.source.resourcelist
        self.unchanged, self.cursor, self.at = set(), None, None
        self.is_whole = url is not None
        if url is None:
            return
        known, self.parts = self.parts, {}
        try:
            async with aclosing(self._top(url, known)) as pieces:
                async for piece in pieces:
                    yield piece
        except BaseException:
            self.parts = known
            raise
        if known and self.parts.keys() == known.keys() and len(self.unchanged) == len(known):
            raise Unchanged

    async def _top(self, url: str, known: dict[str, tuple[int, Tag]]) -> Pieces:
        """The list itself; if it is an index, each of its parts."""
        is_single = [*known] == [url]
        document = RemoteDocument(self._web, url, known[url][1] if is_single else None)
        locs: list[str] = []
        try:
            async with aclosing(aiter(document)) as pieces:
                async for entries in pieces:
                    if document.head.root == "sitemapindex":
                        locs += [joined(url, entry.loc) for entry in entries]
                    else:
                        yield self._piece(document, entries, 0)
        except Unchanged:
            self._keep_unchanged(url, known[url])
            return
        self._note(document)
        if document.head.root == "urlset":
            self.parts[url] = 0, document.tag
            return
        for loc in self._checked(url, locs):
            async with aclosing(self._part(loc, known)) as pieces:
                async for piece in pieces:
                    yield piece

    def _checked(self, url: str, locs: list[str]) -> Iterable[str]:
        if len(locs) > MAX_PARTS:
            raise Refused(f"{url} has more than {MAX_PARTS:,} parts")
        if not locs:
            self.skip(f"{url} is an index of nothing")
        return dict.fromkeys(locs)

    async def _part(self, url: str, known: dict[str, tuple[int, Tag]]) -> Pieces:
        taken = {number for number, _ in (*known.values(), *self.parts.values())}
        number, tag = known.get(url) or (max(taken, default=0) + 1, Tag())
        document = RemoteDocument(self._web, url, tag)
        try:
            async with aclosing(aiter(document)) as pieces:
                async for entries in pieces:
                    if document.head.root != "urlset":
                        raise Refused(f"{url} is an index under an index: name its parts in one")
                    yield self._piece(document, entries, number)
        except Unchanged:
            self._keep_unchanged(url, (number, tag))
            return
        self._note(document, is_part=True)
        self.parts[url] = number, document.tag

    def _keep_unchanged(self, url: str, part: tuple[int, Tag]) -> None:
        self.parts[url] = part
        self.unchanged.add(part[0])

    def _note(self, document: RemoteDocument, *, is_part: bool = False) -> None:
        """What a document says of itself, and what of it could not be read."""
        for what in document.skipped:
            self.skip(f"{document.url}: {what}")
        if not is_part or self.at is None:
            self.at = document.head.md.at or self.at
            self.cursor = self.at if position_of(self.at) else None
        self.via = self._home(document)

    def _home(self, document: RemoteDocument) -> str:
        up = document.head.link("up") if document.has_head else None
        return joined(document.url, up) if up else self.source.url

    def _piece(self, document: RemoteDocument, entries: list[Entry], part: int) -> Piece:
        self.via = self._home(document)
        found = [
            (loc, replace(change, loc=loc, change="created", datetime=None))
            for change in map(change_of, entries)
            if (loc := joined(document.url, change.loc))
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

    def __init__(self, web: Web, channel_web: Web, source: Source) -> None:
        super().__init__(web, source)
        self._channel_web = channel_web  # a stream that stays open takes no turn of others
        self._follower: Follower | None = None
        self.kind = "channel"
        self.compare_seconds = None
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
