"""The client of one Redis: what it is sent, how often, and what its failures mean."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hiredis import pack_command
from redis import asyncio as redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import BusyLoadingError, NoScriptError, RedisError, ResponseError
from redis.exceptions import ConnectionError as ConnectionLost

from rsnotify.errors import Unanswered
from rsnotify.storage.failures import judge
from rsnotify.storage.pool import Pool
from rsnotify.storage.replicas import Replicas
from rsnotify.storage.script import Command, Script

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0
CONNECTIONS = 64

Confirm = Callable[[Any, list[Any]], Awaitable[list[Any]]]


def pool_options() -> dict[str, Any]:
    """Of the connections to one server."""
    return {
        "max_connections": CONNECTIONS,
        "timeout": ANSWER_SECONDS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": ANSWER_SECONDS,
        # One repetition is enough for a connection that died while idle; silence is not repeated.
        "retry": Retry(ConstantBackoff(0), 1, supported_errors=(ConnectionLost,)),
        "protocol": 2,
        # Nothing is said before the first command: on a unix socket its silence would be repeated.
        "driver_info": None,
    }


def answer_raw(client: Any) -> None:
    """Let streams be answered as raw pairs: the journal parses them itself."""
    for name in ("XRANGE", "XREVRANGE"):
        client.response_callbacks.pop(name, None)


class RedisClient(redis.Redis):
    """The client of the library, with translated failures."""

    replicas = Replicas(0)
    is_cluster = False

    def lane(self, _tag: str) -> str:
        """What is in the same lane waits for the same server."""
        return ""

    async def servers(self) -> tuple[str, ...]:
        """The server, by a name that it loses when it is started again or another takes over."""
        pool: Any = self.connection_pool
        await pool.look_for_newer()
        pipeline = self.pipeline(transaction=False)
        pipeline.info("server")
        pipeline.info("replication")
        server, replication = await pipeline.execute()
        return (f"{server['run_id']} {replication.get('master_replid', '')}",)

    async def masters(self) -> list[Any]:
        """A client of each server that is written to."""
        return [self]

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        with judged():
            try:
                return await self._execute(*command, **options)
            except NoScriptError:
                return await self._execute(*Script.in_full(command), **options)

    async def _execute(self, *command: Any, **options: Any) -> Any:
        return await super().execute_command(*command, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> "RedisPipeline":
        pool, callbacks = self.connection_pool, self.response_callbacks
        return RedisPipeline(pool, callbacks, transaction, shard_hint)

    async def once(self, commands: Sequence[Command], *then: Command) -> list[Any]:
        """Execute these in one round trip that the library does not repeat; an error is an answer.

        `Unanswered` means that they may have been executed, any other `TryAgain` that none was.
        What is to be read `then` is always read behind them.
        """
        answers = await self._once(commands, then)
        forgotten = [at for at, each in enumerate(answers) if isinstance(each, NoScriptError)]
        if forgotten:
            again = [Script.in_full(commands[at]) for at in forgotten]
            places = [*forgotten, *range(len(commands), len(answers))]
            for at, answer in zip(places, await self._once(again, then), strict=True):
                answers[at] = answer
        return answers

    async def durably(self, commands: Sequence[Command]) -> list[Any]:
        """Execute these like `once`, again if the connection was lost; an error is raised."""
        return await durably(self, commands)

    async def _once(self, commands: Sequence[Command], then: Sequence[Command]) -> list[Any]:
        pool: Any = self.connection_pool
        answers = await exchange(pool, commands, then, confirm=self.replicas.confirm)
        return [judge_answer(answer) for answer in answers]


class RedisPipeline(Pipeline):
    """The pipeline of the library, with translated failures."""

    def afterwards(self) -> None:
        """What is added from here on is done after all that was added before. It always is."""

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands = [command for command, _ in self.command_stack]
        with judged():
            answers = await super().execute(raise_on_error=False)
            for at, answer in enumerate(answers):
                if isinstance(answer, NoScriptError):
                    answers[at] = await self._in_full(commands[at])
        return judge_answers(answers, raise_on_error=raise_on_error)

    async def _in_full(self, command: Command) -> Any:
        self.execute_command(*Script.in_full(command))
        (answer,) = await super().execute(raise_on_error=False)
        return answer


async def durably(client: Any, commands: Sequence[Command]) -> list[Any]:
    """Execute these like `once`, again if the connection was lost; an error is raised."""
    try:
        answers = await client.once(commands)
    except Unanswered as error:
        if not isinstance(error.__cause__, ConnectionLost):
            raise
        answers = await client.once(commands)
    return judge_answers(answers, raise_on_error=True)


async def exchange(
    pool: Pool,
    commands: Sequence[Command],
    then: Sequence[Command] = (),
    *,
    confirm: Confirm | None = None,
) -> list[Any]:
    """Send these once, on one connection; what the server refuses is an answer, as it said it.

    `Unanswered` means that they may have been executed, any other `TryAgain` that none was.
    """
    with judged():
        connection = await pool.borrow()
    is_answered = False
    try:
        _write(connection, [*commands, *then])
        answers = [await _answer(connection) for _ in commands]
        answers += [await _answer_or_loss(connection) for _ in then]
        is_unknown = any(isinstance(answer, NoScriptError) for answer in answers)
        if confirm is not None and not is_unknown:  # otherwise more is to be written
            answers = await confirm(connection, answers)
        is_answered = True
        return answers
    except BusyLoadingError as error:
        await connection.disconnect()
        raise judge(error) from error
    except (RedisError, OSError) as error:
        raise Unanswered(str(judge(error))) from error
    finally:
        await (pool.give_back if is_answered else pool.release)(connection)


def _write(connection: Any, commands: Sequence[Command]) -> None:
    """Write past the library, which packs in Python, and in a task of its own; the time limit of
    the answers is enough."""
    try:
        connection._writer.write(b"".join(map(pack_command, commands)))
    except RuntimeError as error:  # so the event loop says that the connection was closed just now
        raise ConnectionLost(str(error)) from error


async def _answer(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


async def _answer_or_loss(connection: Any) -> Any:
    """The commands before it are answered, even if the connection ends here."""
    try:
        return await _answer(connection)
    except (RedisError, OSError) as error:
        return judge(error)


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
