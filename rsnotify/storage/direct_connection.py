"""A connection that the library has made, written to and read from without the library.

Its streams, and a timer for each answer, cost more than half of what it takes to ask Redis. Here
answers are parsed as they arrive, and whoever asked is woken once, by the last of them.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as AnswerLate

from rsnotify.storage.script import Command

RECHECK_SECONDS = 0.01
STEADY_BYTES = 16 * 1024  # when so much of a large answer has come, its time begins again…
LONGEST_SECONDS = 20.0  # …but no answer may take longer than this
CLOSED = "Redis closed the connection"

REFUSALS = (ConnectionLost, ReadOnlyError)  # Redis serves nobody now, or not us

_INCOMPLETE = object()


class DirectConnection(asyncio.Protocol):
    """Asks one thing at a time. What comes unasked, and the end, is handed on to the library."""

    def __init__(self, library_connection: Any) -> None:
        self.library_connection = library_connection
        self.answers: list[Any] = []  # to what was asked last, as far as they have come
        self._transport = library_connection._writer.transport
        self._library: asyncio.Protocol = self._transport.get_protocol()
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=library_connection._parser.parse_error,
            notEnoughData=_INCOMPLETE,
        )
        self._is_usable = not self._transport.is_closing()
        self._failure: RedisError | None = None
        self._wanted = 0
        self._answered: asyncio.Future[None] | None = None
        self._limit_seconds = 0.0
        self._answer_began = 0.0  # when the answer began that is waited for
        self._last_progress = 0.0
        self._bytes_since_progress = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._transport.set_protocol(self)

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and nothing came that was not asked for."""
        return self._is_usable and self.library_connection.is_connected

    @property
    def answer_seconds(self) -> float:
        """What an answer may take, by the connection's options."""
        seconds: float = self.library_connection.socket_timeout
        return seconds

    async def ask(self, commands: Sequence[Command], seconds: float | None = None) -> list[Any]:
        """The answers; what Redis refuses is one of them, as an error.

        Each may take so many seconds; if none are given, as many as `answer_seconds`.
        """
        self.answers, self._wanted, self._bytes_since_progress = [], len(commands), 0
        self._limit_seconds = self.answer_seconds if seconds is None else seconds
        if not self._is_usable:
            raise ConnectionLost("the connection cannot be used any more") from self._failure
        if not commands:
            return []
        self._answered = self._loop.create_future()
        self._answer_began = self._last_progress = monotonic()
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
        if any(isinstance(answer, REFUSALS) for answer in self.answers):
            self._is_usable = False
        return self.answers

    def _write(self, commands: Sequence[Command]) -> None:
        try:
            self._transport.write(b"".join(map(_packed, commands)))
        except RuntimeError as error:  # so the event loop says that it was closed just now
            self._is_usable = False
            raise ConnectionLost(str(error)) from error

    def _check_in(self, seconds: float, *, is_second: bool) -> None:
        self._timer = self._loop.call_later(seconds, self._check_deadline, is_second)

    def _check_deadline(self, second_check: bool) -> None:
        """Give up if an answer, or the next part of a large one, takes too long.

        If this process was busy, the answer may already be in the socket, so the event loop reads
        once more before; and its timers may be early after a busy time, so the clock is asked.
        """
        until = min(self._last_progress + self._limit_seconds, self._answer_began + LONGEST_SECONDS)
        remaining = until - monotonic()
        if remaining > 0:
            self._check_in(remaining, is_second=False)
        elif not second_check:
            self._check_in(RECHECK_SECONDS, is_second=True)
        else:
            self._end(AnswerLate("no answer in time"))

    def abort(self) -> None:
        """Close it at once; whoever waits for answers is told."""
        self._end(ConnectionLost("the connection to Redis was closed"))

    def _end(self, error: RedisError) -> None:
        self._is_usable = False
        self._failure = self._failure or error
        self._wake()
        self._transport.abort()

    def _wake(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    # --- called by the event loop ----------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._answered is None:
            self._is_usable = False
            self._library.data_received(data)
            return
        known = len(self.answers)
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not _INCOMPLETE:
                self.answers.append(answer)
        except RedisError as error:
            self._end(error)
            return
        self._bytes_since_progress += len(data)
        if len(self.answers) > known:
            self._answer_began = self._last_progress = monotonic()
            self._bytes_since_progress = 0
        elif self._bytes_since_progress >= STEADY_BYTES:
            self._last_progress, self._bytes_since_progress = monotonic(), 0
        if len(self.answers) >= self._wanted:
            if len(self.answers) > self._wanted or self._reader.has_data():
                self._end(InvalidResponse("Redis answered more than it was asked"))
            self._wake()

    def eof_received(self) -> None:
        self._library.eof_received()
        self._end(ConnectionLost(CLOSED))

    def connection_lost(self, error: Exception | None) -> None:
        self._library.connection_lost(error)
        lost = ConnectionLost(f"{CLOSED}: {error}" if error else CLOSED)
        lost.__cause__ = error
        self._end(lost)

    def pause_writing(self) -> None:
        self._library.pause_writing()

    def resume_writing(self) -> None:
        self._library.resume_writing()


def _packed(command: Command) -> bytes:
    """redis-py names some commands with two words, as CLUSTER SLOTS; Redis wants them apart."""
    name, *rest = command
    packed: bytes = hiredis.pack_command((*name.split(" "), *rest) if " " in name else command)
    return packed
