"""Sources that are read again and again: feeds backwards to what is known, lists part by part.

Rules that hold here: pages are bounded in bytes and number, and none is read twice; where they no
longer reach back to what was read, that is said. A time that has not come yet moves no cursor. The
parts of an index are lists, never indexes; what a server calls unchanged is not read again. What
could not be read is said, and the caller hears of no end before all was read.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import time

from rsnotify.resourcesync.change import MICROSECONDS, Change, Position
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import joined
from rsnotify_client.documents import RemoteDocument, next_after
from rsnotify_client.feeds import Entries, FeedPage, PageReader, Skip
from rsnotify_client.markup import PAGE_BYTES
from rsnotify_client.web import Refused, Tag, Unchanged, Web, check_status

# --- feeds, collections of activities, topics ----------------------------------------------------

MAX_ENTRIES = 100_000
"""Of a feed, or of the activities since a cursor, in memory at once."""
ACCEPT = {
    "Accept": "application/atom+xml, application/rss+xml, application/ld+json, "
    "application/activity+json, application/json;q=0.9, application/xml;q=0.8, */*;q=0.1"
}


class FeedReader:
    """One of them; `tag` is what its first page was known by when it was read last."""

    def __init__(self, web: Web, url: str, read_page: PageReader, skip: Skip) -> None:
        self.url = url
        self.tag = Tag()
        self.is_complete = False  # what was read last is all that there is
        self._web, self._read_page, self._skip = web, read_page, skip

    async def after(
        self, cursor: Position | None, known: Tag | None
    ) -> tuple[Entries, Position | None]:
        """The newest of each resource since the cursor, and the next cursor.

        Older ones may be among them. `Unchanged` where the first page is still the known one.
        """
        page, self.tag = await self._fetched(self.url, known or Tag())
        self.is_complete = page.is_complete and page.older is None
        pages, entries, times = [self.url], page.entries, [cursor, page.ends]
        while page.older is not None and not _reaches(page, cursor):
            pages.append(next_after(pages, pages[-1], page.older))
            page, _ = await self._fetched(pages[-1], Tag())
            entries = page.entries + entries
            times.append(page.ends)
            if len(entries) > MAX_ENTRIES:
                raise Refused(f"{self.url} has more than {MAX_ENTRIES:,} entries to read")
        if cursor is not None and entries and not _reaches(page, cursor):
            self._skip(f"{self.url} does not reach back to {cursor}: entries may be missing")
        newest = max((each for each in times if each is not None), default=None)
        now = Position(int(time() * MICROSECONDS))
        return _last_of_each(entries), None if newest is None else min(newest, now)

    async def _fetched(self, url: str, known: Tag) -> tuple[FeedPage, Tag]:
        """A page, whole; `Unchanged` if it is the one that is known."""
        async with self._web.ask(url, headers=ACCEPT | known.condition) as answer:
            check_status(url, answer)
            data = await answer.read(PAGE_BYTES + 1)
            if len(data) > PAGE_BYTES:
                raise Refused(f"{url} is longer than {PAGE_BYTES} bytes: it is not read")
            return self._read_page(url, data, self._skip), Tag.of(answer.headers)


def _reaches(page: FeedPage, cursor: Position | None) -> bool:
    """Whether nothing older is needed."""
    is_known = cursor is not None and page.begins is not None and page.begins <= cursor
    return page.begins_anew or is_known


def _last_of_each(entries: Entries) -> Entries:
    """Of several entries of one resource the newest counts."""
    last: dict[str, Change] = {}
    for key, change in entries:
        last.pop(key, None)  # it takes the place of the newest
        last[key] = change
    return [*last.items()]


# --- Resource Lists and sitemaps -----------------------------------------------------------------

MAX_PARTS = 50_000

Parts = dict[str, tuple[int, Tag]]
"""Each part's number, which it keeps, and what it was known by."""
ListPieces = AsyncGenerator[tuple[RemoteDocument, list[Entry], int], None]


class ListReader:
    """One reading; `parts` and `at` are whole after it."""

    def __init__(self, web: Web, url: str, known: Parts, skip: Callable[[str], object]) -> None:
        self.at: str | None = None  # as of when the list is
        self.parts: Parts = {}
        self.unchanged: set[int] = set()
        self._web, self._url, self._known, self._skip = web, url, known, skip

    @property
    def is_unchanged(self) -> bool:
        is_same = self.parts.keys() == self._known.keys()
        return is_same and 0 < len(self._known) == len(self.unchanged)

    async def pieces(self) -> ListPieces:
        """Entries as they come, with their document and the number of their part."""
        locs: list[str] = []
        is_single = [*self._known] == [self._url]
        tag = self._known[self._url][1] if is_single else Tag()
        async with aclosing(self._list(self._url, 0, tag, locs)) as pieces:
            async for piece in pieces:
                yield piece
        free = 1 + max([0, *(number for number, _ in self._known.values())])
        for url in dict.fromkeys(locs):
            number, tag = self._known.get(url) or (free + len(self.parts), Tag())
            async with aclosing(self._list(url, number, tag)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _list(
        self, url: str, number: int, tag: Tag, locs: list[str] | None = None
    ) -> ListPieces:
        """One list; if it is an index, and may be one, the addresses of its parts go to `locs`."""
        document = RemoteDocument(self._web, url, tag)
        try:
            async with aclosing(aiter(document)) as pieces:
                async for entries in pieces:
                    if document.head.root == "urlset":
                        yield document, entries, number
                    elif locs is None:
                        raise Refused(f"{url} is an index under an index: name its parts in one")
                    else:
                        locs += [joined(url, entry.loc) for entry in entries]
        except Unchanged:
            self.parts[url] = number, tag
            self.unchanged.add(number)
            return
        for what in document.skipped:
            self._skip(f"{url}: {what}")
        if locs is not None or self.at is None:
            self.at = document.head.md.at or self.at
        if document.head.root == "urlset":
            self.parts[url] = number, document.tag
        elif not locs:
            self._skip(f"{url} is an index of nothing")
        elif len(locs) > MAX_PARTS:
            raise Refused(f"{url} has more than {MAX_PARTS:,} parts")
