"""Which version of the Source Description was announced last, for all hub processes together.

A process that knows an older version of the sets than was announced has nothing to announce.
"""

from typing import NamedTuple

from rsnotify.journal import keys
from rsnotify.journal.claims import Claims
from rsnotify.redis_client.connection import Client


class DescriptionVersion(NamedTuple):
    """The Source Description at a version of the registry of sets."""

    version: int
    digest: str

    def is_news_after(self, announced: "DescriptionVersion | None") -> bool:
        return announced is None or (
            self.version > announced.version and self.digest != announced.digest
        )


class AnnouncedDescriptions:
    """The version that was announced last, in Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._claims = Claims(client)

    async def read(self) -> DescriptionVersion | None:
        version, digest = await self._client.hmget(keys.SETS_ANNOUNCED, "version", "digest")
        return None if version is None else DescriptionVersion(int(version), digest.decode())

    async def write(self, described: DescriptionVersion) -> None:
        await self._client.hset(keys.SETS_ANNOUNCED, mapping=described._asdict())

    async def claim(self, seconds: float) -> bool:
        """Whether this process may announce; no other may for so many seconds."""
        return await self._claims.take(f"{keys.SETS_ANNOUNCED}:claim", seconds) is not None
