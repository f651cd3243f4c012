"""Discovery over HTTP: Source Description, Capability Lists in both versions, robots.txt.

Private sets are not in documents about all sets. A capability is listed as soon as its document
exists. Where the Source has a document of its own, it is listed instead of the hub's.
"""

from collections.abc import Callable
from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rsnotify.base_url import BaseUrl
from rsnotify.core.documents import (
    SetCapabilities,
    capabilities,
    robots,
    socket_capabilities,
    source_description,
)
from rsnotify.core.set_options import SetRecord
from rsnotify.delivery.pull.admission import SetAdmission, form_of
from rsnotify.delivery.pull.responses import DocumentInfo, rendered_response
from rsnotify.hub import Hub
from rsnotify.hub.capabilities import Offers, capabilities_of
from rsnotify.resourcesync.xml_writer import Document, render_document
from rsnotify.storage.snapshots import Snapshots


class Discovery:
    """The documents with which a Destination starts."""

    def __init__(
        self,
        hub: Hub,
        admission: SetAdmission,
        base_url: BaseUrl,
        offers: Offers,
        snapshots: Snapshots,
        *,
        describedby: str | None,
    ) -> None:
        self._hub = hub
        self._admission = admission
        self._base_url = base_url
        self._offers = offers
        self._snapshots = snapshots
        self._describedby = describedby

    async def description(self, request: Request) -> Response:
        base = self._base_url.base(request)
        sets = [capabilities_of(record) for record in self._public_sets()]
        document = source_description(base, sets, self._describedby)
        info = DocumentInfo(_digest(document), self._hub.sets_changed, form=form_of(request))
        return await rendered_response(request, info, lambda: document)

    async def capabilities(self, request: Request) -> Response:
        return await self._capability_list(request, capabilities)

    async def socket_capabilities(self, request: Request) -> Response:
        return await self._capability_list(request, socket_capabilities)

    async def robots(self, request: Request) -> Response:
        """Without the Resource Lists of the hub whose records cannot be read."""
        sets = self._public_sets()
        newest = await self._snapshots.newest_of([record.name for record in sets])
        found = (capabilities_of(record, newest.get(record.name)).resourcelist for record in sets)
        return PlainTextResponse(robots(self._base_url.base(request), list(filter(None, found))))

    async def _capability_list(
        self, request: Request, describe: Callable[[str, SetCapabilities], Document]
    ) -> Response:
        requested = await self._admission.admit(request)
        offer = await self._offers.of(requested.record, requested.base)
        document = describe(requested.base, offer.capabilities)
        info = requested.info(_digest(document), offer.changed)
        return await rendered_response(request, info, lambda: document)

    def _public_sets(self) -> list[SetRecord]:
        public = [record for record in self._hub.sets.values() if not record.private]
        return sorted(public, key=lambda record: record.name)


def _digest(document: Document) -> str:
    return blake2b(render_document(document), digest_size=12).hexdigest()
