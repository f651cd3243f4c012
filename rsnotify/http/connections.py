"""How many connections this process takes, in all and from one address.

Behind a proxy that is trusted the addresses of connections say nothing: only the readers of
channels are counted for each client then.
"""

import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable, ItemsView, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Generic, TypeVar

from rsnotify.errors import InvalidSettings

Holder = TypeVar("Holder")


class Held(Generic[Holder]):
    """Counts, with a limit for each who holds."""

    def __init__(self, limit: float = inf) -> None:
        self.limit = limit
        self._counts: Counter[Holder] = Counter()
        self._total = 0

    def is_full(self, holder: Holder) -> bool:
        return self._counts[holder] >= self.limit

    def take(self, holder: Holder) -> None:
        self._counts[holder] += 1
        self._total += 1

    def give_back(self, holder: Holder) -> None:
        """One of those that it holds; KeyError if it holds none."""
        left = self._counts.pop(holder) - 1
        if left:
            self._counts[holder] = left
        self._total -= 1

    def items(self) -> ItemsView[Holder, int]:
        """Each who holds any, with how many."""
        return self._counts.items()

    def __len__(self) -> int:
        return self._total


SPARE_FILES = 512  # for Redis, callbacks, and what else a process opens
LEAST_CONNECTIONS = 100  # with fewer a hub is of no use
MACOS_FILES = 10_240  # what macOS allows at most where it says that there is no limit
REFUSED_AT_ONCE = 1_000  # that get the reason; others are cut off

TCP_CLOSED = 7  # the peer has reset the connection; the numbers are Linux's
TCP_CLOSE_WAIT = 8  # it has closed its direction, and may be waiting for an answer

PEER = "rsnotify.http.peer"  # an extension of a scope, with the socket

FEWER = (
    "this process may open %d files, so it takes %d connections and not %d (RSNOTIFY_CONNECTIONS): "
    "raise the limit of open files (`ulimit -n`, or LimitNOFILE= of systemd)"
)

TOO_FEW = (
    "this process may open {} files, and a hub needs {} at least: "
    "raise the limit of open files (`ulimit -n`, or LimitNOFILE= of systemd)"
)

log = logging.getLogger(__name__)

CountedAs = Callable[[str], str | None]
"""The address for which a peer's address counts; None if it counts for none."""


class ConnectionLimits:
    """The open connections of HTTP, counted; readers of channels are counted elsewhere."""

    def __init__(
        self, total: int, per_address: int, counted_as: CountedAs, readers: Callable[[], int]
    ) -> None:
        self._total = total
        self._addresses = Held[str](per_address)
        self._counted_as = counted_as
        self._readers = readers
        self._open: dict[object, str | None] = {}

    def __len__(self) -> int:
        """How many there are, readers of channels included."""
        return len(self._open) + self._readers()

    def refusal(self, host: str) -> tuple[int, str] | None:
        """The status and the reason for which a connection is not taken."""
        if len(self) >= self._total:
            return 503, f"The hub has {self._total} connections open and takes no more."
        address = self._counted_as(host)
        if address is not None and self._addresses.is_full(address):
            return 429, f"Your address has {self._addresses.limit} connections open: close some."
        return None

    @property
    def is_flooded(self) -> bool:
        return len(self) >= self._total + REFUSED_AT_ONCE

    def enter(self, connection: object, host: str) -> None:
        address = self._open[connection] = self._counted_as(host)
        if address is not None:
            self._addresses.take(address)

    def leave(self, connection: object) -> None:
        address = self._open.pop(connection, None)
        if address is not None:
            self._addresses.give_back(address)


def tcp_state(peer: Any) -> int | None:
    """How it is with the connection of this socket, if the kernel tells."""
    if peer is None or not hasattr(socket, "TCP_INFO"):
        return None
    if peer.fileno() < 0:  # closed here
        return TCP_CLOSED
    try:
        (state,) = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return None
    return int(state)


def peer_state(scope: Mapping[str, Any]) -> int | None:
    """The same of the connection of a request, if it is ours."""
    return tcp_state(scope.get("extensions", {}).get(PEER, {}).get("socket"))


def allowed_total(wanted: int, open_files: int) -> int:
    """How many connections fit into the files that a process may open; negative: no limit."""
    return wanted if open_files < 0 else max(1, min(wanted, open_files - SPARE_FILES))


def check_open_files() -> None:
    """Refuse to begin where hardly anybody could connect."""
    check_enough(_open_files())


def check_enough(open_files: int) -> None:
    needed = SPARE_FILES + LEAST_CONNECTIONS
    if 0 <= open_files < needed:
        raise InvalidSettings([TOO_FEW.format(open_files, needed)])


def total_connections(wanted: int, *, is_chosen: bool) -> int:
    """As many as wanted, if the limit of open files allows it, else fewer: with a warning, if an
    operator has chosen the number."""
    files = _open_files()
    total = allowed_total(wanted, files)
    if total < wanted:
        log.log(logging.WARNING if is_chosen else logging.INFO, FEWER, files, total, wanted)
    return total


def _open_files() -> int:
    """The limit, raised to what the operator has allowed at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard or soft < 0:
        return hard
    for files in (hard, MACOS_FILES):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
            return files
    return soft
