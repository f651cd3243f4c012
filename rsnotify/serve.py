"""One hub process, composed and run.

Rules that hold here: every loop and the server live in one TaskGroup, so a loop that dies takes the
process with it instead of leaving a server that answers and does nothing.
"""

import asyncio
import gc
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGTERM
from time import monotonic
from typing import Any

import uvicorn
import uvloop
from starlette.routing import Route

from rsnotify.access import Access
from rsnotify.announcements import Announcements
from rsnotify.app import build_app
from rsnotify.core.window import HOUR, Schedule
from rsnotify.delivery.channels.endpoint import Channels
from rsnotify.delivery.channels.keepalive import Keepalive
from rsnotify.delivery.channels.websocket import Handshake
from rsnotify.delivery.pull.origin import Origin
from rsnotify.delivery.pull.routes import pull_routes
from rsnotify.delivery.pull.stretches import Stretches
from rsnotify.delivery.websub import websub
from rsnotify.delivery.websub.dialler import Dialler
from rsnotify.delivery.websub.ownership import Ownership
from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify.hub import Hub
from rsnotify.patience import PatientHttp
from rsnotify.settings import Settings
from rsnotify.storage import keys
from rsnotify.storage.bell import Bell
from rsnotify.storage.connection import Client, connect, durability_warnings
from rsnotify.storage.journal import Journal
from rsnotify.storage.server import EmbeddedRedis
from rsnotify.storage.sets import Sets
from rsnotify.storage.snapshots import Snapshots
from rsnotify.storage.subscriptions import Subscriptions
from rsnotify.storage.tokens import Tokens
from rsnotify.storage.windows import Windows
from rsnotify.upkeep import Upkeep
from rsnotify.workers import run_workers

log = logging.getLogger(__name__)

BACKLOG = 4_096  # thousands of Destinations may come back at the same moment
REDIS_SECONDS = 30.0  # how long a Redis of the operator's own may take to appear
GRACE_SECONDS = 10
AGAIN_SECONDS = 0.1
COLLECTED = (50_000, 20, 50)  # Python's own rhythm stops the loop for 50 ms during a large fan-out

Drain = Coroutine[Any, Any, None]


def run(
    settings: Settings,
    sets: Sequence[str],
    on_ready: Callable[[str], None],
    *,
    share_port: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT."""
    gc.set_threshold(*COLLECTED)
    try:
        uvloop.run(_serve(settings, sets, on_ready, share_port=share_port))
    except BaseExceptionGroup as group:
        raise _sole(group) from None


def admin_token(settings: Settings) -> str:
    """The token that may do everything: the setting, else the one kept in the data directory."""
    if settings.admin_token:
        return settings.admin_token
    path = settings.data / "admin-token"
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"rsn_{secrets.token_urlsafe(32)}\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise InvalidSettings([f"cannot keep an admin token: {error}"]) from None
    return read_admin_token(settings.data)


def read_admin_token(data: Path) -> str:
    path = data / "admin-token"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise InvalidSettings([f"cannot read the admin token: {error}"]) from None


async def _serve(
    settings: Settings, sets: Sequence[str], on_ready: Callable[[str], None], *, share_port: bool
) -> None:
    several = settings.workers > 1
    token = admin_token(settings)
    with _bound(settings, share=share_port or several) as bound:
        address = _address(bound)
        async with _redis(settings) as redis_url:
            if several:
                await run_workers(settings, sets, redis_url, address, on_ready)
            else:
                await _run_hub(settings, sets, redis_url, token, bound, lambda: on_ready(address))


@contextmanager
def _bound(settings: Settings, *, share: bool) -> Iterator[socket.socket]:
    """A socket with the address taken, not yet listening."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            bound.bind((settings.host, settings.port))
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise InvalidSettings(
                [f"cannot listen on {where}: {error.strerror}; choose another --host or --port"]
            ) from None
        yield bound


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def _redis(settings: Settings) -> AsyncIterator[str]:
    """The address of the Redis to use; an embedded one lives as long as this block."""
    if settings.redis_url:
        yield settings.redis_url
        return
    async with EmbeddedRedis(settings.data) as server, asyncio.TaskGroup() as tasks:
        supervisor = tasks.create_task(server.supervise(), name="redis-server supervisor")
        yield server.url
        supervisor.cancel()


async def _run_hub(
    settings: Settings,
    sets: Sequence[str],
    redis_url: str,
    token: str,
    bound: socket.socket,
    on_ready: Callable[[], None],
) -> None:
    client = connect(redis_url)
    try:
        journal = Journal(
            client,
            window_changes=settings.changelist_max,
            window_hours=settings.changelist_hours,
        )
        hub = Hub(
            journal,
            Sets(client),
            Bell(redis_url),
            base_url=settings.public_url or _address(bound),
        )
        await _started(hub, redis_url)
        access = Access(tokens := Tokens(client), token)
        pull, upkeep = _documents(settings, client, hub, journal, access)
        for name in sets:
            record, made = await hub.add_set(name)
            if made:
                await upkeep.say.set_changed(record, "created")
        if settings.redis_url:
            await _warn(client)
        keepalive = Keepalive(send_timeout_seconds=settings.send_timeout_seconds)
        channels = Channels(hub, access, keepalive, allowed_origins=settings.allowed_origins)
        subscriptions = Subscriptions(
            client,
            pending_per_host=settings.pending_per_host,
            pending_per_asker=settings.pending_per_asker,
        )
        app = build_app(hub, access, tokens, channels, subscriptions, upkeep, pull, settings)
        async with (
            _websub(settings, hub, subscriptions, redis_url) as deliverer,
            asyncio.TaskGroup() as tasks,
        ):
            loops = [
                tasks.create_task(hub.follow(), name="follow the journals"),
                tasks.create_task(hub.listen(), name="listen to the bell"),
                tasks.create_task(keepalive.run(), name="keep readers alive"),
                tasks.create_task(upkeep.run(), name="upkeep"),
                *(tasks.create_task(loop, name=name) for name, loop in deliverer.loops().items()),
            ]
            drain = partial(channels.drain, settings.drain_seconds)
            try:
                await Server(_config(app, settings), on_ready, drain).serve(sockets=[bound])
            finally:
                await end(loops)
    finally:
        await client.aclose()


def _websub(
    settings: Settings, hub: Hub, subscriptions: Subscriptions, redis_url: str
) -> AbstractAsyncContextManager[Ownership]:
    return websub(
        hub,
        subscriptions,
        Bell(redis_url, keys.SUBSCRIPTIONS_BELL),
        Dialler(private=settings.callback_private == "allow"),
        deliveries=settings.deliveries,
        deliveries_per_host=settings.deliveries_per_host,
        algorithm=settings.signature,
    )


def _documents(
    settings: Settings, client: Client, hub: Hub, journal: Journal, access: Access
) -> tuple[list[Route], Upkeep]:
    """What can be pulled, and the chores that keep it so."""
    windows, snapshots = Windows(client), Snapshots(client)
    stretches = Stretches(journal, windows)
    schedule = Schedule(
        period=settings.changelist_hours * HOUR,
        index_days=settings.changelist_days,
        retention_days=settings.retention_days,
        resourcelist_minutes=settings.resourcelist_minutes,
    )
    upkeep = Upkeep(hub, windows, snapshots, Announcements(hub), stretches.packed, schedule)
    origin = Origin(settings.public_url, settings.trusted_proxies)
    parts = (hub, access, origin, windows, snapshots, stretches, schedule)
    return pull_routes(*parts, describedby=settings.describedby), upkeep


async def end(loops: Collection[asyncio.Task[None]]) -> None:
    """Cancel until it is heard: `wait_for` of Python 3.11, which redis-py sends by, may lose it."""
    while waiting := [loop for loop in loops if not loop.done()]:
        for loop in waiting:
            loop.cancel()
        await asyncio.wait(waiting, timeout=AGAIN_SECONDS)


async def _started(hub: Hub, redis_url: str) -> None:
    """The hub, having seen the journals; a Redis that never comes is a matter of settings."""
    until = monotonic() + REDIS_SECONDS
    while True:
        try:
            return await hub.start()
        except TryAgain as error:
            if monotonic() > until:
                raise InvalidSettings(
                    [f"no Redis answers at {redis_url}: {error.detail}"]
                ) from None
            log.warning("waiting for Redis at %s: %s", redis_url, error.detail)
        await asyncio.sleep(1)


async def _warn(client: Client) -> None:
    for warning in await durability_warnings(client):
        log.warning("%s", warning)


def _config(app: object, settings: Settings) -> uvicorn.Config:
    http = partial(PatientHttp, send_timeout_seconds=settings.send_timeout_seconds)
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=http,  # type: ignore[arg-type]
        ws=Handshake,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=settings.drain_seconds + GRACE_SECONDS,
    )


class Server(uvicorn.Server):
    """uvicorn, saying when it is ready, and ending by our signals with our exit status."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[], None], drain: Callable[[], Drain]
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._drain = drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, finish what was asked, and send the readers away meanwhile."""
        draining = asyncio.create_task(self._drain())
        await super().shutdown(sockets)
        if self.force_exit:
            draining.cancel()
        await asyncio.wait([draining])

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for signal in (SIGINT, SIGTERM):
            loop.add_signal_handler(signal, self._end)
        try:
            yield
        finally:
            for signal in (SIGINT, SIGTERM):
                loop.remove_signal_handler(signal)

    def _end(self) -> None:
        self.force_exit = self.should_exit  # the second signal does not wait
        self.should_exit = True


def _sole(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in nested groups of one, as the operator should see it."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
