"""An answer waits until so many replicas have what was written before it.

`WAITAOF` counts the replicas that have it on disk; a server that does not know the command is asked
with `WAIT`, which counts those that have it in memory. Both look at what their own connection has
written, and a repeated append writes nothing: so something is always written first.
"""

from functools import partial
from typing import Any

from redis.exceptions import ResponseError

from rsnotify.errors import RedisRefuses, TooFewReplicas, TryAgain
from rsnotify.storage import keys
from rsnotify.storage.exchange import AskCommands, Confirm
from rsnotify.storage.failures import code_of, judge

WAIT_MILLISECONDS = 1_500  # less than an answer of Redis may take


class Replicas:
    """How many replicas must have it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._knows_files = True  # until the server says otherwise

    def confirmation(self, key: str = keys.WAITED) -> Confirm | None:
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
                answer = await _written(ask, key, "WAITAOF", 0, self.count)
                return int(answer[1])  # the primary's own file comes first
            except ResponseError as error:
                if "unknown command" not in str(error):
                    raise
            self._knows_files = False
        return int(await _written(ask, key, "WAIT", self.count))


async def _written(ask: AskCommands, key: str, *wait: Any) -> Any:
    """Write, and wait for what was written."""
    written, waited = await ask([("SET", key, ""), (*wait, WAIT_MILLISECONDS)])
    for answer in (waited, written):
        if isinstance(answer, Exception):
            raise answer
    return waited


def _too_few(have_it: int, wanted: int) -> TooFewReplicas:
    return TooFewReplicas(
        TryAgain(
            f"{have_it} of {wanted} replicas have confirmed it in time, so that a failover could "
            "lose it"
        )
    )
