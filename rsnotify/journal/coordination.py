"""How hub processes work together by their Redis: they ring a bell, watch its clock, take claims.

The bell is a pub/sub message when a journal has grown or a set has changed. It is a
hint: nobody may rely on it. The connection is asked for an answer now and then, for a pub/sub
reader can die without an error.

The clock of Redis is watched for all processes together and across restarts.

A claim is the right to do something that only one process at a time may do. It ends when its holder
no longer renews it, by the clock of Redis or by the clock of a process that waits for it, whichever
is first: if the clock of Redis goes back an hour, nobody waits for that.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from rsnotify.errors import TryAgain
from rsnotify.journal import keys
from rsnotify.journal.window import HOUR, ClockHistory
from rsnotify.redis_client import Client, Script
from rsnotify.resourcesync.change import MICROSECONDS, Position

log = logging.getLogger(__name__)

# --- the bell ------------------------------------------------------------------------------------

TOKEN_ACTS = ("made", "revoked")  # strokes that name the key of a token
PING_SECONDS = 2.0  # from one to the next, and for the answer
DEAF_SECONDS = 2 * PING_SECONDS  # after the last sign of life
RECHECK_SECONDS = 0.01  # for what came while this process was busy, and was not read yet
AGAIN_SECONDS = 1.0
WITHOUT = "the journals are compared instead, which takes longer"


class Bell:
    """Receives the strokes of every hub process on this Redis."""

    def __init__(self, client: Client, name: str = keys.BELL) -> None:
        self._client = client
        self._name = name
        self._heard_at = float("-inf")
        self._is_doubted = False
        self._connection: Any = None  # of a client
        self.connections = 0  # how often it was made: before, strokes may have been missed

    @property
    def is_heard(self) -> bool:
        """Whether its connection lives, as far as is known."""
        return monotonic() < self._heard_at + DEAF_SECONDS

    def doubt(self) -> None:
        """Redis is another one now, and this connection may still be to the one before."""
        self._is_doubted = True
        if self._connection is not None:
            self._connection.abort()

    async def listen(self, hear: Callable[[str], None]) -> None:
        """Call `hear` with the text of each stroke, without end; reconnect when the connection is
        lost. The event loop calls it, so it must not take long."""
        while True:
            try:
                await self._on_one_connection(hear)
            except Exception as error:  # also a ValueError, where an answer cannot be read
                if not self._is_doubted:
                    log.warning("%s; until Redis answers, %s", error, WITHOUT)
            self._heard_at = float("-inf")
            await asyncio.sleep(AGAIN_SECONDS)

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
            await connection.wait(PING_SECONDS)
            if self._heard_at < asked_at:
                await connection.wait(RECHECK_SECONDS)
            if self._heard_at < asked_at:
                return

    def _take_in(self, hear: Callable[[str], None], said: Any) -> None:
        self._heard_at = monotonic()
        match said:
            case [b"message", _, bytes(stroke)]:
                try:
                    hear(stroke.decode(errors="replace"))
                except Exception as error:  # a bug, or it cannot be read: only a hint is lost
                    log.warning("a stroke of the bell cannot be read", exc_info=error)
            case [b"subscribe", *_]:
                self.connections += 1
            case Exception():
                raise said


# --- the clock of Redis --------------------------------------------------------------------------

JUMPED = (
    "the clock of Redis is %.1f h ahead of what was last seen of it: it has jumped, or no hub was "
    "running. Nothing is deleted for its age before it has been observed to grow that old."
)


async def observed_clock(client: Client) -> ClockHistory:
    """What hub processes have observed of the clock of Redis, up to now; stored before anybody acts
    on it."""
    while True:
        stored = await client.get(keys.CLOCK_HISTORY)
        now = int(await redis_now(client))
        before = (
            ClockHistory(now) if stored is None else msgspec.json.decode(stored, type=ClockHistory)
        )
        history = before.at(now)
        if await _is_stored(client, stored, history):
            if history.is_behind_a_gap:
                log.warning(JUMPED, (history.seen - before.seen) / HOUR)
            return history


async def _is_stored(client: Client, before: bytes | None, history: ClockHistory) -> bool:
    new = msgspec.json.encode(history)
    if before is None:
        return bool(await client.set(keys.CLOCK_HISTORY, new, nx=True))
    return bool(await client.if_equals(keys.CLOCK_HISTORY, before, "SET", new))


async def redis_now(client: Client) -> Position:
    """The time by the clock of Redis, which all hub processes share."""
    seconds, microseconds = await client.time()
    return Position(int(seconds) * MICROSECONDS + int(microseconds))


# --- claims --------------------------------------------------------------------------------------

_CLAIM = Script("journal/claim.lua")


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

    async def let_go(self) -> None:
        await _CLAIM.run(self._client, [self.key], "let_go", self._holder)


class Claims:
    """Takes claims, and remembers how long those of others have not been renewed."""

    def __init__(self, client: Client, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._clock = clock
        self._seen: dict[str, tuple[bytes, float]] = {}

    async def take(self, key: str, seconds: float) -> Claim | None:
        """The claim, or None while another has it; it ends after so long unless renewed."""
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
