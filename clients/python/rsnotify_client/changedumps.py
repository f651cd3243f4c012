"""A Source's Change Dumps, where it has no Change Lists: the changes that their manifests tell.

Rules that hold here: a package that is hostile or cannot be read is skipped and named. Where a
manifest can be had alone, nothing else is fetched, unless the caller keeps what packages hold.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import joined
from rsnotify_client.changelists import (
    ChangeLists,
    ListRef,
    ReadTo,
    beginning_of,
    named_lists,
    stretches,
)
from rsnotify_client.discovery import Source
from rsnotify_client.documents import Malformed, RemoteDocument
from rsnotify_client.dump import RemotePackages
from rsnotify_client.notification import Received, position_of
from rsnotify_client.resource import SourceResource
from rsnotify_client.web import Refused, Tag, Web


def lists_of(
    web: Web,
    source: Source,
    *,
    skip: Callable[[str], object] | None = None,
    packages: RemotePackages | None = None,
) -> ChangeLists | None:
    """What a Source offers to catch up from: Change Lists, else Change Dumps, else nothing."""
    if source.changelist is not None:
        return ChangeLists(web, source.changelist, source.archive, skip=skip)
    if source.changedump is not None:
        return ChangeDumps(web, source.changedump, skip=skip, packages=packages)
    return None


def package_of(url: str, entry: Entry) -> tuple[SourceResource, str | None]:
    """A package that a list names at this address, and where its manifest can be had alone."""
    contents = next((link.href for link in entry.links if link.rel == "contents"), None)
    package = SourceResource(
        joined(url, entry.loc),
        length=entry.md.length if entry.md else None,
        hash=entry.md.hash if entry.md else None,
    )
    return package, contents and joined(url, contents)


class ChangeDumps(ChangeLists):
    """Change Dumps, read as the Change Lists that their manifests are."""

    def __init__(
        self,
        web: Web,
        url: str,
        *,
        skip: Callable[[str], object] | None = None,
        packages: RemotePackages | None = None,
    ) -> None:
        super().__init__(web, url, skip=skip)
        self._packages = packages or RemotePackages(web)
        self._named_packages: dict[str, tuple[SourceResource, str | None]] = {}

    async def _named(self) -> list[ListRef]:
        self._named_packages.clear()
        return await self._named_by(self._url)

    async def _named_by(self, url: str, depth: int = 0) -> list[ListRef]:
        document = RemoteDocument(self._web, url)
        found = [entry async for entries in document for entry in entries]
        for skipped in document.skipped:
            self._skip(f"{url}: {skipped}")
        if document.head.root == "sitemapindex" and depth == 0:
            parts = [joined(url, entry.loc) for entry in found]
            return [each for part in parts for each in await self._named_by(part, 1)]
        for entry in found:
            package, contents = package_of(url, entry)
            self._named_packages[package.loc] = package, contents
        return named_lists(url, found)

    def _address_of(self, url: str) -> str:
        return self._named_packages[url][1] or url

    async def _changes(self, url: str, cursor: Position | None) -> AsyncGenerator[Received, None]:
        package, contents = self._named_packages[url]
        found = super()._changes(url, cursor) if contents else self._packed(package, cursor)
        self.is_in_package = True
        try:
            async with aclosing(found) as pieces:
                async for received in pieces:
                    yield received
            if contents:
                await self._packages.keep(package, None)
        finally:
            self.is_in_package = False

    async def _packed(
        self, wanted: SourceResource, cursor: Position | None
    ) -> AsyncGenerator[Received, None]:
        read = self._read.get(wanted.loc)
        if read is not None and cursor is not None and cursor >= read.position:
            return
        before: Position | None = None
        skipped: list[str] = []
        try:
            async with self._packages.open(wanted) as package:
                for entries in package.batches():
                    begin = before or beginning_of(package.head, cursor)
                    for received in stretches(entries, begin, cursor, skipped.append):
                        yield received
                        before = received.until
                    await asyncio.sleep(0)
                end = position_of(package.head.md.until)
                if end is not None and (before is None or end > before):
                    yield Received(b"", before or end, end, ())
                    before = end
                await self._packages.keep(wanted, package)
        except Refused as error:
            raise Malformed(error.detail) from None
        for refused in (*package.refused, *(f"{wanted.loc}: {each}" for each in skipped)):
            self._skip(refused)
        if before is not None:
            self._read[wanted.loc] = ReadTo(Tag(), before)
