"""One exchange with a Redis: commands are sent together, and all their answers are waited for."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import NoScriptError, RedisError

from rsnotify.errors import RedisRefuses, Unanswered
from rsnotify.storage.direct_connection import DirectConnection
from rsnotify.storage.failures import judge
from rsnotify.storage.pool import Pool
from rsnotify.storage.script import Command

WHOLE_SECONDS = 2.9  # with the wait for a connection, and with a repetition…
LEAST_SECONDS = 0.9  # …but so long an answer may take in any case

Ask = Callable[[Sequence[Command]], Awaitable[list[Any]]]
Confirm = Callable[[Ask, list[Any]], Awaitable[list[Any]]]


async def exchange(
    pool: Pool,
    commands: Sequence[Command],
    then: Sequence[Command] = (),
    *,
    confirm: Confirm | None = None,
    since: float | None = None,
) -> list[Any]:
    """Send these once, on one connection; what the server refuses is an answer, as it said it.

    `Unanswered` means that they may have been executed, any other `TryAgain` that none was.
    With `since` they are repeated, over a connection that is made for this; that is when they were
    sent for the first time.
    """
    began = monotonic() if since is None else since
    with judged():
        direct = await pool.borrow(afresh=since is not None)
    try:
        answers = await _answers(direct, commands, then, began)
        is_unknown = any(isinstance(answer, NoScriptError) for answer in answers)
        if confirm is not None and not is_unknown:  # otherwise more is to be written
            answers = await confirm(direct.ask, answers)
        return answers
    except (RedisError, OSError) as error:
        found = judge(error)
        raise found if isinstance(found, RedisRefuses) else Unanswered(str(found)) from error
    finally:
        await pool.give_back(direct)


async def _answers(
    direct: DirectConnection, commands: Sequence[Command], then: Sequence[Command], began: float
) -> list[Any]:
    """The commands are answered even if the connection ends before what is to be read `then`."""
    limit = direct.connection.socket_timeout
    left = min(limit, max(WHOLE_SECONDS - (monotonic() - began), LEAST_SECONDS))
    try:
        answers = await direct.ask([*commands, *then], left)
    except (RedisError, OSError) as error:
        answers = direct.answers
        _raise_refusal(answers)
        missing = len(commands) + len(then) - len(answers)
        if not 0 <= missing <= len(then):
            raise
        answers = [*answers, *[judge(error)] * missing]
    _raise_refusal(answers)
    return answers


def _raise_refusal(answers: Sequence[Any]) -> None:
    """If Redis serves nobody now, or not us: of all commands alike, or from a moment on."""
    refusal = next((each for each in answers if isinstance(each, ConnectionLost)), None)
    if refusal is not None:
        raise judge(refusal) if refusal is answers[0] else refusal


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
