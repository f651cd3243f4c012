"""What a Source has at one moment, recorded as work: from Resource List, Dumps or Change Lists.

Rules that hold here: lists are read as they come and kept nowhere but in the state; what could not
be read makes the baseline incomplete, and of an incomplete one no resource is taken for deleted. A
baseline that would delete too much deletes nothing, and is not complete either.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from time import time
from urllib.parse import urljoin

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.stream import Head
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import joined
from rsnotify_client.between import MAX_DELETE, too_many
from rsnotify_client.changelists import ChangeLists
from rsnotify_client.discovery import Source
from rsnotify_client.documents import RemoteDocument
from rsnotify_client.dumps import RemotePackages, package_of
from rsnotify_client.notification import Received, position_of
from rsnotify_client.resource import SourceResource
from rsnotify_client.web import Refused, Web
from rsnotify_mirror.plan import Selection, newest, wanted_by
from rsnotify_mirror.report import Event, Report
from rsnotify_mirror.state import HELD_BACK_SECONDS, State

ATTEMPTS = 4
DEPTH = 3


class Baseline:
    """Plans all that the Source has, and hands on the packages where it offers them."""

    def __init__(
        self,
        web: Web,
        source: Source,
        state: State,
        selection: Selection,
        report: Report,
        *,
        packages: RemotePackages | None = None,
        fills: bool = False,
        max_delete: float = MAX_DELETE,
    ) -> None:
        self.is_complete = True
        self.completed: Position | None = None  # when its Source had made it
        self.listed = self.selected = 0
        self._web = web
        self._source = source
        self._state = state
        self._selection = selection
        self._report = report
        self._packages = packages or RemotePackages(web)
        self._fills = fills and source.resourcedump is not None  # an empty copy, from packages
        self._max_delete = max_delete
        self._generation = state.generation + 1
        self._parts: set[str] = set()

    @property
    def is_of_resources(self) -> bool:
        """Whether a list of resources is read, after which changes follow."""
        return (self._source.resourcelist or self._source.resourcedump) is not None

    async def plan(self, lists: ChangeLists | None) -> Position | None:
        """Record it; up to where the changes are in it, None if the Source does not say."""
        self._state.set_fact("generation", str(self._generation))
        if self._source.resourcelist is not None:
            at = await self._lists(self._source.resourcelist)
            if self._fills and self._source.resourcedump is not None:
                await self._fill(self._source.resourcedump)
        elif self._source.resourcedump is not None:
            at = await self._dumps(self._source.resourcedump)
        elif lists is not None:
            at = await self._changes(lists)
        else:
            raise Refused(
                f"{self._source.url} offers nothing to copy: no Resource List, Dump or Change List"
            )
        self.selected = self._state.listed(self._generation)
        self._state.release(time())
        self._state.commit()
        return at

    def plan_deletions(self) -> None:
        """What is listed no more is gone, unless that is too much to be believed.

        It is called when the changes since are recorded: what they create is in no list yet.
        """
        if not self.is_complete:
            return
        gone = self._state.unlisted(self._generation)
        held = [loc for loc, is_held in gone if is_held and self._selection.takes(loc)]
        known = sum(map(self._selection.takes, self._state.held()))
        refusal = too_many(len(held), known, self._max_delete, "resources of the copy")
        if refusal is not None:
            self.skip(f"{self._listing} leaves out, and so would delete, {refusal}")
        kept = set(held) if refusal is not None else set()
        deleted = [SourceResource(loc, "deleted") for loc, _ in gone if loc not in kept]
        self._state.plan(deleted, self._generation, time())
        self._state.commit()

    @property
    def _listing(self) -> str | None:
        return self._source.resourcelist or self._source.resourcedump or self._source.changelist

    def gap_before(self, begins: Position, at: Position) -> str | None:
        """What is wrong where Change Lists begin after `at`: what changed before stands nowhere.

        Many a Source tells only what changed after its list was complete.
        """
        if self.completed is not None and begins <= self.completed:
            return None
        return f"what changed from {at} to {begins} is in no list of the Source"

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

    async def _lists(self, url: str, depth: int = 0) -> Position | None:
        head: Head | None = None
        parts: list[Entry] = []
        async for head, entries in self._read(url):
            if head.root == "sitemapindex":
                parts += entries
            else:
                self._plan(entries, is_held_back=self._fills)
        if head is None:
            return None
        for part in parts:
            if depth < DEPTH:
                await self._part(url, part.loc, depth + 1)
            else:
                self.skip(f"{url}: an index under an index under an index is not read")
        if not depth:
            self.completed = position_of(head.md.completed)
        return position_of(head.md.at) or position_of(head.md.from_)

    async def _part(self, index: str, loc: str, depth: int) -> None:
        try:
            url = _joined(index, loc)
        except Refused as error:
            self.skip(error.detail)
            return
        if url not in self._parts:
            self._parts.add(url)
            await self._lists(url, depth)

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

    def _plan(self, entries: Sequence[Entry], *, is_held_back: bool = False) -> None:
        wanted = newest(wanted_by(change_of(entry)) for entry in entries if entry.loc)
        selected = [each for each in wanted if self._selection.takes(each.loc)]
        due = time() + HELD_BACK_SECONDS * is_held_back
        self._state.plan(selected, self._generation, due)
        self.listed += len(wanted)

    async def _changes(self, lists: ChangeLists) -> Position | None:
        """Where there is no list of resources, all changes together are one."""
        at: Position | None = None
        try:
            async for received in lists.after(None):
                record(
                    self._state,
                    received,
                    self._selection,
                    self._generation,
                    is_held_back=lists.is_in_package,
                )
                at = received.until
        except (Rejected, TryAgain) as error:
            self.skip(error.detail)
        return at

    # Resource Dumps -----------------------------------------------------------------------------

    async def _dumps(self, url: str) -> Position | None:
        """What the manifests say; each package is handed on with its manifest."""
        at: Position | None = None
        async for head, base, entries in self._packages_of(url):
            at, self.completed = position_of(head.md.at), position_of(head.md.completed)
            for entry in entries:
                await self._package(base, entry)
        return at

    async def _fill(self, url: str) -> None:
        """The list says what there is; what packages cannot give is fetched one by one."""
        is_complete = self.is_complete
        async for _, base, entries in self._packages_of(url):
            for entry in entries:
                await self._package(base, entry, is_planned=True)
        self.is_complete = is_complete

    async def _packages_of(
        self, url: str, depth: int = 0
    ) -> AsyncIterator[tuple[Head, str, list[Entry]]]:
        """The parts of a Resource Dump; the last has the head of the whole, and where it was."""
        head: Head | None = None
        parts: list[Entry] = []
        packages: list[Entry] = []
        async for head, entries in self._read(url):
            if head.root == "sitemapindex":
                parts += entries
            else:
                packages += entries
        for part in parts:
            if depth:
                self.skip(f"{url}: an index under an index is not read")
                return
            async for piece in self._packages_of(joined(url, part.loc), 1):
                yield piece
        if head is not None:
            yield head, url, packages  # read to its end: they may need its connection

    async def _package(self, base: str, entry: Entry, *, is_planned: bool = False) -> None:
        wanted, contents = package_of(base, entry)
        try:
            if is_planned:
                async with self._packages.open(wanted) as package:
                    await self._packages.unpack(wanted, package)
                return
            if contents is not None:
                async for _, entries in self._read(contents):
                    self._plan(entries, is_held_back=True)
                await self._packages.unpack(wanted, None)
            else:
                async with self._packages.open(wanted) as package:
                    for batch in package.batches():
                        self._plan(batch, is_held_back=True)
                    for refused in package.refused:
                        self.skip(refused)
                    await self._packages.unpack(wanted, package)
        except (Rejected, TryAgain) as error:
            self.skip(error.detail)
        if not is_planned:
            self._state.release(time())


def record(
    state: State,
    received: Received,
    selection: Selection,
    generation: int,
    *,
    is_held_back: bool = False,
) -> int:
    """Record changes as work; the newest of several to one resource."""
    pairs = zip(received.changes, received.positions, strict=True)
    wanted = newest(
        wanted_by(change, position if received.payload else None)  # lag is measured live only
        for change, position in pairs
        if selection.takes(change.loc)
    )
    return state.plan(wanted, generation, time() + HELD_BACK_SECONDS * is_held_back)


def _joined(index: str, loc: str) -> str:
    try:
        return urljoin(index, loc)
    except ValueError:
        raise Refused(f"{index} names {loc[:200]!r}, which is no address") from None
