"""Discovery over HTTP: Source Description, Capability Lists in both forms, robots.txt.

Rules that hold here: private sets are in no document that belongs to all; a capability is named as
soon as its document is there, and the Source's own documents elsewhere come before the hub's.
"""

from collections.abc import Callable
from hashlib import blake2b
from time import time

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rsnotify.base_url import BaseUrl
from rsnotify.core.documents import (
    Offer,
    capabilities,
    resource_list,
    robots,
    socket_capabilities,
    source_description,
)
from rsnotify.core.window import DAY
from rsnotify.delivery.pull.admission import Asked, Readers
from rsnotify.delivery.pull.responses import Known, whole
from rsnotify.hub import Hub
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.xml_writer import Document, render_document
from rsnotify.storage.sets import SetRecord
from rsnotify.storage.snapshots import Snapshot, Snapshots
from rsnotify.storage.windows import Windows


class Discovery:
    """Where a Destination begins."""

    def __init__(
        self,
        hub: Hub,
        readers: Readers,
        origin: BaseUrl,
        windows: Windows,
        snapshots: Snapshots,
        *,
        describedby: str | None,
        index_days: int,
    ) -> None:
        self._hub = hub
        self._readers = readers
        self._origin = origin
        self._windows = windows
        self._snapshots = snapshots
        self._describedby = describedby
        self._index_days = index_days

    async def description(self, request: Request) -> Response:
        base = self._origin.base(request)
        offers = [_offer(record) for record in self._public_sets()]
        content = render_document(source_description(base, offers, self._describedby))
        return await whole(
            request, Known(_digest(content), self._hub.sets_changed), lambda: content
        )

    async def capabilities(self, request: Request) -> Response:
        return await self._capability_list(request, capabilities)

    async def socket_capabilities(self, request: Request) -> Response:
        return await self._capability_list(request, socket_capabilities)

    async def robots(self, request: Request) -> Response:
        sets = self._public_sets()
        newest = await self._snapshots.newest_of([record.name for record in sets])
        found = (_offer(record, newest[record.name]).resourcelist for record in sets)
        return PlainTextResponse(robots(self._origin.base(request), list(filter(None, found))))

    async def _capability_list(
        self, request: Request, render: Callable[[str, Offer], Document]
    ) -> Response:
        asked = await self._readers.admit(request)
        snapshot = await self._snapshots.newest(asked.name)
        archived_at = await self._archived_at(asked)
        content = render_document(
            render(asked.base, _offer(asked.record, snapshot, asked.base, archived_at is not None))
        )
        edited = Position.parse(asked.record.edited)
        taken = 0 if snapshot is None else snapshot.completed
        known = asked.known(_digest(content), max(edited, taken, archived_at or 0))
        return await whole(request, known, lambda: content)

    async def _archived_at(self, asked: Asked) -> int | None:
        """Since when there is an archive, if there is one."""
        oldest = await self._windows.oldest(asked.name)
        if oldest is None:
            return None
        left = oldest.until + self._index_days * DAY
        return left if left <= time() * MICROSECONDS else None

    def _public_sets(self) -> list[SetRecord]:
        public = [record for record in self._hub.sets.values() if not record.private]
        return sorted(public, key=lambda record: record.name)


def _offer(
    record: SetRecord,
    snapshot: Snapshot | None = None,
    base: str = "",
    has_archive: bool = False,
) -> Offer:
    ours = None if snapshot is None else base + resource_list(record.name)
    return Offer(
        set_name=record.name,
        describedby=record.describedby,
        resourcelist=record.resourcelist or ours,
        resourcedump=record.resourcedump,
        changedump=record.changedump,
        has_archive=has_archive,
    )


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()
