"""The bell: a pub/sub message when a journal has grown or the registry of sets has changed.

It is a hint: nobody may rely on it. A silent connection is tested, for a pub/sub reader can die
without an error.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from redis.exceptions import RedisError

from rsnotify.storage import keys
from rsnotify.storage.connection import connect_listener

log = logging.getLogger(__name__)

SILENCE_SECONDS = 10.0
AGAIN_SECONDS = 1.0
WITHOUT = "the changes of other hub processes are seen once a second"


class Bell:
    """Receives what every hub process on this Redis rings."""

    def __init__(self, url: str, name: str = keys.BELL) -> None:
        self._url = url
        self._name = name

    async def strokes(self) -> AsyncIterator[str]:
        """Each stroke's text, for ever; connects anew when the connection is lost."""
        while True:
            try:
                async for stroke in self._on_one_connection():
                    yield stroke
            except (RedisError, OSError) as error:
                log.warning("%s; until Redis answers, %s", error, WITHOUT)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _on_one_connection(self) -> AsyncIterator[str]:
        client = connect_listener(self._url)
        async with client, client.pubsub() as pubsub:
            await pubsub.subscribe(self._name)
            asked = False
            while True:
                heard = await pubsub.get_message(timeout=SILENCE_SECONDS)
                if heard is None:
                    if asked:
                        return
                    await pubsub.ping()
                asked = heard is None
                if heard is not None and heard["type"] == "message":
                    yield heard["data"].decode(errors="replace")
