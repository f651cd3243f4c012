"""Requests to the hub, with the token that goes with its address."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from rsnotify.cli.target import hub_at, token_for
from rsnotify_client.hub import HubAnswer, HubClient, patiently

PATIENCE_SECONDS = 5  # an unreachable hub is reported soon, not after a minute


@contextmanager
def connected(url: str, data: Path) -> Iterator[HubClient]:
    """The hub, asked with the token for it; what it refuses says what to do."""
    with token_for(url, data) as token, hub_at(url, token) as hub:
        yield hub


def asked(
    hub: HubClient,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> HubAnswer:
    """The hub's answer; asked again while there is none, so it must be harmless to repeat."""
    return patiently(partial(hub.ask, method, path, headers, body), patience_seconds)


def ask(url: str, data: Path, method: str, path: str, content: object | None = None) -> HubAnswer:
    """Make one request; what was answered."""
    body = None if content is None else msgspec.json.encode(content)
    with connected(url, data) as hub:
        return asked(hub, method, path, body=body)
