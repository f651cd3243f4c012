"""One resource brought up to date: fetched, patched or unpacked, put in its place, removed.

Rules that hold here: a file is in its place before it is reported and recorded, and its place is
recorded before that: a file that no row names would stay for ever. A resource of a package is
stored only if it is the one that is wanted now, and as its manifest says. What is planned from a
manifest is held back until its package was unpacked; what no package has is then fetched. `workers`
decides whether and when to try again.

A hook, a command or a function, is called after each change that is in its place.
"""

import asyncio
import hashlib
import io
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from time import time
from typing import BinaryIO, Protocol

from msgspec import to_builtins
from msgspec.structs import replace

from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify_client.dumps import Package, Packed, RemotePackages, opened
from rsnotify_client.notification import position_of
from rsnotify_client.resource import Check, SourceResource, digests
from rsnotify_client.web import Refused, Web
from rsnotify_mirror.disk import Disk, digest_of, write_all
from rsnotify_mirror.fetch import Fetched, Fetcher, Missing, NotModified
from rsnotify_mirror.patch import candidates, xml_candidates
from rsnotify_mirror.paths import place_of
from rsnotify_mirror.plan import (
    XML_PATCH,
    Have,
    Options,
    cheaper_patch,
    is_current,
    kept_links,
    media_type,
    pause_after,
    wanted_by,
)
from rsnotify_mirror.report import Event, EventKind, Report
from rsnotify_mirror.room import CopyRoom, NoRoom
from rsnotify_mirror.state import Outgoing, State, StateRow
from rsnotify_mirror.versions import Budget, Versions, began
from rsnotify_mirror.warc import WarcFile

Hook = Callable[[Event, bytes | None], Awaitable[None]]
"""Called after each change that is in its place; what it raises makes the change be tried again."""


class Announcing(Protocol):
    """Says what is to be published of a change that is in its place, if anything is."""

    def stored(self, row: StateRow, have: Have) -> Outgoing | None: ...

    def deleted(self, row: StateRow) -> Outgoing | None: ...


_VALUE = re.compile(r"(?<!\$)\{(path|loc)\}")


def command_hook(command: str, root: Path) -> Hook:
    """Run a command after each change, without a shell.

    A Source chooses addresses and paths, and many a program runs what it is given as a word. So
    they are in the environment only: RSNOTIFY_EVENT, RSNOTIFY_LOC, RSNOTIFY_PATH.
    """
    words = _words(command)

    async def hook(event: Event, _: bytes | None) -> None:
        environment = os.environ | {
            "RSNOTIFY_EVENT": event.event,
            "RSNOTIFY_LOC": event.loc or "",
            "RSNOTIFY_PATH": str(root / event.path) if event.path else "",
        }
        try:
            process = await asyncio.create_subprocess_exec(*words, env=environment)
        except OSError as error:
            raise TryAgain(f"--exec {words[0]}: {error.strerror}", retry_after_seconds=0) from None
        if status := await process.wait():
            raise TryAgain(f"--exec {words[0]} ended with {status}", retry_after_seconds=0)

    return hook


def _words(command: str) -> list[str]:
    """The words of a command that can be run."""
    import shlex  # noqa: PLC0415 - seldom needed
    import shutil  # noqa: PLC0415

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidSettings(f"--exec: {error}") from None
    if not words:
        raise InvalidSettings("--exec: name a command")
    if (found := next(filter(None, map(_VALUE.search, words)), None)) is not None:
        name = found[1]
        raise InvalidSettings(
            f"--exec: {{{name}}} is not filled in, because a Source decides what it is, and the "
            f"program might run it. Read $RSNOTIFY_{name.upper()} instead, in a script or as in "
            f"sh -c 'touch \"$RSNOTIFY_{name.upper()}\"'"
        )
    if shutil.which(words[0]) is None:
        raise InvalidSettings(f"--exec {words[0]}: there is no such program that may be run")
    return words


PATCHED_BYTES = 16 * 1024 * 1024
UNPACKED_AT_ONCE = 250
PACKAGE_ATTEMPTS = 4  # to read a package
IN_MEMORY_BYTES = 64 * 1024 * 1024
READ_BYTES = 256 * 1024


class Store:
    """Puts resources in their places."""

    def __init__(
        self,
        state: State,
        disk: Disk,
        web: Web,
        fetcher: Fetcher,
        room: CopyRoom,
        options: Options,
        *,
        kept: Disk | None,
        hook: Hook | None,
        announcing: Announcing | None = None,
        versions: Versions | None = None,
        warc: WarcFile | None = None,
    ) -> None:
        self._warc = warc
        self._versions = versions
        self._budget = Budget(options.versions_bytes, options.versions_seconds)
        self._announcing = announcing
        self._state = state
        self._disk = disk
        self._web = web
        self._fetcher, self._room = fetcher, room
        self._maps, self._has_files = options.maps, options.has_files
        self._kept = kept
        self._hook = hook

    async def bring_up_to_date(self, row: StateRow) -> Event | None:
        """Do what the row wants; return what happened, if anything did."""
        if row.wanted.is_deleted:
            return await self._delete(row)
        if is_current(row.wanted, row.have) and self._is_there(row):
            return await self._kept_as_it_is(row, row.have or Have())
        try:
            fetched = await self._patched(row) or await self._fetcher.fetch(row)
        except NotModified as same:
            have = row.have or Have()
            known = have.hash if digests(have.hash) else row.wanted.hash or have.hash
            kept = replace(have, lastmod=row.wanted.lastmod, hash=known, asked=same.asked)
            return await self._kept_as_it_is(row, kept)
        except Missing as missing:
            if missing.status == 410:
                return await self._delete(row)
            stays = "" if row.have is None else ", so the file stays"
            raise TryAgain(
                f"{missing}, but no list says that it is deleted{stays}", retry_after_seconds=0
            ) from None
        return await self.put(row, fetched)

    async def _kept_as_it_is(self, row: StateRow, have: Have) -> Event:
        """The file stays. If a hook failed for it before, the hook is called again."""
        if have.hook_failed and self._hook is not None:
            return await self._done(row, replace(have, hook_failed=False), None, "stored")
        return await self._done(row, have, None, "unchanged")

    def _is_there(self, row: StateRow) -> bool:
        if not self._has_files:
            return True
        status = self._disk.status(row.path) if row.path else None
        return status is not None and row.have is not None and status.st_size == row.have.length

    def settle(self, rows: Sequence[StateRow]) -> None:
        """Give resources that are new to the copy their places, as far as they have an address."""
        if not self._has_files:
            return
        new = [row for row in rows if row.path is None and not row.wanted.is_deleted]
        wishes = {row.loc: place for row in new if (place := self._place(row.loc)) is not None}
        paths = self._state.settle(wishes)
        if paths:
            self._state.commit()
        for row in new:
            row.path = paths.get(row.loc)

    def _place(self, loc: str) -> str | None:
        try:
            return place_of(loc, self._maps)
        except ValueError:
            return None

    async def put(self, row: StateRow, fetched: Fetched) -> Event:
        """Store what was verified, here or elsewhere."""
        if self._announcing is not None and not digests(fetched.have.hash):
            fetched = replace(fetched, have=await self._with_digest(row, fetched))
        await self._keep_version(row, fetched.have)
        content = await self._put_in_place(row, fetched)
        return await self._done(row, fetched.have, content, "stored", is_news=True)

    async def _keep_version(self, row: StateRow, new: Have | None) -> None:
        """Before the copy loses what it has: keep that, if it is what was fetched."""
        if self._versions is None:
            return
        begins = began(row.wanted, new or Have(), time())
        if not self._versions.is_kept(row, new) and (found := await self._found(row)) is not None:
            await self._versions.keep(row, self._disk, found, begins)
        self._versions.now_is(row.loc, begins, new)
        self._versions.forget(self._budget, time())

    async def keep_earlier(
        self, version: SourceResource, path: str | None, ended: int, pieces: Iterator[bytes]
    ) -> None:
        """Keep a version that the copy never had."""
        path = path or self._place(version.loc)
        if self._versions is not None and path is not None:
            await self._versions.add(version, path, ended, pieces)
            self._versions.forget(self._budget, time())

    async def _found(self, row: StateRow) -> str | None:
        """The SHA-256 of the file of the copy; None if it is not what was fetched."""
        have = row.have or Have()
        try:
            with self._disk.open_file(row.path or "") as file:
                return await asyncio.to_thread(digest_if, file, have)
        except OSError:
            return None

    async def _with_digest(self, row: StateRow, fetched: Fetched) -> Have:
        """What is published again has a digest, where the Source gives none."""
        if fetched.content is not None:
            found = digest_of(io.BytesIO(fetched.content))
        else:
            with self._disk.open_part(row.loc, keep=True) as part:
                found = await asyncio.to_thread(digest_of, part)
        return replace(fetched.have, hash=" ".join(filter(None, (fetched.have.hash, found))))

    async def _put_in_place(self, row: StateRow, fetched: Fetched) -> bytes | None:
        """Put what was fetched in its place; return the content if it is in memory."""
        content = fetched.content
        if not self._has_files:
            return self._taken_into_memory(row, fetched) if content is None else content
        if row.path is None:
            self.settle([row])
        if row.path is None:
            raise Refused(f"{row.loc} is no address")
        modified = _modified(row.wanted, fetched.have)
        path, before = row.path, 0

        def check() -> None:
            nonlocal before
            before = self._length_at(path)
            if content is not None:  # nothing of it is on the disk
                self._room.admit(row.loc, fetched.length, replaced=before, is_one=True)
            self._room.check_stored(row.loc, before, fetched.length)

        try:
            if content is None:
                await self._disk.put_part(row.loc, path, modified, check)
            else:
                check()
                self._disk.put(path, content, modified)
        except NoRoom:
            self._disk.drop_part(row.loc)
            raise
        self._room.stored(before, fetched.length)
        return content

    def _length_at(self, path: str) -> int:
        """Of a file of the copy, where it matters how large that is; 0 if it is not there."""
        found = self._disk.status(path) if self._room.is_counted else None
        return 0 if found is None else found.st_size

    def _taken_into_memory(self, row: StateRow, fetched: Fetched) -> bytes:
        """Read it whole: where no files are kept, the hook gets the content."""
        try:
            if fetched.length > IN_MEMORY_BYTES:
                raise Refused(f"{row.loc} is longer than {IN_MEMORY_BYTES} bytes: mirror to files")
            with self._disk.open_part(row.loc, keep=True) as part:
                return part.read()
        finally:
            self._disk.drop_part(row.loc)

    async def _done(
        self,
        row: StateRow,
        have: Have,
        content: bytes | None,
        what: EventKind,
        *,
        is_news: bool = False,
    ) -> Event:
        event = _event(row, have, what)
        if self._is_left(row):
            have = replace(have, hook_failed=True)
        elif self._hook is not None and what == "stored":
            await self._call(self._hook, row, event, have, content, is_news=is_news)
        outgoing = await self._told(row, have, content) if is_news else None
        self._state.stored(row, have, outgoing)
        return event

    async def _told(self, row: StateRow, have: Have, content: bytes | None) -> Outgoing | None:
        """Append what has just been put in its place to the WARC; what is to be published of it."""
        if self._warc is not None:
            await self._warc.add(
                row.wanted.loc, row.wanted.type, have.asked, self._opened(row, content)
            )
        return None if self._announcing is None else self._announcing.stored(row, have)

    def _opened(self, row: StateRow, content: bytes | None) -> BinaryIO:
        """What has just been stored."""
        return self._disk.open_file(row.path or "") if content is None else io.BytesIO(content)

    def _is_left(self, row: StateRow) -> bool:
        """Whether a hook failed for it before and this run has none: the mark stays."""
        return self._hook is None and row.have is not None and row.have.hook_failed

    async def _call(
        self,
        hook: Hook,
        row: StateRow,
        event: Event,
        have: Have,
        content: bytes | None,
        *,
        is_news: bool = False,
    ) -> None:
        """Call the hook. If it fails, mark the row: then only the hook is repeated.

        Without files all is repeated.
        """
        try:
            await hook(event, content)
        except BaseException:
            if self._has_files:
                failed = replace(have, hook_failed=True)
                outgoing = await self._told(row, have, content) if is_news else None
                self._state.hook_failed(row, failed, outgoing)
            raise

    async def _delete(self, row: StateRow) -> Event | None:
        """Delete it; what was never in the copy only leaves the state, and no hook is called."""
        path = row.path if self._has_files else None
        is_there = path is not None and self._disk.status(path) is not None
        was_held = is_there or row.have is not None
        if was_held:
            await self._keep_version(row, None)
        before = 0 if path is None else self._length_at(path)
        gone = await self._removed(path) if path is not None else []
        self._room.stored(before, 0)
        self._disk.drop_part(row.loc)
        event, have = Event("deleted", row.loc, row.path, "deleted"), row.have or Have()
        outgoing = self._announcing.deleted(row) if self._announcing and was_held else None
        if self._is_left(row):
            self._state.stored(row, have, outgoing)
            return event if is_there else None
        if self._hook is not None and was_held:
            await self._call(self._hook, row, event, have, None)
        self._state.removed(row, outgoing)
        for folder in gone:
            self._state.forget_folder(folder)
        return event if was_held else None

    async def _removed(self, path: str) -> list[str]:
        """Remove the file; return the folders that are gone with it."""
        if self._kept is None:
            return self._disk.remove(path)
        return await self._disk.move_to(self._kept, path, _mark())

    async def _patched(self, row: StateRow) -> Fetched | None:
        """Get it by a patch, where that is cheaper and leads to what the Source says."""
        link = cheaper_patch(row.wanted, row.have)
        if link is None or row.path is None or not self._is_there(row):
            return None
        status = self._disk.status(row.path)
        if status is None or status.st_size > PATCHED_BYTES:
            return None
        try:
            page = await self._web.page(link.href, accept="*/*", cap=PATCHED_BYTES)
            with self._disk.open_file(row.path) as old:
                patch = (old.read(), page.body, row.wanted, media_type(link.type) in XML_PATCH)
                return await asyncio.to_thread(_verified, *patch)
        except (Rejected, TryAgain, ValueError, OSError):
            return None


def digest_if(file: BinaryIO, have: Have) -> str | None:
    """The SHA-256 of a file; None if its length or digest is not what was recorded."""
    check, found = Check(have.length, have.hash), hashlib.sha256()
    while piece := file.read(READ_BYTES):
        check.update(piece)
        found.update(piece)
    return None if check.problem() else f"sha-256:{found.hexdigest()}"


def _event(row: StateRow, have: Have, what: EventKind) -> Event:
    links = tuple(map(to_builtins, kept_links(row.wanted.links))) if row.wanted.links else ()
    lag = _lag(row.wanted) if what == "stored" else None
    return Event(what, row.loc, row.path, row.wanted.change, have.length, links, lag)


def _verified(old: bytes, patch: bytes, wanted: SourceResource, is_xml: bool) -> Fetched | None:
    for content in (xml_candidates if is_xml else candidates)(old, patch):
        check = Check(wanted.length, wanted.hash)
        check.update(content)
        if check.problem() is None:
            return Fetched(Have(wanted.lastmod, len(content), wanted.hash), content, len(content))
    return None


def _modified(wanted: SourceResource, have: Have) -> float | None:
    """The time for the file: that of the resource, if the Source or its server states one."""
    if (seconds := _seconds(wanted.lastmod)) is not None:
        return seconds
    return date_seconds(have.modified)


@lru_cache(maxsize=1_000)
def _seconds(text: str | None) -> float | None:
    """Seconds since 1970; cached, as many resources have the same time."""
    position = position_of(text)
    return None if position is None else position / 1_000_000


def _lag(wanted: SourceResource) -> float | None:
    """Seconds since the change; None for one that was read later, in a list."""
    is_known = wanted.is_live and wanted.position is not None
    return time() - (wanted.position or 0) / 1_000_000 if is_known else None


def _mark() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


class Unpacking(RemotePackages):
    """The packages of one mirror."""

    stores = True

    def __init__(
        self,
        web: Web,
        state: State,
        disk: Disk,
        store: Store,
        fetcher: Fetcher,
        room: CopyRoom,
        report: Report,
    ) -> None:
        super().__init__(web)
        self._state = state
        self._disk = disk
        self._store = store
        self._fetcher, self._room = fetcher, room
        self._report = report

    @asynccontextmanager
    async def open(self, wanted: SourceResource) -> AsyncIterator[Package]:
        """Open a package, fetched as resources are: verified, and continued where it broke off."""
        fetched = await self._fetched(wanted)
        try:
            if fetched.content is not None:
                async with opened(io.BytesIO(fetched.content), wanted.loc) as package:
                    yield package
            else:
                with self._disk.open_part(wanted.loc, keep=True) as part:
                    async with opened(part, wanted.loc) as package:
                        yield package
        finally:
            self.forget(wanted)

    async def _fetched(self, wanted: SourceResource) -> Fetched:
        """Fetch it, again as long as more comes; a few times if nothing does, or it restarts."""
        attempt = begun = length = 0
        while True:
            part = self._state.part_of_package(wanted.loc)
            try:
                return await self._fetcher.fetch(
                    StateRow(wanted.loc, None, wanted, None, part, 0, attempt, None),
                    is_package=True,
                )
            except Missing as missing:
                raise Refused(str(missing)) from None
            except TryAgain as error:
                before, length = length, self._disk.part_length(wanted.loc)
                attempt = 0 if length > before else attempt + 1
                begun += length < before
                if PACKAGE_ATTEMPTS in (attempt, begun):
                    raise
                await asyncio.sleep(pause_after(error, attempt))

    async def unpack(self, wanted: SourceResource, package: Package | None) -> None:
        """Store what the package has of the resources that are held back."""
        try:
            if package is not None:
                await self._unpack(package)
            elif self._state.has_held_back(time()):
                async with self.open(wanted) as opened:
                    await self._unpack(opened)
        except (Rejected, TryAgain) as error:
            self.forget(wanted)
            self._report(Event("skipped", problem=error.detail))

    def forget(self, wanted: SourceResource) -> None:
        """Drop the part of a package that is not asked for again."""
        self._disk.drop_part(wanted.loc)
        self._state.keep_part(wanted.loc, None)

    async def keep(self, wanted: SourceResource, package: Package | None) -> None:
        await self.unpack(wanted, package)
        self.when_kept()

    async def _unpack(self, package: Package) -> None:
        resources = package.resources()
        while some := list(islice(resources, UNPACKED_AT_ONCE)):  # not in other threads either
            at = position_of(package.head.md.at or package.head.md.until)
            wanted = [wanted_by(change_of(packed.entry)) for packed in some]
            rows = self._state.rows_of([each.loc for each in wanted])
            self._store.settle([*rows.values()])
            for packed, its in zip(some, wanted, strict=True):
                row = rows.get(its.loc)
                if row is None or not await self._unpack_one(package, packed, row, its, at):
                    await self._keep_earlier(package, packed, row, its, at)
            await asyncio.sleep(0)
        for refused in package.refused:
            self._report(Event("skipped", problem=refused))

    async def _unpack_one(
        self,
        package: Package,
        packed: Packed,
        row: StateRow,
        wanted: SourceResource,
        at: Position | None,
    ) -> bool:
        """Store it, if it is the one that is wanted now; whether it is."""
        asked = None if at is None else at // 1_000_000
        held = Have(wanted.lastmod, wanted.length, wanted.hash, asked=asked)
        if row.wanted.is_deleted or is_current(row.wanted, row.have):
            return is_current(wanted, row.have)
        planned = replace(row.wanted, loc=wanted.loc, position=None, is_live=False)
        if planned != wanted and not is_current(row.wanted, held):
            return False
        try:
            self._report(await self._store_one(package, packed, row, held))
        except (Rejected, TryAgain) as error:
            self._report(Event("skipped", wanted.loc, problem=error.detail))
        return True

    async def _keep_earlier(
        self,
        package: Package,
        packed: Packed,
        row: StateRow | None,
        wanted: SourceResource,
        at: Position | None,
    ) -> None:
        """Of a Change Dump: a version that another came after, where versions are kept."""
        if row is None and not self._state.selection.has(wanted.loc, wanted):
            return
        begins = position_of(packed.entry.md.datetime if packed.entry.md else None)
        newest = self._state.gone_at(wanted.loc) if row is None else row.wanted.position
        if begins is None or not digests(wanted.hash) or begins >= (newest or at or 0):
            return
        loc = wanted.loc if row is None else row.loc
        version = replace(wanted, loc=loc, position=int(begins))
        try:
            pieces = package.content(packed)
            path = None if row is None else row.path
            await self._store.keep_earlier(version, path, int(newest or at or 0), pieces)
        except (Rejected, TryAgain) as error:
            self._report(Event("skipped", wanted.loc, problem=error.detail))

    async def _store_one(
        self, package: Package, packed: Packed, row: StateRow, held: Have
    ) -> Event:
        wanted = row.wanted
        self._room.admit(row.loc, wanted.length, replaced=row.held_bytes, is_one=True)
        check = Check(wanted.length, wanted.hash)
        grows = partial(self._room.check_growing, row.loc, replaced=row.held_bytes, is_one=True)
        pieces = package.content(packed)
        content = next(pieces, b"")
        check.update(content)
        more = next(pieces, b"")
        try:
            if more:
                with self._disk.open_part(row.loc) as part:
                    write_all(part, content)
                    for piece in chain([more], pieces):
                        write_all(part, piece)
                        check.update(piece)
                        grows(check.length)
            grows(check.length)
        except NoRoom:
            self._disk.drop_part(row.loc)
            raise
        if check.problem() is not None:
            self._disk.drop_part(row.loc)
            raise Refused(f"{packed.path} in the package is not what the manifest says")
        have = replace(held, lastmod=wanted.lastmod, length=check.length, hash=wanted.hash)
        return await self._store.put(row, Fetched(have, None if more else content, check.length))
