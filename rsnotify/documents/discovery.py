"""Discovery over HTTP: Source Description, Capability Lists in both versions, robots.txt.

Private sets are not in documents about all sets. A capability is listed as soon as its document
exists. Where the Source has a document of its own, it is listed instead of the hub's.
"""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rsnotify.costly import Costly, kept_seconds, slices
from rsnotify.documents.capabilities import Offers, capabilities_of
from rsnotify.documents.description import KeptDescription, public_sets
from rsnotify.documents.document_request import SetAdmission, form_of
from rsnotify.documents.documents import SetCapabilities, capabilities, robots, socket_capabilities
from rsnotify.documents.responses import DocumentInfo, document_response, rendered_response
from rsnotify.documents.snapshots import Snapshots
from rsnotify.http.base_url import BaseUrl
from rsnotify.journal.hub import Hub
from rsnotify.resourcesync.xml_writer import Document, render_document


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
        self._description = KeptDescription(hub, describedby)
        self._robots = Costly[str]("robots.txt")

    async def description(self, request: Request) -> Response:
        base, form = self._base_url.base(request), form_of(request)
        template = await self._description.template(form)
        info = DocumentInfo(template.tag(base), template.changed, form=form)
        return await document_response(request, info, partial(self._description.at, template, base))

    async def capabilities(self, request: Request) -> Response:
        return await self._capability_list(request, capabilities)

    async def socket_capabilities(self, request: Request) -> Response:
        return await self._capability_list(request, socket_capabilities)

    async def robots(self, request: Request) -> Response:
        base = self._base_url.base(request)
        key, seconds = f"{self._hub.sets_revision} {base}", kept_seconds(len(self._hub.sets))
        work = partial(self._write_robots, base)
        return PlainTextResponse(await self._robots.result(key, work, seconds))

    async def _write_robots(self, base: str) -> str:
        """Without the Resource Lists of the hub whose records cannot be read."""
        found: list[str] = []
        for some in slices(public_sets(self._hub)):
            newest = await self._snapshots.newest_of([record.name for record in some])
            lists = (capabilities_of(each, newest.get(each.name)).resourcelist for each in some)
            found += filter(None, lists)
        return robots(base, found)

    async def _capability_list(
        self, request: Request, describe: Callable[[str, SetCapabilities], Document]
    ) -> Response:
        requested = await self._admission.admit(request)
        offer = await self._offers.of(requested.record, requested.base)
        document = describe(requested.base, offer.capabilities)
        info = requested.info(_digest(document), offer.changed)
        return await rendered_response(request, info, lambda: document)


def _digest(document: Document) -> str:
    return blake2b(render_document(document), digest_size=12).hexdigest()
