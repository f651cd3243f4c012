"""Does a chore for each of some sets. One that fails delays no other, and one that is removed
meanwhile is left out.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

from rsnotify.documents.due_sets import AGAIN_SECONDS
from rsnotify.errors import NoSuchSet, TryAgain
from rsnotify.journal.window import JournalRecord
from rsnotify.journal.windows import Windows
from rsnotify.resourcesync.change import MICROSECONDS, Position

Again = dict[str, float | None]
"""The seconds until each set is due again; None if only a change makes it due."""

Act = Callable[[str, JournalRecord, Position], Awaitable[float | None]]
"""Does a chore for one set; returns the seconds until it is due again."""

log = logging.getLogger(__name__)


async def each_set(windows: Windows, act: Act, names: Sequence[str]) -> Again:
    """Do the chore for each set, with its record and the time of Redis."""
    if not names:
        return {}
    now, again = await windows.now(), Again()
    for name, record in zip(names, await windows.records(names), strict=True):
        if record is not None:
            again[name] = await _do(act, name, record, now)
    return again


async def _do(
    act: Act, name: str, record: JournalRecord | Exception, now: Position
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


def seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / MICROSECONDS
