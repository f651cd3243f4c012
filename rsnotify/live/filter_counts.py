"""How many different filters a channel has, in all and from each of those who bring them.

Each change is held against each of them, so their number is bounded. One stranger must not take the
places of all others, so each has a bound of its own, for a filter that others have, too: they may
leave, and it stays.
"""

from collections import Counter
from typing import Generic, TypeVar

from rsnotify.resourcesync.notification import ChannelName

FILTERS = 200  # of a channel's readers: each change is held against each of them
FILTERS_OF_ONE = 50  # from one address, or for callbacks at one host

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

    def has_too_many(self, channel: ChannelName, holder: str, filter_: F) -> bool:
        """Whether this address or host would."""
        known = self._of_one.get((channel, holder), ())
        return len(known) >= FILTERS_OF_ONE and filter_ not in known

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
