"""The clock of Redis as all hub processes together have seen it.

Rules that hold here: what one process has seen, all others know, and the next start too.
Nothing here deletes anything.
"""

import logging

import msgspec

from rsnotify.core.watched import Watched
from rsnotify.core.window import HOUR
from rsnotify.resourcesync.change import MICROSECONDS
from rsnotify.storage import keys
from rsnotify.storage.connection import Client
from rsnotify.storage.if_equals import IfEquals

log = logging.getLogger(__name__)

JUMPED = (
    "the clock of Redis is %.1f h ahead of what was last seen of it: it has jumped, or no hub was "
    "running. Nothing is deleted for its age before it has been watched to grow that old."
)


class Watch:
    """Looks at the clock of Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._if_equals = IfEquals(client)

    async def look(self) -> Watched:
        """What has been seen of the clock, up to now; kept before anybody acts on it."""
        while True:
            stored = await self._client.get(keys.WATCHED)
            seconds, microseconds = await self._client.time()
            now = seconds * MICROSECONDS + microseconds
            before = Watched(now) if stored is None else msgspec.json.decode(stored, type=Watched)
            watched = before.at(now)
            if await self._keep(stored, watched):
                if watched.is_behind_a_gap:
                    log.warning(JUMPED, (watched.seen - before.seen) / HOUR)
                return watched

    async def _keep(self, stored: bytes | None, watched: Watched) -> bool:
        new = msgspec.json.encode(watched)
        if stored is None:
            return bool(await self._client.set(keys.WATCHED, new, nx=True))
        return await self._if_equals(keys.WATCHED, stored, "SET", new)
