"""An answer waits until so many replicas have what was written before it.

`WAITAOF` counts the replicas that have it on disk; a server that does not know the command is asked
with `WAIT`, which counts those that have it in memory. Both look at what their own connection has
written, and a repeated append writes nothing: so something is always written first.

A replica says what it has on disk when it is asked, and that is before its `fsync`; by itself it
says so once a second. So `WAITAOF` is repeated, at first after a few milliseconds.
"""

from functools import partial
from time import monotonic
from typing import Any

from redis.exceptions import ResponseError

from rsnotify.errors import RedisRefuses, TooFewReplicas, TryAgain
from rsnotify.redis_client.failures import code_of, judge
from rsnotify.redis_client.round_trip import AskCommands, Confirm
from rsnotify.redis_client.script import Command

WAITED = "rsnotify:waited"  # written before replicas are waited for; it says nothing
WAIT_MILLISECONDS = 1_500  # less than an answer of Redis may take
WAITS_FOR_FILES = (5, 10, 20, 40, 80, 160, 320, 640, 225)  # milliseconds, so many in all


class Replicas:
    """How many replicas must have it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._knows_files = True  # until the server says otherwise

    def confirmation(self, key: str = WAITED) -> Confirm | None:
        """How an exchange with a server that has this key is confirmed; None if it need not be."""
        return partial(self._confirm, key) if self.count else None

    async def _confirm(self, key: str, ask: AskCommands, answers: list[Any]) -> list[Any]:
        """These answers to what a connection has written, once enough replicas have it.

        Otherwise none of them says yes to what a failover could lose.
        """
        trouble = await self._trouble(ask, key)
        if trouble is None:
            return answers
        return [each if isinstance(each, Exception) else trouble for each in answers]

    async def _trouble(self, ask: AskCommands, key: str) -> Exception | None:
        try:
            have_it = await self._wait(ask, key)
        except ResponseError as error:
            why = self._unknown(error)
            return TooFewReplicas(why) if isinstance(why, TryAgain) else why
        return None if have_it >= self.count else _too_few(have_it, self.count)

    def _unknown(self, error: ResponseError) -> Exception:
        """Why nobody knows how many have it."""
        if code_of(error) != "NOPERM":
            return judge(error)
        right = "+waitaof" if self._knows_files else "+wait"
        return RedisRefuses(
            "Redis does not let the hub's user ask how many replicas have what is written "
            f"(NOPERM): allow it with {right}, or unset RSNOTIFY_REPLICAS"
        )

    async def _wait(self, ask: AskCommands, key: str) -> int:
        if self._knows_files:
            try:
                return await self._wait_for_files(ask, key)
            except ResponseError as error:
                if "unknown command" not in str(error):
                    raise
            self._knows_files = False
        return int(await _waited(ask, _write(key), ("WAIT", self.count, WAIT_MILLISECONDS)))

    async def _wait_for_files(self, ask: AskCommands, key: str) -> int:
        """How many have it on disk; the primary's own file comes first in the answers."""
        first, *others = WAITS_FOR_FILES
        until = monotonic() + WAIT_MILLISECONDS / 1000
        _, have_it = await _waited(ask, _write(key), ("WAITAOF", 0, self.count, first))
        for milliseconds in others:
            if have_it >= self.count or monotonic() >= until:
                break
            _, have_it = await _waited(ask, ("WAITAOF", 0, self.count, milliseconds))
        return int(have_it)


def _write(key: str) -> Command:
    return ("SET", key, "")


async def _waited(ask: AskCommands, *commands: Command) -> Any:
    """The last answer, if none is an error."""
    answers = await ask(commands)
    for answer in reversed(answers):
        if isinstance(answer, Exception):
            raise answer
    return answers[-1]


def _too_few(have_it: int, wanted: int) -> TooFewReplicas:
    return TooFewReplicas(
        TryAgain(
            f"{have_it} of {wanted} replicas have confirmed it in time, so that a failover could "
            "lose it"
        )
    )
