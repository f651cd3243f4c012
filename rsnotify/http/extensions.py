"""What our server knows beyond ASGI; another server has none of it."""

from collections.abc import Mapping
from typing import Any

from rsnotify.http.sockets import tcp_state

PEER = "rsnotify.http.peer"
"""An extension of a scope, with the socket of its connection."""

HAND_OVER = "rsnotify.http.hand_over"
"""A message to our server, within a response: the rest is written by what `take(transport,
is_chunked=…)` makes. The exchange ends here, and nothing of it is kept."""


def peer_state(scope: Mapping[str, Any]) -> int | None:
    """The TCP state of the connection of a request, if our server has it."""
    return tcp_state(scope.get("extensions", {}).get(PEER, {}).get("socket"))
