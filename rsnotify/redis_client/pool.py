"""The connections to one server: made by redis-py, written to and read from without it, lent out
for one round trip of commands and answers.

redis-py's streams, and its timer for each answer, cost more than half of what it takes to ask.
Here what Redis says is parsed as it arrives. The library is still notified of a connection's end.

Its own pool takes longer than to write a command. Here, if no connection is free, callers wait in
the order in which they came.
"""

import asyncio
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any

import hiredis
from redis import asyncio as redis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as AnswerLate

from rsnotify.errors import RedisRefuses, TryAgain, Unanswered
from rsnotify.redis_client.failures import judge_error, judge_unforeseen

Command = tuple[Any, ...]

RECHECK_SECONDS = 0.01  # for what came while this process was busy, and was not read yet
CLOSED = "Redis closed the connection"

REFUSALS = (ConnectionLost, ReadOnlyError)  # Redis serves nobody now, or not us

_INCOMPLETE = object()
_ABSURD = re.compile(rb"[*>~][0-9]{8}")  # a list of so many: hiredis makes room for it at once
_ABSURD_LINE = re.compile(rb"\n[*>~][0-9]{8}")

STEADY_BYTES = 16 * 1024  # when so much of a large answer has come, its time begins again…
LONGEST_SECONDS = 20.0  # …but no answer may take longer than this
WHOLE_SECONDS = 2.9  # with the wait for a connection, and with a repetition…
LEAST_SECONDS = 0.9  # …but an answer may take so long in any case


class TakenConnection(asyncio.Protocol):
    """A connection of redis-py, whose transport we read and write with our own parser. What arrives
    goes to `data_received` of a subclass, which also knows whom to wake at the end."""

    def __init__(self, library_connection: Any) -> None:
        self.library_connection = library_connection
        self._transport = library_connection._writer.transport
        self._library: asyncio.Protocol = self._transport.get_protocol()
        self._error_of = library_connection._parser.parse_error
        self._reader: Any = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=self._refused,
            notEnoughData=_INCOMPLETE,
        )
        self.is_usable = not self._transport.is_closing()
        self._failure: Exception | None = None
        self._unreadable: Exception | None = None
        self._transport.set_protocol(self)

    def _refused(self, text: str) -> Exception:
        """What Redis refuses, as an error; after some refusals the connection is of no more use.

        Nothing may be raised here: where hiredis makes a map, it would take the process along.
        """
        try:
            error: Exception = self._error_of(text)
        except Exception as failure:  # the parser of a refusal fails as it likes
            self._unreadable = InvalidResponse(f"an answer of Redis cannot be read: {failure!r}")
            return self._unreadable
        if isinstance(error, REFUSALS):
            self.is_usable = False
        return error

    def _write(self, commands: Sequence[Command]) -> None:
        try:
            self._transport.write(b"".join(map(hiredis.pack_command, commands)))
        except RuntimeError as error:  # so the event loop says that it was closed just now
            self.is_usable = False
            raise ConnectionLost(str(error)) from error

    def _parse(self, data: bytes, found: list[Any]) -> None:
        """Add what these bytes complete."""
        try:
            if _ABSURD.match(data) or _ABSURD_LINE.search(data):
                data = self._parse_watchfully(data, found)
            self._feed(data, found)
        except InvalidResponse as error:
            self._end(error)
        except Exception as error:  # as of a map whose key is a list
            self._end(InvalidResponse(f"an answer of Redis cannot be read: {error!r}"))

    def _feed(self, data: bytes, found: list[Any]) -> None:
        self._reader.feed(data)
        for answer in iter(self._reader.gets, _INCOMPLETE):
            if self._unreadable is not None:
                raise self._unreadable
            found.append(answer)
        if self._unreadable is not None:  # within an answer whose rest has not come yet
            raise self._unreadable

    def _parse_watchfully(self, data: bytes, found: list[Any]) -> bytes:
        """Up to the last of what looks like an absurd length; it is one, unless it is in a text."""
        begin = 0
        for line in _ABSURD.finditer(data):
            self._feed(data[begin : line.start()], found)
            begin = line.start()
            if not self._reader.has_data():
                raise InvalidResponse(f"an answer of Redis has an absurd length: {line[0]!r}…")
        return data[begin:]

    def abort(self) -> None:
        """Close it at once; those who wait get an error."""
        self._end(ConnectionLost("the connection to Redis was closed"))

    def _end(self, error: Exception) -> None:
        self.is_usable = False
        self._failure = self._failure or error
        self._wake()
        self._transport.abort()

    @abstractmethod
    def _wake(self) -> None:
        """Wake those who wait for something on this connection."""

    # --- called by the event loop ----------------------------------------------------------------

    def eof_received(self) -> None:
        self._library.eof_received()
        self._end(ConnectionLost(CLOSED))

    def connection_lost(self, error: Exception | None) -> None:
        self._reader = None  # it knows this connection, which is freed at once without it
        self._library.connection_lost(error)
        lost = ConnectionLost(f"{CLOSED}: {error}" if error else CLOSED)
        lost.__cause__ = error
        self._end(lost)

    def pause_writing(self) -> None:
        self._library.pause_writing()

    def resume_writing(self) -> None:
        self._library.resume_writing()


class DirectConnection(TakenConnection):
    """Asks one thing at a time. What comes unasked is handed on to the library.

    It `is_usable` as long as it is open, and nothing came that was not asked for.
    """

    def __init__(
        self,
        library_connection: Any,
        *,
        longest_seconds: float = LONGEST_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(library_connection)
        self._longest_seconds, self._clock = longest_seconds, clock
        self.answers: list[Any] = []  # as far as they have come; after a failure, what did come
        # What an answer may take, by the connection's options.
        self.answer_seconds: float = library_connection.socket_timeout
        self._wanted = 0
        self._answered: asyncio.Future[None] | None = None
        self._limit_seconds = 0.0
        self._answer_began = 0.0  # when the answer began that is waited for
        self._last_progress = 0.0
        self._bytes_since_progress = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    async def ask(self, commands: Sequence[Command], seconds: float | None = None) -> list[Any]:
        """The answers; what Redis refuses is one of them, as an error.

        Each may take so many seconds; if none are given, as many as `answer_seconds`.
        """
        self.answers, self._wanted, self._bytes_since_progress = [], len(commands), 0
        self._limit_seconds = self.answer_seconds if seconds is None else seconds
        if not self.is_usable:
            raise ConnectionLost("the connection cannot be used any more") from self._failure
        if not commands:
            return []
        self._answered = self._loop.create_future()
        self._answer_began = self._last_progress = self._clock()
        try:
            self._write(commands)
            self._check_in(self._limit_seconds, is_second=False)
            await self._answered
        except asyncio.CancelledError:
            self._end(ConnectionLost("nobody waits for the answers any more"))
            raise
        finally:
            self._answered = None
            if self._timer is not None:
                self._timer.cancel()
        if self._failure is not None and len(self.answers) != self._wanted:
            raise self._failure
        answers, self.answers = self.answers, []  # they may be large, and the next question far off
        return answers

    def _check_in(self, seconds: float, *, is_second: bool) -> None:
        self._timer = self._loop.call_later(seconds, self._check_deadline, is_second)

    def _check_deadline(self, is_second: bool) -> None:
        """Give up if an answer, or the next part of a large one, takes too long.

        If this process was busy, the answer may already be in the socket, so the event loop reads
        once more before; and its timers may be early after a busy time, so the clock is asked.
        """
        longest = self._answer_began + self._longest_seconds
        remaining = min(self._last_progress + self._limit_seconds, longest) - self._clock()
        if remaining > 0:
            self._check_in(remaining, is_second=False)
        elif not is_second:
            self._check_in(RECHECK_SECONDS, is_second=True)
        else:
            self._end(AnswerLate("no answer in time"))

    def _wake(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._answered is None:
            self.is_usable = False
            self._library.data_received(data)
            return
        known = len(self.answers)
        self._parse(data, self.answers)
        missing = self._wanted - len(self.answers)
        if missing > 0:
            self._note_progress(len(data), is_answered=len(self.answers) > known)
        elif missing < 0 or self._reader.has_data():
            self._end(InvalidResponse("Redis answered more than it was asked"))
        else:
            self._wake()

    def _note_progress(self, size: int, *, is_answered: bool) -> None:
        self._bytes_since_progress += size
        if is_answered:
            self._answer_began = self._last_progress = self._clock()
            self._bytes_since_progress = 0
        elif self._bytes_since_progress >= STEADY_BYTES:
            self._last_progress, self._bytes_since_progress = self._clock(), 0


class ListeningConnection(TakenConnection):
    """Hands each thing that is said to `hear`, whose errors end it."""

    def __init__(self, library_connection: Any, hear: Callable[[Any], None]) -> None:
        super().__init__(library_connection)
        self._hear = hear
        self._ended = asyncio.get_running_loop().create_future()

    def send(self, command: Command) -> None:
        self._write([command])

    async def wait(self, seconds: float) -> None:
        """Wait for so long; if the connection ends before, its error is raised."""
        await asyncio.wait([self._ended], timeout=seconds)
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        said: list[Any] = []
        self._parse(data, said)
        try:
            for each in said:
                self._hear(each)
        except Exception as error:
            self._end(error)


# --- the pool ------------------------------------------------------------------------------------


class Pool(redis.ConnectionPool):
    """At most `max_connections`; a turn is waited for no longer than `timeout` seconds."""

    def __init__(self, *, timeout: float, **options: Any) -> None:
        super().__init__(**options)
        self._turn_seconds = timeout
        self._turns = asyncio.Semaphore(self.max_connections)
        self._idle: list[DirectConnection] = []
        self._open: set[DirectConnection] = set()

    async def look_for_newer(self) -> None:
        """Learn whether another server has taken over."""

    async def borrow(self, *, new: bool = False, until: float = float("inf")) -> DirectConnection:
        """A connection that is ready to be written to; a new one, or one that was used before.

        A turn is waited for until then, by the monotonic clock.
        """
        if self._turns.locked():
            await self._wait_for_turn(until)
        else:
            await self._turns.acquire()
        try:
            while self._idle and not new:
                connection = self._idle.pop()
                if self.is_ready(connection):
                    return connection
                await self._close(connection)
            return await self._connect()
        except BaseException:
            self._turns.release()
            raise

    async def _wait_for_turn(self, until: float) -> None:
        try:
            async with asyncio.timeout(min(until - monotonic(), self._turn_seconds)):
                await self._turns.acquire()
        except TimeoutError:
            raise ConnectionLost("all connections to Redis are in use") from None

    async def _connect(self) -> DirectConnection:
        while self._idle and not self.can_get_connection():
            await self._close(self._idle.pop(0))
        connection = DirectConnection(await self.get_connection())  # type: ignore[no-untyped-call]
        self._open.add(connection)
        return connection

    def is_ready(self, connection: DirectConnection) -> bool:
        """Whether it is open, and nothing came on it unasked."""
        return connection.is_usable

    async def give_back(self, connection: DirectConnection) -> None:
        try:
            if self.is_ready(connection):
                self._idle.append(connection)
            else:
                await self._close(connection)
        finally:
            self._turns.release()

    async def _close(self, connection: DirectConnection) -> None:
        self._open.discard(connection)
        try:
            await connection.library_connection.disconnect(nowait=True)
        finally:
            await self.release(connection.library_connection)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Close all at the end, without waiting for what is not sent yet."""
        for connection in self._open:
            connection.abort()
        await super().disconnect(inuse_connections)


# --- round trips ---------------------------------------------------------------------------------


AskCommands = Callable[[Sequence[Command]], Awaitable[list[Any]]]
Confirm = Callable[[AskCommands, list[Any]], Awaitable[list[Any]]]


async def round_trip(
    pool: Pool,
    commands: Sequence[Command],
    reads_after: Sequence[Command] = (),
    *,
    confirm: Confirm | None = None,
    began: float | None = None,
    new_connection: bool = False,
) -> list[Any]:
    """Send these once, on one connection; a refusal of the server is an answer, as it said it.

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
    """Ask; if the connection ends while `reads_after` are answered, the others have answers."""
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
        return [*answers, *[judge_error(error)] * missing]
    if not connection.is_usable:  # as it is after a refusal
        _raise_refusal(answers)
    return answers


def _raise_refusal(answers: Sequence[Any]) -> None:
    """Raise what says that Redis serves nobody now, or not us. If it refused the first command,
    it has executed none."""
    refusal = next((each for each in answers if isinstance(each, ConnectionLost)), None)
    if refusal is not None:
        raise judge_error(refusal) if refusal is answers[0] else refusal
