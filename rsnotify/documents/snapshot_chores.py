"""Takes the snapshots of all sets: those that are due, and those that are asked for."""

import asyncio
from collections.abc import Sequence

from rsnotify.documents.announcements import Announcements
from rsnotify.documents.documents import Snapshot
from rsnotify.documents.due_sets import DueSets
from rsnotify.documents.each_set import Again, each_set, seconds
from rsnotify.documents.snapshots import Snapshots, take_snapshot
from rsnotify.errors import TryAgain
from rsnotify.journal.window import EARLY_SECONDS, DocumentSchedule, JournalRecord, has_much_changed
from rsnotify.journal.windows import Windows
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.single_flight import SingleFlight

OTHERS_SECONDS = 5.0  # if another hub process takes the snapshot
WAIT_SECONDS, WAITS = 0.2, 100  # for a snapshot that is being taken already


class SnapshotChores:
    """Looks after the Resource Lists that the hub makes."""

    def __init__(
        self,
        journals: Journals,
        windows: Windows,
        snapshots: Snapshots,
        announcements: Announcements,
        schedule: DocumentSchedule,
    ) -> None:
        self._journals = journals
        self._windows = windows
        self._snapshots = snapshots
        self._announcements = announcements
        self._schedule = schedule
        self._requested: SingleFlight[str, Snapshot] = SingleFlight("snapshot")
        self._due = DueSets(journals, growth_seconds=EARLY_SECONDS)

    async def keep_due(self) -> None:
        """Take the snapshots that are due."""
        await self._due.round(await self._windows.now(), self._keep)

    async def _keep(self, names: Sequence[str]) -> Again:
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
                snapshot = await self.take(name)
                if snapshot is None:
                    return OTHERS_SECONDS
            return self._until_snapshot(record, snapshot, now)

        return await each_set(self._windows, keep, names)

    def _until_snapshot(
        self, record: JournalRecord, newest: Snapshot | None, now: Position
    ) -> float | None:
        """Until it may be wanted; what is published later makes its set due, too."""
        if newest is None:
            return None
        early = self._schedule.until_early_snapshot(newest.begun, newest.completed, now)
        if early is not None and record.head > newest.at:
            return seconds(early)
        return seconds(self._schedule.until_snapshot(newest.begun, now))

    async def _wants_snapshot(
        self, name: str, record: JournalRecord, newest: Snapshot | None, now: Position
    ) -> bool:
        """Whether its list is missing, old, or much of it is no longer so."""
        if newest is None:
            return record.head > record.created
        if self._schedule.wants_snapshot(record, newest.at, newest.begun, now):
            return True
        if self._schedule.until_early_snapshot(newest.begun, newest.completed, now) is not None:
            return False
        return has_much_changed(await self._changes_since(name, record, newest), newest.resources)

    async def _changes_since(self, name: str, record: JournalRecord, newest: Snapshot) -> int:
        """How many changes came after the snapshot was begun."""
        if record.window_from <= newest.at:
            return record.window_count - newest.counted
        span = await self._windows.span(name, after=newest.at)
        closed = sum(window.changes for window in span.windows)
        return closed + span.record.window_count - newest.counted

    def take_requested(self, name: str) -> asyncio.Task[Snapshot]:
        """Take a snapshot on request; it is taken even if nobody waits for it."""
        return self._requested.task(name, lambda: self._take_after_others(name))

    async def _take_after_others(self, name: str) -> Snapshot:
        for _ in range(WAITS):
            snapshot = await self.take(name)
            if snapshot is not None:
                return snapshot
            await asyncio.sleep(WAIT_SECONDS)
        raise TryAgain(f"another snapshot of {name!r} is being taken", retry_after_seconds=5)

    async def take(self, name: str) -> Snapshot | None:
        """Take a snapshot now; None if another hub process is taking one."""
        keep_old = self._schedule.archived_lists > 0
        snapshot = await take_snapshot(self._snapshots, self._windows, name, keep_old=keep_old)
        if snapshot is not None:
            feed = self._journals.feeds.get(ChannelName(name, "change"))
            if feed is not None:  # whoever takes the list is given all up to there
                feed.witness.note_given(snapshot.at)
            self._journals.usage.count_soon(name)
            await self._announcements.snapshot_taken(name, snapshot)
            if archived := await self._snapshots.archived(name):  # it has what was replaced
                is_new = len(archived) == 1
                await self._announcements.archive_grew(name, snapshot, is_new=is_new)
        return snapshot
