"""Runs one hub process, or the parent of several, from start to end.

The server and all loops end together: if a loop dies, the process ends, instead of a server that
answers but does nothing.
"""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import NamedTuple

import uvloop

from rsnotify.errors import InvalidSettings, RedisRefuses, TryAgain
from rsnotify.http.connection_limits import check_open_files
from rsnotify.loops import Loop, run_beside, run_to_the_end
from rsnotify.process.admin_token import admin_token
from rsnotify.process.app import build
from rsnotify.process.composition import Composition
from rsnotify.process.embedded_redis import EmbeddedRedis
from rsnotify.process.engine import AGAIN_SECONDS, PATIENCE_SECONDS, replicas_of, wait_until_usable
from rsnotify.process.freed_memory import share_one_arena
from rsnotify.process.listening import bound_socket
from rsnotify.process.logs import log_ending
from rsnotify.process.own_address import url_of, warning
from rsnotify.process.settings import Settings
from rsnotify.process.webserver import GRACE_SECONDS, WebServer, web_config
from rsnotify.process.workers import run_workers
from rsnotify.publishing.loads.load_store import release_claims
from rsnotify.redis_client import Address
from rsnotify.sd_notify import READY, notify
from rsnotify.websub.subscription_store import release_all_claims

log = logging.getLogger(__name__)

# Python's default thresholds stop the event loop for 50 ms while many readers are written to.
GC_THRESHOLDS = (50_000, 20, 50)

# By default the event loop waits 5 ms for a thread that runs Python, at each of its callbacks.
SWITCH_SECONDS = 0.0005


def run(
    settings: Settings,
    sets: Sequence[str],
    on_ready: Callable[[str], None],
    *,
    inherited_socket: int | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. A worker has inherited its parent's socket."""
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
    share_one_arena()
    try:
        uvloop.run(run_to_the_end(_serve(settings, sets, on_ready, inherited_socket)))
    except BaseExceptionGroup as group:
        raise only_error(group) from None
    log.info("the hub has ended")


async def _serve(
    settings: Settings,
    sets: Sequence[str],
    on_ready: Callable[[str], None],
    inherited_socket: int | None,
) -> None:
    is_worker = inherited_socket is not None
    check_open_files()
    redis_url = redis_url_of(settings)
    with await bound_socket(settings, inherited_socket) as bound:
        token = admin_token(settings)  # not written by a hub that cannot begin
        address, (host, port) = url_of(bound), bound.getsockname()[:2]
        message = warning(host, address, settings.public_url)
        if message and not is_worker:  # otherwise the parent has logged it
            log.warning("%s", message)

        let_go_seconds = settings.drain_seconds + GRACE_SECONDS

        def ready() -> None:
            on_ready(address)
            notify(READY)

        async def served(redis: StartedRedis) -> None:
            if settings.workers > 1:
                where = settings.redis_url or redis.url  # each reads the password by itself
                return await run_workers(settings, sets, where, bound, ready, redis.locks)
            base_url = settings.public_url or address
            composition = Composition(
                *(settings, redis.url, token, base_url),
                port=port,
                is_only_process=redis_url is None,  # an embedded Redis has one hub
            )
            try:
                await open_patiently(composition, sets)
                app, channels = build(composition), composition.channels
                config = web_config(app, settings, composition.connections, channels.reader_input)
                drain = partial(composition.drain, settings.drain_seconds)

                def ending(signal: str) -> None:
                    log_ending(signal, let_go_seconds, connections=len(composition.connections))

                server = WebServer(config, ready, drain, is_worker=is_worker, on_signal=ending)
                await composition.run(server.serve(sockets=[bound]))
            finally:
                await composition.close()

        await on_redis(settings, redis_url, served, is_worker=is_worker)


def redis_url_of(settings: Settings) -> str | None:
    """Where the operator's own Redis is, with its password."""
    url, password = settings.redis_url, settings.redis_password
    if not url:
        if password or settings.replicas:
            name = "RSNOTIFY_REDIS_PASSWORD" if password else "RSNOTIFY_REPLICAS"
            raise InvalidSettings(f"{name} is given, but not RSNOTIFY_REDIS_URL")
        return None
    Address.parse(url)
    return Address.with_password(url, password) if password else url


class StartedRedis(NamedTuple):
    """The Redis to use; `locks` are inherited by workers as long as they use an embedded one."""

    url: str
    locks: Sequence[int] = ()


async def on_redis(
    settings: Settings,
    redis_url: str | None,
    served: Callable[[StartedRedis], Loop],
    *,
    is_worker: bool,
) -> None:
    """Serve on the operator's own Redis, else on an embedded one, which ends with us."""
    if redis_url:
        await wait_until_usable(
            redis_url, warn=not is_worker, replicas=replicas_of(settings, redis_url)
        )
        await served(StartedRedis(redis_url))
        return
    async with EmbeddedRedis(settings.data) as server:
        await release_all_claims(server.url)
        await release_claims(server.url)
        redis = StartedRedis(server.url, [server.hub_lock])
        await run_beside({"redis-server supervisor": server.supervise()}, served(redis))


async def open_patiently(
    composition: Composition, sets: Sequence[str], patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """Read the journals; where Redis does not answer, again, as long as it may take to appear."""
    until = monotonic() + patience_seconds
    while True:
        try:
            return await composition.open(sets)
        except TryAgain as error:
            if isinstance(error, RedisRefuses) or monotonic() > until:
                raise
            log.warning("cannot start yet, trying again: %s", error.detail)
        await asyncio.sleep(AGAIN_SECONDS)


def only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that the operator is to see: the only one in nested groups, or the first of those
    with which several workers say that the configuration cannot work."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and (
        len(error.exceptions) == 1 or error.split(InvalidSettings)[1] is None
    ):
        error = error.exceptions[0]
    return error
