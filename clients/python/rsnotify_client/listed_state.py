"""All resources of a Source as they are, from its Resource List, and the position of that list.

Rules that hold here: the list is read once, and a page that breaks off is asked for again from
where it broke off. Whoever follows from the earliest moment that the list and its parts state
misses nothing, so a list that states none cannot be joined with changes. Nothing here waits for
changes.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import msgspec

from rsnotify.errors import TryAgain
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.answer import HUB_BACKOFF, in_words
from rsnotify_client.discovery import Capabilities
from rsnotify_client.documents import RemoteDocument
from rsnotify_client.lists import ListPiece, ListVisitor, read_list
from rsnotify_client.moments import believed
from rsnotify_client.notification import Received
from rsnotify_client.web import Refused, Web

log = logging.getLogger(__name__)


def _no_moment(url: str) -> Refused:
    return Refused(
        f"{url} does not say of when it is (`at`), so no changes can be joined to it: "
        "read it alone, and follow without the state"
    )


class PatientVisitor(ListVisitor):
    """Asks again for a page that broke off, for as long as it takes; names what is wrong."""

    def __init__(self, skip: Callable[[str], object]) -> None:
        self.broke_off = False
        self._skip = skip

    def skipped(self, url: str, what: str) -> None:
        self._skip(f"{url}: {what}")

    def misnamed(self, what: str) -> None:
        raise Refused(f"{what}: its state cannot be read whole")

    async def again(self, error: TryAgain, failures: int) -> bool:
        self.broke_off = True
        wait = HUB_BACKOFF.seconds(failures - 1, random.random(), error.retry_after_seconds)  # noqa: S311
        log.warning("%s; trying again in %s", error.detail, in_words(wait))
        await asyncio.sleep(wait)
        return True


class ListedState:
    """The state of a Source: iterate for its resources; then `at` is where to follow from."""

    def __init__(self, web: Web, offered: Capabilities, skip: Callable[[str], object]) -> None:
        if offered.resourcelist is None:
            raise Refused(
                f"{offered.url} offers no Resource List, so its state cannot be read: "
                "follow it without"
            )
        self.at: Position
        self._web = web
        self._urls = [offered.resourcelist, *offered.other_sitemaps]
        self._skip = skip
        self._moments: list[Position] = []
        self._page: tuple[str, int] = ("", 0)
        self._count = self._left = 0  # of entries of that page: handed on; to be passed over

    async def __aiter__(self) -> AsyncGenerator[Received, None]:
        visitor = PatientVisitor(self._skip)
        async with aclosing(read_list(self._web, visitor, *self._urls)) as pieces:
            async for piece in pieces:
                self._check_moment(piece)
                if piece.is_end:
                    self._note_end(piece.document, depth=piece.depth)
                elif changes := self._new(piece.document, piece.entries, visitor):
                    yield listed(changes)
        if not self._moments:
            raise _no_moment(self._urls[0])
        self.at = min(self._moments)

    def _check_moment(self, piece: ListPiece) -> None:
        """A list that no index is above says itself of when it is, before anything is handed on."""
        head, now = piece.document.head, piece.document.now
        if piece.depth == 0 and not piece.is_index and believed(head.md.at, now) is None:
            raise _no_moment(piece.document.url)

    def _note_end(self, document: RemoteDocument, *, depth: int) -> None:
        """The earliest moment counts; a part says its own, or has that of its index."""
        moments = [believed(at, document.now) for at in document.moments]
        known = [at for at in moments if at is not None]
        if len(known) < len(moments) and (depth == 0 or not self._moments):
            return
        if len(document.moments) > 1:
            log.warning("%s: its pages are of several moments: some may be missing", document.url)
        self._moments += known

    def _new(
        self, document: RemoteDocument, entries: Sequence[Entry], visitor: PatientVisitor
    ) -> list[Change]:
        """What was not handed on before the page broke off."""
        page = (document.url, document.pages)
        if page != self._page:
            self._page, self._count, self._left = page, 0, 0
        if visitor.broke_off:
            visitor.broke_off, self._left = False, self._count
        known = min(self._left, len(entries))
        self._left -= known
        self._count = max(self._count, self._count + len(entries) - known)
        return [change for each in entries[known:] if (change := self._resource(each)) is not None]

    def _resource(self, entry: Entry) -> Change | None:
        found = change_of(entry)
        if not found.loc:
            self._skip("an entry of a Resource List without loc")
            return None
        return msgspec.structs.replace(found, change="created")


def listed(changes: Sequence[Change]) -> Received:
    """Resources as they are, which stand at no position yet."""
    nowhere = Position(0)
    positions = (nowhere,) * len(changes)
    return Received(b"", nowhere, nowhere, tuple(changes), positions, is_state=True)
