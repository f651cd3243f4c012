"""Everything that answers requests: made of the parts of a hub, and put behind its routes."""

from typing import NamedTuple

from starlette.types import ASGIApp

from rsnotify.channels.admission import Channels
from rsnotify.channels.sse import Sse
from rsnotify.documents.capabilities import Offers
from rsnotify.documents.changelists import ChangeListEndpoints
from rsnotify.documents.chores import Upkeep
from rsnotify.documents.discovery import Discovery
from rsnotify.documents.document_request import SetAdmission
from rsnotify.documents.pages import Pages
from rsnotify.documents.resourcelists import ResourceListEndpoints
from rsnotify.documents.stretches import Stretches
from rsnotify.http.base_url import BaseUrl
from rsnotify.http.routing import Routes
from rsnotify.journal.history import History
from rsnotify.journal.hub import Hub
from rsnotify.journal.window import HOUR
from rsnotify.operation import Watching
from rsnotify.operation.administration import Administration
from rsnotify.process import app as table
from rsnotify.process.access_log import AccessLog
from rsnotify.process.settings import Settings
from rsnotify.process.stores import Stores
from rsnotify.publishing.intake import Intake
from rsnotify.publishing.loads.load_chores import LoadKeeper
from rsnotify.publishing.loads.load_endpoint import Resources
from rsnotify.publishing.several_sets import SeveralSets
from rsnotify.registry.access import Access
from rsnotify.registry.cors import Cors
from rsnotify.web.page import FrontPage
from rsnotify.web.validation import Validation
from rsnotify.websub.subscribe_endpoint import WebSubEndpoint
from rsnotify.websub.subscription_list import SubscriptionAdmin
from rsnotify.websub.topic import Topic


class HubParts(NamedTuple):
    """What the endpoints are made of."""

    settings: Settings
    stores: Stores
    base_url: BaseUrl
    hub: Hub
    access: Access
    intake: Intake
    channels: Channels
    upkeep: Upkeep
    load_keeper: LoadKeeper
    offers: Offers
    stretches: Stretches
    watching: Watching


def build(parts: HubParts) -> ASGIApp:
    """The whole HTTP API, as one application."""
    settings = parts.settings
    cors = Cors(parts.hub, settings.allowed_origins)
    app = table.build_app(
        [
            *_publishing_routes(parts),
            *_administration_routes(parts),
            *cors.opened(_channel_routes(parts)),
            *table.websub_routes(_websub(parts)),
            *table.watching_routes(parts.watching),
            *cors.opened(_page_routes(parts)),
            *cors.opened(_pull_routes(parts)),
        ],
        cors.around,
    )
    return AccessLog(app, parts.base_url.asker) if settings.access_log == "on" else app


def _publishing_routes(parts: HubParts) -> Routes:
    hub, access = parts.hub, parts.access
    several = SeveralSets(hub, access, parts.intake.refused)
    resources = Resources(hub, access, parts.stores.loads, parts.load_keeper)
    return [
        *table.publishing_routes(parts.intake, several),
        *table.resource_routes(resources),
    ]


def _administration_routes(parts: HubParts) -> Routes:
    hub, access, stores = parts.hub, parts.access, parts.stores
    return table.administration_routes(
        Administration(hub, access, stores.tokens, parts.upkeep),
        SubscriptionAdmin(hub, access, stores.subscriptions),
    )


def _channel_routes(parts: HubParts) -> Routes:
    is_compressed = parts.settings.channel_compression == "on"
    topic = Topic(parts.hub, parts.access, parts.base_url)
    return table.channel_routes(
        parts.channels, Sse(parts.channels, is_compressed=is_compressed), topic
    )


def _websub(parts: HubParts) -> WebSubEndpoint:
    return WebSubEndpoint(
        parts.hub,
        parts.access,
        parts.intake.publish,
        parts.stores.subscriptions,
        parts.base_url,
        callback_private=parts.settings.callback_private == "allow",
        lease_seconds=parts.settings.lease_seconds,
    )


def _page_routes(parts: HubParts) -> Routes:
    settings = parts.settings
    validation = Validation(
        parts.access,
        for_everybody=settings.validate_urls == "everybody",
        private=settings.callback_private == "allow",
        proxy=settings.proxy,
    )
    return table.page_routes(FrontPage(is_on=settings.page == "on"), validation)


def _pull_routes(parts: HubParts) -> Routes:
    hub, stores, settings = parts.hub, parts.stores, parts.settings
    admission = SetAdmission(hub, parts.access, parts.base_url)
    discovery = Discovery(
        hub,
        admission,
        parts.base_url,
        parts.offers,
        stores.snapshots,
        describedby=settings.describedby,
    )
    change_lists = ChangeListEndpoints(
        hub,
        admission,
        stores.windows,
        parts.stretches,
        Pages(History(stores.journal, stores.windows), settings.page_size),
        period=settings.changelist_hours * HOUR,
        index_days=settings.changelist_days,
    )
    resource_lists = ResourceListEndpoints(
        admission, stores.snapshots, page_size=settings.page_size
    )
    return table.pull_routes(discovery, change_lists, resource_lists)
