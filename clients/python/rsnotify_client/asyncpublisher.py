"""The publisher for an event loop, which is never held up.

Rules that hold here: every name means what it means in `Publisher`, which does the work; whatever
may wait (a full queue, an outbox, the hub) does so in a thread.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import Kind
from rsnotify_client.change import ChangeMethods
from rsnotify_client.hub import Accepted
from rsnotify_client.publisher import CLOSE_SECONDS, Publisher, PublisherOptions
from rsnotify_client.sender import Counters

THREADS = 16

P = ParamSpec("P")
T = TypeVar("T")


class AsyncPublisher(ChangeMethods[Coroutine[Any, Any, None]]):
    """As `Publisher`, with the same options; its methods are awaited."""

    def __init__(
        self, url: str, token: str | None = None, **options: Unpack[PublisherOptions]
    ) -> None:
        self._publisher = Publisher(url, token, **options)
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0

    @property
    def _threads(self) -> ThreadPoolExecutor:
        """A forked process has none of its parent's threads."""
        if self._pool is None or self._process != os.getpid():
            self._pool = ThreadPoolExecutor(THREADS, "rsnotify-publisher")
            self._process = os.getpid()
        return self._pool

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._beside(self._publisher.__exit__, *error)
        self._threads.shutdown(wait=False)

    async def send(self, set_name: str, change: Change, *, kind: Kind = "change") -> None:
        if self._publisher.may_wait():
            await self._beside(self._publisher.send, set_name, change, kind=kind)
        else:
            self._publisher.send(set_name, change, kind=kind)

    def may_wait(self) -> bool:
        return self._publisher.may_wait()

    def start(self) -> None:
        self._publisher.start()

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._beside(self._publisher.flush, timeout)

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:  # noqa: ASYNC109
        await self._beside(self._publisher.close, timeout)
        self._threads.shutdown(wait=False)

    @property
    def counters(self) -> Counters:
        return self._publisher.counters

    async def publish(
        self,
        set_name: str,
        changes: Sequence[Change],
        *,
        kind: Kind = "change",
        key: str | None = None,
    ) -> Accepted:
        return await self._beside(self._publisher.publish, set_name, changes, kind=kind, key=key)

    async def publish_body(
        self,
        set_name: str,
        body: bytes,
        content_type: str,
        *,
        kind: Kind = "change",
        key: str | None = None,
    ) -> Accepted:
        return await self._beside(
            self._publisher.publish_body, set_name, body, content_type, kind=kind, key=key
        )

    async def _beside(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *args, **options))
