"""Which processes that look after subscribers are alive.

Each shows so in Redis by a number that rises. A process counts as dead when its number has not
risen for some time, by the monotonic clock of whoever looks.
"""

import secrets
from collections.abc import Callable

from rsnotify.coordination import keys
from rsnotify.coordination.last_seen import LastSeen
from rsnotify.redis_client import Client

CLAIM_SECONDS = 15.0
FORGOTTEN_SECONDS = 20 * CLAIM_SECONDS  # a process gone for so long is forgotten


class Heartbeats:
    """The heartbeat of this process, and those of the others as it has seen them."""

    def __init__(self, client: Client, process: str, clock: Callable[[], float]) -> None:
        self.me = f"{process}:{secrets.token_hex(4)}"
        self.number = 0
        self._client = client
        self._seen: LastSeen[int] = LastSeen(clock)

    async def beat(self) -> int:
        """Show that this process is alive; return how many processes are."""
        self.number += 1
        pipeline = self._client.pipeline(transaction=False)
        pipeline.hset(keys.DELIVERERS, self.me, self.number)
        pipeline.hgetall(keys.DELIVERERS)
        _, beats = await pipeline.execute()
        for name, beat in beats.items():
            self.look(name.decode(), int(beat))
        gone = [name for name in self.gone() if name.encode() in beats]
        if gone:  # one that was only frozen counts again from its next sign of life
            await self._client.hdel(keys.DELIVERERS, *gone)
        return len(beats) - len(gone)

    async def end(self) -> None:
        """Count this process no more."""
        await self._client.hdel(keys.DELIVERERS, self.me)

    def look(self, name: str, beat: int) -> None:
        """Take note of a heartbeat of another process, wherever it was seen."""
        if beat > (self._seen.value(name) or -1):  # after a failover an older one may be read
            self._seen.note(name, beat)

    def gone(self) -> dict[str, int]:
        """The processes that count as dead, with their last heartbeat."""
        for name in self._seen.all_unchanged(FORGOTTEN_SECONDS):
            self._seen.forget(name)
        return self._seen.all_unchanged(CLAIM_SECONDS)

    def seconds_to_next_end(self) -> float | None:
        """When the next process counts as dead if it shows no sign of life; None if none does."""
        return min(self._seen.seconds_left(CLAIM_SECONDS), default=None)
