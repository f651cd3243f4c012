"""What is done after each change of a copy that is in its place: a command, or a function."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify_client.mirror.report import Event

Hook = Callable[[Event, bytes | None], Awaitable[None]]
"""Called after each change that is in its place; what it raises makes the change be tried again."""


def command_hook(command: str, root: Path) -> Hook:
    """Run a command after each change, without a shell; `{path}` and `{loc}` are filled in.

    The same is in its environment: RSNOTIFY_EVENT, RSNOTIFY_LOC, RSNOTIFY_PATH.
    """
    import shlex  # noqa: PLC0415 - seldom needed

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidSettings([f"--exec: {error}"]) from None
    if not words:
        raise InvalidSettings(["--exec: name a command"])

    async def hook(event: Event, _: bytes | None) -> None:
        path = str(root / event.path) if event.path else ""
        filled = [word.replace("{path}", path).replace("{loc}", event.loc or "") for word in words]
        environment = os.environ | {
            "RSNOTIFY_EVENT": event.event,
            "RSNOTIFY_LOC": event.loc or "",
            "RSNOTIFY_PATH": path,
        }
        try:
            process = await asyncio.create_subprocess_exec(*filled, env=environment)
        except OSError as error:
            raise TryAgain(f"--exec {filled[0]}: {error.strerror}", retry_after_seconds=0) from None
        if status := await process.wait():
            raise TryAgain(f"--exec {filled[0]} ended with {status}", retry_after_seconds=0)

    return hook
