"""How many readers a channel may have, and how many may come from one address.

Behind a trusted proxy that is the address of the client.
"""

import sys
from collections.abc import Collection, Iterable
from typing import NamedTuple

from rsnotify.channels.reader import Reader
from rsnotify.errors import TooMany, TryAgain
from rsnotify.http.connection_limits import LimitedCounts
from rsnotify.live.filter_counts import FILTERS, FilterCounts
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
        self._filters = FilterCounts[Filter]()

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
                self._check_filter(channel, address, filter_)

    def _check_filter(self, channel: ChannelName, address: str, filter_: Filter) -> None:
        if (found := self._filters.too_many_of(channel, address, filter_)) is not None:
            raise TooMany(
                f"your address has {found}: close some, or read it without one",
                retry_after_seconds=RETRY_SECONDS,
            )
        if self._filters.is_full(channel, filter_):
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
                self._filters.take(channel, address, filter_)

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
                self._filters.give_back(channel, address, filter_)
