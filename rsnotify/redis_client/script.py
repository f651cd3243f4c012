"""Commands and Lua scripts; a script is called by its hash, or sent in full."""

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

Command = tuple[Any, ...]


def in_words(command: Command) -> Command:
    """redis-py names some commands with two words, as CLUSTER SLOTS; Redis wants them apart."""
    name, *rest = command
    return (*name.split(" "), *rest) if " " in name else command


class Script:
    """A Lua script: called by its hash, sent in full to a Redis that does not know it."""

    _texts: dict[str, str] = {}  # noqa: RUF012 - by hash, of all there are

    def __init__(self, *names: str) -> None:
        """The text of these files, one behind the other."""
        text = "".join(files("rsnotify").joinpath(name).read_text() for name in names)
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._texts[self._sha] = text

    def run(self, client: Any, keys: Sequence[object], *arguments: object) -> Any:
        """Run it: to be awaited with a client; with a pipeline, a part of that."""
        return client.execute_command(*self.command(keys, *arguments))

    def command(self, keys: Sequence[object], *arguments: object) -> Command:
        return ("EVALSHA", self._sha, len(keys), *keys, *arguments)

    @classmethod
    def in_full(cls, command: Command) -> Command:
        """The same command for a Redis that does not know the script."""
        _, sha, *rest = command
        return ("EVAL", cls._texts[sha], *rest)
