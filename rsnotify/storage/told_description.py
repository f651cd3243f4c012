"""What was told of the Source Description last, for all hub processes together.

Rules that hold here: a process that has seen fewer changes of the registry than have been told has
nothing to tell. Nothing here knows what the Source Description says.
"""

from typing import NamedTuple

from rsnotify.storage import keys
from rsnotify.storage.claims import Claims
from rsnotify.storage.connection import Client


class Described(NamedTuple):
    """The Source Description at a version of the registry of sets."""

    version: int
    digest: str

    def is_news_after(self, told: "Described | None") -> bool:
        return told is None or (self.version > told.version and self.digest != told.digest)


class Told:
    """The description that was told last, in Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._claims = Claims(client)

    async def read(self) -> Described | None:
        version, digest = await self._client.hmget(keys.SETS_TOLD, "version", "digest")
        return None if version is None else Described(int(version), digest.decode())

    async def write(self, described: Described) -> None:
        await self._client.hset(keys.SETS_TOLD, mapping=described._asdict())

    async def claim(self, seconds: float) -> bool:
        """Whether this process is the one that tells; nobody else is for so long."""
        return await self._claims.take(f"{keys.SETS_TOLD}:claim", seconds) is not None
