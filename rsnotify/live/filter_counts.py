"""How many different filters a channel has, in all and from each of those who bring them.

Each change is held against each of them, so their number is bounded. Few must not keep all others
out, so each of those who bring them has at most a third as many as are free: the more are taken,
the fewer. That holds for a filter that others have, too: they may leave, and it stays. Whoever has
none may have one that is free, or that others have.
"""

from collections import Counter
from typing import Generic, TypeVar

from rsnotify.resourcesync.notification import ChannelName

FILTERS = 200  # of a channel's readers: each change is held against each of them
FREE_FOR_EACH = 3  # are left for others by whoever takes one more
FILTERS_OF_ONE = FILTERS // (FREE_FOR_EACH + 1)  # of one address or host, while no other has any

F = TypeVar("F")


class FilterCounts(Generic[F]):
    """Counts by how many readers each filter is held."""

    def __init__(self) -> None:
        self._of_channel: dict[ChannelName, Counter[F]] = {}
        self._of_one: dict[tuple[ChannelName, str], Counter[F]] = {}

    def is_full(self, channel: ChannelName, filter_: F) -> bool:
        """Whether the channel would have one too many."""
        known = self._of_channel.get(channel, ())
        return len(known) >= FILTERS and filter_ not in known

    def too_many_of(self, channel: ChannelName, holder: str, filter_: F) -> str | None:
        """How many this address or host has, if it may not have one more."""
        known = self._of_one.get((channel, holder), ())
        free = FILTERS - len(self._of_channel.get(channel, ()))
        if not known or filter_ in known or FREE_FOR_EACH * len(known) < free:
            return None
        return f"{len(known)} different filters at {channel}, the most while {free} are free"

    def take(self, channel: ChannelName, holder: str, filter_: F) -> None:
        self._of_channel.setdefault(channel, Counter())[filter_] += 1
        self._of_one.setdefault((channel, holder), Counter())[filter_] += 1

    def give_back(self, channel: ChannelName, holder: str, filter_: F) -> None:
        """One reader less has it; nothing is kept of those that nobody has."""
        _forget(self._of_channel, channel, filter_)
        _forget(self._of_one, (channel, holder), filter_)


Key = TypeVar("Key")


def _forget(counts: dict[Key, Counter[F]], key: Key, filter_: F) -> None:
    known = counts[key]
    known[filter_] -= 1
    if not known[filter_]:
        del known[filter_]
    if not known:
        del counts[key]
