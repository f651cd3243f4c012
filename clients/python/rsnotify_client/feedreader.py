"""A feed, a collection of activities or a topic, read backwards to what is known.

Rules that hold here: pages are bounded in bytes and number, and none is read twice; where they no
longer reach back to what was read, that is said. A time that has not come yet moves no cursor.
"""

from time import time

from rsnotify.resourcesync.change import MICROSECONDS, Change, Position
from rsnotify_client.documents import next_after
from rsnotify_client.feeds import Entries, FeedPage, PageReader, Skip
from rsnotify_client.markup import PAGE_BYTES
from rsnotify_client.web import Refused, Tag, Web, check_status

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
