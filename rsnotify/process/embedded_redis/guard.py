"""A guard ends a redis-server as soon as its hub is dead, however it died.

It is a process that waits at a pipe which only the hub holds open. The hub dismisses it when the
server has ended.
"""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import Self

SCRIPT = 'read -r _; kill -TERM "$0"'


class Guard:
    """Ends process `pid` when we end without having dismissed it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def over(cls, pid: int) -> Self:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            SCRIPT,
            str(pid),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,  # Ctrl-C is for the hub
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def dismiss(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
