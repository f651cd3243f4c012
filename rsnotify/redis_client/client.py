"""The client of one Redis: what it is sent, how often, and what its failures mean.

`RedisClient` is what the hub calls. It sends commands and scripts either in `repeatable`, a second
time if the connection died, or in `once`. Both go through one `round_trip`, which borrows a
connection, sends all, waits for all answers, and translates failures.

`Replicas` makes an answer wait until so many replicas have what was written before it: in memory,
which `WAIT` counts, or on disk, which `WAITAOF` counts. Both look at what their own connection has
written, and a repeated append writes nothing: so something is always written first.

A replica says what it has on disk when it is asked, and that is before its `fsync`; by itself it
says so once a second. So `WAITAOF` is repeated, at first after a few milliseconds.
"""

import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from itertools import pairwise, repeat
from time import monotonic
from typing import Any, Protocol, TypeVar

from redis import asyncio as redis
from redis.asyncio.client import Pipeline as LibraryPipeline
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ExecAbortError, NoScriptError, RedisError, ResponseError

from rsnotify.errors import PartAway, RedisRefuses, TooFewReplicas, TryAgain, Unanswered
from rsnotify.redis_client.failures import code_of, judge_error, judge_unforeseen
from rsnotify.redis_client.pool import (
    AskCommands,
    Command,
    Confirm,
    ListeningConnection,
    Pool,
    round_trip,
)

PIECE_BYTES = 64 * 1024  # in which a long text is written
CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0
CONNECTIONS = 64  # to one server
WAITED_SECONDS = 3_600  # for which the key stays by whose write replicas are asked
WAIT_MILLISECONDS = 1_500  # less than an answer of Redis may take
WAITS_FOR_FILES = (5, 10, 20, 40, 80, 160, 320, 640, 225)  # milliseconds, so many in all


class Script:
    """A Lua script: called by its hash, sent in full to a Redis that does not know it."""

    _texts: dict[str, str] = {}  # noqa: RUF012 - by hash, of all there are

    def __init__(self, *names: str) -> None:
        """The script is the text of these files, one after the other."""
        text = "".join(files("rsnotify").joinpath(name).read_text() for name in names)
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._texts[self._sha] = text

    def run(self, client: Any, keys: Sequence[object], *arguments: object) -> Any:
        """Run it. With a client, await the answer; with a pipeline, it becomes a part of that."""
        return client.execute_command(*self.command(keys, *arguments))

    def command(self, keys: Sequence[object], *arguments: object) -> Command:
        return ("EVALSHA", self._sha, len(keys), *keys, *arguments)

    @classmethod
    def in_full(cls, command: Command) -> Command:
        """The same command for a Redis that does not know the script."""
        _, sha, *rest = command
        return ("EVAL", cls._texts[sha], *rest)


_IF_EQUALS = Script("redis_client/if_equals.lua")
_PIECE = Script("redis_client/piece.lua")


class MoreCommands:
    """What any client can do besides the commands of Redis."""

    listening_pool: Callable[[], Pool]
    once: Callable[[Sequence[Command]], Awaitable[list[Any]]]
    replicas: "Replicas | None"

    @property
    def confirms(self) -> bool:
        """Whether replicas confirm what is sent `once`, before it is answered."""
        return self.replicas is not None and self.replicas.count > 0

    async def too_few_sentinels(self) -> str:
        """Why no replica could take over now; nothing where there are no Sentinels."""
        return ""

    async def durably(self, commands: Sequence[Command]) -> list[Any]:
        """Execute these like `once`, again if the connection was lost; an error is raised."""
        try:
            return judge_answers(await self.once(commands), raise_on_error=True)
        except Unanswered as error:
            if not is_connection_lost(error):
                raise
        return judge_answers(await self.once(commands), raise_on_error=True)

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


class RedisClient(MoreCommands, redis.Redis):  # type: ignore[misc] # the library's own bases
    """The commands of redis-py, sent over our own connections, with translated failures."""

    replicas: "Replicas | None" = None
    is_cluster = False

    async def servers(self) -> tuple[str, ...]:
        """The server, by a name that it loses when it is started again or another takes over."""
        pool: Any = self.connection_pool
        await pool.look_for_newer()
        pipeline = self.pipeline(transaction=False)
        pipeline.info("server")
        pipeline.info("replication")
        server, replication = await pipeline.execute()
        return (f"{server['run_id']} {replication.get('master_replid', '')}",)

    async def masters(self) -> dict[str, Any]:
        """A client of each server that is written to, by its lane."""
        return {"": self}

    async def certificate_ends(self) -> float | None:
        """When that ends which Redis shows to a new connection, in Unix time; None without TLS, or
        if nobody looks at certificates (`ssl_cert_reqs=none`).

        An open connection knows only the certificate that it began with.
        """
        pool: Any = self.connection_pool
        if not issubclass(pool.connection_class, SSLConnection):
            return None
        connection = pool.connection_class(**pool.connection_kwargs)
        try:
            await connection.connect()
            shown = connection._writer.get_extra_info("peercert")
        except (RedisError, OSError) as error:
            raise judge_error(error) from error
        finally:
            await connection.disconnect(nowait=True)
        return float(ssl.cert_time_to_seconds(shown["notAfter"])) if shown else None

    async def too_few_sentinels(self) -> str:
        sentinels: Any = self.connection_pool.connection_kwargs.get("sentinels")
        return "" if sentinels is None else str(await sentinels.why_too_few())

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        (answer,) = judge_answers(await self.together([command]), raise_on_error=True)
        return parsed_as(self.response_callbacks, command, answer, options)

    def pipeline(self, transaction: bool = True, _: str | None = None) -> "Pipeline":
        return Pipeline(self, transaction)

    async def together(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to many that may be repeated; an error is one of them."""
        answers = await repeatable(self.connection_pool, commands)
        for at, answer in enumerate(answers):
            if isinstance(answer, NoScriptError):
                in_full = [Script.in_full(commands[at])]
                (answers[at],) = await repeatable(self.connection_pool, in_full)
        return answers

    async def atomically(self, commands: Sequence[Command]) -> list[Any]:
        """Execute all of these or none."""
        return executed(await repeatable(self.connection_pool, as_transaction(commands)))

    async def once(self, commands: Sequence[Command], *then: Command) -> list[Any]:
        """Execute these in one round trip that is not repeated; an error is an answer.

        `Unanswered` means that they may have been executed, any other `TryAgain` that none was.
        What is to be read `then` is always read after them.
        """
        pool: Any = self.connection_pool
        confirm = self.replicas.confirmation() if self.replicas else None
        answers = await round_trip(pool, commands, then, confirm=confirm)
        if not any(map(isinstance, answers, repeat(Exception))):
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


def pool_options() -> dict[str, Any]:
    """The options of the connections to one server."""
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


# --- what is sent --------------------------------------------------------------------------------


def words_of(command: Command) -> Command:
    """redis-py names some commands with two words, as CLUSTER SLOTS; Redis wants them apart."""
    name, *rest = command
    return (*name.split(" "), *rest) if " " in name else command


async def repeatable(pool: Any, commands: Sequence[Command]) -> list[Any]:
    """The answers; asked for a second time if the connection died, as it may while idle."""
    if not commands:
        return []
    began = monotonic()
    commands = [words_of(command) for command in commands]
    try:
        return await round_trip(pool, commands)
    except Unanswered as error:
        if not is_connection_lost(error):
            raise
    return await round_trip(pool, commands, began=began, new_connection=True)


def is_connection_lost(error: TryAgain) -> bool:
    """Whether a lost connection is why there is no answer, and not silence or a refusal."""
    return isinstance(error, Unanswered) and isinstance(error.__cause__, ConnectionLost)


def as_transaction(commands: Sequence[Command]) -> list[Command]:
    return [("MULTI",), *commands, ("EXEC",)]


def executed(answers: Sequence[Any]) -> list[Any]:
    """The answers within those to a transaction."""
    if not isinstance(answers[-1], Exception):
        return list(answers[-1])
    refused = [each for each in answers if isinstance(each, Exception)]
    raise judge_error(min(refused, key=lambda each: isinstance(each, ExecAbortError)))


# --- pipelines -----------------------------------------------------------------------------------


class PipelineClient(Protocol):
    """The client of one Redis or of a Cluster."""

    is_cluster: bool
    connection_pool: Any
    response_callbacks: Any

    async def together(self, commands: Sequence[Command]) -> list[Any]: ...

    async def atomically(self, commands: Sequence[Command]) -> list[Any]: ...


class Pipeline(LibraryPipeline):
    """Collects commands, to be sent together; those of a transaction are of one slot."""

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


# --- answers -------------------------------------------------------------------------------------


def judge_answers(answers: Sequence[Any], *, raise_on_error: bool) -> list[Any]:
    """The answers as the hub understands them."""
    found = [judge_error(each) if isinstance(each, Exception) else each for each in answers]
    failed = next((each for each in found if isinstance(each, Exception)), None)
    if raise_on_error and failed is not None:
        raise failed
    return found


Parsed = TypeVar("Parsed")


def each(answers: Iterable[Any], parse: Callable[[Any], Parsed]) -> list[Parsed | Exception]:
    """The answers, parsed; an error of one is returned in its place.

    If Redis itself fails, that is raised; not if it is one node of a Cluster, or if only replicas
    are away.
    """
    return [_parsed(answer, parse) for answer in answers]


def _parsed(answer: Any, parse: Callable[[Any], Parsed]) -> Parsed | Exception:
    if isinstance(answer, TryAgain) and not isinstance(answer, PartAway | TooFewReplicas):
        raise answer
    if isinstance(answer, Exception):
        return answer
    try:
        return parse(answer)
    except Exception as error:  # data that the hub has not written
        return error


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


class Replicas:
    """Lets an answer wait until so many replicas have what was written."""

    def __init__(
        self, count: int, *, on_disk: bool = False, wait_milliseconds: int = WAIT_MILLISECONDS
    ) -> None:
        self.count = count
        self.on_disk = on_disk
        self._wait_milliseconds = wait_milliseconds

    def confirmation(self, key: str = WAITED) -> Confirm | None:
        """How a round trip to a server that has this key is confirmed; None if it need not be."""
        return partial(self._confirm, key) if self.count else None

    async def _confirm(self, key: str, ask: AskCommands, answers: list[Any]) -> list[Any]:
        """The answers to what a connection has written, once enough replicas have it.

        Otherwise errors in their place: none says yes to what a failover could lose.
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
        if have_it >= self.count:
            return None
        detail = f"{have_it} of {self.count} replicas have confirmed it in time"
        return TooFewReplicas(TryAgain(f"{detail}, so that a failover could lose it"))

    def _unknown(self, error: ResponseError) -> Exception:
        """Why nobody knows how many have it."""
        if self.on_disk and "unknown command" in str(error):
            return RedisRefuses(
                "Redis cannot say what its replicas have on disk (Redis 7.2 and Valkey 7.2 can): "
                "update it, or leave out RSNOTIFY_REPLICAS_CONFIRM=disk"
            )
        if code_of(error) != "NOPERM":
            return judge_error(error)
        right = "+waitaof" if self.on_disk else "+wait"
        return RedisRefuses(
            "Redis does not let the hub's user ask how many replicas have what is written "
            f"(NOPERM): allow it with {right}, or set RSNOTIFY_REPLICAS=0"
        )

    async def _wait(self, ask: AskCommands, key: str) -> int:
        if self.on_disk:
            return await self._wait_for_files(ask, key)
        wait = ("WAIT", self.count, self._wait_milliseconds)
        return int(await _waited(ask, _write(key), wait))

    async def _wait_for_files(self, ask: AskCommands, key: str) -> int:
        """How many replicas have it on disk; an answer begins with the primary's own file."""
        first, *others = WAITS_FOR_FILES
        until = monotonic() + self._wait_milliseconds / 1000
        _, have_it = await _waited(ask, _write(key), ("WAITAOF", 0, self.count, first))
        for milliseconds in others:
            if have_it >= self.count or monotonic() >= until:
                break
            _, have_it = await _waited(ask, ("WAITAOF", 0, self.count, milliseconds))
        return int(have_it)


def _write(key: str) -> Command:
    return ("SET", key, "", "EX", WAITED_SECONDS)


async def _waited(ask: AskCommands, *commands: Command) -> Any:
    """The last answer, if none is an error."""
    answers = await ask(commands)
    for answer in reversed(answers):
        if isinstance(answer, Exception):
            raise answer
    return answers[-1]
