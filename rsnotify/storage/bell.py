"""The bell: a pub/sub message when a journal has grown or the registry of sets has changed.

It is a hint: nobody may rely on it. A silent connection is tested, for a pub/sub reader can die
without an error.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from time import monotonic

from redis.exceptions import RedisError

from rsnotify.storage import keys
from rsnotify.storage.connection import connect_listener

log = logging.getLogger(__name__)

SILENCE_SECONDS = 2.0
DEAF_SECONDS = 2 * SILENCE_SECONDS  # after the last sign of life
AGAIN_SECONDS = 1.0
WITHOUT = "the journals are compared instead, which takes longer"


class Bell:
    """Receives what every hub process on this Redis rings."""

    def __init__(self, url: str, name: str = keys.BELL) -> None:
        self._url = url
        self._name = name
        self._heard_at = float("-inf")
        self._is_doubted = False
        self.connections = 0  # how often it was made: before, strokes may have been missed

    @property
    def is_heard(self) -> bool:
        """Whether its connection lives, as far as is known."""
        return monotonic() < self._heard_at + DEAF_SECONDS

    def doubt(self) -> None:
        """Redis is another one now, and this connection may still be to the one before."""
        self._is_doubted = True

    async def strokes(self) -> AsyncIterator[str]:
        """Each stroke's text, for ever; connects anew when the connection is lost."""
        while True:
            try:
                async for stroke in self._on_one_connection():
                    yield stroke
            except (RedisError, OSError) as error:
                log.warning("%s; until Redis answers, %s", error, WITHOUT)
            self._heard_at = float("-inf")
            await asyncio.sleep(AGAIN_SECONDS)

    async def _on_one_connection(self) -> AsyncIterator[str]:
        client = connect_listener(self._url)
        async with client, client.pubsub() as pubsub:
            self._is_doubted = False
            await pubsub.subscribe(self._name)
            asked = False
            while not self._is_doubted:
                heard = await pubsub.get_message(timeout=SILENCE_SECONDS)
                if heard is None:
                    if asked:
                        return
                    await pubsub.ping()
                else:
                    self._heard_at = monotonic()
                    self.connections += heard["type"] == "subscribe"
                asked = heard is None
                if heard is not None and heard["type"] == "message" and not self._is_doubted:
                    yield heard["data"].decode(errors="replace")
