"""Requests to the hub, with the token that goes with its address."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rsnotify.cli.target import credential_for, refusals_of
from rsnotify_client.connection import Connection

Result = TypeVar("Result")
PATIENCE_SECONDS = 5  # an unreachable hub is reported soon, not after a minute


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
        async with Connection(url, token, patience_seconds=PATIENCE_SECONDS) as hub:
            return await hub.ask(method, path, body=body)

    return with_token(url, data, request)
