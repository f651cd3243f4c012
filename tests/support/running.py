"""Real hubs for tests: `rsnotify serve` as a process of its own, driven from outside."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.support.forks import Ended, Forked, fork, run

SOON, SELDOM = 0.01, 0.1  # seconds
PATIENT_SECONDS = 60  # for any fact, on a busy machine: one that is none is told after that
TOKEN = "the-admin-token-of-the-tests"


class RunningHub:
    """A hub process; `async with` starts and stops it, and in between it may be killed."""

    program: tuple[str, ...] = ()  # of Python's arguments, where it is not `tests.support.forks`
    ready_seconds = PATIENT_SECONDS  # it has loaded its data by then

    def __init__(
        self,
        data: Path,
        *options: str,
        sets: tuple[str, ...] = ("dataset1",),
        port: int = 0,
        **settings: str,
    ) -> None:
        self.data = data
        self.options = [*options, *(word for name in sets for word in ("--set", name))]
        self.settings = {f"RSNOTIFY_{name.upper()}": value for name, value in settings.items()}
        self.url = ""
        self.port = port
        self.process: Process | Forked | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process is not None and self.process.returncode is None:
            await self.stop()

    async def start(self) -> None:
        """Start it; the second time on the port it had."""
        words = ["serve", "--data", str(self.data), "--port", str(self.port), *self.options]
        token = (
            {} if "RSNOTIFY_ADMIN_TOKEN_FILE" in self.settings else {"RSNOTIFY_ADMIN_TOKEN": TOKEN}
        )
        environment = clean_environment() | token | self.settings
        with self.log.open("ab") as log:
            self.process = await self._started(words, environment, log.fileno())
        async with asyncio.timeout(self.ready_seconds):
            line = (await self.process.stdout.readline()).decode()
        if not line.startswith("rsnotify ready "):
            await self.process.wait()
            raise AssertionError(f"the hub did not start:\n{self.log.read_text()}")
        self.url = line.split()[-1]
        self.port = int(self.url.rpartition(":")[2])

    async def _started(
        self, words: list[str], environment: dict[str, str], log: int
    ) -> Process | Forked:
        if not self.program:
            return await fork(words, environment, log)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *self.program, *words),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=log,
            env=environment,
        )

    @property
    def log(self) -> Path:
        return self.data.with_name(f"{self.data.name}.log")

    @property
    def redis_url(self) -> str:
        """Where the Redis is that it was given."""
        return self.options[self.options.index("--redis") + 1]

    async def stop(self) -> int:
        """Ask it to end, as an operator does; its exit status."""
        self.process.terminate()
        return await self.process.wait()

    async def kill(self) -> None:
        """kill -9: nothing of it gets to run any more."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Status and decoded body of one request, with the admin token."""
        headers = {"Authorization": f"Bearer {TOKEN}"} | options.pop("headers", {})
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path, headers=headers, **options) as answer,
        ):
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, await (
                answer.json(content_type=None) if is_json else answer.read()
            )

    async def publish(
        self, *locs: str, set_name: str = "dataset1", **fields: Any
    ) -> dict[str, Any]:
        """Publish an update of each resource; the hub's answer."""
        changes = [{"loc": loc, "change": "updated"} | fields for loc in locs]
        status, answer = await self.ask("POST", f"/api/sets/{set_name}/changes", json=changes)
        assert status == 201, answer
        return answer

    def channel(self, set_name: str = "dataset1", kind: str = "change") -> str:
        _, _, rest = self.url.partition("://")
        return f"ws://{rest}/channels/{set_name}/{kind}_notification_channel"


def clean_environment() -> dict[str, str]:
    """Ours, without any setting of a hub."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RSNOTIFY_")}


async def rsnotify(
    *words: str,
    hub: RunningHub | None = None,
    stdin: bytes = b"",
    folder: Path | None = None,
    **environ: str,
) -> Ended:
    """What a user types and sees; with the address and the token of this hub, if one is given."""
    environment = clean_environment() | {"COLUMNS": "200"} | environ
    if hub is not None:
        environment |= {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}
    return await run(words, environment, stdin, folder)


async def until(condition: Any, seconds: float = PATIENT_SECONDS) -> Any:
    """Wait for a fact, not for a time; the fact's truth value is returned.

    It is looked for less and less often: to look costs the processor time that it needs.
    """
    pause = SOON
    async with asyncio.timeout(seconds):
        while not (found := await condition()):
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, SELDOM)
        return found
