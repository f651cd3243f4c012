"""What was announced last of each set's documents, kept in the record of its framework channel."""

import msgspec

from rsnotify.documents.told_documents import Told
from rsnotify.journal import keys
from rsnotify.redis_client.connection import Client
from rsnotify.redis_client.if_equals import IfEquals
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName

FIELD = "documents"


class ToldDocuments:
    """For all hub processes together, in Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._if_equals = IfEquals(client)

    async def read(self, set_name: str) -> Told | None:
        found = await self._client.hget(_key(set_name), FIELD)
        return None if found is None else msgspec.json.decode(found, type=Told)

    async def write(self, set_name: str, created: Position, told: Told) -> None:
        """Only if it is still the set created then: one that is removed leaves no key."""
        value = msgspec.json.encode(told)
        command = ("HSET", FIELD, value)
        await self._if_equals(_key(set_name), int(created), *command, field="created")


def _key(set_name: str) -> str:
    return keys.record(ChannelName(set_name, "framework"))
