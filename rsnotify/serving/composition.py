"""Creates the objects of one hub process and connects them; names the loops that must run.

Each object is created once, when it is first used. Nothing here opens a port.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from socket import gethostname
from time import time
from urllib.parse import quote

from starlette.types import ASGIApp

from rsnotify import app as table
from rsnotify.access import Access
from rsnotify.base_url import BaseUrl
from rsnotify.cache import Cache
from rsnotify.core.window import HOUR, DocumentSchedule
from rsnotify.delivery.channels.admission import Channels
from rsnotify.delivery.channels.keepalive import Keepalive
from rsnotify.delivery.channels.reader_limits import ReaderLimits
from rsnotify.delivery.channels.sse import Sse
from rsnotify.delivery.cors import Cors
from rsnotify.delivery.pull.admission import SetAdmission
from rsnotify.delivery.pull.changelists import ChangeListEndpoints
from rsnotify.delivery.pull.discovery import Discovery
from rsnotify.delivery.pull.pages import Pages
from rsnotify.delivery.pull.resourcelists import ResourceListEndpoints
from rsnotify.delivery.pull.stretches import Stretches
from rsnotify.delivery.topic import Topic
from rsnotify.delivery.websub import websub
from rsnotify.delivery.websub.dialler import Dialler
from rsnotify.delivery.websub.lost import put_subscriptions_back
from rsnotify.errors import TryAgain
from rsnotify.history import History
from rsnotify.hub import Hub
from rsnotify.hub.capabilities import Offers
from rsnotify.intake.administration import Administration
from rsnotify.intake.publishing import Intake
from rsnotify.intake.resources import Resources
from rsnotify.intake.several_sets import SeveralSets
from rsnotify.intake.subscriptions import SubscriptionAdmin
from rsnotify.intake.websub import WebSubEndpoint
from rsnotify.loops import Loop, run_beside
from rsnotify.routing import Routes
from rsnotify.serving.access_log import AccessLog
from rsnotify.serving.connections import ConnectionLimits, total_connections
from rsnotify.settings import WORKER, Settings
from rsnotify.storage import keys
from rsnotify.storage.announced_description import AnnouncedDescriptions
from rsnotify.storage.bell import Bell
from rsnotify.storage.connection import connect
from rsnotify.storage.journal import Journal
from rsnotify.storage.loads import Loads
from rsnotify.storage.sets import Sets
from rsnotify.storage.snapshots import Snapshots
from rsnotify.storage.subscriptions import Subscriptions
from rsnotify.storage.tokens import Tokens
from rsnotify.storage.told import ToldDocuments
from rsnotify.storage.windows import Windows
from rsnotify.upkeep.announcements import Announcements
from rsnotify.upkeep.chores import Upkeep
from rsnotify.upkeep.documents_told import DocumentsTold
from rsnotify.upkeep.loads import LoadKeeper
from rsnotify.watching import Watched, Watching
from rsnotify.watching.report import Identity
from rsnotify.web.page import FrontPage
from rsnotify.web.validation import Validation

RETRY_SECONDS = 0.1
LOSS_MESSAGE = (
    "after the loss of data, Redis has %d tokens and %d WebSub subscriptions: create what is "
    "missing again; sets of the command line that are served again, but empty: %s"
)

log = logging.getLogger(__name__)


class Composition:
    """The objects of one hub process."""

    def __init__(
        self,
        settings: Settings,
        redis_url: str,
        token: str,
        base_url: str,
        *,
        port: int = 0,
    ) -> None:
        self._settings = settings
        self._redis_url = redis_url
        self._base_url = base_url
        worker = int(os.environ.get(WORKER, "1"))
        self._identity = Identity(f"{gethostname()}:{port}", worker, time())
        self._set_names: tuple[str, ...] = ()
        replicas = settings.replicas
        self._client = connect(redis_url, replicas=replicas)
        # Of its own: publishing never waits for readers.
        self._journal_client = connect(redis_url, replicas=replicas)
        self._tokens = Tokens(self._journal_client)
        self._windows = Windows(self._client)
        self._snapshots = Snapshots(self._client)
        self._access = Access(
            self._tokens,
            token,
            self._origin.asker,
            publishes_per_second=settings.publishes_per_second,
        )
        self._keepalive = Keepalive(send_timeout_seconds=settings.send_timeout_seconds)

    async def open(self, sets: Iterable[str]) -> None:
        """Read where every journal stands, and create these sets if they are missing."""
        self._set_names = tuple(sets)
        await self.hub.start()
        await self._make_sets()
        await self.hub.start()  # what was just published is not sent to new readers

    async def _make_sets(self) -> None:
        added = [await self.hub.add_set(name) for name in self._set_names]
        new = [record for record, made in added if made]
        for record in new:
            await self._upkeep.announcements.set_made(record)
        if new:
            await self._upkeep.announcements.announce_description()

    async def close(self) -> None:
        await self._client.aclose()
        await self._journal_client.aclose()

    # --- what is served --------------------------------------------------------------------------

    @cached_property
    def app(self) -> ASGIApp:
        hub, access = self.hub, self._access
        intake = self._intake
        cors = Cors(hub, self._settings.allowed_origins)
        administration = Administration(hub, access, self._tokens, self._upkeep)
        app = table.build_app(
            [
                *table.publishing_routes(intake, SeveralSets(hub, access, intake.refused)),
                *table.resource_routes(Resources(hub, access, self._loads, self._load_keeper)),
                *table.administration_routes(
                    administration, SubscriptionAdmin(hub, access, self._subscriptions)
                ),
                *cors.opened(
                    table.channel_routes(self.channels, self._sse, Topic(hub, access, self._origin))
                ),
                *table.websub_routes(self._websub_endpoint(intake)),
                *table.watching_routes(self._watching),
                *cors.opened(
                    table.page_routes(
                        FrontPage(is_on=self._settings.page == "on"), self._validation
                    )
                ),
                *cors.opened(self._pull_routes()),
            ]
        )
        return AccessLog(app, self._origin.asker) if self._settings.access_log == "on" else app

    @cached_property
    def _intake(self) -> Intake:
        return Intake(self.hub, self._access)

    @cached_property
    def channels(self) -> Channels:
        origins = self._settings.allowed_origins
        limits = ReaderLimits(
            per_channel=self._settings.readers_per_channel,
            per_address=self._settings.connections_per_address,
        )
        return Channels(
            self.hub, self._access, self._keepalive, allowed_origins=origins, limits=limits
        )

    @cached_property
    def connections(self) -> ConnectionLimits:
        settings, readers = self._settings, self.channels.limits
        total = total_connections(settings.connections)
        per_address = settings.connections_per_address
        return ConnectionLimits(total, per_address, self._origin.counted_as, lambda: len(readers))

    @cached_property
    def _sse(self) -> Sse:
        return Sse(self.channels, is_compressed=self._settings.channel_compression == "on")

    @property
    def _validation(self) -> Validation:
        settings = self._settings
        return Validation(
            self._access,
            for_everybody=settings.validate_urls == "everybody",
            private=settings.callback_private == "allow",
        )

    def _websub_endpoint(self, intake: Intake) -> WebSubEndpoint:
        return WebSubEndpoint(
            self.hub,
            self._access,
            intake,
            self._subscriptions,
            self._origin,
            callback_private=self._settings.callback_private == "allow",
            lease_seconds=self._settings.lease_seconds,
        )

    def _pull_routes(self) -> Routes:
        admission = SetAdmission(self.hub, self._access, self._origin)
        days, size = self._settings.changelist_days, self._settings.page_size
        discovery = Discovery(
            self.hub,
            admission,
            self._origin,
            self._offers,
            self._snapshots,
            describedby=self._settings.describedby,
        )
        change_lists = ChangeListEndpoints(
            self.hub,
            admission,
            self._windows,
            self._stretches,
            Pages(History(self._journal, self._windows), size),
            period=self._schedule.period,
            index_days=days,
        )
        resource_lists = ResourceListEndpoints(admission, self._snapshots, page_size=size)
        return table.pull_routes(discovery, change_lists, resource_lists)

    @cached_property
    def _origin(self) -> BaseUrl:
        return BaseUrl(self._settings.public_url, self._settings.trusted_proxies)

    # --- what these use --------------------------------------------------------------------------

    @cached_property
    def hub(self) -> Hub:
        bell = Bell(self._redis_url)
        sets, cache = Sets(self._client), Cache(self._settings.cache_mb)
        hub = Hub(self._journal, sets, bell, self._windows, base_url=self._base_url, cache=cache)
        lost = partial(put_subscriptions_back, self._subscriptions)
        hub.repairing.recover += (self._tokens.put_back, lost)
        return hub

    @cached_property
    def _journal(self) -> Journal:
        settings = self._settings
        return Journal(
            self._journal_client,
            window_changes=settings.changelist_max,
            window_hours=settings.changelist_hours,
        )

    @cached_property
    def _stretches(self) -> Stretches:
        pulls = self._settings.cold_pulls
        return Stretches(self._journal, self._windows, cold_pulls=pulls)

    @cached_property
    def _subscriptions(self) -> Subscriptions:
        return Subscriptions(
            self._client,
            pending_per_host=self._settings.pending_per_host,
            pending_per_asker=self._settings.pending_per_asker,
        )

    @cached_property
    def _schedule(self) -> DocumentSchedule:
        settings = self._settings
        return DocumentSchedule(
            period=settings.changelist_hours * HOUR,
            index_days=settings.changelist_days,
            retention_days=settings.retention_days,
            resourcelist_minutes=settings.resourcelist_minutes,
            archived_lists=settings.resourcelist_archive,
            archived_days=settings.resourcelist_archive_days,
        )

    @cached_property
    def _watching(self) -> Watching:
        return Watching(
            self._identity,
            Watched(self.hub, self._journal, self._intake, self.channels),
            self._access,
            self._journal_client,
            Bell(self._redis_url, keys.REPORTS_BELL),
            disk=self._disk(),
            metrics_token=self._settings.metrics_token,
        )

    def _disk(self) -> Path | None:
        """Where the embedded Redis writes; None if Redis is the operator's."""
        data = self._settings.data.resolve()
        is_embedded = self._redis_url.startswith(f"unix://{quote(str(data))}/")
        return data if is_embedded else None

    @cached_property
    def _offers(self) -> Offers:
        return Offers(self._windows, self._snapshots, self._settings.changelist_days)

    # --- what runs beside the server -------------------------------------------------------------

    @cached_property
    def _upkeep(self) -> Upkeep:
        documents = DocumentsTold(
            self._windows,
            self._offers,
            ToldDocuments(self._client),
            self._schedule,
            self.hub.base_url,
        )
        announcements = Announcements(self.hub, AnnouncedDescriptions(self._client), documents)
        return Upkeep(
            self.hub,
            self._windows,
            self._snapshots,
            announcements,
            self._stretches.packed,
            self._schedule,
        )

    @cached_property
    def _loads(self) -> Loads:
        return Loads(self._client)

    @cached_property
    def _load_keeper(self) -> LoadKeeper:
        return LoadKeeper(self.hub, self._loads, self._upkeep.snapshot)

    async def run(self, main: Loop) -> None:
        """Run the server with every loop beside it."""
        async with self._deliveries() as deliveries:
            loops = {
                "follow the journals": self.hub.follow(),
                "listen to the bell": self.hub.listen(),
                "keep readers alive": self._keepalive.run(),
                "end readers with their tokens": self.channels.revocations.run(),
                "make lost sets again": self._make_lost_sets_again(),
                **self._upkeep.loops(),
                **self._load_keeper.loops(),
                **self._watching.loops(),
                **deliveries,
            }
            await run_beside(loops, main)

    async def _make_lost_sets_again(self) -> None:
        """After Redis has lost data, create the sets of the command line and log what is left."""
        while True:
            await self.hub.registry_lost.wait()
            self.hub.registry_lost.clear()
            try:
                await self._make_sets()
                tokens, left = await self._tokens.all(), await self._subscriptions.all()
                log.error(
                    LOSS_MESSAGE, len(tokens), len(left), ", ".join(self._set_names) or "none"
                )
            except TryAgain as error:
                log.warning("cannot create lost sets again, trying again: %s", error.detail)
                self.hub.registry_lost.set()
                await asyncio.sleep(RETRY_SECONDS)

    @asynccontextmanager
    async def _deliveries(self) -> AsyncIterator[dict[str, Loop]]:
        settings = self._settings
        async with websub(
            self.hub,
            self._subscriptions,
            self._tokens,
            Bell(self._redis_url, keys.SUBSCRIPTIONS_BELL),
            Dialler(private=settings.callback_private == "allow"),
            deliveries=settings.deliveries,
            deliveries_per_host=settings.deliveries_per_host,
            algorithm=settings.signature,
        ) as ownership:
            self._watching.process.ownership = ownership
            self.hub.repairing.recover.append(ownership.redis_went_back)
            yield ownership.loops()
