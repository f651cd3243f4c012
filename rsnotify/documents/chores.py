"""The hub's regular work: close windows by time, pack and trim what is closed, take snapshots,
delete what is older than retention, and announce it.

Any number of hub processes do this on one Redis at once, so every step is atomic, or claimed, or
may be done twice. What one round could not do, the next one does. A set that fails delays no other.

`DueSets` names those that a chore has to look at: they have changed, or their time has come.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from time import monotonic

from rsnotify.documents.announcements import Announcements
from rsnotify.documents.documents import Snapshot
from rsnotify.documents.snapshots import Snapshots, take_snapshot
from rsnotify.errors import NoSuchSet, TryAgain
from rsnotify.journal.window import (
    EARLY_SECONDS,
    DocumentSchedule,
    JournalRecord,
    Window,
    has_much_changed,
    is_due,
    until_due,
)
from rsnotify.journal.windows import Windows
from rsnotify.live.journals import Journals
from rsnotify.loops import Loop, repeat
from rsnotify.resourcesync.change import DAY, MICROSECONDS, Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import SetRecord
from rsnotify.single_flight import SingleFlight

OUTDATED = 100  # entries of the heap that may be so before it is made anew


class Due:
    """A time for each name; the earliest come out first."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # also what was planned otherwise since

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def __len__(self) -> int:
        return len(self._at)

    @property
    def kept(self) -> int:
        """How many plans are in memory, also those that have been changed since."""
        return len(self._heap)

    def plan(self, name: str, at: float) -> None:
        """Plan the name for this time, whatever was planned."""
        self._at[name] = at
        heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._at) + OUTDATED:
            self._heap = [(at, name) for name, at in self._at.items()]
            heapify(self._heap)

    def plan_by(self, names: Iterable[str], at: float) -> None:
        """Plan the names for this time, except those that are planned earlier."""
        for name in names:
            if at < self._at.get(name, float("inf")):
                self.plan(name, at)

    def cancel(self, name: str) -> None:
        self._at.pop(name, None)

    def take(self, now: float, most: int) -> list[str]:
        """Take the names that are due, at most so many, the earliest first."""
        taken: list[str] = []
        while self._heap and self._heap[0][0] <= now and len(taken) < most:
            at, name = heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                taken.append(name)
        return taken


MOST = 500  # in one round; the others wait for the next
AGAIN_SECONDS = 1.0  # after a look that failed
STEP_SECONDS = 5.0  # a clock that moves by more than this was set
NONE_SEEN = -1, Position(0)  # a version of the sets before the first

Look = Callable[[Sequence[str]], Awaitable[Mapping[str, float | None]]]
"""Does a chore for these sets; the seconds until each is due again, None until it changes."""


class DueSets:
    """Knows when a chore must look at each set next."""

    def __init__(
        self, journals: Journals, *, growth_seconds: float, clock: Callable[[], float] = monotonic
    ):
        self._journals = journals
        self._growth_seconds = growth_seconds  # that it waits if the set is planned already
        self._clock = clock
        self.due = Due()
        self._grown = journals.feeds.note_growth()
        self._records: dict[str, SetRecord] = {}  # as they were planned
        self._version = NONE_SEEN
        self._offset: float | None = None  # of the clock that all hub processes share
        journals.losses.after_another_server.append(self.look_at_all)

    async def look_at_all(self) -> None:
        """Redis may have lost what was done for any set: all are as new in the next round, also if
        one is under way now."""
        self._version, self._records = NONE_SEEN, {}

    async def round(self, now: Position, look: Look) -> None:
        """Do the chore for all sets that are due; one that fails is due again in the next round."""
        await self._look_if_set(now)
        self._plan()
        names = self.due.take(self._clock(), MOST)
        for name in names:
            self.due.plan(name, self._clock() + AGAIN_SECONDS)
        again = await look([name for name in names if self._is_worth_it(name)])
        for name in names:
            self._plan_again(name, again.get(name))

    def _plan(self) -> None:
        """Make the sets due that have changed since the last round."""
        now, grown = self._clock(), list(self._grown)
        self._grown.clear()
        self.due.plan_by([each for each in grown if each not in self.due], now)
        self.due.plan_by(grown, now + self._growth_seconds)
        version = self._journals.known.number, self._journals.known.changed
        if version != self._version:
            self._version = version
            before, self._records = self._records, dict(self._journals.sets)
            changed = [name for name, new in self._records.items() if before.get(name) != new]
            self.due.plan_by(changed, self._clock())

    def _is_worth_it(self, name: str) -> bool:
        """Whether a change was published to the set: else there is nothing to close or to list."""
        return name in self._journals.sets and self._journals.has_changed(name)

    def _plan_again(self, name: str, seconds: float | None) -> None:
        if seconds is None:
            self.due.cancel(name)
        else:
            self.due.plan(name, self._clock() + max(seconds, AGAIN_SECONDS))

    async def _look_if_set(self, now: Position) -> None:
        """A clock that was set makes plans worthless."""
        offset = now / MICROSECONDS - self._clock()
        before, self._offset = self._offset, offset
        if before is not None and abs(offset - before) > STEP_SECONDS:
            await self.look_at_all()


SOME = 200


class InTurn:
    """Does a chore for some sets in each round until all had their turn, then begins anew."""

    def __init__(self) -> None:
        self._left: list[str] = []

    async def round(
        self, names: Iterable[str], look: Callable[[Sequence[str]], Awaitable[None]]
    ) -> None:
        """Do the chore for the next of these sets, after those of the last round.

        If that is not possible now, the next round begins with them."""
        if not self._left:
            self._left = list(names)[::-1]
        some = self._left[-SOME:]
        del self._left[-SOME:]
        try:
            await look(some[::-1])
        except TryAgain:
            self._left += some
            raise


log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
OLD_SECONDS = 60.0  # between two looks at what is old, of some sets
WAIT_SECONDS, WAITS = 0.2, 100  # for a snapshot that is being taken already
GROWTH_SECONDS = 60.0  # the growth of the open list is announced at most this often
GROWTH_AGAIN_SECONDS = 10.0  # if it was announced already within that time
OTHERS_SECONDS = 5.0  # if another hub process takes the snapshot
STREAM_DAYS = 1  # closed windows stay in the stream for so long, for those who follow the channel

Pack = Callable[[str, Window], Awaitable[None]]
"""Packs a closed window, and stores it packed."""

Again = dict[str, float | None]
"""The seconds until each set is due again; None if only a change makes it due."""

Act = Callable[[str, JournalRecord, Position], Awaitable[float | None]]
"""Does a chore for one set; returns the seconds until it is due again."""


class Upkeep:
    """The chores of a hub process."""

    def __init__(
        self,
        journals: Journals,
        windows: Windows,
        snapshots: Snapshots,
        announcements: Announcements,
        pack: Pack,
        schedule: DocumentSchedule,
    ) -> None:
        self._journals = journals
        self._windows = windows
        self._snapshots = snapshots
        self.announcements = announcements
        self._pack = pack
        self._schedule = schedule
        self._requested: SingleFlight[str, Snapshot] = SingleFlight("snapshot")
        self._windows_due = DueSets(journals, growth_seconds=0)
        self._snapshots_due = DueSets(journals, growth_seconds=EARLY_SECONDS)
        self._old, self._archives = InTurn(), InTurn()

    def loops(self) -> dict[str, Loop]:
        """The loops that run as long as the hub, by name."""
        return {
            "keep windows": repeat(self.keep_due_windows, ROUND_SECONDS),
            "keep snapshots": repeat(self.keep_due_snapshots, ROUND_SECONDS),
            "delete what is old": repeat(self.delete_old, OLD_SECONDS),
            "announce archives": repeat(self.announce_archives, OLD_SECONDS),
            "count what sets take": repeat(self.count_sets, ROUND_SECONDS),
            "announce the sets": repeat(
                self.announcements.keep_description_announced, ROUND_SECONDS
            ),
        }

    async def _each_set(self, act: Act, names: Sequence[str]) -> Again:
        """Do the chore for each set; one that is removed meanwhile is left out."""
        if not names:
            return {}
        now, again = await self._windows.now(), Again()
        for name, record in zip(names, await self._windows.records(names), strict=True):
            if record is not None:
                again[name] = await self._do(act, name, record, now)
        return again

    async def _do(
        self, act: Act, name: str, record: JournalRecord | Exception, now: Position
    ) -> float | None:
        try:
            if isinstance(record, Exception):
                raise record
            return await act(name, record, now)
        except TryAgain as error:
            log.debug("a chore for the set %r waits: %s", name, error.detail)
        except NoSuchSet:
            return None
        except Exception as error:
            log.warning("a chore for the set %r failed", name, exc_info=error)
        return AGAIN_SECONDS

    # --- windows -------------------------------------------------------------------------------

    async def keep_due_windows(self) -> None:
        """Close what is due, pack what is closed, announce what has changed."""
        look = partial(self._each_set, self._keep_windows)
        await self._windows_due.round(await self._windows.now(), look)

    async def _keep_windows(self, name: str, record: JournalRecord, now: Position) -> float | None:
        period = self._schedule.period
        closed = is_due(record, now, period) and await self._windows.close(name, period)
        if closed or record.packed_until < record.window_from:
            claim = await self._windows.claimed(name, "pack", OTHERS_SECONDS)
            if claim is None:
                return OTHERS_SECONDS
            try:  # another may have packed since the records of all were read
                packed_until = (await self._windows.record(name)).packed_until
                await self.announce_and_pack(name, packed_until)
            finally:
                await claim.let_go()
        has_grown = record.head > max(record.grew_until, record.window_from)
        if has_grown and not await self._announce_growth(name, record):
            return GROWTH_AGAIN_SECONDS
        return _seconds(until_due(record, now, period))

    async def announce_and_pack(self, name: str, packed_until: Position) -> None:
        """Announce which windows have closed since, and pack them."""
        span = await self._windows.span(name, after=packed_until)
        for window in span.windows:
            await self.announcements.window_closed(name, window)
            await self._pack(name, window)
            await self._windows.note_progress(name, span.record.created, packed_until=window.until)
            self._journals.usage.count_soon(name)

    async def _announce_growth(self, name: str, record: JournalRecord) -> bool:
        if not await self._windows.claim(name, "growth", GROWTH_SECONDS):
            return False
        await self.announcements.open_list_grew(name, record.window_from, record.head)
        await self._windows.note_progress(name, record.created, grew_until=record.head)
        return True

    # --- what is old ---------------------------------------------------------------------------

    async def delete_old(self) -> None:
        """Trim the streams of the next sets where they are packed, and delete what is too old."""
        await self._old.round(self._journals.sets, self._delete_old_of)

    async def _delete_old_of(self, names: Sequence[str]) -> None:
        ago, schedule = (await self._windows.clock_history()).ago, self._schedule

        async def delete(name: str, record: JournalRecord, _: Position) -> None:
            await self._trim(name, record.first, ago(STREAM_DAYS * DAY))
            await self._windows.trim_framework(name, ago(schedule.index_days * DAY))
            # The stream is trimmed window by window: what it still has is not yet deleted.
            await self._forget(name, min(record.first, ago(schedule.retention_days * DAY)))
            archived_from = ago(schedule.archived_days * DAY)
            await self._snapshots.let_go(name, schedule.archived_lists, archived_from)

        await self._each_set(delete, names)

    async def announce_archives(self) -> None:
        """Announce the archives of the next sets: time alone moves Change Lists into them."""
        await self._archives.round(self._journals.sets, self._announce_archives_of)

    async def _announce_archives_of(self, names: Sequence[str]) -> None:
        async def announce(name: str, _: JournalRecord, __: Position) -> None:
            await self.announcements.documents_changed(name)

        await self._each_set(announce, await self.announcements.archives_to_announce(names))

    async def _trim(self, name: str, first: Position, begin: Position) -> None:
        if first >= begin:
            return
        for window in (await self._windows.span(name, after=first)).windows:
            if window.until > begin or not await self._windows.trim(name, window):
                return
            self._journals.usage.count_soon(name)

    async def _forget(self, name: str, begin: Position) -> None:
        oldest = await self._windows.oldest(name)
        if oldest is not None and oldest.until <= begin:
            windows = (await self._windows.span(name)).windows
            old = [each for each in windows if each.until <= begin]
            if old:  # else another hub process has forgotten them meanwhile
                await self._windows.forget(name, old)
                self._journals.usage.count_soon(name)

    async def count_sets(self) -> None:
        """Count what some sets take of Redis, where that has to be known."""
        usage = self._journals.usage
        for name in usage.take(MOST):
            try:
                await usage.count(name)
            except TryAgain as error:
                log.debug("what the set %r takes is counted later: %s", name, error.detail)
                usage.count_soon(name)
            except Exception as error:
                log.warning("what the set %r takes cannot be counted", name, exc_info=error)

    # --- snapshots -----------------------------------------------------------------------------

    async def keep_due_snapshots(self) -> None:
        """Take the snapshots that are due."""
        await self._snapshots_due.round(await self._windows.now(), self._keep_snapshots_of)

    async def _keep_snapshots_of(self, names: Sequence[str]) -> Again:
        # A Source that publishes its own Resource List needs none from the hub.
        sets = self._journals.sets
        names = [name for name in names if name in sets and sets[name].resourcelist is None]
        newest = await self._snapshots.newest_of(names)

        async def keep(name: str, record: JournalRecord, now: Position) -> float | None:
            if name in newest and not await self._wants_snapshot(name, record, newest[name], now):
                return self._until_snapshot(record, newest[name], now)
            # Taking those before it may have taken long: another hub process may have it by now.
            snapshot = await self._snapshots.newest(name)
            if await self._wants_snapshot(name, record, snapshot, now):
                snapshot = await self.snapshot(name)
                if snapshot is None:
                    return OTHERS_SECONDS
            return self._until_snapshot(record, snapshot, now)

        return await self._each_set(keep, names)

    def _until_snapshot(
        self, record: JournalRecord, newest: Snapshot | None, now: Position
    ) -> float | None:
        """Until it may be wanted; what is published later makes its set due, too."""
        if newest is None:
            return None
        ripe = self._schedule.until_ripe(newest.begun, newest.completed, now)
        if ripe is not None and record.head > newest.at:
            return _seconds(ripe)
        return _seconds(self._schedule.until_snapshot(newest.begun, now))

    async def _wants_snapshot(
        self, name: str, record: JournalRecord, newest: Snapshot | None, now: Position
    ) -> bool:
        """Whether its list is missing, old, or much of it is no longer so."""
        if newest is None:
            return record.head > record.created
        if self._schedule.wants_snapshot(record, newest.at, newest.begun, now):
            return True
        if self._schedule.until_ripe(newest.begun, newest.completed, now) is not None:
            return False
        return has_much_changed(await self._changes_since(name, record, newest), newest.resources)

    async def _changes_since(self, name: str, record: JournalRecord, newest: Snapshot) -> int:
        """How many changes came after the snapshot was begun."""
        if record.window_from <= newest.at:
            return record.window_count - newest.counted
        span = await self._windows.span(name, after=newest.at)
        closed = sum(window.changes for window in span.windows)
        return closed + span.record.window_count - newest.counted

    def snapshot_for(self, name: str) -> asyncio.Task[Snapshot]:
        """Take a snapshot on request; it is taken even if nobody waits for it."""
        return self._requested.task(name, lambda: self._snapshot_after_others(name))

    async def _snapshot_after_others(self, name: str) -> Snapshot:
        for _ in range(WAITS):
            snapshot = await self.snapshot(name)
            if snapshot is not None:
                return snapshot
            await asyncio.sleep(WAIT_SECONDS)
        raise TryAgain(f"another snapshot of {name!r} is being taken", retry_after_seconds=5)

    async def snapshot(self, name: str) -> Snapshot | None:
        """Take a snapshot now; None if another hub process is taking one."""
        keep_old = self._schedule.archived_lists > 0
        snapshot = await take_snapshot(self._snapshots, self._windows, name, keep_old=keep_old)
        if snapshot is not None:
            feed = self._journals.feeds.get(ChannelName(name, "change"))
            if feed is not None:  # whoever takes the list is given all up to there
                feed.witness.give(snapshot.at)
            self._journals.usage.count_soon(name)
            await self.announcements.snapshot_taken(name, snapshot)
            if archived := await self._snapshots.archived(name):  # it has what was replaced
                is_new = len(archived) == 1
                await self.announcements.archive_grew(name, snapshot, is_new=is_new)
        return snapshot


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / MICROSECONDS
