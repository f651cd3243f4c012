"""`Mirror`: make a copy of a Source in a directory, and keep it in step.

>>> async with Mirror("https://example.org/", Path("copy")) as mirror:
...     await mirror.once()

Rules that hold here: work is recorded before it is done, and the cursor with it; fetching goes on
while lists are read and while changes come.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from time import time
from typing import Any, Self

import msgspec

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify_client.changelists import POLL_SECONDS, ChangeLists, HistoryGone
from rsnotify_client.discovery import Source, discover
from rsnotify_client.mirror.baseline import Baseline, Dumps, record
from rsnotify_client.mirror.disk import Disk
from rsnotify_client.mirror.fetch import Fetcher
from rsnotify_client.mirror.paths import Map
from rsnotify_client.mirror.plan import Selection
from rsnotify_client.mirror.report import Event, Report, Sums
from rsnotify_client.mirror.state import State
from rsnotify_client.mirror.storing import Hook, Store
from rsnotify_client.mirror.workers import FIRST_SECONDS, SOON_SECONDS, Workers
from rsnotify_client.notification import Received
from rsnotify_client.web import Refused, Tag, Web

log = logging.getLogger(__name__)

JOBS = 16
PER_HOST = 8
DISCOVERY_ATTEMPTS = 4
RELIST_SECONDS = 3_600.0  # where there is nothing to follow, the Resource List is read again
LISTS_REMEMBERED = 20
ROUNDS = 10  # so often `once` reads the Change Lists again because something did not fit them


class Options(msgspec.Struct, frozen=True):
    """How a copy is kept."""

    selection: Selection = Selection()
    maps: tuple[Map, ...] = ()
    jobs: int = JOBS
    per_host: int = PER_HOST
    keep_deleted: Path | None = None
    has_files: bool = True
    poll_seconds: float = POLL_SECONDS
    relist_seconds: float = RELIST_SECONDS
    first_retry_seconds: float = FIRST_SECONDS


class Mirror:
    """A copy of one Source in one directory."""

    def __init__(
        self,
        url: str,
        directory: Path,
        options: Options | None = None,
        *,
        token: str | None = None,
        hook: Hook | None = None,
        report: Report | None = None,
    ) -> None:
        self.sums = Sums()
        self.url = url
        self.state = State(directory)
        self._options = options or Options()
        self._report_to = report
        self._hook = hook
        self._web = Web(token, url, connections=max(64, self._options.jobs + 8))
        self._source: Source | None = None
        self._lists: ChangeLists | None = None
        self._disk = Disk(directory)
        self._kept = _kept(self._options.keep_deleted)
        self._fetcher = Fetcher(self._web, self._disk, self.state.keep_part, self._progress)
        self._store = Store(
            self.state,
            self._disk,
            self._web,
            self._fetcher,
            maps=self._options.maps,
            kept=self._kept,
            hook=hook,
            has_files=self._options.has_files,
        )
        self._workers = Workers(
            self.state,
            self._store,
            self._report,
            jobs=self._options.jobs,
            per_host=self._options.per_host,
            first_seconds=self._options.first_retry_seconds,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._web.close()
        self._disk.sweep(self._parts())
        self._disk.close()
        if self._kept is not None:
            self._kept.close()
        self.state.close()

    def _parts(self) -> set[str]:
        found = self.state.database.execute("SELECT loc FROM resource WHERE part IS NOT NULL")
        return {self._disk.part_name(loc).rpartition("/")[2] for (loc,) in found}

    # What a caller wants ------------------------------------------------------------------------

    async def once(self) -> bool:
        """Bring the copy up to date; whether it is."""
        await self.prepare()
        self._disk.sweep(self._parts())
        self.state.retry_failed(time())
        is_whole = await self._beside_the_work(self._bring_the_plan_up_to_date())
        return is_whole and self.state.counts()[1] == 0

    async def keep(self) -> None:
        """Keep the copy in step until cancelled."""
        await self.prepare()
        self._disk.sweep(self._parts())
        self.state.retry_failed(time())
        await self._beside_the_work(self._follow_for_ever())

    async def _beside_the_work(self, planning: Coroutine[Any, Any, bool]) -> bool:
        """Plan while the workers work; then let them finish. Whoever fails ends the other."""
        plan, work = asyncio.create_task(planning), asyncio.create_task(self._workers.run())
        try:
            await asyncio.wait([plan, work], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
            is_whole = await plan
            await self._converge()
            self._workers.finish()
            await work
            return is_whole
        finally:
            await _end([plan, work])

    async def _converge(self) -> None:
        """What changed between its list and its fetch is told by the next reading of the lists."""
        for attempt in range(ROUNDS):
            await self._workers.rest()
            wrong, soon = self.state.failing(time() + SOON_SECONDS)
            if self._lists is None or self.state.cursor is None or not wrong:
                return
            is_news = await self._is_news(self._lists, self.state.cursor)
            if not is_news and not soon:
                return
            if not is_news:
                await asyncio.sleep(self._options.first_retry_seconds * (attempt + 1))

    async def _is_news(self, lists: ChangeLists, cursor: Position) -> bool:
        """Whether the lists tell what was not known."""
        try:
            await self._catch_up(lists, cursor)
        except (HistoryGone, TryAgain) as error:
            log.info("%s", error)
        return self.state.cursor != cursor

    def mend(self, locs: Sequence[str], strays: Sequence[str]) -> None:
        """These resources are not as they should be, and these files are nobody's."""
        for path in strays:
            self._disk.remove(path)
        self.state.ask_again(locs, time())
        self.state.set_fact("cursor", None)  # what the copy lacks may be in no change any more
        self.state.commit()

    async def plan(self) -> int:
        """Record what has to be done and do nothing of it; how many resources need work."""
        await self.prepare()
        await self._bring_the_plan_up_to_date()
        return self.state.counts()[1]

    # How ----------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Find the Source, and see that this directory is its mirror."""
        self._source = await self._discovered()
        self.state.claim(
            "source",
            self._source.url,
            f"{self.state.directory} is the mirror of {{known}}, not of {{given}}: "
            "take another directory",
        )
        self.state.claim(
            "maps",
            msgspec.json.encode(self._options.maps).decode(),
            f"{self.state.directory} was made with another --map: give the same, {{known}}, "
            "or take another directory",
        )
        selection = msgspec.json.encode(self._options.selection).decode()
        if self.state.fact("selection") not in (None, selection):
            self.state.set_fact("cursor", None)
        self.state.set_fact("selection", selection)
        if self._source.changelist is not None:
            self._lists = ChangeLists(self._web, self._source.changelist, self._source.archive)
            self._recall_lists(self._lists)
        self.state.commit()

    async def _discovered(self) -> Source:
        """A Source that does not answer is asked again a few times."""
        is_known, attempt = self.state.fact("source") is not None, 0
        while True:
            try:
                return await discover(self._web, self.url)
            except TryAgain as error:
                attempt += 1
                if attempt >= DISCOVERY_ATTEMPTS and is_known:
                    raise TryAgain(f"{error.detail}; is the Source running?") from None
                if attempt >= DISCOVERY_ATTEMPTS:
                    raise Refused(f"{error.detail}; is the address right?") from None
                await asyncio.sleep(max(error.retry_after_seconds, 0.4 * 2**attempt))

    async def _bring_the_plan_up_to_date(self) -> bool:
        """From the cursor on by Change Lists; else anew."""
        if self.state.cursor is not None and self._lists is not None:
            try:
                await self._catch_up(self._lists, self.state.cursor)
            except HistoryGone as error:
                log.info("%s", error)
            else:
                return True
        return await self._baseline()

    async def _baseline(self) -> bool:
        assert self._source is not None  # noqa: S101
        self.state.set_fact("cursor", None)
        baseline = Baseline(
            self._web, self._source, self.state, self._options.selection, self._report
        )
        if self._source.resourcedump and self._options.has_files and self.state.counts()[0] == 0:
            await self._fill_from_dumps(baseline, self._source.resourcedump)
        at = await baseline.plan(self._lists)
        self._report(Event("baseline", resources=baseline.named, to_do=self.state.counts()[1]))
        self._workers.wake()
        if at is None:
            return baseline.is_complete
        self.state.set_fact("cursor", str(at))
        self.state.commit()
        if self._lists is not None and self._source.resourcelist is not None:
            await self._join(self._lists, at)
        return baseline.is_complete

    async def _join(self, lists: ChangeLists, at: Position) -> None:
        """From the Resource List on; a Source whose Change Lists begin later leaves a gap."""
        try:
            await self._catch_up(lists, at)
        except HistoryGone as error:
            log.warning("%s to %s is told by no list of the Source", at, error.begins)
            self.state.set_fact("cursor", str(error.begins))
            await self._catch_up(lists, error.begins)

    async def _fill_from_dumps(self, baseline: Baseline, url: str) -> None:
        dumps = Dumps(baseline, self._web, self.state, self._disk, self._store)
        await dumps.fill(url, self._options.selection, self._fetcher, self._report)

    async def _catch_up(self, lists: ChangeLists, cursor: Position) -> None:
        async with aclosing(lists.after(cursor)) as pieces:
            async for received in pieces:
                self._record(received)
        self._remember_lists(lists)

    def _record(self, received: Received) -> None:
        """The changes and the cursor, in one transaction."""
        record(self.state, received, self._options.selection, self.state.generation)
        if self.state.cursor is None or received.until > self.state.cursor:
            self.state.set_fact("cursor", str(received.until))
        self.state.commit()
        if received.changes:
            self._workers.wake()

    async def _follow_for_ever(self) -> bool:
        while True:
            try:
                if self.state.cursor is None:
                    await self._baseline()
                await self._follow()
            except HistoryGone as error:
                log.info("%s", error)
                self.state.set_fact("cursor", None)
            except TryAgain as error:
                log.warning("%s; trying again", error.detail)
                await asyncio.sleep(max(error.retry_after_seconds, 5.0))

    async def _follow(self) -> None:
        from rsnotify_client.follower import Follower  # noqa: PLC0415 - not needed for `once`

        source = self._source
        assert source is not None  # noqa: S101
        if self.state.cursor is None or not (source.socket or source.topic or source.changelist):
            await asyncio.sleep(self._options.relist_seconds)
            self.state.set_fact("cursor", None)
            return
        follower = Follower(
            self.url,
            cursor=self.state.cursor,
            web=self._web,
            source=source,
            poll_seconds=self._options.poll_seconds,
        )
        self._report(Event("live"))
        async with aclosing(aiter(follower)) as pieces:
            async for received in pieces:
                self._record(received)

    # What was seen ------------------------------------------------------------------------------

    def _remember_lists(self, lists: ChangeLists) -> None:
        newest = sorted(lists.read.items(), key=lambda item: item[1].position)[-LISTS_REMEMBERED:]
        known = [
            (url, read.tag.etag, read.tag.modified, int(read.position)) for url, read in newest
        ]
        self.state.set_fact("lists", msgspec.json.encode(known).decode())
        self.state.commit()

    def _recall_lists(self, lists: ChangeLists) -> None:
        known = msgspec.json.decode(
            self.state.fact("lists") or "[]", type=list[tuple[str, str | None, str | None, int]]
        )
        for url, etag, modified, position in known:
            lists.known(url, Tag(etag, modified), Position(position))

    def _progress(self, count: int) -> None:
        self.sums.fetched_bytes += count

    def _report(self, event: Event) -> None:
        self.sums.add(event)
        if self._report_to is not None:
            self._report_to(event)


def _kept(directory: Path | None) -> Disk | None:
    if directory is None:
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSettings([f"--keep-deleted {directory}: {error.strerror}"]) from None
    return Disk(directory)


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
