"""Reads a list whole: with its index, the parts of that, and all pages of each.

Rules that hold here: a document is read once; what cannot be read to its end is said to the
visitor, who decides whether the rest is read. Nothing here knows what the entries mean.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import joined
from rsnotify_client.documents import IndexWalk, Locate, Malformed, RemoteDocument
from rsnotify_client.web import Refused, Tag, Unchanged, Web


class ListVisitor:
    """What whoever reads a list says to what is found. This one forgives nothing."""

    def known(self, url: str) -> Tag | None:  # noqa: ARG002
        """By what it was known when it was read before, if it need not be read again."""
        return None

    def unchanged(self, url: str) -> None:
        """It is the one that was read before."""

    def skipped(self, url: str, what: str) -> None:
        """An entry of the document cannot be read."""
        raise Malformed(f"{url}: {what}")

    def misnamed(self, what: str) -> None:
        """An index names something that is no part of a list, or nothing."""
        raise Refused(what)

    def unread(self, error: Rejected | TryAgain) -> None:
        """A document cannot be read to its end; what came of it has been handed on."""
        raise error

    async def again(self, error: TryAgain, failures: int) -> bool:  # noqa: ARG002
        """Whether to go on with the page of which no answer came, so many times in a row."""
        return False


class ListPiece(NamedTuple):
    """What comes of a list: entries of one document, or its end, as far as it could be read."""

    document: RemoteDocument
    depth: int  # of indexes above it
    entries: list[Entry]  # none of an index
    is_end: bool = False
    is_whole: bool = True  # else it was not read to its end

    @property
    def is_index(self) -> bool:
        return self.document.head.root == "sitemapindex"


async def read_list(
    web: Web, visitor: ListVisitor, *urls: str, locate: Locate = joined
) -> AsyncGenerator[ListPiece, None]:
    """The entries of these lists, each document with its end; those of a part come after the end
    of its index."""
    walk = IndexWalk(*urls, locate=locate)
    for url in walk:
        document, parts = RemoteDocument(web, url, visitor.known(url)), list[str]()
        is_whole = True
        try:
            async with aclosing(_patiently(document, visitor)) as pieces:
                async for entries in pieces:
                    if document.head.root == "sitemapindex":
                        parts += [entry.loc for entry in entries]
                    else:
                        yield ListPiece(document, walk.depth, entries)
        except Unchanged:
            visitor.unchanged(url)
            continue
        except (Rejected, TryAgain) as error:
            visitor.unread(error)
            is_whole = False
        if not document.has_head:
            continue
        for what in document.skipped if is_whole else ():
            visitor.skipped(url, what)
        end = ListPiece(document, walk.depth, [], is_end=True, is_whole=is_whole)
        yield end
        for what in walk.under(parts) if end.is_index and (is_whole or parts) else ():
            visitor.misnamed(what)


async def _patiently(
    document: RemoteDocument, visitor: ListVisitor
) -> AsyncGenerator[list[Entry], None]:
    """The entries of a document; where a page could not be read, it goes on with that page."""
    failures = pages = 0
    while True:
        try:
            async with aclosing(aiter(document)) as pieces:
                async for entries in pieces:
                    yield entries
            return
        except TryAgain as error:
            failures, pages = (0 if document.pages > pages else failures) + 1, document.pages
            if not await visitor.again(error, failures):
                raise
