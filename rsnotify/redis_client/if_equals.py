"""One command to Redis that is done only if a value is still what was read: in one atom."""

from rsnotify.redis_client.connection import Client
from rsnotify.redis_client.script import Script

_IF_EQUALS = Script("redis_client/if_equals.lua")


class IfEquals:
    """Does it, and says whether it was done; any other value stays as it is."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(
        self, key: str, expected: bytes | str | int, *command: bytes | str | int, field: str = ""
    ) -> bool:
        """Do the command to the key if `expected` is its value, or that of this field."""
        return bool(await _IF_EQUALS.run(self._client, [key], field, expected, *command))
