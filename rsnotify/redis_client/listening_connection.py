"""A connection on which Redis tells what is published, as it comes."""

import asyncio
from collections.abc import Callable
from typing import Any

from rsnotify.redis_client.script import Command
from rsnotify.redis_client.taken_connection import TakenConnection


class ListeningConnection(TakenConnection):
    """Hands each thing that is said to `hear`, whose errors end it."""

    def __init__(self, library_connection: Any, hear: Callable[[Any], None]) -> None:
        super().__init__(library_connection)
        self._hear = hear
        self._ended = asyncio.get_running_loop().create_future()

    def send(self, command: Command) -> None:
        self._write([command])

    async def wait(self, seconds: float) -> None:
        """For so long; if it ends before, its error is raised."""
        await asyncio.wait([self._ended], timeout=seconds)
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        said: list[Any] = []
        self._parse(data, said)
        try:
            for each in said:
                self._hear(each)
        except Exception as error:
            self._end(error)
