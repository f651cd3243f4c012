"""What only time changes: history that is too old is deleted, grown archives are announced."""

from collections.abc import Sequence

from rsnotify.documents.announcements import Announcements
from rsnotify.documents.due_sets import InTurn
from rsnotify.documents.each_set import each_set
from rsnotify.documents.snapshots import Snapshots
from rsnotify.journal.window import DocumentSchedule, JournalRecord
from rsnotify.journal.windows import Windows
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import DAY, Position

STREAM_DAYS = 1  # closed windows stay in the stream for so long, for those who follow the channel


class OldHistory:
    """Looks at the sets in turn, some in each round."""

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
        self._old, self._archives = InTurn(), InTurn()

    async def delete(self) -> None:
        """Trim the streams of the next sets where they are packed, and delete what is too old."""
        await self._old.round(self._journals.sets, self._delete_of)

    async def _delete_of(self, names: Sequence[str]) -> None:
        ago, schedule = (await self._windows.clock_history()).ago, self._schedule

        async def delete(name: str, record: JournalRecord, _: Position) -> None:
            await self._trim(name, record.first, ago(STREAM_DAYS * DAY))
            await self._windows.trim_framework(name, ago(schedule.index_days * DAY))
            # The stream is trimmed window by window: what it still has is not yet deleted.
            await self._forget(name, min(record.first, ago(schedule.retention_days * DAY)))
            archived_from = ago(schedule.archived_days * DAY)
            await self._snapshots.expire_surplus(name, schedule.archived_lists, archived_from)

        await each_set(self._windows, delete, names)

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

    async def announce_archives(self) -> None:
        """Announce the archives of the next sets: time alone moves Change Lists into them."""
        await self._archives.round(self._journals.sets, self._announce_archives_of)

    async def _announce_archives_of(self, names: Sequence[str]) -> None:
        async def announce(name: str, _: JournalRecord, __: Position) -> None:
            await self._announcements.documents_changed(name)

        grown = await self._announcements.archives_to_announce(names)
        await each_set(self._windows, announce, grown)
