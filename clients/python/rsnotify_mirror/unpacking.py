"""What packages hold, stored in the place of what would else be fetched one by one.

Rules that hold here: a resource of a package is stored only if it is the one that is wanted now,
and as its manifest says. What is planned from a manifest is held back until its package was
unpacked, so nobody fetches it meanwhile; what no package gives is then due.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import time

from msgspec.structs import replace

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify_client.dump import Package, Packed, RemotePackages
from rsnotify_client.notification import position_of
from rsnotify_client.resource import SourceResource, checker
from rsnotify_client.web import Refused, Web
from rsnotify_mirror.disk import Disk
from rsnotify_mirror.fetch import Fetched, Fetcher, Missing
from rsnotify_mirror.plan import Have, is_current, wanted_by
from rsnotify_mirror.report import Event, Report
from rsnotify_mirror.state import Row, State
from rsnotify_mirror.storing import Store


class Unpacking(RemotePackages):
    """The packages of one mirror; `when_kept` is called after each that brings changes."""

    def __init__(
        self, web: Web, state: State, disk: Disk, store: Store, fetcher: Fetcher, report: Report
    ) -> None:
        super().__init__(web)
        self.when_kept: Callable[[], None] = lambda: None
        self._state = state
        self._disk = disk
        self._store = store
        self._fetcher = fetcher
        self._report = report

    @asynccontextmanager
    async def open(self, wanted: SourceResource) -> AsyncIterator[Package]:
        """As resources are fetched: verified, and one that broke off goes on where it stopped."""
        try:
            fetched = await self._fetcher.fetch(
                Row(wanted.loc, None, wanted, None, None, 0, 0, None)
            )
        except Missing as missing:
            raise Refused(str(missing)) from None
        try:
            if fetched.content is not None:
                yield Package(io.BytesIO(fetched.content), wanted.loc)
            else:
                with self._disk.open_part(wanted.loc, keep=True) as part:
                    yield Package(part, wanted.loc)
        finally:
            self._disk.drop_part(wanted.loc)

    async def unpack(self, wanted: SourceResource, package: Package | None) -> None:
        """Store what the package has of what is held back."""
        try:
            if package is not None:
                await self._unpack(package)
            elif self._state.has_held_back(time()):
                async with self.open(wanted) as opened:
                    await self._unpack(opened)
        except (Rejected, TryAgain) as error:
            self._report(Event("skipped", problem=error.detail))

    async def keep(self, wanted: SourceResource, package: Package | None) -> None:
        await self.unpack(wanted, package)
        self.when_kept()

    async def _unpack(self, package: Package) -> None:
        newest = {packed.entry.loc: packed for packed in package.resources()}
        at = position_of(package.head.md.at or package.head.md.until)
        asked = None if at is None else at // 1_000_000
        for packed in newest.values():
            wanted = wanted_by(change_of(packed.entry))
            row = self._state.row(wanted.loc)
            held = Have(wanted.lastmod, wanted.length, wanted.hash, asked=asked)
            if row is None or row.wanted.is_deleted or is_current(row.wanted, row.have):
                continue
            if row.wanted != wanted and not is_current(row.wanted, held):
                continue
            try:
                self._report(await self._store_one(package, packed, row, held))
            except (Rejected, TryAgain) as error:
                self._report(Event("skipped", wanted.loc, problem=error.detail))
            await asyncio.sleep(0)
        for refused in package.refused:
            self._report(Event("skipped", problem=refused))

    async def _store_one(self, package: Package, packed: Packed, row: Row, held: Have) -> Event:
        wanted = row.wanted
        checking, length = checker(wanted.hash), 0
        with self._disk.open_part(wanted.loc) as part:
            for piece in package.content(packed):
                part.write(piece)
                length += len(piece)
                if checking is not None:
                    checking[1].update(piece)
        is_right = checking is None or checking[1].hexdigest() == checking[2]
        if not is_right or wanted.length not in (None, length):
            self._disk.drop_part(wanted.loc)
            raise Refused(f"{packed.path} in the package is not what the manifest says")
        have = replace(held, lastmod=wanted.lastmod, length=length, hash=wanted.hash)
        return await self._store.put(row, Fetched(have, None, length))
