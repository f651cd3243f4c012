"""Disconnects readers whose token was revoked. Each token is checked once a second, however many
readers use it.
"""

import logging

from rsnotify.channels.reader import Reader
from rsnotify.loops import repeat
from rsnotify.registry.access import Access

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
REVOKED = "the token has been revoked or has expired"


class Revocations:
    """Which readers use which token."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._readers: dict[str, set[Reader]] = {}

    def add(self, reader: Reader, token: str) -> None:
        """`token` is the key of a token, empty for a reader that needed none."""
        if token:
            self._readers.setdefault(token, set()).add(reader)

    async def run(self) -> None:
        """Check for as long as the hub runs."""
        await repeat(self.check, CHECK_SECONDS)

    async def check(self) -> None:
        """Close the readers of revoked tokens."""
        self._forget_closed()
        for token in await self._access.revoked(list(self._readers)):
            for reader in self._readers.pop(token, ()):
                reader.close(1008, REVOKED)

    def _forget_closed(self) -> None:
        for token, readers in list(self._readers.items()):
            readers -= {reader for reader in readers if not reader.is_open}
            if not readers:
                del self._readers[token]
