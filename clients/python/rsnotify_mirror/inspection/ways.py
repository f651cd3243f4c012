"""Discovery in each of its forms: where they lead, whether one is there at all.

A form that is not used is no violation; one that leads nowhere is.
"""

import zlib
from collections.abc import Callable

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.stream import DocumentStream
from rsnotify.resourcesync.validation.entry_rules import Violation
from rsnotify_client.address import joined
from rsnotify_client.discovery import WELL_KNOWN, http_twin, linked, linked_in_html, sitemaps_of
from rsnotify_client.documents import Unpacker
from rsnotify_client.web import FetchedPage, Web
from rsnotify_mirror.inspection.checked import Checked
from rsnotify_mirror.inspection.documents import Documents

ROBOTS = "/robots.txt"
NOT_USED = "not used"
MEND = f"Serve the Source Description at {WELL_KNOWN}, or link to the Capability List."


def begins_a_document(body: bytes) -> bool:
    """Whether this is the beginning of a document, packed or not."""
    stream = DocumentStream()
    try:
        for piece in Unpacker().feed(body):
            stream.feed(piece)
    except (Rejected, zlib.error):
        return stream.has_head
    return stream.has_head


class Ways:
    """The ways from an address to a Source's documents."""

    def __init__(self, web: Web, documents: Documents, report: Callable[[Checked], None]) -> None:
        self.checked: list[Checked] = []
        self._web = web
        self._documents = documents
        self._report = report

    async def look(self, url: str) -> None:
        """Try all forms; `TryAgain` or `Rejected` if the address itself gives no answer."""
        url = http_twin(url)
        page = await self._web.page(url)
        found = [self._itself(page), self._header(page), self._html(page)]
        found += [await self._well_known(url), await self._robots(url)]
        if not any(found):
            message = f"neither {url} itself, its links, {WELL_KNOWN} nor {ROBOTS} lead anywhere"
            wrong = Violation("Core 6.3", "/", message, MEND)
            self._add(Checked(url, "discovery", violations=[wrong]))

    def _itself(self, page: FetchedPage) -> bool:
        is_there = page.status == 200 and begins_a_document(page.body)
        if is_there:
            self._documents.begin_at(page.url)
        return is_there

    def _header(self, page: FetchedPage) -> bool:
        return self._linked(page, linked(page.headers.get("link", ""), "resourcesync"), "Link")

    def _html(self, page: FetchedPage) -> bool:
        is_html = "html" in page.headers.get("content-type", "")
        href = linked_in_html(page.body.decode(errors="replace")) if is_html else None
        return self._linked(page, href, "<link>")

    def _linked(self, page: FetchedPage, href: str | None, form: str) -> bool:
        if href is not None:
            self._documents.begin_at(joined(page.url, href), namer=f"{form} of {page.url}")
        outcome = NOT_USED if href is None else None
        self._add(Checked(page.url, f"discovery by {form}", note=outcome))
        return href is not None

    async def _well_known(self, url: str) -> bool:
        described = joined(url, WELL_KNOWN)
        page = await self._page(described)
        is_there = page is not None and page.status == 200
        if is_there:
            self._documents.begin_at(described, "description", namer="discovery")
        self._add(Checked(described, "discovery", note=None if is_there else NOT_USED))
        return is_there

    async def _robots(self, url: str) -> bool:
        robots = joined(url, ROBOTS)
        page = await self._page(robots)
        body = page.body.decode(errors="replace") if page and page.status == 200 else ""
        maps = sitemaps_of(body)
        for each in maps:
            self._documents.begin_at(joined(robots, each), namer=robots)
        self._add(Checked(robots, "discovery", note=None if maps else NOT_USED))
        return bool(maps)

    async def _page(self, url: str) -> FetchedPage | None:
        try:
            return await self._web.page(url)
        except (Rejected, TryAgain):
            return None

    def _add(self, checked: Checked) -> None:
        self.checked.append(checked)
        self._report(checked)
