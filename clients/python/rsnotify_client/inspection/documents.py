"""Walks over the documents of a Source: each is fetched, judged, and held against what named it.

Rules that hold here: what a Source may have us read is bounded in number, depth and bytes, however
it is compressed; a document is fetched once; what could not be fetched is a violation only if the
document that named it still does, for a Source changes while it is looked at.
"""

import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.validation.document_rules import judge
from rsnotify.resourcesync.validation.entry_rules import Violation
from rsnotify.resourcesync.validation.tables import ARCHIVES, LISTS, MAX_BYTES
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_writer import Document
from rsnotify_client.discovery import UP
from rsnotify_client.documents import Unpacker
from rsnotify_client.inspection.checked import Bounds, Checked
from rsnotify_client.inspection.relations import (
    NamedDocument,
    Span,
    capability_of,
    is_plain_sitemap,
    link_of,
    named_in,
    not_consecutive,
    span_of,
    unlike,
    wrong_way_up,
)
from rsnotify_client.web import XML_FIRST, Web, check_status

TOKEN_NEEDED = (401, 403)
BELOW = (*LISTS, *ARCHIVES)  # whose `up` is the Capability List

Report = Callable[[Checked], None]


class TooLong(Rejected):
    """A document that is longer than may be read."""


class _Place(NamedTuple):
    """Where to look, and why."""

    named: NamedDocument
    namer: str  # the address of the document that names it; nothing for where we began
    depth: int


class Documents:
    """The documents of a Source, as far as they were reached."""

    def __init__(self, web: Web, bounds: Bounds, report: Report) -> None:
        self.read: dict[str, Document] = {}
        self.checked: dict[str, Checked] = {}
        self.beyond = 0  # documents that are named, but beyond the bounds
        self._web = web
        self._bounds = bounds
        self._report = report
        self._left_bytes = bounds.total_bytes
        self._namer: dict[str, str] = {}
        self._waiting: deque[_Place] = deque()

    def begin_at(self, url: str, capability: str = "", *, namer: str = "") -> None:
        """Look here; a sitemap without a capability is no document of ResourceSync, nor wrong."""
        self._waiting.append(_Place(NamedDocument(url, capability, "begin"), namer, 0))

    async def walk(self) -> None:
        """Read all that can be reached, what is nearest first; then look at the whole."""
        while self._waiting:
            place = self._waiting.popleft()
            if place.named.url in self.checked:
                self._compare(place)
            elif self._is_beyond(place):
                self.beyond += 1
            else:
                await self._visit(place)
        self._look_at_all()

    def _is_beyond(self, place: _Place) -> bool:
        bounds = self._bounds
        is_full = len(self.checked) >= bounds.documents or self._left_bytes <= 0
        return is_full or place.depth > bounds.depth

    async def _visit(self, place: _Place) -> None:
        url = place.named.url
        checked = self.checked[url] = Checked(url, place.named.capability or "document")
        self._report(checked)
        self._namer[url] = place.namer
        try:
            body = await fetched(self._web, url, min(MAX_BYTES, self._left_bytes))
        except TooLong as error:
            self._too_long(checked, error)
        except Rejected as error:
            await self._missing(place, checked, error)
        except TryAgain as error:
            checked.violations.append(_not_there(error.detail))
        else:
            self._left_bytes -= len(body)
            self._judge(place, checked, body)

    def _too_long(self, checked: Checked, error: TooLong) -> None:
        """Say of a document that it is too long, or that too much was read before it."""
        if self._left_bytes < MAX_BYTES:
            checked.error = "it was not read to its end: too many bytes together"
            self.beyond += 1
        else:
            checked.violations.append(_not_there(error.detail))
        self._left_bytes = max(0, self._left_bytes - MAX_BYTES)

    async def _missing(self, place: _Place, checked: Checked, error: Rejected) -> None:
        if error.status in TOKEN_NEEDED:
            checked.error = error.detail
        elif await self._is_still_named(place):
            checked.violations.append(_not_there(error.detail))
        else:
            checked.error = "it was replaced meanwhile"

    async def _is_still_named(self, place: _Place) -> bool:
        if not place.namer:
            return True
        try:
            document = parse_document(await fetched(self._web, place.namer, MAX_BYTES))
        except (Rejected, TryAgain):
            return True
        return place.named.url in {each.url for each in named_in(place.namer, document)}

    def _judge(self, place: _Place, checked: Checked, body: bytes) -> None:
        url = place.named.url
        try:
            document = parse_document(body)
        except Rejected:
            checked.violations += judge(body).violations
            return
        if is_plain_sitemap(document) and place.named.relation == "begin":
            checked.kind = "sitemap"
            return
        checked.kind, checked.edition, violations = judge(body)
        checked.violations += violations
        self.read[url] = document
        if place.namer:
            checked.violations += unlike(place.named, document, place.namer)
        for named in named_in(url, document):
            self._waiting.append(_Place(named, url, place.depth + 1))

    def _compare(self, place: _Place) -> None:
        """A document that was read already is held against one more that names it."""
        document = self.read.get(place.named.url)
        if document is not None and place.namer:
            found = self.checked[place.named.url].violations
            found += unlike(place.named, document, place.namer)

    # The whole ----------------------------------------------------------------------------------

    def _look_at_all(self) -> None:
        for url, document in self.read.items():
            found = self.checked[url].violations
            up = link_of(url, document, *UP)
            if up is not None and capability_of(document) in BELOW:
                found += wrong_way_up(up, list(self._chain(url)), self.read)
            spans = [self._span(named) for named in named_in(url, document) if named.entry]
            found += not_consecutive(document, spans)

    def _chain(self, url: str) -> Iterator[str]:
        seen = {""}
        while url not in seen:
            yield url
            seen.add(url)
            if url in self.read and capability_of(self.read[url]) == "capabilitylist":
                return
            url = self._namer.get(url, "")

    def _span(self, named: NamedDocument) -> Span:
        """What its namer says of a list, else what the list says of itself."""
        told = span_of(named.entry.md if named.entry else None)
        own = span_of(self.read[named.url].md if named.url in self.read else None)
        return told[0] or own[0], told[1] or own[1]


def _not_there(detail: str) -> Violation:
    return Violation("Core 7", "/", detail, "Serve it, or name it no longer.")


async def fetched(web: Web, url: str, cap: int) -> bytes:
    """A document, unpacked if it is packed; `Rejected` says why there is none."""
    body, unpacker = bytearray(), Unpacker()
    async with web.ask(url, headers={"Accept": XML_FIRST, "Accept-Encoding": "gzip"}) as answer:
        check_status(url, answer)
        try:
            async for chunk in answer.pieces():
                for piece in unpacker.feed(chunk):
                    body += piece
                    if len(body) > cap:
                        raise TooLong(f"{url} has more than {cap} bytes when it is unpacked")
        except zlib.error as error:
            raise Rejected(f"{url} is no whole gzip file: {error}") from None
    return bytes(body)
