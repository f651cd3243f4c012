"""A Resource List or sitemap, read part by part; what a server calls unchanged is not read again.

Rules that hold here: the parts of an index are lists, never indexes; what could not be read is
said, and the caller hears of no end before all was read.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import joined
from rsnotify_client.documents import RemoteDocument
from rsnotify_client.web import Refused, Tag, Unchanged, Web

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
