"""One command to Redis that is done only if what was read still stands: an atom.

Nothing here knows what is read or written.
"""

from rsnotify.storage.connection import Client, Script

_IF_EQUALS = Script("if_equals.lua")


class IfEquals:
    """Whether it was done; what else stands there, or nothing, is left as it is."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(
        self, key: str, expected: bytes | str | int, *command: bytes | str | int, field: str = ""
    ) -> bool:
        """Do the command to the key; `expected` stands in this field of it, or is all of it."""
        call = _IF_EQUALS.call([key], field, expected, *command)
        return bool(await self._client.execute_command(*call))
