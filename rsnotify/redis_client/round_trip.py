"""One exchange with a Redis: commands and scripts are sent together, all answers are waited for.

An answer can also wait until so many replicas have what was written before it. `WAITAOF` counts the
replicas that have it on disk; a server that does not know the command is asked with `WAIT`, which
counts those that have it in memory. Both look at what their own connection has written, and a
repeated append writes nothing: so something is always written first.

A replica says what it has on disk when it is asked, and that is before its `fsync`; by itself it
says so once a second. So `WAITAOF` is repeated, at first after a few milliseconds.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from time import monotonic
from typing import Any

from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError, ResponseError

from rsnotify.errors import RedisRefuses, TooFewReplicas, TryAgain, Unanswered
from rsnotify.redis_client.failures import code_of, judge, judge_unforeseen
from rsnotify.redis_client.pool import Command, DirectConnection, Pool


def in_words(command: Command) -> Command:
    """redis-py names some commands with two words, as CLUSTER SLOTS; Redis wants them apart."""
    name, *rest = command
    return (*name.split(" "), *rest) if " " in name else command


class Script:
    """A Lua script: called by its hash, sent in full to a Redis that does not know it."""

    _texts: dict[str, str] = {}  # noqa: RUF012 - by hash, of all there are

    def __init__(self, *names: str) -> None:
        """The text of these files, one behind the other."""
        text = "".join(files("rsnotify").joinpath(name).read_text() for name in names)
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._texts[self._sha] = text

    def run(self, client: Any, keys: Sequence[object], *arguments: object) -> Any:
        """Run it: to be awaited with a client; with a pipeline, a part of that."""
        return client.execute_command(*self.command(keys, *arguments))

    def command(self, keys: Sequence[object], *arguments: object) -> Command:
        return ("EVALSHA", self._sha, len(keys), *keys, *arguments)

    @classmethod
    def in_full(cls, command: Command) -> Command:
        """The same command for a Redis that does not know the script."""
        _, sha, *rest = command
        return ("EVAL", cls._texts[sha], *rest)


# --- round trips ---------------------------------------------------------------------------------

WHOLE_SECONDS = 2.9  # with the wait for a connection, and with a repetition…
LEAST_SECONDS = 0.9  # …but so long an answer may take in any case

AskCommands = Callable[[Sequence[Command]], Awaitable[list[Any]]]
Confirm = Callable[[AskCommands, list[Any]], Awaitable[list[Any]]]


async def exchange(
    pool: Pool,
    commands: Sequence[Command],
    reads_after: Sequence[Command] = (),
    *,
    confirm: Confirm | None = None,
    began: float | None = None,
    new_connection: bool = False,
) -> list[Any]:
    """Send these once, on one connection; what the server refuses is an answer, as it said it.

    `Unanswered` means that they may have been executed, any other `TryAgain` that none was. A
    repetition says when the first try `began`.
    """
    began = monotonic() if began is None else began
    connection = await _borrowed(pool, began, new=new_connection)
    try:
        answers = await _answers(connection, commands, reads_after, began)
        stored = answers[: len(commands)]
        if confirm is not None and not all(isinstance(each, Exception) for each in stored):
            answers = await confirm(connection.ask, answers)
        return answers
    except TryAgain:
        raise
    except Exception as error:
        found = judge_unforeseen(error)
        if found is not error and not isinstance(error, RedisError | OSError):
            connection.abort()
        raise found if isinstance(found, RedisRefuses) else Unanswered(str(found)) from error
    finally:
        await pool.give_back(connection)


async def _borrowed(pool: Pool, began: float, *, new: bool) -> DirectConnection:
    try:
        return await pool.borrow(new=new, until=began + WHOLE_SECONDS - LEAST_SECONDS)
    except Exception as error:
        found = judge_unforeseen(error)
        if found is error:
            raise
        raise found from error


async def _answers(
    connection: DirectConnection,
    commands: Sequence[Command],
    reads_after: Sequence[Command],
    began: float,
) -> list[Any]:
    """If the connection ends while `reads_after` are answered, the others still have answers."""
    remaining = max(began + WHOLE_SECONDS - monotonic(), LEAST_SECONDS)
    try:
        answers = await connection.ask(
            [*commands, *reads_after], min(connection.answer_seconds, remaining)
        )
    except (RedisError, OSError) as error:
        answers = connection.answers
        _raise_refusal(answers)
        missing = len(commands) + len(reads_after) - len(answers)
        if not 0 <= missing <= len(reads_after):
            raise
        return [*answers, *[judge(error)] * missing]
    if not connection.is_usable:  # as it is after a refusal
        _raise_refusal(answers)
    return answers


def _raise_refusal(answers: Sequence[Any]) -> None:
    """If Redis serves nobody now, or not us. If it refused the first, it has executed none."""
    refusal = next((each for each in answers if isinstance(each, ConnectionLost)), None)
    if refusal is not None:
        raise judge(refusal) if refusal is answers[0] else refusal


def has_error(answers: Iterable[Any]) -> bool:
    """Whether one of them is an error; a plain loop, as it is asked for each append."""
    for answer in answers:  # noqa: SIM110
        if isinstance(answer, Exception):
            return True
    return False


def judge_answers(answers: Sequence[Any], *, raise_on_error: bool) -> list[Any]:
    """The answers as the hub understands them."""
    found = [judge(each) if isinstance(each, Exception) else each for each in answers]
    failed = next((each for each in found if isinstance(each, Exception)), None)
    if raise_on_error and failed is not None:
        raise failed
    return found


def parsed_as(callbacks: Any, command: Command, answer: Any, options: Mapping[str, Any]) -> Any:
    """The answer as redis-py gives it; `TryAgain` if it cannot be what Redis has said."""
    callback = callbacks.get(command[0])
    known = {name: value for name, value in options.items() if name != "keys"}
    try:
        return answer if callback is None else callback(answer, **known)
    except Exception as error:
        raise judge_unforeseen(error) from error


# --- replicas ------------------------------------------------------------------------------------

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
