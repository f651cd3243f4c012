"""Claims: the right to do something that only one process at a time may do.

A claim ends when its holder no longer renews it, by the clock of Redis or by the clock of a
process that waits for it, whichever is first: if the clock of Redis goes back an hour, nobody waits
for that.
"""

import logging
import secrets
from collections.abc import Callable
from time import monotonic

from rsnotify.coordination.last_seen import LastSeen
from rsnotify.errors import TryAgain
from rsnotify.redis_client import Client, Script

log = logging.getLogger(__name__)

_CLAIM = Script("coordination/claim.lua")


class Claim:
    """The right to do something alone, as long as it is renewed."""

    def __init__(self, client: Client, key: str, seconds: float) -> None:
        self._holder = self.token = secrets.token_hex(8)
        self.key = key
        self._client = client
        self._milliseconds = int(seconds * 1000)

    async def take(self, stale: bytes) -> bytes:
        """Take it if it is free, or still looks like `stale`; returns what it looks like now."""
        arguments = ("take", self.token, self._milliseconds, stale)
        held: bytes = await _CLAIM.run(self._client, [self.key], *arguments)
        return held

    def is_in(self, held: bytes) -> bool:
        return held.startswith(self.token.encode())

    def keep_up(self, pipeline: Client) -> None:
        """Renew it with this pipeline, as its first command."""
        _CLAIM.run(pipeline, [self.key], "keep_up", self.token, self._milliseconds)

    def begun(self) -> tuple[str, str, int]:
        """Its token so far, the one from now on, and for how many milliseconds it holds: for a
        script that swaps them. Where Redis loses what that script did, the claim is lost too."""
        self.token = f"{self._holder}+"
        return self._holder, self.token, self._milliseconds

    def check(self, answer: object) -> None:
        if not answer:
            raise TryAgain("the claim was lost: it took too long, or another hub process has it")

    async def release(self) -> None:
        await _CLAIM.run(self._client, [self.key], "release", self._holder)


class Claims:
    """Takes claims, and remembers how long those of others have not been renewed."""

    def __init__(self, client: Client, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._seen: LastSeen[bytes] = LastSeen(clock)

    async def take(self, key: str, seconds: float) -> Claim | None:
        """The claim, or None while another has it; it ends after so long unless renewed."""
        claim = Claim(self._client, key, seconds)
        held = await claim.take(self._seen.unchanged(key, seconds) or b"")
        if claim.is_in(held):
            self._seen.forget(key)
            return claim
        self._seen.note(key, held)
        return None
