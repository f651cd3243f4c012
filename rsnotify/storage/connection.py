"""The connections to Redis: their time limits, scripts, and the translation of failures.

If Redis fails, whoever asked gets `TryAgain` in less than three seconds. Everything that is sent
through `connect()` fails with errors of this project, also in a pipeline or a script. The client
library may repeat a command whose answer was lost, so each command must be repeatable.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, TypeVar

from hiredis import pack_command
from redis import asyncio as redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import BusyLoadingError, NoScriptError, RedisError, ResponseError
from redis.exceptions import ConnectionError as ConnectionLost

from rsnotify.errors import TryAgain, Unanswered
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.storage.address import parse_address
from rsnotify.storage.failures import judge
from rsnotify.storage.replicas import Replicas
from rsnotify.storage.sentinel import PrimaryPool, ToPrimary, ToPrimaryWithTLS, sentinels_at

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0
CONNECTIONS = 64
PIECE_BYTES = 64 * 1024

Client = Any  # redis-py's stubs give every command a type that is both sync and async
Command = tuple[Any, ...]
Parsed = TypeVar("Parsed")


def connect(url: str, *, replicas: int = 0) -> Client:
    """A pool of connections to the Redis at `url`; nothing is dialled before the first command.

    If all are in use, the caller waits for one, no longer than for an answer. What is sent by
    `once` or `durably` is answered when so many replicas have it.
    """
    options: dict[str, Any] = {
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
    options |= _dialled(url)
    kind = PrimaryPool if "sentinels" in options else redis.BlockingConnectionPool
    pool = kind(**options)
    client: Client = _Client.from_pool(pool)
    client.replicas = Replicas(replicas)
    for name in ("XRANGE", "XREVRANGE"):
        client.response_callbacks.pop(name, None)  # raw pairs: the journal parses them itself
    return client


def connect_listener(url: str) -> Client:
    """One connection for a listener, who may hear nothing for long."""
    options: dict[str, Any] = {
        "max_connections": 1,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": None,
        "protocol": 2,
    }
    return redis.Redis.from_pool(redis.ConnectionPool(**options | _dialled(url)))


def _dialled(url: str) -> dict[str, Any]:
    """What the client library is told of an address."""
    address = parse_address(url)
    if not address.sentinels:
        return address.options
    kind = ToPrimaryWithTLS if address.has_tls else ToPrimary
    return address.options | {"connection_class": kind, "sentinels": sentinels_at(url)}


class Script:
    """A Lua script: called by its hash, sent in full to a Redis that does not know it."""

    _texts: dict[str, str] = {}  # noqa: RUF012 - by hash, of all there are

    def __init__(self, *names: str) -> None:
        """The text of these files, one behind the other."""
        text = "".join(files("rsnotify.storage").joinpath(name).read_text() for name in names)
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._texts[self._sha] = text

    def run(self, client: Client, keys: Sequence[object], *arguments: object) -> Any:
        """Run it: to be awaited with a client; with a pipeline, a part of that."""
        return client.execute_command(*self.command(keys, *arguments))

    def command(self, keys: Sequence[object], *arguments: object) -> Command:
        return ("EVALSHA", self._sha, len(keys), *keys, *arguments)

    @classmethod
    def in_full(cls, command: Command) -> Command:
        """The same command for a Redis that does not know the script."""
        _, sha, *rest = command
        return ("EVAL", cls._texts[sha], *rest)


_PIECE = Script("piece.lua")


class _Client(redis.Redis):
    """The client of the library, with translated failures."""

    replicas = Replicas(0)

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        with _judged():
            try:
                return await self._execute(*command, **options)
            except NoScriptError:
                return await self._execute(*Script.in_full(command), **options)

    async def _execute(self, *command: Any, **options: Any) -> Any:
        return await super().execute_command(*command, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> "_Pipeline":
        return _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)

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
        try:
            answers = await self.once(commands)
        except Unanswered as error:
            if not isinstance(error.__cause__, ConnectionLost):
                raise
            answers = await self.once(commands)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    async def _once(self, commands: Sequence[Command], then: Sequence[Command]) -> list[Any]:
        with _judged():
            pool: Any = self.connection_pool
            connection = await pool.get_connection()
        try:
            _write(connection, [*commands, *then])
            answers = [await _answer(connection) for _ in commands]
            answers += [await _answer_or_loss(connection) for _ in then]
            if any(isinstance(answer, NoScriptError) for answer in answers):
                return answers  # more is to be written
            return await self.replicas.confirm(connection, answers)
        except BusyLoadingError as error:
            await connection.disconnect()
            raise judge(error) from error
        except (RedisError, OSError) as error:
            raise Unanswered(str(judge(error))) from error
        finally:
            await pool.release(connection)


class _Pipeline(Pipeline):
    """The pipeline of the library, with translated failures."""

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands = [command for command, _ in self.command_stack]
        with _judged():
            answers = await super().execute(raise_on_error=False)
            for at, answer in enumerate(answers):
                if isinstance(answer, NoScriptError):
                    answers[at] = await self._in_full(commands[at])
        judged = [judge(each) if isinstance(each, Exception) else each for each in answers]
        failed = (each for each in judged if isinstance(each, Exception))
        if raise_on_error and (first := next(failed, None)):
            raise first
        return judged

    async def _in_full(self, command: Command) -> Any:
        self.execute_command(*Script.in_full(command))
        (answer,) = await super().execute(raise_on_error=False)
        return answer


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
    except NoScriptError as error:
        return error
    except ResponseError as error:
        return judge(error)


async def _answer_or_loss(connection: Any) -> Any:
    """The commands before it are answered, even if the connection ends here."""
    try:
        return await _answer(connection)
    except (RedisError, OSError) as error:
        return judge(error)


@contextmanager
def _judged() -> Iterator[None]:
    """Translate failures of the client library that mean something to the caller."""
    try:
        yield
    except (RedisError, OSError, RuntimeError) as error:
        judged = judge(error)
        if judged is error:
            raise
        raise judged from error


async def redis_now(client: Client) -> Position:
    """The time by the clock of Redis, which all hub processes share."""
    seconds, microseconds = await client.time()
    return Position(int(seconds) * MICROSECONDS + int(microseconds))


async def write_in_pieces(client: Client, key: str, data: bytes, *, seconds: int) -> None:
    """Write large data in pieces, so that others need not wait for all of it; it expires.

    It does no harm if the client library writes a piece twice.
    """
    for start in range(0, len(data), PIECE_BYTES):
        piece = data[start : start + PIECE_BYTES]
        if not await _PIECE.run(client, [key], start, piece, seconds):
            raise TryAgain("the data expired while they were written: it took too long")


def each(answers: Iterable[Any], parse: Callable[[Any], Parsed]) -> list[Parsed | Exception]:
    """The answers, parsed; an error of one is returned in its place.

    If Redis itself fails, that is raised.
    """
    return [_parsed(answer, parse) for answer in answers]


def _parsed(answer: Any, parse: Callable[[Any], Parsed]) -> Parsed | Exception:
    if isinstance(answer, TryAgain):
        raise answer
    if isinstance(answer, Exception):
        return answer
    try:
        return parse(answer)
    except Exception as error:  # data that the hub has not written
        return error
