"""Claims: the right to do something that one hub process at a time shall do.

Rules that hold here: a claim ends when nobody keeps it up, by the clock of Redis or by that of
whoever waits for it, whichever is first: a Redis whose clock goes back an hour stalls nobody.
Nothing here knows what is claimed.
"""

import secrets
from collections.abc import Callable
from time import monotonic

from rsnotify.errors import TryAgain
from rsnotify.storage.connection import Client, Script

_CLAIM = Script("claim.lua")


class Claim:
    """The right to do it, for as long as it is kept up."""

    def __init__(self, client: Client, key: str, seconds: float) -> None:
        self.token = secrets.token_hex(8)
        self.key = key
        self._client = client
        self._milliseconds = int(seconds * 1000)

    async def take(self, stale: bytes) -> bytes:
        """Take it if nobody has it, or only who left it like that; what it looks like now."""
        command = _CLAIM.call([self.key], "take", self.token, self._milliseconds, stale)
        held: bytes = await self._client.execute_command(*command)
        return held

    def is_in(self, held: bytes) -> bool:
        return held.startswith(self.token.encode())

    def keep_up(self, pipeline: Client) -> None:
        """To be kept up with the journey that this begins; its first answer is for us."""
        command = _CLAIM.call([self.key], "keep_up", self.token, self._milliseconds)
        pipeline.execute_command(*command)

    def check(self, answer: int) -> None:
        if not answer:
            raise TryAgain("the claim was lost: it took too long, or another hub process has it")

    async def let_go(self) -> None:
        await self._client.execute_command(*_CLAIM.call([self.key], "let_go", self.token))


class Claims:
    """Takes claims, and remembers for how long those of others have looked the same."""

    def __init__(self, client: Client, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._clock = clock
        self._seen: dict[str, tuple[bytes, float]] = {}

    async def take(self, key: str, seconds: float) -> Claim | None:
        """The claim, or None while somebody else has it; it lasts so long unless kept up."""
        claim = Claim(self._client, key, seconds)
        before, since = self._seen.get(key, (b"", self._clock()))
        is_stale = self._clock() - since >= seconds
        held = await claim.take(before if is_stale else b"")
        if claim.is_in(held):
            self._seen.pop(key, None)
            return claim
        if held != before:
            self._seen[key] = (held, self._clock())
        return None
