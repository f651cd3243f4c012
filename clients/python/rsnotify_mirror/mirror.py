"""Make a copy of a Source in a directory, and keep it in step.

>>> with Mirror("https://example.org/", "copy") as mirror:
...     mirror.once()

`AsyncMirror` does the same in an event loop; `Mirror` has a loop of its own, in a thread.

Rules that hold here: fetching goes on while lists are read and while changes come. `planning`
decides what has to be done, `storing` how.
"""

import asyncio
import os
import sys
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from rsnotify.errors import InvalidSettings
from rsnotify_client.database import check_path
from rsnotify_client.errors import checked_url
from rsnotify_client.network import NetworkOptions, network_of
from rsnotify_client.resource import SourceResource
from rsnotify_client.token import Token
from rsnotify_client.web import Web
from rsnotify_mirror.disk import Disk
from rsnotify_mirror.fetch import Fetcher
from rsnotify_mirror.plan import Options
from rsnotify_mirror.planning import Planner
from rsnotify_mirror.report import LOOK_SECONDS, NOT_WHOLE, Event, OnStatus, Report, Sums, Watch
from rsnotify_mirror.republication import Republication
from rsnotify_mirror.republishing import Republisher
from rsnotify_mirror.room import CopyRoom, FetchPace
from rsnotify_mirror.state import GONE_SECONDS, MOVED, PLACE, State, StateRow, mirror_around
from rsnotify_mirror.storing import Hook, Store, Unpacking
from rsnotify_mirror.versions import Versions
from rsnotify_mirror.warc import WarcFile
from rsnotify_mirror.workers import SOON_SECONDS, Workers

ROUNDS = 10  # times that `once` reads the Change Lists again because something did not fit them
HUB_LOCK = "hub.lock"  # in the data directory of every hub with a Redis of its own


class AsyncMirror:
    """A copy of one Source in one directory, kept by an event loop."""

    def __init__(
        self,
        url: str,
        directory: str | os.PathLike[str],
        options: Options | None = None,
        *,
        token: Token | None = None,
        hook: Hook | None = None,
        report: Report | None = None,
        on_status: OnStatus | None = None,
        network: NetworkOptions | None = None,
        republish: Republication | None = None,
    ) -> None:
        checked_url(url)
        check_path(directory)
        directory = Path(directory)
        self.sums = Sums()
        self.url = url
        self._options = options or Options()
        if network is not None:
            chosen = network_of(network, self._options.network)
            self._options = replace(self._options, network=chosen)
        for option in ("keep_deleted", "keep_versions"):
            _check_apart(directory, getattr(self._options, option), option.replace("_", "-"))
        self._report_to = report
        with ExitStack() as opened:  # what is refused leaves nothing open, nor the directory taken
            self.state = State(directory)
            opened.callback(self.state.close)
            self._watch = Watch(self.state, self.sums, on_status)
            self._disk = Disk(directory)
            opened.callback(self._disk.close)
            self._kept = _kept(self._options.keep_deleted)
            opened.callback(_close, self._kept)
            self._versions = self._kept_versions(directory)
            opened.callback(_close, self._versions)
            self._warc = self._opened_warc()
            opened.callback(_close, self._warc)
            self._republisher = self._republishing(republish, network)
            self._opened = opened.pop_all()
        self.web = Web(
            token,
            url,
            connections=max(64, self._options.jobs + 8),
            network=self._options.network,
            same_site=self._options.same_site,
            per_server=self._options.per_host,
        )
        held = 0 if self._options.max_size is None else self.state.held_bytes()
        self._room = CopyRoom(directory, self._options, held)
        self._watch.room = self._room if self._options.has_files else None
        self._fetcher = Fetcher(
            *(self.web, self._disk, self._room, FetchPace(self._options.bandwidth)),
            *(self.state.keep_part, self._progress),
        )
        self._has_hook = hook is not None
        self._store = Store(
            *(self.state, self._disk, self.web, self._fetcher, self._room, self._options),
            kept=self._kept,
            hook=hook,
            announcing=self._republisher,
            versions=self._versions,
            warc=self._warc,
        )
        self._workers = Workers(self.state, self._store, self._report, self._options)
        self._planner = Planner(
            url,
            self.web,
            self.state,
            self._options,
            packages=Unpacking(
                *(self.web, self.state, self._disk, self._store, self._fetcher, self._room),
                self._report,
            ),
            report=self._report,
            wake=self._workers.wake,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.web.close()
        with self._opened, self.state.checked(), self._disk.checked():
            self._disk.sweep(self.state.begun)

    # What a caller wants ------------------------------------------------------------------------

    async def once(self) -> bool:
        """Bring the copy up to date; return whether it is."""
        with self.state.checked(), self._watch:
            self._watch.forget_error()
            await self._begin()
            async with self._republisher or nullcontext():
                is_whole = await self._beside_the_work(self._until_in_sync(), gives_up=True)
                self._watch.trouble = None if is_whole else NOT_WHOLE
                is_done = self._republisher is None or await self._republisher.is_done()
            return is_done and is_whole and self.state.counts()[1] == 0

    async def run(self) -> None:
        """Keep the copy in step until cancelled."""
        with self.state.checked(), self._watch:
            self._watch.forget_error()
            await self._begin()
            async with self._republisher or nullcontext():
                await self._beside_the_work(self._planner.follow(), gives_up=False)

    async def _begin(self) -> None:
        await self._move_files()
        await self._planner.prepare()
        await self._move_files()
        with self._disk.checked():
            self._disk.sweep(self.state.begun)
        self.state.retry_failed(time())
        self.state.forget_gone(time() - GONE_SECONDS)
        if self._has_hook:
            self.state.call_again(time())
        if self._republisher is None:
            self.state.set_fact(PLACE, None)  # what is stored now is not published

    def _opened_warc(self) -> WarcFile | None:
        if self._options.warc is None:
            return None
        if not self._options.has_files:
            raise InvalidSettings("a copy without files is written to no WARC")
        return WarcFile(self._options.warc, self.state)

    def _kept_versions(self, directory: Path) -> Versions | None:
        chosen = self._options.keep_versions
        if chosen is None:
            return None
        if not self._options.has_files:
            raise InvalidSettings("a copy without files has no versions to keep")
        _made(chosen, "--keep-versions")
        return Versions(chosen, copy=directory)

    async def _move_files(self) -> None:
        """Let files follow a Source that has moved; a run that was killed is gone on with."""
        while moves := self.state.file_moves():
            with self._disk.checked():
                for path, new in moves:
                    gone = await self._disk.move(path, new)
                    self.state.file_moved(path)
                    for folder in gone:
                        self.state.forget_folder(folder)
            self.state.commit()
        if self._versions is not None and (names := self.state.moves_of_names()):
            for old, new in names:
                self._versions.move(old, new)
            self.state.set_fact(MOVED, None)
            self.state.commit()

    def _republishing(
        self, republish: Republication | None, network: NetworkOptions | None
    ) -> Republisher | None:
        if republish is None:
            return None
        if not self._options.has_files:
            raise InvalidSettings("a copy without files cannot be published")
        most = self._options.max_delete
        return Republisher(self.state, republish, most, network, self._report)

    async def _beside_the_work(
        self, planning: Coroutine[Any, Any, bool], *, gives_up: bool
    ) -> bool:
        """Plan while the workers work; then let them finish. A failure of one ends the other."""
        plan = asyncio.create_task(planning)
        work = asyncio.create_task(self._workers.run(gives_up=gives_up))
        watching = asyncio.create_task(self._keep_looking())
        try:
            await asyncio.wait([plan, work], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
            try:
                return await plan
            finally:
                if not isinstance(sys.exception(), asyncio.CancelledError):
                    self._workers.finish()  # what is planned is done, whatever became of the rest
                    await work
        finally:
            await _end([plan, work, watching])

    async def _keep_looking(self) -> None:
        """Record how far the copy is, for those who watch it."""
        while True:
            self._watch.trouble = self._planner.trouble
            self._watch.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _until_in_sync(self) -> bool:
        """Plan, and plan again what turns out to differ; whether the whole Source could be read."""
        is_whole = await self._planner.bring_up_to_date()
        await self._converge()
        return is_whole

    async def _converge(self) -> None:
        """Read the lists again: they have what changed between its list and its fetch."""
        for attempt in range(ROUNDS):
            await self._workers.rest()
            wrong, soon = self.state.failing(time() + SOON_SECONDS)
            if not self._planner.has_place or not wrong:
                return
            is_news = await self._planner.is_news()
            if not is_news and not soon:
                return
            if not is_news:
                await asyncio.sleep(self._options.first_retry_seconds * (attempt + 1))

    def repair(self, locs: Sequence[str], strays: Sequence[str]) -> None:
        """Plan to fetch these resources, which are not as they should be; remove these files."""
        for path in strays:
            self._disk.remove(path)
        self.state.ask_again(locs, time())
        self.state.set_fact("cursor", None)  # what the copy lacks may be in no Change List any more
        self.state.commit()

    def ask_again(self, wanted: Sequence[SourceResource], *, may_plan: bool) -> None:
        """Let the workers fetch what is wrong in the copy; `may_plan`: as it is described here."""
        now = time()
        known = {each.loc: self.state.row(each.loc) for each in wanted}
        news = [each for each in wanted if _is_news(each, known[each.loc])] if may_plan else []
        self.state.plan(news, self.state.generation, now)
        self.state.ask_again([each.loc for each in wanted], now)
        self.state.replanned += 1
        self.state.commit()
        self._workers.wake()

    @property
    def has_caught_up(self) -> bool:
        """Whether the copy has ever had all that the Source had."""
        if self.state.fact("in_step_at") is not None:
            return True
        return self._planner.trouble is None and self.state.next_due() is None

    @property
    def trouble(self) -> str | None:
        """Why the copy is not followed just now; None if it is."""
        return self._planner.trouble

    @property
    def verified_at(self) -> float | None:
        """When all of the copy was compared with all of the Source last."""
        return self._watch.verified_at

    def say_verified(self, checked: int, repaired: int, wrong: int, *, problem: str | None) -> None:
        """Record and report an audit of the running mirror; with a problem it was not whole."""
        if problem is None:
            self._watch.note_verified(repaired, wrong)
        self._report(
            Event("verified", problem=problem, checked=checked, repaired=repaired, wrong=wrong)
        )
        self._watch.look()

    async def plan(self) -> int:
        """Record what has to be done, but do not do it; how many resources need work."""
        await self._planner.prepare()
        await self._planner.bring_up_to_date()
        return self.state.counts()[1]

    def _with_room(self, event: Event) -> Event:
        to_fetch, left, problem = will_it_fit(self.state, self._room)
        return replace(event, to_fetch_bytes=to_fetch, room_bytes=left, problem=problem)

    def _progress(self, count: int) -> None:
        self.sums.fetched_bytes += count

    def _report(self, event: Event) -> None:
        if event.event == "baseline" and self._options.has_files:
            event = self._with_room(event)
        self.sums.add(event)
        self._watch.note(event)
        if self._report_to is not None:
            self._report_to(event)


def will_it_fit(state: State, room: CopyRoom) -> tuple[int, int, str | None]:
    """What is known to be fetched, in bytes, the room for it, and why that is not enough."""
    to_fetch, growth = state.planned_bytes()
    left = room.left()
    if growth <= left.length:
        return to_fetch, left.length, None
    grows = f"the copy would grow by {growth:,} bytes, and there is room for {left.length:,}"
    return to_fetch, left.length, f"not all will fit: {grows}: {left.why}"


def _is_news(wanted: SourceResource, row: StateRow | None) -> bool:
    """Whether the Source says something else of a resource than the mirror has heard."""
    if row is None:
        return True
    known = row.wanted
    said = (wanted.hash, wanted.length, wanted.lastmod)
    return known.is_deleted or said != (known.hash, known.length, known.lastmod)


def _check_apart(directory: Path, kept: Path | None, name: str) -> None:
    """Refuse a directory inside a mirror: its files would belong to no resource of that."""
    real = Path(os.path.realpath(directory))  # of a loop, too
    _check_outside(str(directory), real.parent)
    if kept is None:
        return
    check_path(kept, lambda said: InvalidSettings(f"--{name} {said}"))
    option, real_kept = f"--{name} {kept}", Path(os.path.realpath(kept))
    if real_kept.is_relative_to(real) or real.is_relative_to(real_kept):
        raise InvalidSettings(f"{option}: name a directory outside {directory}, and not around it")
    _check_outside(option, real_kept)
    if os.path.lexists(real_kept / HUB_LOCK):
        raise InvalidSettings(f"{option}: a hub has its data there: name another directory")


def _check_outside(named: str, real: Path) -> None:
    if (other := mirror_around(real)) is not None:
        raise InvalidSettings(f"{named} is in the mirror {other}: name a directory outside it")


def _kept(directory: Path | None) -> Disk | None:
    if directory is None:
        return None
    _made(directory, "--keep-deleted")
    return Disk(directory)


def _made(directory: Path, option: str) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidSettings(f"{option} {directory}: it is no directory") from None
    except OSError as error:
        raise InvalidSettings(f"{option} {directory}: {error.strerror}") from None


def _close(opened: Disk | Versions | WarcFile | None) -> None:
    if opened is not None:
        opened.close()


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
