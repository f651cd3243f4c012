"""Node, Deno and the JavaScript client as a process; where what a test needs is found."""

import asyncio
import json
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import playwright

HERE = Path(__file__).parent
CLIENT = HERE.parent
MODULE = CLIENT / "rsnotify.js"
NODE = str(Path(playwright.__file__).parent / "driver/node")
"""The Node that playwright brings: newer than most machines' own, with a WebSocket."""

OLDEST_NODE = (20, 3)
NO_DENO = "no Deno: `pip install deno`, or put it on the PATH"


def nodes() -> list[str]:
    """That one, and the machine's own if the client runs there."""
    own = shutil.which("node")
    return [NODE] if own is None or version_of(own) < OLDEST_NODE else [NODE, own]


def version_of(node: str) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.strip().lstrip("v").split("-")[0].split("."))


def deno() -> str | None:
    """The machine's, or that of the environment in which the tests run."""
    return shutil.which("deno") or shutil.which("deno", path=Path(sys.executable).parent)


class Reader:
    """A process that follows an address; each line that it prints is something it was told."""

    def __init__(self, url: str, *, program: Sequence[str] = (NODE,), **options: Any) -> None:
        self._words = (*program, str(HERE / "reader.mjs"), str(MODULE), url, json.dumps(options))
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(*self._words, stdout=PIPE)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def line(self, is_wanted: Callable[[dict[str, Any]], Any] = bool) -> dict[str, Any]:
        """The next line that is wanted."""
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(30):
            while not is_wanted(line := json.loads(await self._process.stdout.readline())):
                pass
        return line

    async def live(self) -> dict[str, Any]:
        return await self.line(lambda line: line.get("state") == "live")

    async def changes(self, count: int) -> list[str]:
        """The last part of the address of so many changes."""
        lines = [await self.line(lambda line: "change" in line) for _ in range(count)]
        return [line["change"]["loc"].rpartition("/")[2] for line in lines]
