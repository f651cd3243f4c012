"""How many readers a channel may have, and how many may come from one address.

Behind a trusted proxy that is the address of the client.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from rsnotify.channels.reader import Reader
from rsnotify.errors import TooMany, TryAgain
from rsnotify.http.connection_limits import LimitedCounts
from rsnotify.live.reading import FILTERS
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import ChannelName

RETRY_SECONDS = 10


class Audience(NamedTuple):
    """Readers that are counted together."""

    set_name: str
    kind: str
    form: str  # in which they are written to


class ReaderLimits:
    """Counts readers, of each channel and from each address, and refuses those above a limit."""

    def __init__(self, *, per_channel: int = 50_000, per_address: int = 20_000) -> None:
        self._channels = LimitedCounts[ChannelName](per_channel)
        self.addresses = LimitedCounts[str](per_address)
        self.audiences = LimitedCounts[Audience]()
        self._filters: dict[ChannelName, Counter[Filter]] = {}

    def check(
        self, address: str, channels: Iterable[ChannelName], filter_: Filter | None = None
    ) -> None:
        """Refuse a reader that would be one too many, or bring one filter too many."""
        if self.addresses.is_full(address):
            detail = f"your address has {self.addresses.limit} channels open: close some"
            raise TooMany(detail, retry_after_seconds=RETRY_SECONDS)
        for channel in channels:
            if self._channels.is_full(channel):
                detail = f"{channel} has {self._channels.limit} readers; try again later"
                raise TryAgain(detail, retry_after_seconds=RETRY_SECONDS)
            if filter_ is not None:
                self._check_filter(channel, filter_)

    def _check_filter(self, channel: ChannelName, filter_: Filter) -> None:
        known = self._filters.get(channel, ())
        if len(known) >= FILTERS and filter_ not in known:
            raise TryAgain(
                f"{channel} has readers with {FILTERS} different filters: "
                "read it without one, or try again later",
                retry_after_seconds=RETRY_SECONDS,
            )

    def enter(
        self,
        reader: Reader,
        address: str,
        channels: Collection[ChannelName],
        filter_: Filter | None = None,
    ) -> None:
        """Count a reader; others may have come since it was checked."""
        self.check(address, channels, filter_)
        reader.counted_for = sys.intern(address)  # one string for all readers of this address
        self.addresses.take(reader.counted_for)
        for channel in channels:
            self._channels.take(channel)
            self.audiences.take(Audience(*channel, reader.wire_format.name))
            if filter_ is not None:
                self._filters.setdefault(channel, Counter())[filter_] += 1

    def leave(
        self, reader: Reader, channels: Iterable[ChannelName], filter_: Filter | None = None
    ) -> None:
        """Count the reader no more; one that was not counted changes nothing."""
        address, reader.counted_for = reader.counted_for, None
        if address is None:
            return
        self.addresses.give_back(address)
        for channel in channels:
            self._channels.give_back(channel)
            self.audiences.give_back(Audience(*channel, reader.wire_format.name))
            if filter_ is not None:
                self._forget_filter(channel, filter_)

    def _forget_filter(self, channel: ChannelName, filter_: Filter) -> None:
        """One reader less has it; nothing is kept of those that nobody has."""
        known = self._filters[channel]
        known[filter_] -= 1
        if not known[filter_]:
            del known[filter_]
        if not known:
            del self._filters[channel]
