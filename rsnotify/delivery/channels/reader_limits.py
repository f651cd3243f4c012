"""How many readers a channel may have, and how many an address. An address is that of the client,
behind a trusted proxy too.
"""

from collections.abc import Collection, Iterable

from rsnotify.core.held import Held
from rsnotify.errors import TooMany, TryAgain
from rsnotify.resourcesync.notification import ChannelName

RETRY_SECONDS = 10


class ReaderLimits:
    """Who reads what, counted."""

    def __init__(self, *, per_channel: int = 50_000, per_address: int = 20_000) -> None:
        self._channels = Held(per_channel)
        self._addresses = Held(per_address)

    def __len__(self) -> int:
        """How many readers there are."""
        return len(self._addresses)

    def check(self, address: str, channels: Iterable[ChannelName]) -> None:
        """Refuse who would be one too many."""
        if self._addresses.is_full(address):
            detail = f"your address has {self._addresses.limit} channels open: close some"
            raise TooMany(detail, retry_after_seconds=RETRY_SECONDS)
        for channel in channels:
            if self._channels.is_full(channel):
                detail = f"{channel} has {self._channels.limit} readers; try again later"
                raise TryAgain(detail, retry_after_seconds=RETRY_SECONDS)

    def enter(self, address: str, channels: Collection[ChannelName]) -> None:
        """Count a reader; others may have come since it was checked."""
        self.check(address, channels)
        self._addresses.take(address)
        for channel in channels:
            self._channels.take(channel)

    def leave(self, address: str, channels: Iterable[ChannelName]) -> None:
        self._addresses.give_back(address)
        for channel in channels:
            self._channels.give_back(channel)
