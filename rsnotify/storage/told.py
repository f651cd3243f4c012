"""What was announced last of each set's documents, kept in the record of its framework channel."""

import msgspec

from rsnotify.core.told_documents import Told
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.storage import keys
from rsnotify.storage.connection import Client
from rsnotify.storage.if_equals import IfEquals
from rsnotify.storage.sets import SetRecord

FIELD = "documents"


class ToldDocuments:
    """For all hub processes together, in Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._if_equals = IfEquals(client)

    async def read(self, record: SetRecord) -> Told | None:
        found = await self._client.hget(_key(record), FIELD)
        return None if found is None else msgspec.json.decode(found, type=Told)

    async def write(self, record: SetRecord, told: Told) -> None:
        """Only if the set is still the same one: one that is removed leaves no key."""
        created = int(Position.parse(record.created))
        value = msgspec.json.encode(told)
        await self._if_equals(_key(record), created, "HSET", FIELD, value, field="created")


def _key(record: SetRecord) -> str:
    return keys.record(ChannelName(record.name, "framework"))
