"""Closes the readers whose token has been revoked or has expired."""

from collections.abc import Iterable

from rsnotify.access.access import Access
from rsnotify.channels.reader import Reader
from rsnotify.errors import CloseCode
from rsnotify.loops import repeat

CHECK_SECONDS = 1.0
REVOKED = "the token has been revoked or has expired"


class Revocations:
    """Knows which readers use which token, and closes those whose token has ended."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._readers: dict[str, set[Reader]] = {}

    def add(self, reader: Reader, token: str) -> None:
        """Note a reader; `token` is the key of its token, empty if it needed none."""
        if token:
            self._readers.setdefault(token, set()).add(reader)

    async def run(self) -> None:
        """Check for as long as the hub runs."""
        await repeat(self.check, CHECK_SECONDS)

    async def check(self) -> None:
        """Close the readers of revoked tokens; those of JWTs also while Redis is away."""
        self._forget_closed()
        self._close(self._access.ended_jwts(self._readers))
        self._close(await self._access.revoked(list(self._readers)))

    def _close(self, tokens: Iterable[str]) -> None:
        for token in tokens:
            for reader in self._readers.pop(token, ()):
                reader.close(CloseCode.NOT_ALLOWED, REVOKED)

    def _forget_closed(self) -> None:
        for token, readers in list(self._readers.items()):
            readers -= {reader for reader in readers if not reader.is_open}
            if not readers:
                del self._readers[token]
