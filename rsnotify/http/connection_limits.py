"""How many connections a process takes, in all and from one address.

Behind a proxy that is trusted the addresses of connections say nothing: only the readers of
channels are counted for each client then. A process takes no more than its open files allow.
"""

import logging
import resource
from collections import Counter
from collections.abc import Callable, ItemsView, Sized
from contextlib import suppress
from math import inf
from typing import Generic, TypeVar

from rsnotify.errors import InvalidSettings

SPARE_FILES = 512  # for Redis, callbacks, and what else a process opens
LEAST_CONNECTIONS = 100  # with fewer a hub is of no use
MACOS_FILES = 10_240  # what macOS allows at most where it says that there is no limit
REFUSED_AT_ONCE = 1_000  # that get the reason; others are cut off

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

Holder = TypeVar("Holder")


class LimitedCounts(Generic[Holder]):
    """Counts what each holder holds, up to a limit for each."""

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
        """The holders, and how many each holds."""
        return self._counts.items()

    def __len__(self) -> int:
        return self._total


class ConnectionLimits:
    """Counts the open HTTP connections; readers of channels are counted elsewhere."""

    def __init__(self, total: int, per_address: int, counted_as: CountedAs, readers: Sized) -> None:
        self._total = total
        self._addresses = LimitedCounts[str](per_address)
        self._counted_as = counted_as
        self._readers = readers
        self._open: dict[object, str | None] = {}

    def __len__(self) -> int:
        """How many connections there are, readers of channels included."""
        return len(self._open) + len(self._readers)

    def enter(self, connection: object, host: str) -> tuple[int, str] | None:
        """Count a connection; status and reason if it is refused, though it is counted, too."""
        address = self._open[connection] = self._counted_as(host)
        is_one_too_many = address is not None and self._addresses.is_full(address)
        if address is not None:
            self._addresses.take(address)
        if len(self) > self._total:
            return 503, f"The hub has {self._total} connections open and takes no more."
        if is_one_too_many:
            return 429, f"Your address has {self._addresses.limit} connections open: close some."
        return None

    def counted_for(self, connection: object) -> str | None:
        """The address for which it counts; None for all that come through trusted proxies."""
        return self._open.get(connection)

    @property
    def is_flooded(self) -> bool:
        return len(self) > self._total + REFUSED_AT_ONCE

    def pass_on(self, connection: object, to: object) -> None:
        """The same connection has another protocol now."""
        self._open[to] = self._open.pop(connection)

    def leave(self, connection: object) -> None:
        address = self._open.pop(connection, None)
        if address is not None:
            self._addresses.give_back(address)


def total_connections(wanted: int, *, is_chosen: bool) -> int:
    """As many connections as wanted, or as many as open files allow: with a warning, if an
    operator has chosen the number."""
    files = _open_files()
    total = allowed_total(wanted, files)
    if total < wanted:
        log.log(logging.WARNING if is_chosen else logging.INFO, FEWER, files, total, wanted)
    return total


def allowed_total(wanted: int, open_files: int) -> int:
    """How many connections fit into the files that a process may open; negative: no limit."""
    return wanted if open_files < 0 else max(1, min(wanted, open_files - SPARE_FILES))


def check_open_files() -> None:
    """Refuse to begin where hardly anybody could connect."""
    check_enough(_open_files())


def check_enough(open_files: int) -> None:
    needed = SPARE_FILES + LEAST_CONNECTIONS
    if 0 <= open_files < needed:
        raise InvalidSettings(TOO_FEW.format(open_files, needed))


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
