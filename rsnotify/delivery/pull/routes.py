"""The addresses of everything that can be pulled, and what serves each."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from rsnotify.access import Access
from rsnotify.base_url import Origin
from rsnotify.core.window import Schedule
from rsnotify.delivery.pull.admission import SetAdmission
from rsnotify.delivery.pull.changelists import ChangeLists
from rsnotify.delivery.pull.discovery import Discovery
from rsnotify.delivery.pull.resourcelists import ResourceLists
from rsnotify.delivery.pull.stretches import Stretches
from rsnotify.hub import Hub
from rsnotify.resourcesync.notification import SOURCE_DESCRIPTION
from rsnotify.storage.snapshots import Snapshots
from rsnotify.storage.windows import Windows


def pull_routes(
    hub: Hub,
    access: Access,
    origin: Origin,
    windows: Windows,
    snapshots: Snapshots,
    stretches: Stretches,
    schedule: Schedule,
    *,
    describedby: str | None = None,
) -> list[BaseRoute]:
    """To stand last in the table: the sets' names come first in these paths."""
    admission = SetAdmission(hub, access, origin)
    days = schedule.index_days
    discovery = Discovery(
        *(hub, admission, origin, windows, snapshots), describedby=describedby, index_days=days
    )
    change_lists = ChangeLists(
        *(hub, admission, windows, stretches), period=schedule.period, index_days=days
    )
    resource_lists = ResourceLists(admission, snapshots)
    return [
        Route("/", _to_source_description),
        Route("/.well-known/resourcesync", discovery.description),
        Route("/robots.txt", discovery.robots),
        Route("/{set}/capabilitylist.xml", discovery.capabilities),
        Route("/{set}/capabilitylist-ws.xml", discovery.socket_capabilities),
        Route("/{set}/changelist.xml", change_lists.current),
        Route("/{set}/changelist/{from_}.xml", change_lists.by_beginning),
        Route("/{set}/changelist-index.xml", change_lists.index),
        Route("/{set}/changelist-archive.xml", change_lists.archive),
        Route("/{set}/resourcelist.xml", resource_lists.newest),
        Route("/{set}/resourcelist/{part}.xml", resource_lists.part),
    ]


async def _to_source_description(request: Request) -> Response:  # noqa: ARG001
    """Whoever knows the hub's address only begins at the Source Description."""
    return RedirectResponse(SOURCE_DESCRIPTION, 302)
