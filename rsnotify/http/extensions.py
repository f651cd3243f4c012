"""What our server knows beyond ASGI; another server has none of it."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rsnotify.http.sockets import tcp_state

PEER = "rsnotify.http.peer"
"""An extension of a scope, with the socket of its connection."""

HAND_OVER = "rsnotify.http.hand_over"
"""A message to our server, within a response: the rest is written by what `take(transport,
is_chunked=…)` makes. The exchange ends here, and nothing of it is kept."""

LEND = "rsnotify.http.lend"
"""A message to our server instead of a response: all of it is written by what `take(transport,
lender)` makes, which gives the connection back with it (`Lender`). The exchange ends here, and
nothing of it is kept. Where more of the peer's waits to be served nothing is taken; the response
comes as any other then."""


Headers = Iterable[tuple[bytes, bytes]]


class Lender(Protocol):
    """Makes heads as the server has them, and takes back connections that it has lent."""

    def render_head(self, status: int, headers: Headers, /) -> bytes: ...
    def give_back(
        self, transport: asyncio.Transport, response: Sequence[bytes], early: bytes, /
    ) -> None:
        """The parts of the whole response, and what the peer has sent meanwhile."""


class Borrowing(Protocol):
    """Takes a connection, to write a response and give it back."""

    def __call__(self, transport: asyncio.Transport, lender: Lender, /) -> None: ...


def peer_state(scope: Mapping[str, Any]) -> int | None:
    """The TCP state of the connection of a request, if our server has it."""
    return tcp_state(scope.get("extensions", {}).get(PEER, {}).get("socket"))
