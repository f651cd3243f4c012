"""A hub, asked from an event loop, and again while it cannot answer."""

import asyncio
import logging
import random
from collections.abc import Mapping
from time import monotonic
from typing import Any, Self

from rsnotify.errors import TryAgain
from rsnotify_client.answer import delay_seconds, in_short, in_words
from rsnotify_client.blocking_threads import BlockingThreads
from rsnotify_client.hub import HubAnswer, HubClient

log = logging.getLogger(__name__)

ANSWER_BYTES = 64 * 1024 * 1024  # such as a list of all sets
PATIENCE_SECONDS = 60.0
AT_ONCE = 64


class Connection:
    """A hub, asked from an event loop."""

    def __init__(
        self, url: str, token: str | None = None, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._hub = HubClient(url, token, answer_bytes=ANSWER_BYTES)
        self.url = self._hub.url
        self.token = token
        self._patience_seconds = patience_seconds
        self._threads = BlockingThreads(AT_ONCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._hub.close()
        self._threads.close()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The hub's answer, decoded; asked again while the hub cannot, so it must be repeatable."""
        return (await self.answer(method, path, body=body, headers=headers)).content

    async def answer(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HubAnswer:
        """As `ask`, with the answer's status."""
        until, attempt = monotonic() + self._patience_seconds, 0
        while True:
            try:
                return await self._threads.run(self._hub.ask, method, path, headers, body)
            except TryAgain as error:
                wait = max(delay_seconds(attempt, random.random()), error.retry_after_seconds)  # noqa: S311
                if monotonic() + wait > until:
                    raise
                problem = in_short(error)
            log.warning("%s; trying again in %s", problem, in_words(wait))
            await asyncio.sleep(wait)
            attempt += 1
