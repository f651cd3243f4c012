"""The route table: all addresses of the hub, and who answers there."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from rsnotify.access.cors import Cors
from rsnotify.channels.event_stream import Sse, wants_stream
from rsnotify.channels.websocket_endpoint import WebSocketEndpoint
from rsnotify.documents.changelists import ChangeListEndpoints
from rsnotify.documents.discovery import Discovery
from rsnotify.documents.pages import Pages
from rsnotify.documents.resourcelists import ResourceListEndpoints
from rsnotify.documents.responses import SetAdmission
from rsnotify.errors import Rejected
from rsnotify.http.endpoints import Application, Route, Routes, WebSocketRoute
from rsnotify.openapi.document import Description
from rsnotify.operation import Watching
from rsnotify.operation.administration import Administration
from rsnotify.process.composition import Composition
from rsnotify.process.logs import AccessLog
from rsnotify.publishing.intake import SeveralSets
from rsnotify.publishing.loads.load_endpoint import Resources
from rsnotify.resourcesync.notification import (
    CHANNEL_PATH,
    CHANNELS_PATH,
    FRAMEWORK_STREAM_PATH,
    SET_NAME,
    STREAM_PATH,
    change_list_index,
)
from rsnotify.streams.streams import Streams
from rsnotify.views.harvests import Harvests
from rsnotify.views.journal_pages import JournalPages
from rsnotify.views.oai_endpoint import OaiEndpoint, oai_path
from rsnotify.views.paged_views import (
    ActivitiesEndpoint,
    FeedEndpoint,
    activities_page_path,
    activities_path,
    archive_path,
    feed_path,
)
from rsnotify.views.view_answers import ViewAnswers
from rsnotify.web.page import ForBrowsers, FrontPage
from rsnotify.web.validation import Validation
from rsnotify.websub.subscribe_endpoint import SubscriptionAdmin, Topic, WebSubEndpoint

PUBLISHED = (
    "A stream is only read here: publish by POST /api/sets/SET/{}, and create, edit or remove its "
    "set by PUT, PATCH or DELETE /api/sets/SET"
)


def build_app(
    routes: Routes,
    around_errors: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    *,
    has_page: bool = True,
) -> Application:
    """An application with these routes, and with their description."""
    description = Description(routes, has_scripts=has_page)
    return Application([*description.routes, *routes], around_errors)


def build(parts: Composition) -> ASGIApp:
    """The whole HTTP API, as one application."""
    settings = parts.settings
    cors = Cors(parts.journals, settings.allowed_origins, parts.access.cookie_origins)
    browsers = ForBrowsers(is_on=settings.page == "on")
    app = build_app(
        [
            *_publishing_routes(parts),
            *_administration_routes(parts),
            *cors.opened(browsers.opened(_channel_routes(parts))),
            *cors.opened(_stream_routes(parts, cors)),
            *_websub_routes(parts),
            *_watching_routes(parts.watching),
            *cors.opened(_page_routes(parts)),
            *cors.opened(browsers.opened(_pull_routes(parts))),
            *cors.opened(_view_routes(parts)),
        ],
        lambda app: cors.around(browsers.around(app)),
        has_page=settings.page == "on",
    )
    return AccessLog(app, parts.base_url.client_address) if settings.access_log == "on" else app


# --- routes --------------------------------------------------------------------------------------


def _publishing_routes(parts: Composition) -> Routes:
    """These come first: a route is found by trying each."""
    journals, access, intake, loads = parts.journals, parts.access, parts.intake, parts.stores.loads
    several = SeveralSets(journals, access, intake.refused)
    resources = Resources(journals, access, loads, parts.load_keeper, intake.refused.judged)
    return [
        Route("/api/sets/{set}/changes", intake.changes, methods=["POST"]),
        Route("/api/sets/{set}/framework", intake.framework, methods=["POST"]),
        Route("/api/changes", several.changes, methods=["POST"]),
        *resource_routes(resources),
    ]


def resource_routes(resources: Resources) -> Routes:
    return [
        Route("/api/sets/{set}/resources", resources.load, methods=["PUT"]),
        Route("/api/sets/{set}/resources", resources.show),
    ]


def _administration_routes(parts: Composition) -> Routes:
    journals, access, stores = parts.journals, parts.access, parts.stores
    administration = Administration(journals, access, stores.tokens, parts.upkeep)
    subscribers = SubscriptionAdmin(journals, access, stores.subscriptions)
    subscription = "/api/subscriptions/{subscription}"
    return [
        Route("/api/sets", administration.list_sets),
        Route("/api/rights", administration.show_rights),
        Route("/api/sets/{set}", administration.add_set, methods=["PUT"]),
        Route("/api/sets/{set}", administration.edit_set, methods=["PATCH"]),
        Route("/api/sets/{set}", administration.remove_set, methods=["DELETE"]),
        Route("/api/sets/{set}/snapshot", administration.take_snapshot, methods=["POST"]),
        Route("/api/tokens", administration.list_tokens),
        Route("/api/tokens", administration.create_token, methods=["POST"]),
        Route("/api/tokens/{token}", administration.revoke_token, methods=["DELETE"]),
        Route("/api/tokens/{token}/rotate", administration.rotate_token, methods=["POST"]),
        Route("/api/subscriptions", subscribers.list),
        Route(subscription, subscribers.show),
        Route(subscription, subscribers.remove, methods=["DELETE"]),
        Route(f"{subscription}/retry", subscribers.retry, methods=["POST"]),
    ]


def _channel_routes(parts: Composition) -> Routes:
    channels, is_compressed = parts.channels, parts.settings.channel_compression == "on"
    sockets = WebSocketEndpoint(channels)
    topic = Topic(parts.journals, parts.access, parts.base_url)
    page = ChannelEndpoint(Sse(channels, is_compressed=is_compressed), topic)
    return [
        WebSocketRoute(CHANNEL_PATH, sockets.open),
        WebSocketRoute(CHANNELS_PATH, sockets.open),
        Route(CHANNEL_PATH, page.channel),
        Route(CHANNELS_PATH, page.channels),
    ]


class ChannelEndpoint:
    """The URL of a channel: an event stream if the peer asks for one, else the WebSub topic."""

    def __init__(self, sse: Sse, topic: Topic) -> None:
        self._sse = sse
        self._topic = topic

    async def channel(self, request: Request) -> Response:
        """The latest notification of a channel; as an event stream, all that follow."""
        if request.method == "GET" and wants_stream(request):
            return await self._sse.stream(request)
        return await self._topic.get(request)

    async def channels(self, request: Request) -> Response:
        """Several channels over one connection, as an event stream.

        They have no latest notification in common.
        """
        if request.method == "HEAD" or wants_stream(request):
            return await self._sse.stream(request)
        raise Rejected(
            "several channels are read by WebSocket, or with `Accept: text/event-stream`",
            status=406,
        )


def _stream_routes(parts: Composition, cors: Cors) -> Routes:
    journals, windows = parts.journals, parts.stores.windows
    streams = Streams(
        journals,
        parts.access,
        windows,
        parts.channels,
        parts.long_polls,
        cors,
        is_compressed=parts.settings.channel_compression == "on",
    )
    return stream_routes(streams)


def stream_routes(streams: Streams) -> Routes:
    return [
        Route(STREAM_PATH, streams.changes, advice=PUBLISHED.format("changes")),
        Route(FRAMEWORK_STREAM_PATH, streams.framework, advice=PUBLISHED.format("framework")),
    ]


def _websub_routes(parts: Composition) -> Routes:
    endpoint = WebSubEndpoint(
        parts.journals,
        parts.access,
        parts.intake.publish,
        parts.stores.subscriptions,
        parts.base_url,
        callback_private=parts.settings.callback_private == "allow",
        lease_seconds=parts.settings.lease_seconds,
    )
    return [Route("/hub", endpoint.post, methods=["POST"])]


def _watching_routes(watching: Watching) -> Routes:
    return [
        Route("/health/live", watching.health.live),
        Route("/health/ready", watching.health.ready),
        Route("/api/status", watching.status.get),
        Route("/metrics", watching.metrics.get),
    ]


def _page_routes(parts: Composition) -> Routes:
    settings = parts.settings
    validation = Validation(
        parts.access,
        for_everybody=settings.validate_urls == "everybody",
        private=settings.callback_private == "allow",
        proxy=settings.proxy,
    )
    page = FrontPage(is_on=settings.page == "on", has_oai=settings.admin_email is not None)
    return [
        Route("/", page.front),
        Route("/static/{file}", page.file),
        Route("/static/client/{file}", page.client),
        Route("/static/client/lib/{file}", page.client),
        Route("/api/validate", validation.validate, methods=["POST"]),
    ]


def _pull_routes(parts: Composition) -> Routes:
    journals, stores, settings = parts.journals, parts.stores, parts.settings
    admission = SetAdmission(journals, parts.access, parts.base_url)
    discovery = Discovery(
        journals,
        admission,
        parts.base_url,
        parts.offers,
        parts.public_sets,
        stores.snapshots,
        describedby=settings.describedby,
        email=settings.admin_email,
    )
    change_lists = ChangeListEndpoints(
        journals,
        admission,
        stores.windows,
        parts.stretches,
        Pages(journals.history, settings.page_size),
        parts.schedule,
    )
    resource_lists = ResourceListEndpoints(
        admission, stores.snapshots, page_size=settings.page_size
    )
    return pull_routes(discovery, change_lists, resource_lists)


def pull_routes(
    discovery: Discovery, change_lists: ChangeListEndpoints, resource_lists: ResourceListEndpoints
) -> Routes:
    """These come last: their paths begin with the name of a set."""
    return [
        Route("/.well-known/resourcesync", discovery.description),
        Route("/.well-known/resourcesync/{part}.xml", discovery.description_part),
        Route("/robots.txt", discovery.robots),
        *dcat_routes(discovery),
        Route("/{set}", discovery.of_set, segment=SET_NAME),
        Route("/{set}/capabilitylist.xml", discovery.capabilities),
        Route("/{set}/capabilitylist-ws.xml", discovery.socket_capabilities),
        Route("/{set}/changelist.xml", change_lists.current),
        Route("/{set}/changelist/{from_}.xml", change_lists.by_beginning),
        Route(change_list_index("{set}"), change_lists.index),
        Route("/{set}/changelist-archive.xml", change_lists.archive),
        Route("/{set}/resourcelist.xml", resource_lists.newest),
        Route("/{set}/resourcelist-archive.xml", resource_lists.archive),
        Route("/{set}/resourcelist/{part}.xml", resource_lists.part),
    ]


def dcat_routes(discovery: Discovery) -> Routes:
    return [
        Route("/dcat.ttl", discovery.catalog_turtle),
        Route("/dcat.jsonld", discovery.catalog_jsonld),
        Route("/{set}/dcat.ttl", discovery.dataset_turtle),
        Route("/{set}/dcat.jsonld", discovery.dataset_jsonld),
    ]


def _view_routes(parts: Composition) -> Routes:
    journals, stores = parts.journals, parts.stores
    harvests = Harvests(journals, stores.windows, stores.known_resources, parts.schedule.period)
    email = parts.settings.admin_email
    answers = parts.view_answers
    oai = OaiEndpoint(journals, parts.access, parts.base_url, harvests, email, answers)
    admission = SetAdmission(journals, parts.access, parts.base_url)
    pages = JournalPages(journals, stores.windows)
    return [*oai_routes(oai), *paged_view_routes(admission, pages, answers)]


def paged_view_routes(admission: SetAdmission, pages: JournalPages, answers: ViewAnswers) -> Routes:
    feed = FeedEndpoint(admission, pages, answers)
    activities = ActivitiesEndpoint(admission, pages, answers)
    return [
        Route(feed_path("{set}"), feed.newest),
        Route(archive_path("{set}", "{from_}"), feed.archive),
        Route(activities_path("{set}"), activities.collection),
        Route(activities_page_path("{set}", "{from_}"), activities.page),
    ]


def oai_routes(oai: OaiEndpoint) -> Routes:
    return [
        Route(oai_path("{set}"), oai.get),
        Route(oai_path("{set}"), oai.post, methods=["POST"]),
    ]
