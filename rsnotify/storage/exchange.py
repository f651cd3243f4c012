"""One exchange with a Redis: commands are sent together, and all their answers are waited for."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from rsnotify.errors import Unanswered
from rsnotify.storage.direct_connection import DirectConnection
from rsnotify.storage.failures import judge
from rsnotify.storage.pool import Pool
from rsnotify.storage.script import Command

Ask = Callable[[Sequence[Command]], Awaitable[list[Any]]]
Confirm = Callable[[Ask, list[Any]], Awaitable[list[Any]]]


async def exchange(
    pool: Pool,
    commands: Sequence[Command],
    then: Sequence[Command] = (),
    *,
    confirm: Confirm | None = None,
    afresh: bool = False,
) -> list[Any]:
    """Send these once, on one connection; what the server refuses is an answer, as it said it.

    `Unanswered` means that they may have been executed, any other `TryAgain` that none was.
    With `afresh` the connection is made for this.
    """
    with judged():
        direct = await pool.borrow(afresh=afresh)
    is_answered = False
    try:
        answers = await _answers(direct, commands, then)
        is_unknown = any(isinstance(answer, NoScriptError) for answer in answers)
        if confirm is not None and not is_unknown:  # otherwise more is to be written
            answers = await confirm(direct.ask, answers)
        is_answered = not any(isinstance(answer, ReadOnlyError) for answer in answers)
        return answers
    except (RedisError, OSError) as error:
        raise Unanswered(str(judge(error))) from error
    finally:
        await (pool.give_back if is_answered else pool.drop)(direct)


async def _answers(
    direct: DirectConnection, commands: Sequence[Command], then: Sequence[Command]
) -> list[Any]:
    """The commands are answered even if the connection ends before what is to be read `then`."""
    try:
        answers = await direct.ask([*commands, *then])
    except (RedisError, OSError) as error:
        lost = len(commands) + len(then) - len(direct.answers)
        if lost > len(then):
            raise
        answers = [*direct.answers, *[judge(error)] * lost]
    refusal = next((answer for answer in answers if isinstance(answer, ConnectionLost)), None)
    if refusal is not None:  # Redis serves nobody now, or not us
        raise judge(refusal) from refusal
    return answers


def judge_answer(answer: Any) -> Any:
    """An answer as the hub understands it; a script that is not known is for the client."""
    if isinstance(answer, Exception) and not isinstance(answer, NoScriptError):
        return judge(answer)
    return answer


def judge_answers(answers: Sequence[Any], *, raise_on_error: bool) -> list[Any]:
    found = [judge(each) if isinstance(each, Exception) else each for each in answers]
    failed = next((each for each in found if isinstance(each, Exception)), None)
    if raise_on_error and failed is not None:
        raise failed
    return found


@contextmanager
def judged() -> Iterator[None]:
    """Translate failures of the client library that mean something to the caller."""
    try:
        yield
    except (RedisError, OSError, RuntimeError) as error:
        found = judge(error)
        if found is error:
            raise
        raise found from error
