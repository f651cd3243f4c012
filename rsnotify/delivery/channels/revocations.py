"""Readers of private channels end with the token by which they came.

Rules that hold here: each token is asked about once a second, however many read by it.
Nothing here knows what they read.
"""

import asyncio
import logging

from rsnotify.access import Access
from rsnotify.delivery.channels.reader import Reader
from rsnotify.errors import TryAgain

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
REVOKED = "the token has been revoked"


class Revocations:
    """Who reads by which token."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._readers: dict[str, set[Reader]] = {}

    def add(self, reader: Reader, token: str) -> None:
        """The key of the token; nothing for whoever needed none."""
        if token:
            self._readers.setdefault(token, set()).add(reader)

    async def run(self) -> None:
        """Look again and again, for as long as the hub lives."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.check()
            except TryAgain as error:
                log.warning("looking for revoked tokens waits: %s", error.detail)

    async def check(self) -> None:
        """Send those away whose token is no more."""
        self._forget_closed()
        for token in await self._access.revoked(list(self._readers)):
            for reader in self._readers.pop(token, ()):
                reader.close(1008, REVOKED)

    def _forget_closed(self) -> None:
        for token, readers in list(self._readers.items()):
            readers -= {reader for reader in readers if not reader.is_open}
            if not readers:
                del self._readers[token]
