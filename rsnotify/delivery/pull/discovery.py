"""Discovery over HTTP: Source Description, Capability Lists in both versions, robots.txt.

Private sets are not in documents about all sets. A capability is listed as soon as its document
exists. Where the Source has a document of its own, it is listed instead of the hub's.
"""

from collections.abc import Callable
from hashlib import blake2b
from time import time

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rsnotify.base_url import BaseUrl
from rsnotify.core.documents import (
    SetCapabilities,
    capabilities,
    resource_list,
    robots,
    socket_capabilities,
    source_description,
)
from rsnotify.core.window import DAY
from rsnotify.delivery.pull.admission import RequestedSet, SetAdmission, form_of
from rsnotify.delivery.pull.responses import DocumentInfo, rendered_response
from rsnotify.hub import Hub
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.xml_writer import Document, render_document
from rsnotify.storage.sets import SetRecord
from rsnotify.storage.snapshots import Snapshot, Snapshots
from rsnotify.storage.windows import Windows


class Discovery:
    """The documents with which a Destination starts."""

    def __init__(
        self,
        hub: Hub,
        admission: SetAdmission,
        origin: BaseUrl,
        windows: Windows,
        snapshots: Snapshots,
        *,
        describedby: str | None,
        index_days: int,
    ) -> None:
        self._hub = hub
        self._admission = admission
        self._origin = origin
        self._windows = windows
        self._snapshots = snapshots
        self._describedby = describedby
        self._index_days = index_days

    async def description(self, request: Request) -> Response:
        base = self._origin.base(request)
        sets = [_capabilities_of(record) for record in self._public_sets()]
        document = source_description(base, sets, self._describedby)
        info = DocumentInfo(_digest(document), self._hub.sets_changed, form=form_of(request))
        return await rendered_response(request, info, lambda: document)

    async def capabilities(self, request: Request) -> Response:
        return await self._capability_list(request, capabilities)

    async def socket_capabilities(self, request: Request) -> Response:
        return await self._capability_list(request, socket_capabilities)

    async def robots(self, request: Request) -> Response:
        sets = self._public_sets()
        newest = await self._snapshots.newest_of([record.name for record in sets])
        found = (_capabilities_of(record, newest[record.name]).resourcelist for record in sets)
        return PlainTextResponse(robots(self._origin.base(request), list(filter(None, found))))

    async def _capability_list(
        self, request: Request, describe: Callable[[str, SetCapabilities], Document]
    ) -> Response:
        requested = await self._admission.admit(request)
        snapshot = await self._snapshots.newest(requested.name)
        archived_at = await self._archived_at(requested)
        offered = _capabilities_of(requested.record, snapshot, requested.base)._replace(
            has_archive=archived_at is not None,
            has_resource_list_archive=await self._snapshots.has_archive(requested.name),
        )
        document = describe(requested.base, offered)
        edited = Position.parse(requested.record.edited)
        taken = 0 if snapshot is None else snapshot.completed
        info = requested.info(_digest(document), max(edited, taken, archived_at or 0))
        return await rendered_response(request, info, lambda: document)

    async def _archived_at(self, requested: RequestedSet) -> int | None:
        """Since when the set has an archive; None if it has none."""
        oldest = await self._windows.oldest(requested.name)
        if oldest is None:
            return None
        left = oldest.until + self._index_days * DAY
        return left if left <= time() * MICROSECONDS else None

    def _public_sets(self) -> list[SetRecord]:
        public = [record for record in self._hub.sets.values() if not record.private]
        return sorted(public, key=lambda record: record.name)


def _capabilities_of(
    record: SetRecord,
    snapshot: Snapshot | None = None,
    base: str = "",
) -> SetCapabilities:
    ours = None if snapshot is None else base + resource_list(record.name)
    return SetCapabilities(
        set_name=record.name,
        describedby=record.describedby,
        resourcelist=record.resourcelist or ours,
        resourcedump=record.resourcedump,
        changedump=record.changedump,
        sockets_first=record.sockets_first,
    )


def _digest(document: Document) -> str:
    return blake2b(render_document(document), digest_size=12).hexdigest()
