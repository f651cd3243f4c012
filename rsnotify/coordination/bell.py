"""The bell: a pub/sub message when a journal has grown or a set has changed.

It is a hint: nobody may rely on it. The connection is asked for an answer now and then, for a
pub/sub reader can die without an error.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from rsnotify.coordination import keys
from rsnotify.redis_client import Client, Script

log = logging.getLogger(__name__)

TOKEN_ACTS = ("made", "revoked")  # messages that name the key of a token
PING_SECONDS = 2.0  # from one to the next, and for the answer
RECHECK_SECONDS = 0.01  # for what came while this process was busy, and was not read yet
WITHOUT = "the journals are compared instead, which takes longer"

_RING = Script("coordination/ring.lua")


def ring_at(key: str, message: str) -> tuple[Any, ...]:
    """The command that rings the bell at the server that has this key."""
    return _RING.command([key], keys.BELL, message)


class BellTimes(NamedTuple):
    """When a bell asks for a sign of life, counts as deaf, and connects again."""

    ping_seconds: float = PING_SECONDS
    deaf_seconds: float = 2 * PING_SECONDS  # after the last sign of life
    again_seconds: float = 1.0


BELL_TIMES = BellTimes()


class Bell:
    """Receives the messages of every hub process on this Redis."""

    def __init__(
        self, client: Client, name: str = keys.BELL, times: BellTimes = BELL_TIMES
    ) -> None:
        self._client = client
        self._times = times
        self._name = name
        self._heard_at = float("-inf")
        self._is_doubted = False
        self._connection: Any = None  # of a client
        self.connections = 0  # how often it was made: before, messages may have been missed

    @property
    def is_heard(self) -> bool:
        """Whether its connection lives, as far as is known."""
        return monotonic() < self._heard_at + self._times.deaf_seconds

    def doubt(self) -> None:
        """Redis is another one now, and this connection may still be to the one before."""
        self._is_doubted = True
        if self._connection is not None:
            self._connection.abort()

    async def listen(self, hear: Callable[[str], None]) -> None:
        """Call `hear` with the text of each message, without end; reconnect when the connection is
        lost. The event loop calls it, so it must not take long."""
        while True:
            try:
                await self._on_one_connection(hear)
            except Exception as error:  # also a ValueError, where an answer cannot be read
                if not self._is_doubted:
                    log.warning("%s; until Redis answers, %s", error, WITHOUT)
            self._heard_at = float("-inf")
            await asyncio.sleep(self._times.again_seconds)

    async def _on_one_connection(self, hear: Callable[[str], None]) -> None:
        self._is_doubted = False
        async with self._client.listening(partial(self._take_in, hear)) as connection:
            self._connection = connection
            connection.send(("SUBSCRIBE", self._name))
            await self._until_silent(connection)

    async def _until_silent(self, connection: Any) -> None:
        while not self._is_doubted:
            asked_at = monotonic()
            connection.send(("PING",))
            await connection.wait(self._times.ping_seconds)
            if self._heard_at < asked_at:
                await connection.wait(RECHECK_SECONDS)
            if self._heard_at < asked_at:
                return

    def _take_in(self, hear: Callable[[str], None], said: Any) -> None:
        self._heard_at = monotonic()
        match said:
            case [b"message", _, bytes(message)]:
                try:
                    hear(message.decode(errors="replace"))
                except Exception as error:  # a bug, or it cannot be read: only a hint is lost
                    log.warning("a message of the bell cannot be read", exc_info=error)
            case [b"subscribe", *_]:
                self.connections += 1
            case Exception():
                raise said
