"""One command to Redis that is done only if what was read still stands: an atom.

Nothing here knows what is read or written.
"""

from importlib.resources import files

from rsnotify.storage.connection import Client


class IfEquals:
    """Whether it was done; what else stands there, or nothing, is left as it is."""

    def __init__(self, client: Client) -> None:
        script = files("rsnotify.storage").joinpath("if_equals.lua").read_text()
        self._script = client.register_script(script)

    async def __call__(
        self, key: str, expected: bytes | str | int, *command: bytes | str | int, field: str = ""
    ) -> bool:
        """Do the command to the key; `expected` stands in this field of it, or is all of it."""
        return bool(await self._script(keys=[key], args=[field, expected, *command]))
