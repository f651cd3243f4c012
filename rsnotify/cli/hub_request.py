"""Requests to the hub, with the token that goes with its address."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from rsnotify.cli.target import token_for
from rsnotify_client.hub import HubAnswer, HubClient, patiently

PATIENCE_SECONDS = 5  # an unreachable hub is reported soon, not after a minute
ANSWER_BYTES = 64 * 1024 * 1024  # such as a list of all sets


class Connection:
    """A hub, asked again while it cannot answer: what is asked must be harmless to repeat."""

    def __init__(
        self, url: str, token: str | None = None, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._hub = HubClient(url, token, answer_bytes=ANSWER_BYTES)
        self.url, self.token = self._hub.url, token
        self._patience_seconds = patience_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.close()

    def ask(self, method: str, path: str, **sent: Any) -> Any:
        """The hub's answer, decoded."""
        return self.answer(method, path, **sent).content

    def answer(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HubAnswer:
        """As `ask`, with the answer's status."""
        ask = partial(self._hub.ask, method, path, headers, body)
        return patiently(ask, self._patience_seconds)


@contextmanager
def connected(url: str, data: Path) -> Iterator[Connection]:
    """The hub, asked with the token for it; what it refuses says what to do."""
    with token_for(url, data) as token, Connection(url, token) as hub:
        yield hub


def ask(url: str, data: Path, method: str, path: str, content: object | None = None) -> Any:
    """Make one request; what the hub answered."""
    with connected(url, data) as hub:
        return hub.ask(method, path, body=None if content is None else msgspec.json.encode(content))
