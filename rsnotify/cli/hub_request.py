"""Requests to the hub, with the token that goes with its address."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from rsnotify.cli.target import credential_for, refusals_of
from rsnotify_client.blocking_threads import BlockingThreads
from rsnotify_client.hub import HubAnswer, HubClient, patiently

Result = TypeVar("Result")
PATIENCE_SECONDS = 5  # an unreachable hub is reported soon, not after a minute
ANSWER_BYTES = 64 * 1024 * 1024  # such as a list of all sets
AT_ONCE = 64


class Connection:
    """A hub, asked from an event loop, and again while it cannot answer."""

    def __init__(
        self, url: str, token: str | None = None, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._hub = HubClient(url, token, answer_bytes=ANSWER_BYTES)
        self.url, self.token = self._hub.url, token
        self._patience_seconds = patience_seconds
        self._threads = BlockingThreads(AT_ONCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._hub.close()
        self._threads.close()

    async def ask(self, method: str, path: str, **sent: Any) -> Any:
        """The hub's answer, decoded; it must be harmless to repeat."""
        return (await self.answer(method, path, **sent)).content

    async def answer(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HubAnswer:
        """As `ask`, with the answer's status."""
        ask = partial(self._hub.ask, method, path, headers, body)
        return await self._threads.run(patiently, ask, self._patience_seconds)


def with_token(
    url: str, data: Path, work: Callable[[str | None], Coroutine[Any, Any, Result]]
) -> Result:
    """Run what needs the hub's token."""
    credential = credential_for(url, data)
    with refusals_of(credential, url):
        return asyncio.run(work(credential.token))


def ask(url: str, data: Path, method: str, path: str, content: object | None = None) -> Any:
    """Make one request; what the hub answered."""

    async def request(token: str | None) -> Any:
        body = None if content is None else msgspec.json.encode(content)
        async with Connection(url, token) as hub:
            return await hub.ask(method, path, body=body)

    return with_token(url, data, request)
