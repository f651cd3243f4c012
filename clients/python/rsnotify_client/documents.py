"""ResourceSync documents over HTTP: their entries as they come, plain or compressed, with a cap.

Rules that hold here: no more is ever inflated than may be read; the error for a document that
cannot be read has its address and what is wrong with it. All pages of a document are read.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from time import time

from rsnotify.errors import Rejected
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify.resourcesync.stream import SKIPPED_NAMED, DocumentStream, Head
from rsnotify.resourcesync.tables import MAX_BYTES
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import joined
from rsnotify_client.discovery import linked
from rsnotify_client.web import (
    XML_FIRST,
    Refused,
    Reply,
    Tag,
    Web,
    check_status,
    detail_of,
    origin_of,
    refused,
    unpacked,
)

HEADERS = {"Accept": XML_FIRST, "Accept-Encoding": "gzip"}
WRONG_QUESTION = 400  # a hub says what is wrong with it
DETAIL_BYTES = 64 * 1024
MAX_PAGES = 10_000
MAX_PARTS = 50_000
DEPTH = 3
"""So many indexes may be under each other; what the last of them names are lists."""


Locate = Callable[[str, str], str]
"""Where something is that is named in a document at an address; or in a file."""


class Malformed(Refused):
    """A document that cannot be read to its end."""


class IndexWalk(Iterator[str]):
    """The documents of a list, one after the other: itself and, where it is an index, its parts.

    Iterate for their addresses; whoever reads an index calls `under` before the next one. A part is
    read once, however many name it. Nothing here knows how a document is read.
    """

    def __init__(
        self, *urls: str, locate: Locate = joined, index: str = "", max_parts: int = MAX_PARTS
    ) -> None:
        """Of these lists; or of parts of an index that was read already."""
        self._max_parts = max_parts
        self.url, self.depth = "", 0  # of the document that is being read
        self._left = [(url, int(bool(index))) for url in reversed(dict.fromkeys(urls))]
        # Each that was named, and by which.
        self._above: dict[str, str] = dict.fromkeys(urls, index)
        if index:
            self._above[index] = ""
        self._locate = locate

    def __next__(self) -> str:
        if not self._left:
            raise StopIteration
        self.url, self.depth = self._left.pop()
        return self.url

    def under(self, locs: Sequence[str]) -> list[str]:
        """The document is an index of these; what of them cannot be read, and why."""
        if self.depth >= DEPTH:
            return [f"{self.url} is an index under an index, {DEPTH + 1} of them in all"]
        if not locs:
            return [f"{self.url} is an index of nothing"]
        parts, wrong = list[str](), list[str]()
        if nameless := sum(not loc for loc in locs):
            wrong.append(f"{self.url} has entries without <loc>: {nameless}")
        for loc in filter(None, locs):
            try:
                part = self._locate(self.url, loc)
            except Rejected as error:
                wrong.append(error.detail)
                continue
            if part in self._way():
                wrong.append(f"{self.url} names {part}: it is an index under an index of itself")
            elif part not in self._above:
                self._above[part] = self.url
                parts.append(part)
        room = self._max_parts - len(self._above) + len(parts)
        if len(parts) > room:
            wrong.append(f"{self.url} has more than {self._max_parts:,} parts")
        self._left += [(part, self.depth + 1) for part in reversed(parts[:room])]
        return wrong

    def _way(self) -> Iterator[str]:
        """From the document up to where the walk began."""
        url = self.url
        while url:
            yield url
            url = self._above[url]


class PageWalk:
    """The pages of a document, one after the other. Nothing here knows how a page is read."""

    def __init__(self, url: str, locate: Locate = joined) -> None:
        self.asked = [url]  # the addresses of the pages, in their order
        self.heads: list[Head] = []  # of the pages that were read to their ends
        self._locate = locate

    @property
    def url(self) -> str:
        """Of the page that is being read."""
        return self.asked[-1]

    def check(self, head: Head) -> None:
        """Refuse a page of another kind than the first: something else came in its place."""
        if not self.heads:
            return
        kinds = [(each.root, each.md.capability) for each in (head, self.heads[0])]
        if kinds[0] != kinds[1]:
            this, first = [capability or root for root, capability in kinds]
            raise Malformed(f"{self.url} is a {this}, not a page of a {first}")

    def turn(self, head: Head, found_at: str = "", link_header: str = "") -> bool:
        """The page was read to its end, at this address, with this `Link` header: go to the next;
        False if there is none."""
        self.check(head)
        self.heads.append(head)
        named = head.link("next") or linked(link_header, "next")
        if named:
            self.asked.append(next_after(self.asked, found_at or self.url, named, self._locate))
        return bool(named)


class RemoteDocument:
    """One document with all its pages; iterate for its entries, then `head` and the rest is known.

    Where a page cannot be read, iterating again goes on with that page.
    """

    def __init__(self, web: Web, url: str, known: Tag | None = None) -> None:
        self.url = url
        self.tag = Tag()  # none if there are several pages: it would be that of one
        self.skipped: list[str] = []
        self.skipped_count = 0
        self.pages = 0  # that were read to their ends
        self.moments: set[str | None] = set()  # that its pages say they are of
        self.modified: str | None = None  # when the server says that the first page was written
        self.now = time()  # or later, if it is later by the server's clock
        self._web = web
        self._known = known
        self._pages = PageWalk(url)
        self._stream = DocumentStream()

    @property
    def head(self) -> Head:
        """The head of the first page, which is that of the whole document."""
        heads = self._pages.heads
        return heads[0] if heads else self._stream.head

    @property
    def last_head(self) -> Head:
        heads = self._pages.heads
        return heads[-1] if heads else self._stream.head

    @property
    def has_head(self) -> bool:
        return bool(self._pages.heads) or self._stream.has_head

    def skip(self, what: str) -> None:
        """Skip an entry that the caller cannot read."""
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_NAMED:
            self.skipped.append(what)

    async def __aiter__(self) -> AsyncGenerator[list[Entry], None]:
        """Raises `Unchanged` at once if it is the document that is known."""
        has_more = True
        while has_more:
            self._stream, url = DocumentStream(), self._pages.url
            condition = self._known.condition if self._known and not self.pages else {}
            async with self._web.ask(url, headers=HEADERS | condition) as answer:
                if answer.status == WRONG_QUESTION:
                    raise refused(url, answer.status, detail_of(await answer.read(DETAIL_BYTES)))
                check_status(url, answer, condition)
                if not self.pages:
                    self.modified = answer.headers.get("last-modified")
                    self.now = max(time(), date_seconds(answer.headers.get("date")) or 0.0)
                async with aclosing(self._entries(answer)) as pieces:
                    async for entries in pieces:
                        self._pages.check(self._stream.head)
                        yield entries
                has_more = self._turn_page(answer)

    def _turn_page(self, answer: Reply) -> bool:
        """Go to the next page; False if there is none."""
        head, link_header = self._stream.head, answer.headers.get("link", "")
        self._pages.check(head)
        self.pages += 1
        self.moments.add(head.md.at)
        self.skipped_count += self._stream.skipped_count
        self.skipped += self._stream.skipped[: SKIPPED_NAMED - len(self.skipped)]
        has_more = self._pages.turn(head, answer.url, link_header)
        self.tag = Tag() if self.pages > 1 or has_more else Tag.of_document(answer.headers)
        return has_more

    async def _entries(self, answer: Reply) -> AsyncGenerator[list[Entry], None]:
        url, total = self._pages.url, 0
        try:
            async with aclosing(unpacked(answer)) as pieces:
                async for piece in pieces:
                    total += len(piece)
                    if total > MAX_BYTES:
                        raise Malformed(f"{url} is longer than {MAX_BYTES} bytes: skipped")
                    if entries := self._stream.feed(piece):
                        yield entries
            if entries := self._stream.close():
                yield entries
        except Malformed:
            raise
        except Rejected as error:
            raise Malformed(f"{url}: {error.detail}") from None


def next_after(pages: Sequence[str], url: str, named: str, locate: Locate = joined) -> str:
    """The address of the page that the last of these pages, found at `url`, names as the next.

    >>> next_after(["http://a/1"], "http://a/1", "?page=2")
    'http://a/1?page=2'
    """
    page, last = locate(url, named), pages[-1]
    if page in pages:
        raise Malformed(f"{last} names {page} as its next page, which was read before it")
    if len(pages) >= MAX_PAGES:
        raise Malformed(f"{pages[0]} has more than {MAX_PAGES:,} pages")
    if locate is joined and _host(page) not in {_host(pages[0]), _host(url)}:
        raise Malformed(f"{last} names a next page at another host: {page}")
    return page


def _host(url: str) -> tuple[str, int | None]:
    """Behind a proxy that speaks https, many a server names its pages with http."""
    scheme, host, port = origin_of(url)
    return host, None if (scheme, port) in (("http", 80), ("https", 443)) else port
