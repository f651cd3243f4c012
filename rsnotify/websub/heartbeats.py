"""Which hub processes look after WebSub subscribers: each shows in Redis that it lives.

A heartbeat is a number that rises. Durations are by the own monotonic clock: a process counts as
dead when its heartbeat has not risen for some time.
"""

import os
import secrets
import socket
from collections.abc import Callable

from rsnotify.journal import keys
from rsnotify.redis_client import Client
from rsnotify.websub.clock import LivenessTracker

CLAIM_SECONDS = 15.0


class Heartbeats:
    """The heartbeat of this process, and those of the others as it has seen them."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self.me = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.number = 0
        self._client = client
        self._clock = clock
        self._tracker = LivenessTracker(CLAIM_SECONDS)

    async def beat(self) -> int:
        """Show that this process is alive: how many processes are."""
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
        """A heartbeat of another process, wherever it was seen."""
        self._tracker.look(name, beat, self._clock())

    def gone(self) -> dict[str, int]:
        """The processes that count as dead, with their last heartbeat."""
        return self._tracker.gone(self._clock())

    def seconds_to_next_end(self) -> float | None:
        """When the next process counts as dead if it shows no sign of life."""
        end = self._tracker.next_end(self._clock())
        return None if end is None else end - self._clock()
