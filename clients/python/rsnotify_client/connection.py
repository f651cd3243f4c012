"""HTTP to a hub: the token, the repetitions, and problem documents turned into errors.

Nothing here knows what is asked of the hub.
"""

import asyncio
import io
import logging
import random
from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple, Self

import aiohttp

from rsnotify.errors import Rejected, TryAgain
from rsnotify_client.answer import HubUnreachable, content_of, in_short
from rsnotify_client.cause import cause_of, untrusted
from rsnotify_client.retry import delay_seconds, in_words

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
ANSWER_SECONDS = 30.0


class HubAnswer(NamedTuple):
    """What the hub said to a request that it granted."""

    status: int
    content: Any


class Connection:
    """A hub, spoken to with one token."""

    def __init__(
        self, url: str, token: str | None = None, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._patience_seconds = patience_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

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
        assert self._session is not None, "use it in `async with`"  # noqa: S101
        try:
            async with self._session.request(
                method,
                self.url + path,
                data=body and io.BytesIO(body),
                headers=headers,
                allow_redirects=False,
            ) as answer:
                pause, body = answer.headers.get("Retry-After"), await answer.read()
                return HubAnswer(answer.status, content_of(self.url, answer.status, pause, body))
        except (aiohttp.ClientError, TimeoutError) as error:
            if (why := untrusted(error)) is not None:
                raise Rejected(f"{self.url} is not spoken to: {why}") from None
            raise HubUnreachable(self.url, cause_of(error)) from None
