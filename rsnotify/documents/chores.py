"""The hub's regular work: close windows by time, pack and trim what is closed, take snapshots,
delete what is older than retention, and announce it.

Any number of hub processes do this on one Redis at once, so every step is atomic, or claimed, or
may be done twice. What one round could not do, the next one does. A set that fails delays no other.
"""

import logging

from rsnotify.documents.announcements import Announcements
from rsnotify.documents.due_sets import MOST
from rsnotify.documents.old_history import OldHistory
from rsnotify.documents.snapshot_chores import SnapshotChores
from rsnotify.documents.snapshots import Snapshots
from rsnotify.documents.window_chores import Pack, WindowChores
from rsnotify.errors import TryAgain
from rsnotify.journal.window import DocumentSchedule
from rsnotify.journal.windows import Windows
from rsnotify.live.journals import Journals
from rsnotify.loops import Loop, repeat

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
OLD_SECONDS = 60.0  # between two looks at what is old, of some sets


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
        self._usage = journals.usage
        self.announcements = announcements
        self.windows = WindowChores(journals, windows, announcements, pack, schedule)
        self.snapshots = SnapshotChores(journals, windows, snapshots, announcements, schedule)
        self.old = OldHistory(journals, windows, snapshots, announcements, schedule)

    def loops(self) -> dict[str, Loop]:
        """The loops that run as long as the hub, by name."""
        return {
            "keep windows": repeat(self.windows.keep_due, ROUND_SECONDS),
            "keep snapshots": repeat(self.snapshots.keep_due, ROUND_SECONDS),
            "delete what is old": repeat(self.old.delete, OLD_SECONDS),
            "announce archives": repeat(self.old.announce_archives, OLD_SECONDS),
            "count what sets take": repeat(self.count_sets, ROUND_SECONDS),
            "announce the sets": repeat(
                self.announcements.keep_description_announced, ROUND_SECONDS
            ),
        }

    async def count_sets(self) -> None:
        """Count what some sets take of Redis, where that has to be known."""
        usage = self._usage
        for name in usage.take(MOST):
            try:
                await usage.count(name)
            except TryAgain as error:
                log.debug("what the set %r takes is counted later: %s", name, error.detail)
                usage.count_soon(name)
            except Exception as error:
                log.warning("what the set %r takes cannot be counted", name, exc_info=error)
