"""The publisher for an event loop, which it never blocks.

Rules that hold here: every name means what it means in `Publisher`, which does the work; whatever
may wait (a full queue, an outbox, the hub) does so in a thread, until it is cancelled; only `close`
goes on then. Such a thread never delays the end of the process.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable
from contextlib import closing, suppress
from threading import Event
from types import TracebackType
from typing import Any, Self

from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import Kind
from rsnotify_client.blocking_threads import BlockingThreads, beside
from rsnotify_client.change import ChangeMethods
from rsnotify_client.hub import Accepted
from rsnotify_client.loading import LOAD_SECONDS, Loaded, State
from rsnotify_client.network import NetworkOptions
from rsnotify_client.publisher import (
    BATCH_SECONDS,
    CLOSE_SECONDS,
    PATIENCE_SECONDS,
    QUEUE_SIZE,
    Publisher,
)
from rsnotify_client.queue import QueueFull, WhenFull
from rsnotify_client.sender import Counters, RefusedChange
from rsnotify_client.token import Token

log = logging.getLogger(__name__)

THREADS = 16


class AsyncPublisher(ChangeMethods[Coroutine[Any, Any, None]]):
    """A `Publisher` whose methods are awaited, with the same options."""

    def __init__(
        self,
        url: str,
        token: Token | None = None,
        *,
        outbox: str | os.PathLike[str] | None = None,
        queue_size: int = QUEUE_SIZE,
        when_full: WhenFull = "wait",
        batch_seconds: float = BATCH_SECONDS,
        on_refused: Callable[[RefusedChange], object] | None = None,
        network: NetworkOptions | None = None,
        enabled: bool = True,
    ) -> None:
        self._publisher = Publisher(
            url,
            token,
            outbox=outbox,
            queue_size=queue_size,
            when_full=when_full,
            batch_seconds=batch_seconds,
            on_refused=on_refused,
            network=network,
            enabled=enabled,
        )
        self._puts = BlockingThreads(THREADS)  # they never wait for one that a request uses
        self._requests = BlockingThreads(THREADS)

    async def __aenter__(self) -> Self:
        self._publisher.__enter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end(self._publisher.__exit__, exc_type, exc, traceback)

    async def send(self, set_name: str, change: Change, *, kind: Kind = "change") -> None:
        if not self._publisher._store.lasts:  # a file may be on a slow disk
            with suppress(QueueFull):
                self._publisher._put(set_name, change, kind, cannot_wait=lambda: True)
                return
        await beside(self._puts, self._publisher.send, set_name, change, kind=kind)

    def start(self) -> None:
        self._publisher.start()

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        with closing(BlockingThreads(1)) as thread:  # it begins at once, however many others wait
            await beside(thread, self._publisher.flush, timeout)

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:  # noqa: ASYNC109
        await self._end(self._publisher.close, timeout)

    async def _end(self, work: Callable[..., None], *args: Any) -> None:
        """Flush and end. If cancelled, it still ends in order: what waits would be lost."""
        is_cancelled = Event()

        def act() -> None:
            try:
                work(*args)
            except Exception as error:
                if is_cancelled.is_set():  # nobody would learn of it otherwise
                    log.error("%s", error)
                raise

        with closing(self._puts), closing(self._requests), closing(BlockingThreads(1)) as thread:
            try:
                await thread.run(act)
            except asyncio.CancelledError:
                is_cancelled.set()
                raise

    @property
    def counters(self) -> Counters:
        """What it has done in this process so far."""
        return self._publisher.counters

    async def publish(
        self,
        set_name: str,
        changes: Iterable[Change],
        *,
        kind: Kind = "change",
        key: str | None = None,
        timeout: float = PATIENCE_SECONDS,  # noqa: ASYNC109
    ) -> Accepted:
        publish = self._publisher.publish
        return await beside(
            self._requests, publish, set_name, changes, kind=kind, key=key, timeout=timeout
        )

    async def publish_body(
        self,
        set_name: str,
        body: bytes,
        content_type: str,
        *,
        kind: Kind = "change",
        key: str | None = None,
        timeout: float = PATIENCE_SECONDS,  # noqa: ASYNC109
    ) -> Accepted:
        publish = self._publisher.publish_body
        return await beside(
            self._requests,
            publish,
            set_name,
            body,
            content_type,
            kind=kind,
            key=key,
            timeout=timeout,
        )

    async def position(self, set_name: str, *, timeout: float = PATIENCE_SECONDS) -> str:  # noqa: ASYNC109
        return await beside(self._requests, self._publisher.position, set_name, timeout=timeout)

    async def load(
        self,
        set_name: str,
        states: Iterable[State],
        *,
        as_of: str | None = None,
        overwrite: bool = False,
        publish: bool | None = None,
        max_delete: float | None = None,
        key: str | None = None,
        timeout: float = LOAD_SECONDS,  # noqa: ASYNC109
        progress: Callable[[int], object] | None = None,
    ) -> Loaded:
        return await beside(
            self._requests,
            self._publisher.load,
            set_name,
            states,
            as_of=as_of,
            overwrite=overwrite,
            publish=publish,
            max_delete=max_delete,
            key=key,
            timeout=timeout,
            progress=progress,
        )
