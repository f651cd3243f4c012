"""What is done after each change of a copy that is in its place: a command, or a function."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify_client.mirror.report import Event

Hook = Callable[[Event, bytes | None], Awaitable[None]]
"""Called after each change that is in its place; what it raises makes the change be tried again."""


NAMES = ("path", "loc")
# {{name}}, or {name}; ${name} is left to a shell
_NAMED = re.compile(r"\{\{(\w+)\}\}|(?<!\$)\{([A-Za-z_]\w*)\}")


def command_hook(command: str, root: Path) -> Hook:
    """Run a command after each change, without a shell; `{path}` and `{loc}` are filled in.

    The same is in its environment: RSNOTIFY_EVENT, RSNOTIFY_LOC, RSNOTIFY_PATH.
    """
    words = _words(command)

    async def hook(event: Event, _: bytes | None) -> None:
        path = str(root / event.path) if event.path else ""
        values = {"path": path, "loc": event.loc or ""}
        filled = [_filled(word, values) for word in words]
        environment = os.environ | {
            "RSNOTIFY_EVENT": event.event,
            "RSNOTIFY_LOC": values["loc"],
            "RSNOTIFY_PATH": path,
        }
        try:
            process = await asyncio.create_subprocess_exec(*filled, env=environment)
        except OSError as error:
            raise TryAgain(f"--exec {filled[0]}: {error.strerror}", retry_after_seconds=0) from None
        if status := await process.wait():
            raise TryAgain(f"--exec {filled[0]} ended with {status}", retry_after_seconds=0)

    return hook


def _words(command: str) -> list[str]:
    """The words of a command that can be run."""
    import shlex  # noqa: PLC0415 - seldom needed
    import shutil  # noqa: PLC0415

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidSettings([f"--exec: {error}"]) from None
    if not words:
        raise InvalidSettings(["--exec: name a command"])
    for name in (found[2] for word in words for found in _NAMED.finditer(word)):
        if name not in (None, *NAMES):
            raise InvalidSettings(
                [
                    f"--exec: {{{name}}} is unknown; there are {{path}} and {{loc}}. "
                    f"Write {{{{{name}}}}} if the program is to get {{{name}}} itself"
                ]
            )
    if not _NAMED.search(words[0]) and shutil.which(words[0]) is None:
        raise InvalidSettings([f"--exec {words[0]}: there is no such program that may be run"])
    return words


def _filled(word: str, values: Mapping[str, str]) -> str:
    """With the values of the names; what stands in two pairs of braces keeps one."""
    return _NAMED.sub(lambda found: values[found[2]] if found[2] else f"{{{found[1]}}}", word)
