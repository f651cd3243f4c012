"""Tells the framework channel of a set what has changed in what the set offers.

Its Capability List is told when its bytes change, for whatever reason; the Change List Archive when
it appears, grows or ends; the Source's own documents when they are named. What was told last is
kept in Redis, so each is told once, however many processes look.
"""

from collections.abc import Awaitable, Callable, Container, Sequence
from hashlib import blake2b
from time import time

from rsnotify.documents.capabilities import Offers
from rsnotify.documents.documents import capabilities
from rsnotify.documents.told import ToldDocuments
from rsnotify.documents.told_documents import Told, changes_between
from rsnotify.journal.set_options import SetRecord
from rsnotify.journal.window import DAY, DocumentSchedule, last_edge
from rsnotify.journal.windows import Archived, Windows
from rsnotify.resourcesync.change import MICROSECONDS, Change, Position
from rsnotify.resourcesync.xml_writer import render_document

Publish = Callable[[str, str, Sequence[Change]], Awaitable[None]]


class DocumentsTold:
    """Compares what was told of a set's documents with what they are."""

    def __init__(
        self,
        windows: Windows,
        offers: Offers,
        told: ToldDocuments,
        schedule: DocumentSchedule,
        base_url: str,
    ) -> None:
        self._windows = windows
        self._offers = offers
        self._told = told
        self._schedule = schedule
        self._base_url = base_url
        self._archives: dict[tuple[str, str], str] = {}  # as last seen by this process

    async def begin(self, record: SetRecord) -> None:
        """A new set: that it was created says all there is to say."""
        await self._write(record, await self._now(record, 0))

    async def tell(self, record: SetRecord, publish: Publish) -> None:
        told = await self._told.read(record.name)
        now = await self._now(record, 0 if told is None else told.number + 1)
        self._archives[record.name, record.created] = now.archive
        if told is None:  # made by a hub that kept no note
            await self._write(record, now)
        elif not now.is_same(told):
            changes = list(changes_between(told, now, self._base_url, record.name))
            if changes:
                await publish(record.name, f"documents-{_digest(now)}", changes)
            await self._write(record, now)

    async def archives_to_tell(self, records: Sequence[SetRecord]) -> list[str]:
        """Those whose archive has changed since this process saw it, or cannot be read, by name.

        Time alone moves Change Lists into an archive, so all are asked for, in one journey."""
        archives = await self._archives_of(records)
        return [
            record.name
            for record, archive in zip(records, archives, strict=True)
            if self._archives.get((record.name, record.created)) != archive
        ]

    def forget_others(self, names: Container[str]) -> None:
        """Keep no note of sets that are gone."""
        self._archives = {key: seen for key, seen in self._archives.items() if key[0] in names}

    async def _write(self, record: SetRecord, told: Told) -> None:
        await self._told.write(record.name, Position.parse(record.created), told)

    async def _now(self, record: SetRecord, number: int) -> Told:
        offer = await self._offers.of(record, self._base_url)
        content = render_document(capabilities(self._base_url, offer.capabilities))
        digest = blake2b(content, digest_size=12).hexdigest()
        (archive,) = await self._archives_of([record])
        if isinstance(archive, Exception):
            raise archive
        return Told(number, digest, archive, record.own_documents)

    async def _archives_of(self, records: Sequence[SetRecord]) -> list[str | Exception]:
        """What the hub's own archive of each covers, or why that cannot be seen."""
        left = int(time() * MICROSECONDS) - self._schedule.index_days * DAY
        begin = Position(last_edge(left, self._schedule.period))
        found = await self._windows.archived([record.name for record in records], begin)
        return [_covered(*each) for each in zip(records, found, strict=True)]


def _covered(record: SetRecord, archived: Archived | Exception | None) -> str | Exception:
    """Nothing while the hub has no archive to tell of."""
    if record.changelist_archive is not None or archived is None:
        return ""
    if isinstance(archived, Exception):
        return archived
    oldest, newest = archived
    return f"{int(oldest.from_)}-{int(newest.until)}"


def _digest(told: Told) -> str:
    return blake2b(repr(told).encode(), digest_size=12).hexdigest()
