"""Creates the objects of one hub process and connects them; names the loops that must run.

Each object is created once, when it is first used. Nothing here opens a port.
"""

import asyncio
import logging
import os
from collections.abc import Iterable
from functools import cached_property, partial
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING
from urllib.parse import quote

from rsnotify.access.access import Access
from rsnotify.access.base_url import BaseUrl
from rsnotify.access.tokens import Tokens
from rsnotify.channels.channels import Channels
from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.reader_limits import ReaderLimits
from rsnotify.coordination import keys
from rsnotify.coordination.bell import Bell
from rsnotify.documents.announcements import AnnouncedNotes, Announcements
from rsnotify.documents.chores import Upkeep
from rsnotify.documents.discovery import Offers, PublicSets
from rsnotify.documents.snapshots import Snapshots
from rsnotify.documents.stretches import Stretches
from rsnotify.errors import TryAgain
from rsnotify.http.connection_limits import ConnectionLimits, total_connections
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.window import DocumentSchedule
from rsnotify.journal.windows import Windows
from rsnotify.live.cache import Cache
from rsnotify.live.journals import Journals
from rsnotify.loops import Loop, repeat, run_beside
from rsnotify.operation import Watched, Watching
from rsnotify.operation.health import why_disk_full
from rsnotify.operation.machine import Machine
from rsnotify.operation.reports import Identity
from rsnotify.outbound.dialler import Dialler
from rsnotify.process.engine import replicas_of
from rsnotify.process.freed_memory import LOOK_SECONDS, FreedMemory, malloc_trim
from rsnotify.process.settings import WORKER, Settings
from rsnotify.publishing.intake import Intake, RefusedCounts
from rsnotify.publishing.loads.load_chores import LoadKeeper
from rsnotify.publishing.loads.load_store import Loads
from rsnotify.redis_client import connect
from rsnotify.resourcesync.change import HOUR
from rsnotify.resourcesync.notification import wrong_name
from rsnotify.sets.records import Sets
from rsnotify.streams.long_polls import LongPolls
from rsnotify.views.known_resources import KnownResources
from rsnotify.views.view_answers import ViewAnswers
from rsnotify.websub import WebSub
from rsnotify.websub.ownership import settle_lost_subscriptions
from rsnotify.websub.subscription_store import Subscriptions

if TYPE_CHECKING:
    from rsnotify.access.jwts import Jwts

RETRY_SECONDS = 0.1
LOSS_MESSAGE = (
    "after the loss of data, Redis has %d tokens and %d WebSub subscriptions: create what is "
    "missing again; sets of the command line that are served again, but empty: %s"
)

RESERVED_LATER = (
    "the set %r has a name that is reserved by now, and not all of its addresses are served: "
    "make one of another name (`rsnotify sets add NAME`), let its Source bring its whole state "
    "there, and remove this one; see docs/reference/http.md"
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
        machine: Machine | None = None,
        is_only_process: bool = False,
    ) -> None:
        """`is_only_process`: no other hub process uses this Redis."""
        self.settings = settings
        self._redis_url = redis_url
        self._own_url = base_url
        worker = int(os.environ.get(WORKER, "1"))
        self._machine = machine or Machine()
        host = self._machine.host_name()
        self._identity = Identity(f"{host}:{port}", worker, time())
        self._set_names: tuple[str, ...] = ()
        self.view_answers = ViewAnswers()
        process = f"{host}:{self._machine.process_id()}"
        self.stores = Stores(settings, redis_url, process, is_only_process=is_only_process)
        self._jwts = _jwts_of(settings)
        self.access = Access(
            self.stores.tokens,
            token,
            self.base_url.client_address,
            publishes_per_second=settings.publishes_per_second,
            jwts=self._jwts,
            own_origin=self.base_url.origin,
            allowed_origins=settings.allowed_origins,
        )
        self._keepalive = Keepalive(send_timeout_seconds=settings.send_timeout_seconds)

    async def open(self, sets: Iterable[str]) -> None:
        """Read where every journal stands, and create these sets if they are missing. If none is,
        nothing is written: a hub starts and serves while nothing can be written."""
        self._set_names = tuple(sets)
        await self.journals.start()
        await self._make_sets()
        await self.journals.start()  # what was just published is not sent to new readers
        for name in self.journals.sets:
            if wrong_name(name) is not None:
                log.error(RESERVED_LATER, name)

    async def _make_sets(self) -> None:
        missing = [name for name in self._set_names if name not in self.journals.sets]
        added = [await self.journals.add_set(name) for name in missing]
        new = [record for record, made in added if made]
        for record in new:
            await self.upkeep.announcements.set_made(record)
        if new:
            await self.upkeep.announcements.announce_description()

    async def close(self) -> None:
        await self.stores.close()

    # --- what is served --------------------------------------------------------------------------

    @cached_property
    def intake(self) -> Intake:
        refused = RefusedCounts(partial(why_disk_full, self._disk()))
        return Intake(self.journals, self.access, refused)

    @cached_property
    def channels(self) -> Channels:
        origins = self.settings.allowed_origins
        limits = ReaderLimits(
            per_channel=self.settings.readers_per_channel,
            per_address=self.settings.connections_per_address,
        )
        return Channels(
            self.journals, self.access, self._keepalive, allowed_origins=origins, limits=limits
        )

    @cached_property
    def long_polls(self) -> LongPolls:
        return LongPolls(self.journals, self.channels, self.settings.long_poll_seconds)

    async def drain(self, seconds: float) -> None:
        """Answer who waits, and disconnect all other readers, spread over this time."""
        draining = self.channels.drain(seconds)
        await asyncio.gather(self.long_polls.drain(), draining)

    @cached_property
    def connections(self) -> ConnectionLimits:
        settings, readers = self.settings, self.channels.limits.addresses
        total = total_connections(
            settings.connections, is_chosen=settings.connections != Settings.connections
        )
        per_address = settings.connections_per_address
        return ConnectionLimits(total, per_address, self.base_url.counted_as, readers)

    @cached_property
    def base_url(self) -> BaseUrl:
        return BaseUrl(self.settings.public_url, self.settings.trusted_proxies)

    # --- what these use --------------------------------------------------------------------------

    @cached_property
    def journals(self) -> Journals:
        stores = self.stores
        return Journals(
            stores.journal,
            stores.sets,
            stores.bell(),
            stores.windows,
            base_url=self._own_url,
            cache=Cache(self.settings.cache_mb, monotonic),
            hear_of_token=stores.tokens.hear,
            after_another_server=(
                stores.doubt_bells,
                stores.tokens.close_again,
                partial(settle_lost_subscriptions, stores.subscriptions),
            ),
        )

    @cached_property
    def stretches(self) -> Stretches:
        pulls = self.settings.cold_pulls
        return Stretches(self.stores.journal, self.stores.windows, cold_pulls=pulls)

    @cached_property
    def schedule(self) -> DocumentSchedule:
        settings = self.settings
        return DocumentSchedule(
            period=settings.changelist_hours * HOUR,
            index_days=settings.changelist_days,
            retention_days=settings.retention_days,
            resourcelist_minutes=settings.resourcelist_minutes,
            archived_lists=settings.resourcelist_archive,
            archived_days=settings.resourcelist_archive_days,
        )

    @cached_property
    def websub(self) -> WebSub:
        settings = self.settings
        return WebSub(
            self.journals,
            self.stores.subscriptions,
            self.stores.tokens,
            self.stores.bell(keys.SUBSCRIPTIONS_BELL),
            Dialler(private=settings.callback_private == "allow", proxy=settings.proxy),
            deliveries=settings.deliveries,
            deliveries_per_host=settings.deliveries_per_host,
            algorithm=settings.signature,
        )

    @cached_property
    def watching(self) -> Watching:
        return Watching(
            self._identity,
            Watched(
                self.journals,
                self.stores.journal,
                self.intake,
                self.channels,
                self.websub.ownership,
                self.view_answers,
            ),
            self.access,
            self.stores.publishing_client,
            self.stores.bell(keys.REPORTS_BELL),
            machine=self._machine,
            disk=self._disk(),
            metrics_token=self.settings.metrics_token,
        )

    def _disk(self) -> Path | None:
        """Where the embedded Redis writes; None if Redis is the operator's."""
        data = self.settings.data.resolve()
        is_embedded = self._redis_url.startswith(f"unix://{quote(str(data))}/")
        return data if is_embedded else None

    @cached_property
    def offers(self) -> Offers:
        return Offers(self.stores.windows, self.stores.snapshots, self.settings.changelist_days)

    @cached_property
    def public_sets(self) -> PublicSets:
        return PublicSets(self.journals)

    # --- what runs beside the server -------------------------------------------------------------

    @cached_property
    def upkeep(self) -> Upkeep:
        stores = self.stores
        announcements = Announcements(
            self.journals,
            stores.windows,
            self.offers,
            self.public_sets,
            stores.announced,
            self.schedule,
        )
        return Upkeep(
            self.journals,
            self.stores.windows,
            self.stores.snapshots,
            announcements,
            self.stretches.store_packed,
            self.schedule,
        )

    @cached_property
    def load_keeper(self) -> LoadKeeper:
        return LoadKeeper(self.journals, self.stores.loads, self.upkeep.snapshots.take)

    async def run(self, main: Loop) -> None:
        """Run the server with every loop beside it."""
        freed = FreedMemory(malloc_trim(), self._machine.resident_bytes)
        async with self.websub.calling() as deliveries:
            loops = {
                "follow the journals": self.journals.following.run(),
                "listen to the bell": self.journals.following.listen(),
                "keep readers alive": self._keepalive.run(),
                "end readers with their tokens": self.channels.revocations.run(),
                "make lost sets again": self._make_lost_sets_again(),
                "give memory back": repeat(freed.give_back, LOOK_SECONDS),
                **({} if self._jwts is None else {"read the keys of JWTs": self._jwts.run()}),
                **self.upkeep.loops(),
                **self.load_keeper.loops(),
                **self.watching.loops(),
                **deliveries,
            }
            await run_beside(loops, main)

    async def _make_lost_sets_again(self) -> None:
        """After Redis has lost data, create the sets of the command line and log what is left."""
        while True:
            await self.journals.known.lost.wait()
            self.journals.known.lost.clear()
            try:
                await self._make_sets()
                tokens = await self.stores.tokens.all()
                subscriptions = await self.stores.subscriptions.all()
                names = ", ".join(self._set_names) or "none"
                log.error(LOSS_MESSAGE, len(tokens), len(subscriptions), names)
            except TryAgain as error:
                log.warning("cannot create lost sets again, trying again: %s", error.detail)
                self.journals.known.lost.set()
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:  # a bug, or data that cannot be read: the hub goes on
                log.warning("what is left after the loss cannot be read", exc_info=error)


def _jwts_of(settings: Settings) -> "Jwts | None":
    """Loaded only where it is used: the libraries of signatures take time and memory."""
    if settings.jwt_key is None and settings.jwks is None:
        return None
    from rsnotify.process.jwt_settings import jwts_of  # noqa: PLC0415

    return jwts_of(settings)


class Stores:
    """What a hub process keeps in Redis: one object for each subject, on two connections."""

    def __init__(
        self, settings: Settings, redis_url: str, process: str, *, is_only_process: bool
    ) -> None:
        self._bells: list[Bell] = []
        replicas = replicas_of(settings, redis_url)
        self._client = connect(redis_url, replicas=replicas)
        # Of its own: publishing never waits for readers.
        self.publishing_client = connect(redis_url, replicas=replicas)
        self.journal = JournalStore(
            self.publishing_client,
            window_changes=settings.changelist_max,
            window_hours=settings.changelist_hours,
            is_only_process=is_only_process,
        )
        self.tokens = Tokens(self._client)  # strangers may have any number looked up
        self.sets = Sets(self._client)
        self.windows = Windows(self._client)
        self.snapshots = Snapshots(self._client)
        self.known_resources = KnownResources(self._client)
        self.loads = Loads(self._client, self.journal.usage)
        self.announced = AnnouncedNotes(self._client)
        self.subscriptions = Subscriptions(
            self._client,
            process,
            pending_per_host=settings.pending_per_host,
            pending_per_address=settings.pending_per_address,
            per_host=settings.subscriptions_per_host,
            per_address=settings.subscriptions_per_address,
        )

    def bell(self, name: str = keys.BELL) -> Bell:
        """A bell of its own for each listener."""
        bell = Bell(self._client, name)
        self._bells.append(bell)
        return bell

    async def doubt_bells(self) -> None:
        """Redis is another one now: messages may have gone elsewhere."""
        for bell in self._bells:
            bell.doubt()

    async def close(self) -> None:
        await self._client.aclose()
        await self.publishing_client.aclose()
