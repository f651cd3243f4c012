"""The sets as this process knows them: a copy of the registry in Redis."""

import asyncio
import logging
from collections.abc import Mapping
from time import monotonic

from rsnotify.errors import NoSuchSet
from rsnotify.journal.recall import Recent
from rsnotify.journal.set_options import SetRecord
from rsnotify.journal.sets import Version
from rsnotify.resourcesync.change import Position

log = logging.getLogger(__name__)


class KnownSets:
    """The records of all sets, and the version of the registry that they are from."""

    def __init__(self) -> None:
        self.records: dict[str, SetRecord] = {}
        self.former: dict[str, str] = {}  # when the first set of a removed one's name began
        self.version: Version | None = None  # None before the first read
        self.revision = 0  # rises with every record that is known anew, and only here
        self._ahead: dict[int, tuple[Version, str]] = {}  # changes whose version is not the next
        self.removed: Recent[SetRecord] = Recent()
        self.lost = asyncio.Event()  # set when Redis has lost sets that it had

    @property
    def changed(self) -> Position:
        """When a set was changed last."""
        return Position(0) if self.version is None else self.version.changed

    @property
    def number(self) -> int:
        """Rises with every change of a set; -1 before the first read."""
        return -1 if self.version is None else self.version.number

    def is_former(self, name: str, position: Position) -> bool:
        """Whether it may be a position of another set that had this name before."""
        former = self.former.get(name)
        record = self.records.get(name)
        if former is None or record is None:
            return False
        return Position.parse(former) < position < Position.parse(record.created)

    def record(self, name: str) -> SetRecord:
        record = self.records.get(name)
        if record is None:
            raise NoSuchSet(name)
        return record

    def replace(self, records: dict[str, SetRecord], version: Version) -> list[str]:
        """Know what the registry has now; the names of the sets that have become private."""
        before, known = self.records, self.version
        self.records, self.version = records, version
        self._ahead.clear()
        if known is not None and version.is_behind(known):
            self._report_loss(before)
        elif records is not before:
            self._note_removed(before)
        if records is before:
            return []
        self.revision += 1
        return [name for name, record in records.items() if _turns(before.get(name), record)]

    def has_seen(self, name: str, record: SetRecord | None, version: Version) -> bool:
        """Whether a check has read this change already: nothing is left to do."""
        known = self.version
        if known is None or version.data != known.data or version.number > known.number:
            return False
        return self.records.get(name) == record

    def can_apply(self, name: str, record: SetRecord | None, version: Version) -> bool:
        """Whether this change of one set is news. If not, a check has seen it, and perhaps newer
        changes too; or Redis went back; or a newer change of this set is known already."""
        before, known = self.records.get(name), self.version
        is_another = before and record and before.created != record.created
        is_old = any(name == other for _, other in self._ahead.values())
        is_later = known is not None and version.number > known.number
        return is_later and not is_another and not is_old

    def apply(self, name: str, record: SetRecord | None, version: Version) -> list[str]:
        """Know a change of one set; the name, if it has become private."""
        self._ahead[version.number] = version, name
        self._move_on()
        self.revision += 1
        before = self.records.get(name)
        if record is None:
            self._note_removed({name: removed} if (removed := self.records.pop(name, None)) else {})
            return []
        self.records[name] = record
        return [name] if _turns(before, record) else []

    def _move_on(self) -> None:
        """Changes that are made at the same moment come in any order. While one is missing, the
        version stays behind, and the next check reads all sets."""
        while self.version is not None and self.version.number + 1 in self._ahead:
            version, _ = self._ahead.pop(self.version.number + 1)
            if not version.follows(self.version):
                return
            self.version = version

    def _note_removed(self, before: Mapping[str, SetRecord]) -> None:
        for name, record in before.items():
            if name not in self.records:
                self.removed.note(name, record, monotonic())
                self.former.setdefault(name, record.created)

    def _report_loss(self, before: Mapping[str, SetRecord]) -> None:
        left = {(record.name, record.created) for record in self.records.values()}
        gone = [name for name, record in before.items() if (name, record.created) not in left]
        log.error(
            "Redis has lost data: it was emptied, or started from an older copy; "
            "sets that are lost with their changes: %s",
            ", ".join(gone) or "none",
        )
        self.lost.set()


def _turns(before: SetRecord | None, record: SetRecord) -> bool:
    return before is not None and record.private > before.private
