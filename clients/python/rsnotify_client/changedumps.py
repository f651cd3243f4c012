"""A Source's Change Dumps, where it has no Change Lists: the changes that their manifests tell.

Rules that hold here: of a package only the manifest is unpacked, never content; a package that is
hostile or cannot be read is skipped and named. Where a manifest can be had alone, nothing else is
fetched.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from itertools import islice
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import joined
from rsnotify_client.changelists import (
    AT_ONCE,
    ChangeLists,
    ListRef,
    ReadTo,
    named_lists,
    skip,
    stretches,
)
from rsnotify_client.discovery import Source
from rsnotify_client.documents import Malformed, RemoteDocument
from rsnotify_client.mirror.dump import Package
from rsnotify_client.notification import Received
from rsnotify_client.web import Refused, Tag, Web, check_status

PACKAGE_BYTES = 4 * 1024**3


def lists_of(web: Web, source: Source) -> ChangeLists | None:
    """What a Source offers to catch up from: Change Lists, else Change Dumps, else nothing."""
    if source.changelist is not None:
        return ChangeLists(web, source.changelist, source.archive)
    return None if source.changedump is None else ChangeDumps(web, source.changedump)


class ChangeDumps(ChangeLists):
    """Change Dumps, read as the Change Lists that their manifests are."""

    def __init__(self, web: Web, url: str) -> None:
        super().__init__(web, url)
        self._contents: dict[str, str] = {}

    async def _named(self) -> list[ListRef]:
        self._contents.clear()
        return await self._packages(self._url)

    async def _packages(self, url: str, depth: int = 0) -> list[ListRef]:
        document = RemoteDocument(self._web, url)
        found = [entry async for entries in document for entry in entries]
        if document.head.root == "sitemapindex" and depth == 0:
            parts = [joined(url, entry.loc) for entry in found]
            return [each for part in parts for each in await self._packages(part, 1)]
        for entry in found:
            for link in entry.links:
                if link.rel == "contents":
                    self._contents[joined(url, entry.loc)] = joined(url, link.href)
        return named_lists(url, found)

    def _address_of(self, url: str) -> str:
        return self._contents.get(url, url)

    async def _changes(self, url: str, cursor: Position | None) -> AsyncGenerator[Received, None]:
        has_manifest = url in self._contents
        found = super()._changes(url, cursor) if has_manifest else self._packed(url, cursor)
        async with aclosing(found) as pieces:
            async for received in pieces:
                yield received

    async def _packed(self, url: str, cursor: Position | None) -> AsyncGenerator[Received, None]:
        read = self._read.get(url)
        if read is not None and cursor is not None and cursor >= read.position:
            return
        before: Position | None = None
        try:
            with TemporaryFile() as file:
                package = await self._fetched(url, cast("BinaryIO", file))
                skipped: list[str] = []
                for entries in _batches(package.entries()):
                    for received in stretches(entries, before, cursor, skipped.append):
                        yield received
                        before = received.until
                    await asyncio.sleep(0)
        except Refused as error:
            raise Malformed(error.detail) from None
        for refused in (*package.refused, *(f"{url}: {each}" for each in skipped)):
            skip(refused)
        if before is not None:
            self._read[url] = ReadTo(Tag(), before)

    async def _fetched(self, url: str, file: BinaryIO) -> Package:
        async with self._web.ask(url) as answer:
            check_status(url, answer)
            async for piece in answer.pieces():
                file.write(piece)
                if file.tell() > PACKAGE_BYTES:
                    raise Refused(f"{url} is longer than {PACKAGE_BYTES} bytes")
        return Package(file, url)


def _batches(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    while batch := list(islice(entries, AT_ONCE)):
        yield batch
