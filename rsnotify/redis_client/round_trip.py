"""One exchange with a Redis: commands are sent together, and all their answers are waited for."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError

from rsnotify.errors import RedisRefuses, TryAgain, Unanswered
from rsnotify.redis_client.failures import judge, judge_unforeseen
from rsnotify.redis_client.pool import Pool
from rsnotify.redis_client.script import Command
from rsnotify.redis_client.taken_connection import DirectConnection

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
