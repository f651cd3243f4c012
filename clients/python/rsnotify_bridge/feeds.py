"""Atom and RSS feeds, and collections of Activity Streams, read backwards to what is known.

Rules that hold here: pages are bounded in bytes and number, and none is read twice; a feed that no
longer reaches back to what was read is a gap, and is said.
"""

from rsnotify.resourcesync.change import Position
from rsnotify_bridge.sources import Piece, Pieces, SourceAdapter
from rsnotify_client.documents import next_after
from rsnotify_client.feeds import ActivityPage, FeedPage, activity_page, feed_page
from rsnotify_client.markup import PAGE_BYTES, read_markup
from rsnotify_client.notification import position_of
from rsnotify_client.web import Refused, Tag, Unchanged, Web, check_status

MAX_ENTRIES = 100_000
"""Of a feed, or of the activities since a cursor, in memory at once."""
ACCEPT = {
    "Accept": "application/atom+xml, application/rss+xml, application/ld+json, "
    "application/activity+json, application/json;q=0.9, application/xml;q=0.8, */*;q=0.1"
}


async def fetched(web: Web, url: str, known: Tag | None = None) -> tuple[bytes, Tag]:
    """A page, whole; `Unchanged` if it is the one that is known."""
    condition = known.condition if known is not None else {}
    async with web.ask(url, headers=ACCEPT | condition) as answer:
        check_status(url, answer)
        data = await answer.read(PAGE_BYTES + 1)
        if len(data) > PAGE_BYTES:
            raise Refused(f"{url} is longer than {PAGE_BYTES} bytes: it is not read")
        return data, Tag.of(answer.headers)


class FeedSource(SourceAdapter):
    """A feed of Atom or RSS."""

    kind = "feed"
    has_changes = True
    is_partial = True
    is_whole = False

    def __init__(self, web: Web, url: str) -> None:
        super().__init__()
        self._web = web
        self.url = self.via = url
        self._tag: Tag | None = None
        self.remarks.append("a feed does not say what is deleted, unless it has tombstones")

    def how(self) -> str:
        return f"feed {self.url}"

    async def state(self) -> Pieces:
        """All its pages; the oldest entries first."""
        async for piece in self._read(None):
            self.cursor = piece.cursor
            yield piece

    async def changes(self, cursor: str | None) -> Pieces:
        async for piece in self._read(position_of(cursor)):
            yield piece

    async def _read(self, cursor: Position | None) -> Pieces:
        try:
            data, tag = await fetched(self._web, self.url, self._tag if cursor else None)
        except Unchanged:
            return
        page = self._page(self.url, data)
        self.is_whole = page.is_complete and page.next is None
        pages, entries, is_reached = [self.url], page.entries, _reaches(page, cursor)
        while page.next is not None and not is_reached:
            pages.append(next_after(pages, pages[-1], page.next))
            page = self._page(pages[-1], (await fetched(self._web, pages[-1]))[0])
            entries += page.entries
            is_reached = _reaches(page, cursor)
            if len(entries) > MAX_ENTRIES:
                raise Refused(f"{self.url} has more than {MAX_ENTRIES:,} entries")
        if cursor is not None and entries and not is_reached:
            self.skip(f"{self.url} does not reach back to {cursor}: entries may be missing")
        times = [at for _, each in entries if (at := position_of(each.lastmod)) is not None]
        self._tag = tag
        yield Piece(
            entries[::-1], 0, str(max([*times, *filter(None, [cursor])], default="")) or None
        )

    def _page(self, url: str, data: bytes) -> FeedPage:
        return feed_page(url, read_markup(url, data).root, self.skip)


def _reaches(page: FeedPage, cursor: Position | None) -> bool:
    """Whether the page has something that was read before."""
    times = [at for _, each in page.entries if (at := position_of(each.lastmod)) is not None]
    return cursor is not None and bool(times) and min(times) <= cursor


class ActivitySource(SourceAdapter):
    """A collection as IIIF Change Discovery has them: its last page is the newest."""

    kind = "Activity Streams"
    has_changes = True
    is_partial = True
    is_whole = False

    def __init__(self, web: Web, url: str) -> None:
        super().__init__()
        self._web = web
        self.url = self.via = url
        self._tag: Tag | None = None

    def how(self) -> str:
        return f"collection {self.url}"

    async def state(self) -> Pieces:
        async for piece in self._read(None):
            yield piece
            self.cursor = piece.cursor or self.cursor

    async def changes(self, cursor: str | None) -> Pieces:
        async for piece in self._read(position_of(cursor)):
            yield piece

    async def _read(self, cursor: Position | None) -> Pieces:
        """From the newest page back to the cursor, then in the order of time."""
        try:
            data, tag = await fetched(self._web, self.url, self._tag if cursor else None)
        except Unchanged:
            return
        page = activity_page(self.url, data, self.skip)
        pages, found = [self.url], list(page.entries)
        before = page.last if not page.entries else page.prev
        while before is not None and not self._is_read_to(page, cursor):
            pages.append(next_after(pages, pages[-1], before))
            page = activity_page(pages[-1], (await fetched(self._web, pages[-1]))[0], self.skip)
            found[:0] = page.entries
            before = page.prev
            if len(found) > MAX_ENTRIES:
                raise Refused(f"{self.url} has more than {MAX_ENTRIES:,} activities to read")
        new = [each for each in found if cursor is None or each[2] is None or each[2] >= cursor]
        times = [at for _, _, at in new if at is not None]
        until = str(max(times)) if times else None if cursor is None else str(cursor)
        yield Piece([(key, change) for key, change, _ in self._last_of_each(new)], 0, until)
        self._tag = tag

    @staticmethod
    def _is_read_to(page: ActivityPage, cursor: Position | None) -> bool:
        times = [at for _, _, at in page.entries if at is not None]
        return page.begins_new or (cursor is not None and bool(times) and min(times) <= cursor)

    @staticmethod
    def _last_of_each(found: list) -> list:  # type: ignore[type-arg]
        """Processed as the specification has it: the newest activity of an object counts."""
        last = {key: number for number, (key, _, _) in enumerate(found)}
        return [each for number, each in enumerate(found) if last[each[0]] == number]
