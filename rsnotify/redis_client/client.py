"""The client of one Redis: what it is sent, how often, and what its failures mean."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from time import monotonic
from typing import Any, NamedTuple, Protocol

from redis import asyncio as redis
from redis.asyncio.client import Pipeline as LibraryPipeline
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.crc import key_slot
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ExecAbortError, NoScriptError

from rsnotify.errors import TryAgain, Unanswered
from rsnotify.redis_client.failures import judge
from rsnotify.redis_client.pool import Command, ListeningConnection, Pool
from rsnotify.redis_client.round_trip import (
    Replicas,
    Script,
    exchange,
    has_error,
    in_words,
    judge_answers,
    parsed_as,
)


class Servers(NamedTuple):
    """The servers that have the data, by names that they lose when another takes over."""

    names: tuple[str, ...]  # one; or that of each slot of a Cluster

    def of_key(self, key: str) -> str:
        one, *others = self.names
        return self.names[key_slot(key.encode())] if others else one


class PipelineClient(Protocol):
    """The client of one Redis or of a Cluster."""

    is_cluster: bool
    connection_pool: Any
    response_callbacks: Any

    async def together(self, commands: Sequence[Command]) -> list[Any]: ...

    async def atomically(self, commands: Sequence[Command]) -> list[Any]: ...


class Pipeline(LibraryPipeline):
    """Collects commands; those of a transaction are of one slot."""

    def __init__(self, client: PipelineClient, transaction: bool) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction, None)
        self._client = client
        self._stages = [0]

    def afterwards(self) -> None:
        """In a Cluster, what is added from here on is sent when all before it is answered; one
        server keeps the order anyway."""
        if self._client.is_cluster:
            self._stages.append(len(self.command_stack))

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, stages = self.command_stack, [*self._stages, len(self.command_stack)]
        self.command_stack, self._stages = [], [0]
        commands = [command for command, _ in stack]
        answers: list[Any] = []
        if self.is_transaction and commands:
            answers = await self._client.atomically(commands)
        else:
            for begin, end in pairwise(stages):
                answers += await self._client.together(commands[begin:end])
        found = judge_answers(answers, raise_on_error=raise_on_error)
        return [
            answer
            if isinstance(answer, Exception)
            else parsed_as(self.response_callbacks, command, answer, options)
            for (command, options), answer in zip(stack, found, strict=True)
        ]


_IF_EQUALS = Script("redis_client/if_equals.lua")
_PIECE = Script("redis_client/piece.lua")
PIECE_BYTES = 64 * 1024


class MoreCommands:
    """What any client can do besides the commands of Redis."""

    listening_pool: Callable[[], Pool]

    @asynccontextmanager
    async def listening(self, hear: Callable[[Any], None]) -> AsyncIterator[ListeningConnection]:
        """A connection of its own, on which `hear` is called with all that Redis says."""
        async with self.listening_pool() as pool:
            made = await pool.get_connection()  # type: ignore[no-untyped-call]
            connection = ListeningConnection(made, hear)
            try:
                yield connection
            finally:
                connection.abort()

    async def if_equals(
        self, key: str, expected: bytes | str | int, *command: bytes | str | int, field: str = ""
    ) -> bool:
        """Do the command to the key if `expected` is its value, or that of this field.

        Returns whether it was done; any other value stays as it is.
        """
        return bool(await _IF_EQUALS.run(self, [key], field, expected, *command))

    async def write_in_pieces(self, key: str, data: bytes, *, seconds: int) -> None:
        """Write large data in pieces, so that others need not wait for all of it; it expires.

        It does no harm if a piece is written twice.
        """
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            if not await _PIECE.run(self, [key], start, piece, seconds):
                raise TryAgain("the data expired while they were written: it took too long")


CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0
CONNECTIONS = 64


def pool_options() -> dict[str, Any]:
    """Of the connections to one server."""
    return {
        "max_connections": CONNECTIONS,
        "timeout": ANSWER_SECONDS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": ANSWER_SECONDS,
        # To connect is tried twice, unless there was silence.
        "retry": Retry(ConstantBackoff(0), 1, supported_errors=(ConnectionLost,)),
        "protocol": 2,
        # Nothing is said before the first command: on a unix socket its silence would be repeated.
        "driver_info": None,
    }


def answer_raw(client: Any) -> None:
    """Let streams be answered as raw pairs: the journal parses them itself."""
    for name in ("XRANGE", "XREVRANGE"):
        client.response_callbacks.pop(name, None)


class RedisClient(MoreCommands, redis.Redis):  # type: ignore[misc] # the library's own bases
    """The commands of redis-py, sent over our own connections, with translated failures."""

    replicas = Replicas(0)
    is_cluster = False

    def lane(self, _tag: str) -> str:
        """What is in the same lane waits for the same server."""
        return ""

    async def servers(self) -> Servers:
        """The server, by a name that it loses when it is started again or another takes over."""
        pool: Any = self.connection_pool
        await pool.look_for_newer()
        pipeline = self.pipeline(transaction=False)
        pipeline.info("server")
        pipeline.info("replication")
        server, replication = await pipeline.execute()
        return Servers((f"{server['run_id']} {replication.get('master_replid', '')}",))

    async def masters(self) -> dict[str, Any]:
        """A client of each server that is written to, by its lane."""
        return {"": self}

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        (answer,) = judge_answers(await self.together([command]), raise_on_error=True)
        return parsed_as(self.response_callbacks, command, answer, options)

    def pipeline(self, transaction: bool = True, _: str | None = None) -> Pipeline:
        return Pipeline(self, transaction)

    async def together(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to many that may be repeated; an error is one of them."""
        answers = await self._repeatable(commands)
        for at, answer in enumerate(answers):
            if isinstance(answer, NoScriptError):
                (answers[at],) = await self._repeatable([Script.in_full(commands[at])])
        return answers

    async def atomically(self, commands: Sequence[Command]) -> list[Any]:
        """All of these or none."""
        return executed(await self._repeatable(as_transaction(commands)))

    async def _repeatable(self, commands: Sequence[Command]) -> list[Any]:
        return await repeatable(self.connection_pool, commands)

    async def once(self, commands: Sequence[Command], *then: Command) -> list[Any]:
        """Execute these in one round trip that is not repeated; an error is an answer.

        `Unanswered` means that they may have been executed, any other `TryAgain` that none was.
        What is to be read `then` is always read behind them.
        """
        pool: Any = self.connection_pool
        confirm = self.replicas.confirmation()
        answers = await exchange(pool, commands, then, confirm=confirm)
        if not has_error(answers):
            return answers
        forgotten = [at for at, each in enumerate(answers) if isinstance(each, NoScriptError)]
        if forgotten:
            answers = await self._again_in_full(forgotten, answers, commands, then)
        return judge_answers(answers, raise_on_error=False)

    async def _again_in_full(
        self,
        forgotten: Sequence[int],
        answers: Sequence[Any],
        commands: Sequence[Command],
        then: Sequence[Command],
    ) -> list[Any]:
        again = [Script.in_full(commands[at]) for at in forgotten]
        try:
            redone = await self.once(again, *then)
        except TryAgain as error:
            if len(forgotten) == len(commands):
                raise
            raise Unanswered(error.detail) from error
        found = [*answers]
        places = [*forgotten, *range(len(commands), len(answers))]
        for at, answer in zip(places, redone, strict=True):
            found[at] = answer
        return found

    async def durably(self, commands: Sequence[Command]) -> list[Any]:
        """Execute these like `once`, again if the connection was lost; an error is raised."""
        return await durably(self, commands)


async def repeatable(pool: Any, commands: Sequence[Command]) -> list[Any]:
    """The answers; a second time, if the connection died, as it does while it is idle."""
    if not commands:
        return []
    began = monotonic()
    commands = [in_words(command) for command in commands]
    try:
        return await exchange(pool, commands)
    except Unanswered as error:
        if not is_connection_lost(error):
            raise
    return await exchange(pool, commands, began=began, new_connection=True)


def is_connection_lost(error: TryAgain) -> bool:
    """Whether that is why it was not answered; silence and refusals are other reasons."""
    return isinstance(error, Unanswered) and isinstance(error.__cause__, ConnectionLost)


def as_transaction(commands: Sequence[Command]) -> list[Command]:
    return [("MULTI",), *commands, ("EXEC",)]


def executed(answers: Sequence[Any]) -> list[Any]:
    """The answers within those to a transaction."""
    if not isinstance(answers[-1], Exception):
        return list(answers[-1])
    refused = [each for each in answers if isinstance(each, Exception)]
    raise judge(min(refused, key=lambda each: isinstance(each, ExecAbortError)))


async def durably(client: Any, commands: Sequence[Command]) -> list[Any]:
    """Execute these like `once`, again if the connection was lost; an error is raised."""
    try:
        return judge_answers(await client.once(commands), raise_on_error=True)
    except Unanswered as error:
        if not is_connection_lost(error):
            raise
    return judge_answers(await client.once(commands), raise_on_error=True)
