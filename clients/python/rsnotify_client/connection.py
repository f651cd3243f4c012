"""HTTP to a hub: the token, the repetitions, and problem documents turned into errors.

Nothing here knows what is asked of the hub.
"""

import asyncio
import logging
import os
import random
from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple, Self

from rsnotify.errors import Rejected, TryAgain
from rsnotify_client.answer import (
    HubUnreachable,
    cause_of,
    content_of,
    delay_seconds,
    in_short,
    in_words,
    untrusted,
)
from rsnotify_client.network import Credentials, Network, without_login
from rsnotify_client.threads import BlockingThreads
from rsnotify_client.transport import Transport

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
ANSWER_SECONDS = 30.0
ANSWER_BYTES = 64 * 1024 * 1024
AT_ONCE = 64


class HubAnswer(NamedTuple):
    """What the hub said to a request that it granted."""

    status: int
    content: Any


class Connection:
    """A hub, spoken to with one token."""

    def __init__(
        self, url: str, token: str | None = None, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        network = Network.of(os.environ)
        self.url = without_login(url.rstrip("/"))
        self.token = token
        self._headers = {"User-Agent": network.agent, "Accept-Encoding": "identity"}
        self._headers |= Credentials(network, token, url).headers(url)
        self._patience_seconds = patience_seconds
        self._transport = Transport(network, read_seconds=ANSWER_SECONDS)
        self._threads = BlockingThreads(AT_ONCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()
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
                return await self._ask_once(method, path, body, headers or {})
            except TryAgain as error:
                wait = max(delay_seconds(attempt, random.random()), error.retry_after_seconds)  # noqa: S311
                if monotonic() + wait > until:
                    raise
                problem = in_short(error)
            log.warning("%s; trying again in %s", problem, in_words(wait))
            await asyncio.sleep(wait)
            attempt += 1

    async def _ask_once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HubAnswer:
        until = monotonic() + ANSWER_SECONDS
        words = (method, self.url + path, self._headers | dict(headers), body, until)
        return await self._threads.run(self._answered, *words)

    def _answered(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None, until: float
    ) -> HubAnswer:
        try:
            answer = self._transport.ask(method, url, headers, body)
            try:
                answer.limit(until)
                content = answer.read(ANSWER_BYTES)
            finally:
                answer.close()
        except OSError as error:  # first: a certificate's error is a ValueError, too
            if (why := untrusted(error)) is not None:
                raise Rejected(f"{self.url} is not spoken to: {why}") from None
            raise HubUnreachable(self.url, cause_of(error)) from None
        except UnicodeEncodeError:  # a command says which of its arguments it was
            raise
        except ValueError as error:
            raise Rejected(f"the request to {self.url} cannot be sent: {error}") from None
        pause = answer.headers.get("retry-after")
        return HubAnswer(answer.status, content_of(self.url, answer.status, pause, content))
