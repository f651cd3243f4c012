"""Watches the clock of Redis, for all hub processes together and across restarts."""

import logging

import msgspec

from rsnotify.journal import keys
from rsnotify.journal.window import HOUR, ClockHistory
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import MICROSECONDS, Position

log = logging.getLogger(__name__)

JUMPED = (
    "the clock of Redis is %.1f h ahead of what was last seen of it: it has jumped, or no hub was "
    "running. Nothing is deleted for its age before it has been observed to grow that old."
)


class ClockWatch:
    """Looks at the clock of Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def look(self) -> ClockHistory:
        """The history of the clock up to now; stored before anybody acts on it."""
        while True:
            stored = await self._client.get(keys.CLOCK_HISTORY)
            now = int(await redis_now(self._client))
            before = (
                ClockHistory(now)
                if stored is None
                else msgspec.json.decode(stored, type=ClockHistory)
            )
            history = before.at(now)
            if await self._keep(stored, history):
                if history.is_behind_a_gap:
                    log.warning(JUMPED, (history.seen - before.seen) / HOUR)
                return history

    async def _keep(self, stored: bytes | None, history: ClockHistory) -> bool:
        new = msgspec.json.encode(history)
        if stored is None:
            return bool(await self._client.set(keys.CLOCK_HISTORY, new, nx=True))
        return bool(await self._client.if_equals(keys.CLOCK_HISTORY, stored, "SET", new))


async def redis_now(client: Client) -> Position:
    """The time by the clock of Redis, which all hub processes share."""
    seconds, microseconds = await client.time()
    return Position(int(seconds) * MICROSECONDS + int(microseconds))
