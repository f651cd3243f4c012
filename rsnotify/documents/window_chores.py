"""Closes the Change Lists that are due, packs those that are closed, announces what has changed."""

from collections.abc import Awaitable, Callable
from functools import partial

from rsnotify.documents.announcements import Announcements
from rsnotify.documents.due_sets import DueSets
from rsnotify.documents.each_set import each_set, seconds
from rsnotify.journal.window import DocumentSchedule, JournalRecord, Window, is_due, until_due
from rsnotify.journal.windows import Windows
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import Position

GROWTH_SECONDS = 60.0  # the growth of the open list is announced at most this often
GROWTH_AGAIN_SECONDS = 10.0  # if it was announced already within that time
OTHERS_SECONDS = 5.0  # if another hub process packs

Pack = Callable[[str, Window], Awaitable[None]]
"""Packs a closed window, and stores it packed."""


class WindowChores:
    """Looks after the windows of all sets."""

    def __init__(
        self,
        journals: Journals,
        windows: Windows,
        announcements: Announcements,
        pack: Pack,
        schedule: DocumentSchedule,
    ) -> None:
        self._journals = journals
        self._windows = windows
        self._announcements = announcements
        self._pack = pack
        self._period = schedule.period
        self._due = DueSets(journals, growth_seconds=0)

    async def keep_due(self) -> None:
        """Look at the sets that are due."""
        look = partial(each_set, self._windows, self._keep)
        await self._due.round(await self._windows.now(), look)

    async def _keep(self, name: str, record: JournalRecord, now: Position) -> float | None:
        period = self._period
        closed = is_due(record, now, period) and await self._windows.close(name, period)
        if closed or record.packed_until < record.window_from:
            claim = await self._windows.claimed(name, "pack", OTHERS_SECONDS)
            if claim is None:
                return OTHERS_SECONDS
            try:  # another may have packed since the records of all were read
                packed_until = (await self._windows.record(name)).packed_until
                await self.announce_and_pack(name, packed_until)
            finally:
                await claim.release()
        has_grown = record.head > max(record.grew_until, record.window_from)
        if has_grown and not await self._announce_growth(name, record):
            return GROWTH_AGAIN_SECONDS
        return seconds(until_due(record, now, period))

    async def announce_and_pack(self, name: str, packed_until: Position) -> None:
        """Announce which windows have closed since, and pack them."""
        span = await self._windows.span(name, after=packed_until)
        for window in span.windows:
            await self._announcements.window_closed(name, window)
            await self._pack(name, window)
            await self._windows.note_progress(name, span.record.created, packed_until=window.until)
            self._journals.usage.count_soon(name)

    async def _announce_growth(self, name: str, record: JournalRecord) -> bool:
        if not await self._windows.claim(name, "growth", GROWTH_SECONDS):
            return False
        await self._announcements.open_list_grew(name, record.window_from, record.head)
        await self._windows.note_progress(name, record.created, grew_until=record.head)
        return True
