"""What a Source has at one moment, recorded as work: from Resource List, Dumps or Change Lists.

Rules that hold here: lists are read as they come and kept nowhere but in the state; what could not
be read makes the baseline incomplete, and of an incomplete one no resource is taken for deleted.
"""

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Sequence
from time import time
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urljoin

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.stream import Head
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.changelists import ChangeLists
from rsnotify_client.discovery import Source
from rsnotify_client.documents import RemoteDocument
from rsnotify_client.mirror.disk import Disk
from rsnotify_client.mirror.fetch import Fetched, Fetcher, Missing, NotModified
from rsnotify_client.mirror.plan import (
    Have,
    Selection,
    SourceResource,
    checker,
    newest,
    wanted_by,
)
from rsnotify_client.mirror.report import Event, Report
from rsnotify_client.mirror.state import Row, State
from rsnotify_client.mirror.storing import Store
from rsnotify_client.notification import Received, position_of
from rsnotify_client.web import Refused, Web

if TYPE_CHECKING:
    from rsnotify_client.mirror.dump import Package, Packed

log = logging.getLogger(__name__)

ATTEMPTS = 4
DEPTH = 3


class Baseline:
    """Plans, and where packages are offered, stores, all that the Source has."""

    def __init__(
        self, web: Web, source: Source, state: State, selection: Selection, report: Report
    ) -> None:
        self.is_complete = True
        self.listed = self.selected = 0
        self._web = web
        self._source = source
        self._state = state
        self._selection = selection
        self._report = report

    async def plan(self, lists: ChangeLists | None) -> Position | None:
        """Record it; up to where the changes are in it, None if the Source does not say."""
        generation = self._state.generation + 1
        self._state.set_fact("generation", str(generation))
        if self._source.resourcelist is not None:
            at = await self._lists(self._source.resourcelist, generation)
        elif lists is not None:
            at = await self._changes(lists, generation)
        elif self._source.resourcedump is not None:
            at = None
        else:
            raise Refused(
                f"{self._source.url} offers nothing to copy: no Resource List, Dump or Change List"
            )
        if self.is_complete:
            self._state.plan_deletions(generation, time())
        self._state.commit()
        return at if self.is_complete else None

    def summary(self) -> Event:
        """How much the Resource List has, how much of it is selected, and what is to be done."""
        selection, has_list = str(self._selection), self._source.resourcelist is not None
        return Event(
            "baseline",
            resources=self.selected if has_list else None,
            to_do=self._state.counts()[1],
            listed=self.listed if has_list and selection else None,
            selection=selection or None,
        )

    def skip(self, problem: str) -> None:
        self.is_complete = False
        self._report(Event("skipped", problem=problem))

    # Resource Lists -----------------------------------------------------------------------------

    async def _lists(self, url: str, generation: int, depth: int = 0) -> Position | None:
        head: Head | None = None
        parts: list[Entry] = []
        async for head, entries in self._read(url):
            if head.root == "sitemapindex":
                parts += entries
            else:
                self._plan(entries, generation)
        if head is None:
            return None
        for part in parts:
            if depth < DEPTH:
                await self._part(url, part.loc, generation, depth + 1)
        return position_of(head.md.at) or position_of(head.md.from_)

    async def _part(self, index: str, loc: str, generation: int, depth: int) -> None:
        try:
            url = _joined(index, loc)
        except Refused as error:
            self.skip(error.detail)
        else:
            await self._lists(url, generation, depth)

    async def _read(self, url: str) -> AsyncIterator[tuple[Head, list[Entry]]]:
        """A list's entries; what cannot be read is skipped and named."""
        document, pages, attempt = RemoteDocument(self._web, url), 0, 0
        while attempt < ATTEMPTS:
            try:
                async for entries in document:
                    yield document.head, entries
                yield document.head, []
            except TryAgain as error:
                attempt, pages = (0 if document.pages > pages else attempt) + 1, document.pages
                if attempt == ATTEMPTS:
                    self.skip(error.detail)
                else:
                    await asyncio.sleep(max(error.retry_after_seconds, 0.25 * 2**attempt))
            except Rejected as error:
                self.skip(error.detail)
                return
            else:
                for skipped in document.skipped:
                    self.skip(f"{url}: {skipped}")
                return

    def _plan(self, entries: Sequence[Entry], generation: int) -> None:
        wanted = newest(wanted_by(change_of(entry)) for entry in entries if entry.loc)
        selected = [each for each in wanted if self._selection.takes(each.loc)]
        self._state.plan(selected, generation, time())
        self.listed += len(wanted)
        self.selected += len(selected)

    async def _changes(self, lists: ChangeLists, generation: int) -> Position | None:
        """Where there is no Resource List, all changes together are one."""
        at: Position | None = None
        async for received in lists.after(None):
            record(self._state, received, self._selection, generation)
            at = received.until
        return at


def record(state: State, received: Received, selection: Selection, generation: int) -> int:
    """Record changes as work; the newest of several to one resource."""
    pairs = zip(received.changes, received.positions, strict=True)
    wanted = newest(
        wanted_by(change, position if received.payload else None)  # lag is measured live only
        for change, position in pairs
        if selection.takes(change.loc)
    )
    return state.plan(wanted, generation, time())


def _joined(index: str, loc: str) -> str:
    try:
        return urljoin(index, loc)
    except ValueError:
        raise Refused(f"{index} names {loc[:200]!r}, which is no address") from None


# Packages -----------------------------------------------------------------------------------------


class Dumps:
    """Fills an empty copy from Resource Dump packages."""

    def __init__(
        self, baseline: Baseline, web: Web, state: State, disk: Disk, store: Store
    ) -> None:
        self._baseline = baseline
        self._web = web
        self._state = state
        self._disk = disk
        self._store = store

    async def fill(self, url: str, selection: Selection, fetcher: Fetcher, report: Report) -> None:
        """Store what the packages hold; what they cannot give is fetched one by one later."""
        async for packages in self._packages(url):
            for wanted in packages:
                try:
                    await self._unpack(wanted, selection, fetcher, report)
                except (Rejected, TryAgain, Missing, NotModified) as error:
                    report(Event("skipped", wanted.loc, problem=str(error)))

    async def _packages(self, url: str, depth: int = 0) -> AsyncIterator[list[SourceResource]]:
        document = RemoteDocument(self._web, url)
        try:
            async for entries in document:
                if document.head.root == "sitemapindex" and depth == 0:
                    for entry in entries:
                        async for packages in self._packages(_joined(url, entry.loc), 1):
                            yield packages
                else:
                    yield [wanted_by(change_of(entry)) for entry in entries]
        except (Rejected, TryAgain) as error:
            log.warning("skipped: %s", error.detail)

    async def _unpack(
        self, wanted: SourceResource, selection: Selection, fetcher: Fetcher, report: Report
    ) -> None:
        fetched = await fetcher.fetch(Row(wanted.loc, None, wanted, None, None, 0, 0, None))
        try:
            if fetched.content is not None:
                await self._unpack_file(io.BytesIO(fetched.content), wanted.loc, selection, report)
            else:
                with self._disk.open_part(wanted.loc, keep=True) as part:
                    await self._unpack_file(part, wanted.loc, selection, report)
        finally:
            self._disk.drop_part(wanted.loc)

    async def _unpack_file(
        self, file: BinaryIO, where: str, selection: Selection, report: Report
    ) -> None:
        from rsnotify_client.mirror.dump import Package  # noqa: PLC0415 - seldom needed

        package = Package(file, where)
        for packed in package.resources():
            wanted = wanted_by(change_of(packed.entry))
            if not selection.takes(wanted.loc):
                continue
            try:
                report(await self._store_one(package, packed, wanted))
            except (Rejected, TryAgain) as error:
                report(Event("skipped", wanted.loc, problem=error.detail))
            await asyncio.sleep(0)
        for refused in package.refused:
            report(Event("skipped", problem=refused))
        self._state.commit()

    async def _store_one(
        self, package: "Package", packed: "Packed", wanted: SourceResource
    ) -> Event:
        self._state.plan([wanted], self._state.generation, time())
        row = self._state.row(wanted.loc)
        assert row is not None  # noqa: S101
        checking, length = checker(wanted.hash), 0
        with self._disk.open_part(wanted.loc) as part:
            for piece in package.content(packed):
                part.write(piece)
                length += len(piece)
                if checking is not None:
                    checking[1].update(piece)
        is_right = checking is None or checking[1].hexdigest() == checking[2]
        if not is_right or (wanted.length is not None and wanted.length != length):
            self._disk.drop_part(wanted.loc)
            raise Refused(f"{packed.path} in the package is not what the manifest says")
        have = Have(wanted.lastmod, length, wanted.hash)
        return await self._store.put(row, Fetched(have, None, length))
